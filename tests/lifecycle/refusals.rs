//! Calls that are refused: nothing runs, and the record gives the reason wherever it
//! was asked for.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cells::cell::{self, Cell, Run};
use crate::cells::prelude::*;
use crate::cells::process::{self, Finished};
use crate::events::assert_valid_events;

pub(crate) const SUITE: Suite = Suite {
    name: "refusals",
    covers: &[30, 32],
    attacks: &[],
    scenes: &[
        scene("yield-the-record-that-was-asked-for", yield_the_record),
        scene("of-closed-descriptors", of_closed_descriptors),
        scene("of-descriptors-for-reading", of_descriptors_for_reading),
        scene(
            "when-one-destination-cannot-be-opened",
            when_one_destination_cannot_be_opened,
        ),
        scene(
            "of-two-readers-of-standard-input",
            of_two_readers_of_standard_input,
        ),
        scene(
            "of-what-a-request-may-not-ask-for",
            of_what_a_request_may_not_ask_for,
        ),
        scene(
            "of-caps-on-what-is-not-captured",
            of_caps_on_what_is_not_captured,
        ),
        scene("nobody-can-be-told-of", nobody_can_be_told_of),
        scene("standard-streams-as-files", standard_streams_as_files),
    ],
    actors: &[],
};

/// Has `command` start with a copy of `file` as its descriptor `number`.
pub(super) fn with_descriptor(command: &mut Command, file: &File, number: i32) {
    let descriptor = file.as_raw_fd();
    // SAFETY: dup3 and fcntl are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if descriptor == number {
                call!(SYS_fcntl, descriptor, libc::F_SETFD, 0)?;
            } else {
                call!(SYS_dup3, descriptor, number, 0)?;
            }
            Ok(())
        });
    }
}

/// A program that leaves a file behind when it runs, and a check for that file.
struct Canary {
    dir: std::path::PathBuf,
}

impl Canary {
    fn cell<'s>(&self, stage: &'s Stage) -> Cell<'s> {
        stage
            .probe("mounts/write", ["/ran/new"])
            .passed_through()
            .rw(&self.dir, Path::new("/ran"))
    }

    fn has_run(&self) -> Check<bool> {
        Ok(fs::exists(self.dir.join("new"))?)
    }
}

/// A wrong call, and a part of its error.
const WRONG: [(&[&str], &str); 9] = [
    (&["--frob"], "unexpected argument '--frob'"),
    (&["--memory", "frob"], "`frob` is not a size"),
    (&["--wall", "soon"], "`soon` is not a duration"),
    (&["--grace", "0"], "duration above zero"),
    (&["--net", "wifi"], "invalid value 'wifi'"),
    (&["--hostname", "a b"], "hostname"),
    (&["--spec", "/no/such.json"], "ENOENT"),
    (&["--policy", "frob"], "there is no profile `frob`"),
    (&["--rootfs", "frob-missing"], "rootfs"),
];

fn yield_the_record(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let bad_spec = scratch.file("bad.json", "{\"limits\": {\"memory\": 1}}")?;
    let bad_spec = bad_spec.to_string_lossy().into_owned();
    let wrong = WRONG
        .iter()
        .map(|(words, piece)| {
            (
                words.iter().map(|word| (*word).to_owned()).collect(),
                *piece,
            )
        })
        .chain([(vec!["--spec".to_owned(), bad_spec], "limits.memory")]);
    for (number, (words, piece)) in wrong.enumerate() {
        let canary = Canary {
            dir: scratch.dir(&format!("ran-{number}"), 0o777)?,
        };
        let words: Vec<String> = words;
        let refused = |more: &[&str]| -> Check<Finished> {
            let mut command = canary.cell(stage).command();
            let cellblock = command.get_program().to_owned();
            // The destination comes last, after the error.
            let given: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            command = Command::new(cellblock);
            command
                .arg(&given[0])
                .args(&words)
                .args(more)
                .args(&given[1..])
                .stdin(Stdio::null());
            let process = process::finish(&mut command, stage.patience())?;
            let told = String::from_utf8_lossy(&process.stderr);
            assert_eq!(process.code(), 125, "{words:?} {more:?}: {told}");
            assert!(told.contains(piece), "{words:?} {more:?}: {told}");
            assert!(!canary.has_run()?, "{words:?}: the program ran");
            Ok(process)
        };
        let says = |record: &Value| {
            assert_eq!(record["outcome"], "setup", "{words:?}");
            assert_eq!(record["exit_code"], 125, "{words:?}");
            let error = record["setup_error"].to_string();
            assert!(error.contains(piece), "{words:?}: {error}");
        };
        for json in [
            ["--json"].as_slice(),
            &["--record", "-"],
            &["--record=fd:1"],
        ] {
            says(&Run::of(refused(json)?)?.json);
        }
        let path = scratch.join("record.json");
        let to = path.to_string_lossy().into_owned();
        assert!(refused(&["--record", &to])?.stdout.is_empty());
        says(&serde_json::to_value(cell::read(&path)?)?);
        let events = refused(&["--events", "-", "--record", &to])?;
        let events = assert_valid_events(&String::from_utf8_lossy(&events.stdout));
        assert_eq!(events.len(), 1);
        says(&events[0]["record"]);
        says(&serde_json::to_value(cell::read(&path)?)?);
        let tool: Value = serde_json::from_slice(&refused(&["--format", "tool"])?.stdout)?;
        assert_eq!(tool["isError"], true);
        // No record was asked for: stderr has the error.
        assert!(refused(&[])?.stdout.is_empty());
    }
    Ok(())
}

/// Whatever numbers cellblock's own descriptors have, a closed one never refers to
/// them.
fn of_closed_descriptors(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let canary = Canary {
        dir: scratch.dir("ran", 0o777)?,
    };
    for option in ["--record", "--events"] {
        for number in (3..24).chain([77, 1_000_000]) {
            let to = format!("fd:{number}");
            let process = canary.cell(stage).option([option, &to]).finish()?;
            let told = String::from_utf8_lossy(&process.stderr);
            assert_eq!(process.code(), 125, "{option} {to}: {told}");
            let named = format!("{option} fd:{number}");
            assert!(told.contains(&named) && told.contains("EBADF"), "{told}");
        }
    }
    // The copy of one descriptor has a number that another option could name.
    let path = scratch.join("record.json");
    let record = File::create(&path)?;
    for closed in 4..12 {
        let mut command = canary
            .cell(stage)
            .option(["--record", "fd:3", "--events", &format!("fd:{closed}")])
            .command();
        with_descriptor(&mut command, &record, 3);
        let process = process::finish(&mut command, stage.patience())?;
        assert_eq!(process.code(), 125, "{}", process.complaint());
        let told = String::from_utf8_lossy(&process.stderr);
        assert!(told.contains(&format!("--events fd:{closed}")), "{told}");
    }
    assert!(!canary.has_run()?);
    Ok(())
}

fn of_descriptors_for_reading(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let canary = Canary {
        dir: scratch.dir("ran", 0o777)?,
    };
    let file = File::open("/dev/null")?;
    let mut command = canary.cell(stage).option(["--record", "fd:9"]).command();
    with_descriptor(&mut command, &file, 9);
    let process = process::finish(&mut command, stage.patience())?;
    assert_eq!(process.code(), 125);
    let told = String::from_utf8_lossy(&process.stderr);
    assert!(told.contains("EACCES"), "{told}");
    assert!(!canary.has_run()?);
    Ok(())
}

fn when_one_destination_cannot_be_opened(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let canary = Canary {
        dir: scratch.dir("ran", 0o777)?,
    };
    let good = scratch.join("good");
    let good = good.to_string_lossy();
    let run = canary.cell(stage);
    let run = run.option(["--record", &good, "--events", "/no/such/dir/e"]);
    assert_eq!(run.finish()?.code(), 125);
    let record = cell::read(Path::new(&*good))?;
    assert_eq!(record.outcome, Outcome::Setup);
    let run = canary.cell(stage);
    let run = run.option(["--events", &good, "--record", "/no/such/dir/r"]);
    assert_eq!(run.finish()?.code(), 125);
    let events = assert_valid_events(&fs::read_to_string(&*good)?);
    assert_eq!(events.len(), 1);
    assert!(!canary.has_run()?);
    Ok(())
}

fn of_what_a_request_may_not_ask_for(stage: &Stage) -> Check {
    let cell = |request: &str| {
        let cell = stage.exec(["/bin/cat"]);
        cell.option(["--request", "-", "--memory", "64M"])
            .stdin(request)
    };
    let run = cell(r#"{"stdin": "given", "limits": {"memory": "32M"}}"#).run()?;
    assert_eq!(run.stdout(), "given");
    assert_eq!(run.record.limits["memory"].requested, 33_554_432.0);
    let cases = [
        (
            r#"{"limits": {"memory": "65M"}}"#,
            "request:limits.memory: is 65M, but the caller allows at most 64M",
        ),
        (
            r#"{"limits": {"grace": "1h"}}"#,
            "request:limits.grace: is 1h, but the caller allows at most none",
        ),
        (
            r#"{"binds": [{"source": "/etc"}]}"#,
            "request:binds: there is no such field",
        ),
        (
            r#"{"argv": ["/bin/sh"]}"#,
            "request:argv: the caller says what runs, so a request cannot",
        ),
    ];
    for (request, wanted) in cases {
        let run = cell(request).run()?.ended(Outcome::Setup)?;
        let error = run.record.setup_error.map(|error| error.to_string());
        assert!(error.unwrap_or_default().contains(wanted), "{wanted}");
    }
    Ok(())
}

fn of_two_readers_of_standard_input(stage: &Stage) -> Check {
    let cases: [(Cell<'_>, &str); 3] = [
        (
            stage.python("1").option(["--spec", "-"]),
            "the spec file (`--spec -`) and the code",
        ),
        (
            stage
                .exec(["/bin/true"])
                .option(["--spec", "-", "--files-from", "-"]),
            "the spec file (`--spec -`) and the files",
        ),
        (
            stage
                .exec(["/bin/true"])
                .option(["--spec", "-"])
                .stdin("{\"files_from\": \"-\"}"),
            "the spec file (`--spec -`) and the files",
        ),
    ];
    for (cell, piece) in cases {
        let run = cell.run()?.ended(Outcome::Setup)?;
        let error = run.record.setup_error.map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.contains(piece), "{error}");
    }
    Ok(())
}

fn of_caps_on_what_is_not_captured(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let canary = Canary {
        dir: scratch.dir("ran", 0o777)?,
    };
    let spec = scratch.file("spec.toml", "limits = { on_output = \"kill\" }")?;
    for (words, piece) in [
        (["--output", "1K"], "--output"),
        (["--on-output", "kill"], "--on-output"),
        (["--spec", &spec.to_string_lossy()], "limits.on_output"),
    ] {
        let process = canary.cell(stage).option(words).finish()?;
        let told = String::from_utf8_lossy(&process.stderr);
        assert_eq!(process.code(), 125, "{told}");
        assert!(told.contains(piece) && told.contains("--json"), "{told}");
    }
    assert!(!canary.has_run()?);
    // Where output is captured, the same options are accepted; a profile serves both.
    let captured = stage
        .probe("output/flood", ["100000", "1000"])
        .option(["--record", "-"])
        .option(["--output", "1K", "--on-output", "kill"]);
    captured.passed_through().run()?.ended(Outcome::Output)?;
    let process = canary
        .cell(stage)
        .option(["--policy", "default"])
        .finish()?;
    assert_eq!(process.code(), 0, "{}", process.complaint());
    Ok(())
}

/// A reader that is gone and a full disk give the same exit code, at once.
fn nobody_can_be_told_of(stage: &Stage) -> Check {
    let (reader, writer) = nix::unistd::pipe()?;
    drop(reader);
    let full = || File::options().write(true).open("/dev/full");
    let good = || stage.exec(["/bin/true"]);
    for (cell, why) in [(good(), "it ran"), (good().option(["--frob"]), "refused")] {
        for stdout in [Stdio::from(File::from(writer.try_clone()?)), full()?.into()] {
            let status = cell
                .command()
                .stdout(stdout)
                .stderr(Stdio::null())
                .status()?;
            assert_eq!(status.code(), Some(125), "{why}");
        }
    }
    for option in ["--record", "--events"] {
        let cell = good().passed_through().option(["--frob"]);
        let process = cell.option([option, "/dev/full"]).finish()?;
        let told = String::from_utf8_lossy(&process.stderr);
        assert_eq!(process.code(), 125);
        assert!(told.contains("--frob") && told.contains("ENOSPC"), "{told}");
    }
    Ok(())
}

fn standard_streams_as_files(stage: &Stage) -> Check {
    // The program learns nothing of the request.
    let spec = "{\"argv\": [\"/bin/sh\", \"-c\", \"cat; echo end\"]}";
    let mut command = Command::new(&stage.cellblock);
    let path = stage.scratch()?;
    let path = path.file("spec", spec)?;
    command
        .args(["exec", "--spec", "-", "--record", "-"])
        .stdin(File::open(path)?);
    let run = Run::of(process::finish(&mut command, stage.patience())?)?;
    assert_eq!(run.ended(Outcome::Ok)?.stdout(), "end\n");
    // A wrong one is named.
    let run = stage
        .exec(["/bin/true"])
        .option(["--spec", "-"])
        .stdin("{\"limits\": {\"memory\": 1}}")
        .run()?
        .ended(Outcome::Setup)?;
    let error = run.record.setup_error.map(|error| error.to_string());
    let error = error.unwrap_or_default();
    assert!(error.contains("standard input:limits.memory"), "{error}");
    Ok(())
}
