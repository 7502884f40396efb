//! A terminal of the cell's own (`--tty`), which a person's terminal shows.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::refusals::with_descriptor;
use crate::cells::cell::Cell;
use crate::cells::person::Person;
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::Scratch;

pub(crate) const SUITE: Suite = Suite {
    name: "own-terminal",
    covers: &[16],
    attacks: &[],
    scenes: &[
        scene("job-control", job_control),
        scene("size-and-name", size_and_name),
        scene("record", recorded),
        scene("spec-file", spec_file),
        scene("settings-come-back", settings_come_back),
        scene("settings-after-sigkill", settings_after_sigkill),
        scene("settings-after-the-relay", settings_after_the_relay),
        scene("reader-that-stops", reader_that_stops),
        scene("closed-and-opened-again", closed_and_opened_again),
        scene("refusals", refusals),
    ],
    actors: &[],
};

/// A program with a terminal of its own.
fn with_terminal<'s, const N: usize>(stage: &'s Stage, argv: [&str; N]) -> Cell<'s> {
    stage.exec(argv).passed_through().option(["--tty"])
}

/// A program with a terminal of its own, and its record.
fn recording<'s, const N: usize>(stage: &'s Stage, scratch: &Scratch, argv: [&str; N]) -> Cell<'s> {
    let path = scratch.join("record");
    let option = ["--record", path.to_str().unwrap_or_default()];
    with_terminal(stage, argv).option(option)
}

fn record(scratch: &Scratch) -> Check<Value> {
    Ok(serde_json::from_slice(&fs::read(scratch.join("record"))?)?)
}

fn job_control(stage: &Stage) -> Check {
    let cell = with_terminal(stage, ["/bin/bash", "--norc", "-i"])
        .option(["--env", "PS1=ready> "])
        .limit("wall", "10m");
    let mut person = Person::start(&mut cell.command())?;
    person.sees("ready> ")?;

    // Output of the job itself shows that the shell has given it the terminal.
    person.types("sh -c 'echo be\"gun\"; exec sleep 1000'\n")?;
    person.sees("begun\r\n")?;
    person.types("\x03")?;
    person.sees("ready> ")?;
    person.types("echo status $?\n")?;
    person.sees("status 130")?;
    person.sees("ready> ")?;

    // The job starts no programs: one that is stopped between vfork and execve keeps its shell
    // from being stopped (vfork(2)).
    let job = "sh -c 'trap \"echo go\"es\" on\" CONT; echo be\"gun\"; while :; do :; done'\n";
    person.types(job)?;
    person.sees("begun\r\n")?;
    person.types("\x1a")?;
    person.sees("Stopped")?;
    person.sees("ready> ")?;
    person.types("fg\n")?;
    person.sees("goes on\r\n")?;
    person.types("\x03")?;
    person.sees("ready> ")?;

    person.types("exit 7\n")?;
    assert_eq!(person.waits_for_end()?, 7);
    assert!(person.has_its_settings()?);
    Ok(())
}

fn size_and_name(stage: &Stage) -> Check {
    let script = "trap 'stty size; exit 3' WINCH; tty; stty size; echo \"$TERM\"; echo ready; \
        while :; do read -r line; done";
    let cell = with_terminal(stage, ["/bin/bash", "-c", script]).caller_env("TERM", "vt220");
    let mut person = Person::start(&mut cell.command())?;
    // It is the first terminal of the cell's own devpts.
    person.sees("/dev/pts/0\r\n30 100\r\nvt220\r\nready")?;
    person.resizes("41", "123")?;
    // The signal may come just before the shell waits for a line.
    person.types_until("\n", "41 123")?;
    assert_eq!(person.waits_for_end()?, 3);

    let says = ["/bin/sh", "-c", "echo \"<${TERM-none}>\""];
    for (option, term) in [
        (["--env", "TERM=ansi"], "<ansi>"),
        (["--env-unset", "TERM"], "<none>"),
    ] {
        let cell = with_terminal(stage, says).option(option);
        let mut person = Person::start(&mut cell.caller_env("TERM", "vt220").command())?;
        person.sees(term)?;
        assert_eq!(person.waits_for_end()?, 0);
    }
    Ok(())
}

/// The terminal's output is the record's stdout, within the cap.
fn recorded(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let cell = recording(
        stage,
        &scratch,
        ["/bin/sh", "-c", "echo out; echo err >&2; exit 4"],
    );
    let mut person = Person::start(&mut cell.command())?;
    person.sees("out\r\nerr\r\n")?;
    assert_eq!(person.waits_for_end()?, 4);
    let whole = record(&scratch)?;
    assert_eq!(whole["stdout"], "out\r\nerr\r\n");
    assert_eq!(
        (&whole["stderr"], &whole["exit_code"]),
        (&Value::Null, &4.into())
    );
    assert_eq!(whole["isolation"]["terminal"], true);

    let cell = recording(stage, &scratch, ["/usr/bin/seq", "30000"]).limit("output", "1K");
    let mut person = Person::start(&mut cell.command())?;
    person.sees("\r\n30000\r\n")?;
    assert_eq!(person.waits_for_end()?, 0);
    let truncated = &record(&scratch)?["truncated"]["stdout"];
    // Each of the 30000 lines ends with two bytes.
    let total: usize = (1..=30000)
        .map(|line: u32| line.to_string().len() + 2)
        .sum();
    assert_eq!(
        (&truncated["total"], &truncated["kept"]),
        (&total.into(), &1024.into())
    );
    Ok(())
}

/// The settings are restored however the supervisor ends.
fn settings_come_back(stage: &Stage) -> Check {
    let sleeps = ["/bin/sleep", "1000"];
    let cell = with_terminal(stage, ["/bin/sh", "-c", "read -r line; exit 5"]);
    let mut person = Person::start(&mut cell.command())?;
    person.waits_for_raw()?;
    person.types("\n")?;
    assert_eq!(
        (person.waits_for_end()?, person.has_its_settings()?),
        (5, true)
    );

    // It may end before a busy host shows the changed settings.
    let cell = with_terminal(stage, sleeps).limit("wall", "500ms");
    let mut person = Person::start(&mut cell.command())?;
    assert_eq!(
        (person.waits_for_end()?, person.has_its_settings()?),
        (124, true)
    );
    person.sees("longer than its limit")?;

    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut person = Person::start(&mut with_terminal(stage, sleeps).command())?;
        person.waits_for_raw()?;
        person.signals(signal)?;
        let ended = (person.waits_for_end()?, person.has_its_settings()?);
        assert_eq!(ended, (128 + signal as i32, true));
    }

    let mut person = Person::start(&mut with_terminal(stage, ["/nowhere"]).command())?;
    assert_eq!(
        (person.waits_for_end()?, person.has_its_settings()?),
        (127, true)
    );
    Ok(())
}

/// The relay restores the settings once it sees that the supervisor is gone.
fn settings_after_sigkill(stage: &Stage) -> Check {
    let mut person = Person::start(&mut with_terminal(stage, ["/bin/sleep", "1000"]).command())?;
    person.waits_for_raw()?;
    person.signals(Signal::SIGKILL)?;
    assert_eq!(person.waits_for_end()?, 137);
    stage.wait_until("the settings are back", || person.has_its_settings())
}

/// The supervisor restores the settings where the relay cannot, and the program gets a hangup.
fn settings_after_the_relay(stage: &Stage) -> Check {
    let mut person = Person::start(&mut with_terminal(stage, ["/bin/sleep", "1000"]).command())?;
    person.waits_for_raw()?;
    let pid = person.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    // The relay is forked last.
    let last = children.split_whitespace().last();
    let relay = last.and_then(|relay| relay.parse().ok());
    let relay = relay.ok_or_else(|| fail("cellblock has no child"))?;
    kill(Pid::from_raw(relay), Signal::SIGKILL)?;
    let ended = (person.waits_for_end()?, person.has_its_settings()?);
    assert_eq!(ended, (128 + Signal::SIGHUP as i32, true));
    Ok(())
}

/// A terminal whose output is stopped blocks the program, and not the supervisor.
fn reader_that_stops(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let cell = recording(stage, &scratch, ["/usr/bin/yes"]).limit("wall", "1s");
    let mut person = Person::start(&mut cell.command())?;
    // The screen is not read.
    stage.wait_until("the supervisor does not wait for the terminal", || {
        Ok(record(&scratch).is_ok())
    })?;
    assert_eq!(person.waits_for_end()?, 124);
    assert!(person.has_its_settings()?);
    Ok(())
}

/// A terminal that no process has open for a while is not hung up.
fn closed_and_opened_again(stage: &Stage) -> Check {
    let script = "exec </dev/null >/dev/null 2>&1; sleep 0.3; echo again >/dev/tty; exit 6";
    let cell = with_terminal(stage, ["/bin/sh", "-c", script]);
    let mut person = Person::start(&mut cell.command())?;
    person.sees("again\r\n")?;
    assert_eq!(person.waits_for_end()?, 6);
    Ok(())
}

/// A missing terminal is refused before anything starts.
fn spec_file(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let spec = scratch.file("spec.toml", "tty = true\n")?;
    let cell = stage
        .exec(["/bin/sh", "-c", "tty; echo \"$TERM\""])
        .passed_through()
        .option(["--spec", spec.to_str().unwrap_or_default()]);
    let mut person = Person::start(&mut cell.caller_env("TERM", "vt220").command())?;
    person.sees("/dev/pts/0\r\nvt220")?;
    assert_eq!(person.waits_for_end()?, 0);

    let cell = stage
        .exec(["/bin/true"])
        .option(["--spec", spec.to_str().unwrap_or_default()]);
    let ended = cell.finish()?;
    assert_eq!(ended.code(), 125);
    let complaint = ended.complaint();
    assert!(complaint.contains("nothing else is printed"), "{complaint}");
    Ok(())
}

fn refusals(stage: &Stage) -> Check {
    let program = || with_terminal(stage, ["/bin/true"]);
    let refused = |cell: &Cell<'_>, why: &str| -> Check {
        let ended = cell.finish()?;
        assert_eq!(ended.code(), 125);
        assert!(ended.complaint().contains(why), "{}", ended.complaint());
        Ok(())
    };
    refused(&program(), "standard input is not a terminal")?;
    for printing in [["--format", "tool"], ["--record", "-"], ["--events", "-"]] {
        refused(&program().option(printing), "nothing else is printed there")?;
    }
    let code = Cell::code(stage, "python", "1").option(["--tty"]);
    refused(&code, "nothing else is printed there")?;
    refused(&code.passed_through(), "code gets no terminal")?;

    // Open for reading only, it cannot show anything.
    let mut command = program().command();
    let screen = fs::File::open("/dev/ptmx")?;
    with_descriptor(&mut command, &screen, 0);
    let ended = process::finish(&mut command, stage.patience())?;
    let complaint = ended.complaint();
    assert!(
        complaint.contains("cannot be both read and written"),
        "{complaint}"
    );
    Ok(())
}
