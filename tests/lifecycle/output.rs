//! Floods of output, and readers that do not read.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cells::left::Marker;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "output",
    covers: &[25],
    attacks: &[],
    scenes: &[
        scene("a-gigabyte", a_gigabyte),
        scene("byte-by-byte", byte_by_byte),
        scene("both-streams-for-ever", both_streams_for_ever),
        scene("killed-for-output", killed_for_output),
        scene(
            "killed-for-output-and-already-gone",
            killed_for_output_and_already_gone,
        ),
        scene("reader-that-stops", reader_that_stops),
        scene("reader-that-goes", reader_that_goes),
    ],
    actors: &[
        Actor {
            name: "flood",
            run: |args| {
                let total: usize = args[0].parse().unwrap_or(0);
                let piece: usize = args[1].parse().unwrap_or(1);
                let buffer = vec![b'x'; piece];
                let mut out = std::fs::File::from(
                    std::os::fd::AsFd::as_fd(&std::io::stdout())
                        .try_clone_to_owned()
                        .unwrap_or_else(|_| std::process::exit(3)),
                );
                let mut left = total;
                while left > 0 {
                    let Ok(()) = out.write_all(&buffer[..piece.min(left)]) else {
                        return 4;
                    };
                    left -= piece.min(left);
                }
                0
            },
        },
        Actor {
            name: "flood-and-go",
            run: |_| {
                let _ = call!(SYS_write, 1, &[b'x'; 4096], 4096);
                crate::cells::raw::exit(0)
            },
        },
        Actor {
            name: "flood-both",
            run: |_| {
                let buffer = [b'x'; 4096];
                loop {
                    for number in [1, 2] {
                        let _ = call!(SYS_write, number, &buffer, buffer.len());
                    }
                }
            },
        },
    ],
};

/// How much more memory the supervisor may use for a gigabyte of output than for a
/// byte: the kept part as bytes, as text and as JSON.
const FLAT: u64 = 2 << 20;
const CAP: u64 = 256 << 10;

fn a_gigabyte(stage: &Stage) -> Check {
    // Its memory with next to no output.
    let quiet = stage
        .probe("output/flood", ["1", "1"])
        .limit("output", "256K")
        .measured()
        .run()?
        .ended(Outcome::Ok)?;
    let run = stage
        .probe("output/flood", ["1073741824", "65536"])
        .limit("output", "256K")
        .measured()
        .limit("wall", &stage.duration(60_000))
        .limit("cpu-time", &stage.duration(60_000))
        .deadline(120_000)
        .run()?
        .ended(Outcome::Ok)?;

    let cut = &run.record.truncated["stdout"];
    assert_eq!(cut.total, 1 << 30);
    assert!(cut.kept <= CAP && cut.kept > CAP / 2, "{cut:?}");
    // Between head and tail stands the number of missing bytes.
    let kept = run.stdout().bytes().filter(|byte| *byte == b'x').count();
    assert!(
        (kept as u64).abs_diff(cut.kept) < 100,
        "{kept} bytes, {cut:?}"
    );
    let (before, after) = (
        quiet.process.taken()?.peak_rss,
        run.process.taken()?.peak_rss,
    );
    stage.note(format!(
        "peak {} KiB, quiet {} KiB",
        after >> 10,
        before >> 10
    ));
    assert!(after < before + FLAT, "{after} bytes instead of {before}");
    Ok(())
}

fn byte_by_byte(stage: &Stage) -> Check {
    let run = stage
        .probe("output/flood", ["100000", "1"])
        .limit("output", "64K")
        .run()?
        .ended(Outcome::Ok)?;
    let cut = &run.record.truncated["stdout"];
    assert_eq!(cut.total, 100_000);
    assert!(cut.kept <= 64 << 10, "{cut:?}");
    Ok(())
}

fn both_streams_for_ever(stage: &Stage) -> Check {
    let cell = stage.probe("output/flood-both", []).limit("output", "64K");
    let streams = ["stdout", "stderr"];
    let run = cell.run_to_limit(500, |run| {
        let mut cut = streams
            .iter()
            .map(|stream| run.record.truncated.get(*stream));
        cut.all(|cut| cut.is_some())
    })?;
    for stream in streams {
        let cut = &run.record.truncated[stream];
        assert!(
            cut.kept <= 64 << 10 && cut.total > cut.kept,
            "{stream} {cut:?}"
        );
    }
    Ok(())
}

fn killed_for_output(stage: &Stage) -> Check {
    let run = stage
        .probe("output/flood-both", [])
        .limit("output", "64K")
        .limit("on-output", "kill")
        .run()?
        .ended(Outcome::Output)?;
    assert_eq!(run.record.limits["output"].hit, Some(true), "{}", run.json);
    assert_ne!(run.record.exit_code, 0);
    Ok(())
}

/// A program that ends at once, with all it wrote still in its pipe, ends as
/// `output` each time.
fn killed_for_output_and_already_gone(stage: &Stage) -> Check {
    for _ in 0..stage.times(40) {
        let run = stage
            .probe("output/flood-and-go", [])
            .limit("output", "1K")
            .limit("on-output", "kill")
            .run()?
            .ended(Outcome::Output)?;
        assert_eq!(run.record.limits["output"].hit, Some(true), "{}", run.json);
        assert_ne!(run.record.exit_code, 0);
    }
    Ok(())
}

/// Passed through, the program blocks on its reader; its time limit still applies.
fn reader_that_stops(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let start = Instant::now();
    let mut child = stage
        .probe("output/flood", ["1073741824", "65536", marker.word()])
        .passed_through()
        .limit("wall", "300ms")
        .command()
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > stage.patience() => {
                child.kill()?;
                return Err(fail("no end while nobody reads"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert_eq!(status.code(), Some(124));
    marker.nothing_left()
}

/// The record's reader is gone before there is a record: no hang, no leftovers.
fn reader_that_goes(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let mut watch = stage
        .probe("output/flood", ["1000000", "1000", marker.word()])
        .spawn()?;
    watch.stop_reading();
    let ended = watch.until_end(stage.patience())?;
    assert_ne!(ended.code(), 0);
    marker.nothing_left()
}
