//! Events for different readers, and for calls that end early.

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::events::{kinds, of_process, record, text};
use crate::cells::cell;
use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::events::assert_valid_events;

pub(crate) const SUITE: Suite = Suite {
    name: "event-readers",
    covers: &[25, 30],
    attacks: &[],
    scenes: &[
        scene("reader-that-pauses", reader_that_pauses),
        scene("reader-that-never-reads", reader_that_never_reads),
        scene("reader-that-goes", reader_that_goes),
        scene("files-one-by-one", files_one_by_one),
        scene("cancelled", cancelled),
        scene("not-set-up", not_set_up),
        scene("to-a-full-device", to_a_full_device),
        scene("beside-a-format", beside_a_format),
        scene("to-where-they-cannot-go", to_where_they_cannot_go),
    ],
    actors: &[
        Actor {
            name: "greet-and-wait",
            run: |_| {
                println!("ready");
                std::thread::sleep(Duration::from_secs(60));
                0
            },
        },
        Actor {
            name: "leave-files",
            run: |_| {
                for index in 0..FILES {
                    if fs::write(format!("file-{index:02}"), vec![b'x'; FILE_SIZE]).is_err() {
                        return 1;
                    }
                }
                0
            },
        },
    ],
};

const FILES: usize = 40;
const FILE_SIZE: usize = 256 << 10;

const FLOOD: [&str; 2] = ["1073741824", "65536"];

/// The additional memory for a reader that does not read: the queue, one addition to
/// it, and the same amount of the record's output.
const BOUND: u64 = 8 << 20;

/// The program waits for the reader, and its wall-clock limit still applies.
fn reader_that_pauses(stage: &Stage) -> Check {
    let quiet = stage
        .probe("output/flood", ["1", "1"])
        .measured()
        .run()?
        .ended(Outcome::Ok)?;
    let mut watch = stage
        .probe("output/flood", FLOOD)
        .passed_through()
        .option(["--events", "-"])
        .limit("output", "512M")
        .limit("wall", "500ms")
        .measured()
        .spawn()?;
    watch.rest(Duration::from_millis(1_500))?;
    let process = watch.until_end(stage.patience())?;
    assert_eq!(process.code(), 124, "{}", process.complaint());
    let events = of_process(&process);
    let record = record(&events);
    assert_eq!(record["outcome"], "timeout");
    // All output of the program was delivered.
    assert_eq!(record["stdout"].as_str(), Some(&*text(&events, "stdout")));
    let (before, after) = (quiet.process.taken()?.peak_rss, process.taken()?.peak_rss);
    stage.note(format!(
        "peak {} KiB, quiet {} KiB",
        after >> 10,
        before >> 10
    ));
    assert!(after < before + BOUND, "{after} bytes instead of {before}");
    Ok(())
}

fn reader_that_never_reads(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let scratch = stage.scratch()?;
    let path = scratch.join("record.json");
    let mut watch = stage
        .probe("output/flood", [FLOOD[0], FLOOD[1], marker.word()])
        .passed_through()
        .option(["--events", "-", "--record", &path.to_string_lossy()])
        .limit("wall", "300ms")
        .spawn()?;
    if watch.rest(stage.patience())?.is_none() {
        return Err(fail("no end while nobody reads"));
    }
    let process = watch.until_end(Duration::from_secs(1))?;
    assert_eq!(process.code(), 125, "{}", process.complaint());
    let told = String::from_utf8_lossy(&process.stderr);
    assert!(
        told.contains("nobody read the rest of the events"),
        "{told}"
    );
    // Delivered all the same.
    assert_eq!(cell::read(&path)?.outcome, Outcome::Timeout);
    marker.nothing_left()
}

fn reader_that_goes(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("record.json");
    let mut watch = stage
        .probe("output/flood", ["1000000", "1000"])
        .passed_through()
        .option(["--events", "-", "--record", &path.to_string_lossy()])
        .spawn()?;
    watch.stop_reading();
    let process = watch.until_end(stage.patience())?;
    assert_eq!(process.code(), 125, "{}", process.complaint());
    // The program goes on without a reader.
    let record = cell::read(&path)?;
    assert_eq!(record.outcome, Outcome::Ok);
    let warnings = record.warnings.join("\n");
    assert!(
        warnings.contains("events are missing") && warnings.contains("EPIPE"),
        "{warnings}"
    );
    Ok(())
}

/// Files are not all collected before the reader has taken the first ones.
fn files_one_by_one(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let out = scratch.dir("out", 0o777)?;
    let copied = || -> Check<usize> { Ok(fs::read_dir(&out)?.count()) };
    let mut child = stage
        .probe("event-readers/leave-files", [])
        .passed_through()
        .option(["--events", "-", "--inline-files=16M"])
        .option(["--out", &out.to_string_lossy()])
        .command()
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| fail("no pipe"))?;
    let mut lines = BufReader::new(stdout);
    let mut heard = String::new();
    read_until(&mut lines, &mut heard, "\"event\":\"file\"")?;
    let early = copied()?;
    lines.read_to_string(&mut heard)?;
    assert_eq!(child.wait()?.code(), Some(0));
    assert!(early < FILES, "{early} files when the first was told");
    assert_eq!(copied()?, FILES);
    let events = assert_valid_events(&heard);
    let mut files: Vec<Value> = (events.iter())
        .filter(|event| event["event"] == "file")
        .map(|event| event["file"].clone())
        .collect();
    files.sort_by_key(|file| file["path"].to_string());
    assert_eq!(files.len(), FILES);
    assert_eq!(Value::Array(files), record(&events)["files"]);
    Ok(())
}

/// Adds lines to `heard` until it contains `word`.
fn read_until(lines: &mut impl BufRead, heard: &mut String, word: &str) -> Check {
    while !heard.contains(word) {
        if lines.read_line(heard)? == 0 {
            return Err(fail(format!("no {word}: {heard}")));
        }
    }
    Ok(())
}

fn cancelled(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let mut child = stage
        .probe("event-readers/greet-and-wait", [marker.word()])
        .passed_through()
        .option(["--events", "-"])
        .command()
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| fail("no pipe"))?;
    let mut lines = BufReader::new(stdout);
    let mut heard = String::new();
    read_until(&mut lines, &mut heard, "ready")?;
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM)?;
    lines.read_to_string(&mut heard)?;
    assert_eq!(child.wait()?.code(), Some(128 + libc::SIGTERM));
    let events = assert_valid_events(&heard);
    assert_eq!(kinds(&events), ["started", "stdout", "finished"]);
    assert_eq!(record(&events)["outcome"], "cancelled");
    marker.nothing_left()
}

fn not_set_up(stage: &Stage) -> Check {
    let nothing = stage.exec(["/nothing/here"]);
    for (cell, code) in [
        (nothing.clone(), 127),
        (nothing.clone().option(["--rootfs", "missing"]), 125),
        (nothing.clone().option(["--hostname", "a b"]), 125),
        (nothing.option(["--wall", "soon"]), 125),
    ] {
        let cell = cell.passed_through().option(["--events", "-"]);
        let process = cell.finish()?;
        assert_eq!(process.code(), code, "{}", process.complaint());
        let events = of_process(&process);
        assert_eq!(kinds(&events), ["finished"]);
        assert_eq!(record(&events)["outcome"], "setup");
    }
    Ok(())
}

fn to_a_full_device(stage: &Stage) -> Check {
    let process = stage
        .probe("record/say", ["hello", "0"])
        .option(["--events", "/dev/full"])
        .finish()?;
    assert_eq!(process.code(), 125, "{}", process.complaint());
    let told = String::from_utf8_lossy(&process.stderr);
    assert!(
        told.contains("/dev/full") && told.contains("ENOSPC"),
        "{told}"
    );
    // The record says the same wherever it could be written.
    let record: Value = serde_json::from_slice(&process.stdout)?;
    assert_eq!(record["outcome"], "ok");
    assert!(
        record["warnings"].to_string().contains("ENOSPC"),
        "{record}"
    );
    Ok(())
}

/// Events go to a file, the answer for a model to stdout.
fn beside_a_format(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("events");
    let process = stage
        .probe("record/say", ["hello", "3"])
        .passed_through()
        .option(["--format", "tool", "--events", &path.to_string_lossy()])
        .finish()?;
    assert_eq!(process.code(), 3, "{}", process.complaint());
    let tool: Value = serde_json::from_slice(&process.stdout)?;
    assert_eq!(
        (&tool["exit_code"], &tool["isError"]),
        (&3.into(), &true.into())
    );
    let events = assert_valid_events(&fs::read_to_string(&path)?);
    assert_eq!(tool["stdout"].as_str(), Some(&*text(&events, "stdout")));
    assert_eq!(record(&events)["stdout"], tool["stdout"]);
    Ok(())
}

fn to_where_they_cannot_go(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let file = scratch.join("both");
    let file = file.to_string_lossy();
    let ran = scratch.dir("ran", 0o777)?;
    let writer = stage
        .probe("mounts/write", ["/ran/new"])
        .rw(&ran, std::path::Path::new("/ran"));
    let cases = [
        (
            writer.clone().option(["--events", "-"]),
            "--json and --events -",
        ),
        (
            (writer.clone().passed_through()).option(["--events", "-", "--format", "tool"]),
            "--format tool and --events -",
        ),
        (
            writer
                .clone()
                .passed_through()
                .option(["--events", &file, "--record", &file]),
            "the same destination",
        ),
        (
            writer.clone().option(["--events", "fd:77"]),
            "--events fd:77",
        ),
        (
            writer.option(["--events", "fd:x"]),
            "number of an open descriptor",
        ),
    ];
    for (cell, words) in cases {
        let process = cell.finish()?;
        let told = String::from_utf8_lossy(&process.stderr);
        assert_eq!(process.code(), 125, "{told}");
        assert!(told.contains(words), "{told}");
        assert!(!fs::exists(ran.join("new"))?, "{words}: the program ran");
    }
    // When both have one destination, the events get it.
    let events = assert_valid_events(&fs::read_to_string(&*file)?);
    assert_eq!(kinds(&events), ["finished"]);
    assert_eq!(record(&events)["outcome"], "setup");
    Ok(())
}
