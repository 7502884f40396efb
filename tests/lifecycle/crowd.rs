//! Many cells at once, of one user.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use crate::cells::cell;
use crate::cells::left::Marker;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "crowd",
    covers: &[22],
    attacks: &[],
    scenes: &[Scene {
        name: "two-hundred-at-once",
        needs: &[],
        run: two_hundred_at_once,
    }],
    actors: &[],
};

const CELLS: i32 = 200;

/// Each ends in its own way, and has a record of its own, right in all it says.
fn two_hundred_at_once(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let scratch = stage.scratch()?;
    let mut children = Vec::new();
    for number in 0..CELLS {
        let word = format!("{}{number}", marker.word());
        let child = stage
            .probe("record/say", [&word, &(number % 120).to_string()])
            .limit("processes", "8")
            .command()
            .stdout(File::create(scratch.join(number.to_string()))?)
            .stderr(File::create(scratch.join(format!("{number}.err")))?)
            .spawn()?;
        children.push((number, word, child));
    }
    let end = Instant::now() + stage.within(30_000);
    for (number, word, mut child) in children {
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > end => {
                    child.kill()?;
                    return Err(fail(format!("cell {number} did not end")));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let told = fs::read_to_string(scratch.join(format!("{number}.err")))?;
        assert_eq!(told, "", "cell {number}");
        let record = cell::read(&scratch.join(number.to_string()))?;
        let wanted = if number % 120 == 0 {
            Outcome::Ok
        } else {
            Outcome::Exit
        };
        assert_eq!(record.outcome, wanted, "{record:?}");
        assert_eq!(
            (record.exit_code, status.code(), record.stdout.as_deref()),
            (number % 120, Some(number % 120), Some(word.as_str()))
        );
    }
    marker.nothing_left()
}
