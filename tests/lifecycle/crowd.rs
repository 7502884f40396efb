//! Many cells at once, of one user.

use record::stream::Text;
use std::fs::{self, File};
use std::time::{Duration, Instant};

use crate::cells::cell;
use crate::cells::left::Marker;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "crowd",
    covers: &[22],
    attacks: &[],
    scenes: &[scene("hundreds-at-once", hundreds_at_once).needs(&[Need::Alone])],
    actors: &[],
};

fn code_of(number: u32) -> i32 {
    (number % 120) as i32
}

/// Each cell ends in its own way and has its own, correct record. Every day they are fifty.
fn hundreds_at_once(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let scratch = stage.scratch()?;
    let mut children = Vec::new();
    for number in 0..stage.times(200) {
        let word = format!("{}{number}", marker.word());
        let child = stage
            .probe("record/say", [&word, &code_of(number).to_string()])
            .limit("processes", "8")
            .command()
            .stdout(File::create(scratch.join(number.to_string()))?)
            .stderr(File::create(scratch.join(format!("{number}.err")))?)
            .spawn()?;
        children.push((number, word, child));
    }
    let end = Instant::now() + stage.within(240_000);
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
        let code = code_of(number);
        let wanted = if code == 0 {
            Outcome::Ok
        } else {
            Outcome::Exit
        };
        assert_eq!(record.outcome, wanted, "{record:?}");
        let stdout = record.stdout.as_ref().and_then(Text::as_str);
        assert_eq!(
            (record.exit_code, status.code(), stdout),
            (code, Some(code), Some(word.as_str()))
        );
    }
    marker.nothing_left()
}
