//! What a person at a terminal sees of a run, and when.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::cells::cell::Cell;
use crate::cells::person::Person;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "shown",
    covers: &[16],
    attacks: &[],
    scenes: &[
        scene("a-prompt-comes-before-its-answer", prompt),
        scene("events-and-a-view-at-once", events_too),
        scene("sequences-stay-harmless", hostile),
        scene("the-end-of-long-output", cut),
        scene("denials-and-pictures", denials_and_pictures),
        scene("colours-and-width", colours_and_width),
        scene("an-error-once", error_once),
        scene("a-shell-without-a-terminal", shell),
        scene("a-cancelled-program", cancelled),
        scene("records-that-were-refused-have-ids", refused_ids),
        scene("closed-streams", closed_streams),
        scene("a-plan-in-brief", plan),
    ],
    actors: &[],
};

/// Code that a person runs, without colours.
fn code<'s>(stage: &'s Stage, code: &str) -> Cell<'s> {
    let cell = stage.python("").without_operands().passed_through();
    cell.arguments(["-c", code]).caller_env("NO_COLOR", "1")
}

fn prompt(stage: &Stage) -> Check {
    let asks = "name = input('name? ')\nprint('hello', name)\n\
                open('made.txt', 'w').write('x')\n6 * 7";
    let mut person = Person::start(&mut code(stage, asks).command())?;
    person.sees("name? ")?;
    person.types("bob\n")?;
    person.sees("hello bob\r\n42\r\ncreated made.txt (1 byte, text/plain)\r\n")?;
    person.sees("── ok · python · exit code 0 · ")?;
    assert_eq!(person.waits_for_end()?, 0);

    // Output comes while the code goes on.
    let waits = "import sys\nprint('one', end='', flush=True)\nsys.stdin.readline()\n\
                 print('two', file=sys.stderr)";
    let mut person = Person::start(&mut code(stage, waits).command())?;
    person.sees("one")?;
    person.types("\n")?;
    person.sees("two\r\n")?;
    assert_eq!(person.waits_for_end()?, 0);
    Ok(())
}

fn events_too(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("events");
    let asks = "input('more? ')\n1";
    let cell = code(stage, asks).option(["--events", path.to_str().unwrap_or_default()]);
    let mut person = Person::start(&mut cell.command())?;
    person.sees("more? ")?;
    person.types("\n")?;
    person.sees("1\r\n── ok")?;
    assert_eq!(person.waits_for_end()?, 0);
    let events = crate::events::assert_valid_events(&fs::read_to_string(path)?);
    let kinds: Vec<&str> = (events.iter())
        .filter_map(|event| event["event"].as_str())
        .collect();
    assert_eq!(kinds, ["started", "stdout", "result", "finished"]);
    Ok(())
}

fn hostile(stage: &Stage) -> Check {
    // A sequence and a line end that come in two pieces.
    let writes = "import os, time\n\
        os.write(1, b'a\\x1b')\ntime.sleep(0.05)\nos.write(1, b']0;x\\x07\\xc2')\n\
        time.sleep(0.05)\nos.write(1, b'\\x9b2J\\r')\ntime.sleep(0.05)\nos.write(1, b'\\nb\\rc')\n\
        class Picture:\n  def __repr__(self): return '\\x1b[31m\\u202e'\nPicture()";
    let mut person = Person::start(&mut code(stage, writes).command())?;
    person.sees("a\\x1b]0;x\\x07\\x9b2J\r\nb\\rc\r\n\\x1b[31m\\u{202e}\r\n── ok")?;
    assert_eq!(person.waits_for_end()?, 0);
    Ok(())
}

fn cut(stage: &Stage) -> Check {
    let floods = "for n in range(5000): print('line', n)";
    let cell = code(stage, floods).option(["--output", "1K"]);
    let mut person = Person::start(&mut cell.command())?;
    person.sees("line 0\r\nline 1\r\n")?;
    person.sees("[more stdout is left out: the limit is reached]\r\n")?;
    person.sees("line 4998\r\nline 4999\r\n── ok")?;
    assert_eq!(person.waits_for_end()?, 0);
    Ok(())
}

fn denials_and_pictures(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let plots = scratch.join("plots");
    let draws = "import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\n\
        class Picture:\n  def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\nPicture()";
    let plots = plots.to_str().unwrap_or_default();
    let cell = code(stage, draws).option(["--plots", plots]);
    let mut person = Person::start(&mut cell.command())?;
    person.sees("[image/png, 8 bytes]\r\n")?;
    person.sees(&format!("picture {plots}/result-1.png\r\n"))?;
    person.sees("denied ptrace (EPERM, once): ")?;
    assert_eq!(person.waits_for_end()?, 0);
    Ok(())
}

fn colours_and_width(stage: &Stage) -> Check {
    let fails = code(stage, "1 / 0");
    for (name, value, shown) in [
        ("NO_COLOR", "", "\x1b[1;31merror\x1b[0m"),
        ("NO_COLOR", "1", "── error · "),
        ("TERM", "dumb", "── error · "),
    ] {
        let mut command = fails.command();
        command.env_remove("NO_COLOR").env("TERM", "xterm");
        let mut person = Person::start(command.env(name, value))?;
        person.sees(shown)?;
        assert_eq!(person.waits_for_end()?, 1);
    }
    // A narrow terminal breaks no words.
    let whole = fails.command();
    let mut narrow = Command::new("sh");
    narrow.args(["-c", "stty cols 40; exec \"$@\"", "sh"]);
    narrow.arg(whole.get_program()).args(whole.get_args());
    let variables = whole.get_envs();
    narrow.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    let mut person = Person::start(&mut narrow)?;
    person.sees(
        "the code raised ZeroDivisionError on\r\n  line 1: a value, key or index is not\r\n",
    )?;
    assert_eq!(person.waits_for_end()?, 1);
    Ok(())
}

fn error_once(stage: &Stage) -> Check {
    let cell = stage.python("").without_operands().passed_through();
    let cell = cell.arguments(["/no/such.py"]);
    let mut person = Person::start(&mut cell.command())?;
    let shown = person.sees_to_the_end()?;
    let says = "cellblock: /no/such.py: no such file or directory (open: ENOENT)\r\n";
    assert!(shown.contains(says), "{shown}");
    assert_eq!(shown.matches("no such file").count(), 1, "{shown}");

    // Where standard error says nothing, the view does.
    let mut person = Person::start(&mut cell.option(["--quiet"]).command())?;
    let shown = person.sees_to_the_end()?;
    assert!(shown.contains("── ") && shown.contains("setup"), "{shown}");
    Ok(())
}

fn shell(stage: &Stage) -> Check {
    let hint = "sh has no terminal of its own";
    let cell = stage.exec(["/bin/sh"]).passed_through();
    let mut person = Person::start(&mut cell.command())?;
    person.sees(hint)?;
    person.types("exit 4\n")?;
    assert_eq!(person.waits_for_end()?, 4);
    for quiet in [
        stage.exec(["/bin/sh", "-c", "exit 4"]).passed_through(),
        cell.option(["--tty"]),
    ] {
        let mut person = Person::start(&mut quiet.command())?;
        person.types("exit 4\n")?;
        let shown = person.sees_to_the_end()?;
        assert!(!shown.contains(hint), "{shown}");
    }
    Ok(())
}

fn cancelled(stage: &Stage) -> Check {
    let script = "echo begun; exec sleep 1000";
    let cell = stage.exec(["/bin/sh", "-c", script]).passed_through();
    let mut person = Person::start(&mut cell.command())?;
    person.sees("begun")?;
    person.signals(Signal::SIGTERM)?;
    person.sees("the caller cancelled the run with SIGTERM")?;
    assert_eq!(person.waits_for_end()?, 143);

    let sleeps = "import time\nprint('begun', flush=True)\ntime.sleep(1000)";
    let mut person = Person::start(&mut code(stage, sleeps).command())?;
    person.sees("begun")?;
    person.signals(Signal::SIGTERM)?;
    person.sees("── cancelled · ")?;
    let shown = person.sees_to_the_end()?;
    assert!(
        shown.contains("SIGTERM") && !shown.contains("SIGKILL"),
        "{shown}"
    );
    Ok(())
}

fn refused_ids(stage: &Stage) -> Check {
    let id = || -> Check<String> {
        let run = stage.exec(["/bin/true"]).option(["--memory", "x"]).run()?;
        let is_time = run.record.started_at.ends_with('Z') && run.record.started_at.len() == 24;
        assert!(is_time, "{}", run.json);
        Ok(run.record.id)
    };
    let (one, other) = (id()?, id()?);
    assert!(!one.is_empty() && one != other, "{one} {other}");
    Ok(())
}

/// A closed stream is no place where output arrives, nor an empty input; `/dev/null` is one.
fn closed_streams(stage: &Stage) -> Check {
    let shell = |script: &str, cell: &Cell<'_>| -> Check<(Option<i32>, String)> {
        let whole = cell.command();
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]);
        command.arg(whole.get_program()).args(whole.get_args());
        let variables = whole.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        let output = command.stdin(std::process::Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), said))
    };
    let code = code(stage, "1");
    let closed = "standard output: is closed";
    for redirected in ["> /dev/null", "<> /dev/null >&0", "> /dev/null <&-"] {
        let (status, said) = shell(&format!("\"$@\" {redirected}"), &code)?;
        assert_eq!(status, Some(0), "{redirected}: {said}");
    }
    let (status, said) = shell("\"$@\" >&-", &code)?;
    assert!(status == Some(125) && said.contains(closed), "{said}");
    let events = code.option(["--events", "-"]);
    let (status, said) = shell("\"$@\" >&-", &events)?;
    assert!(
        status == Some(125) && said.matches("hint").count() == 1,
        "{said}"
    );

    // What does not print needs no output.
    let scratch = stage.scratch()?;
    let record = scratch.join("record");
    let recorded = self::code(stage, "1").option(["--record", record.to_str().unwrap_or_default()]);
    let (status, said) = shell("\"$@\" >&-", &recorded)?;
    assert_eq!(status, Some(0), "{said}");

    let stdin = stage.python("").passed_through();
    let (status, said) = shell("\"$@\" <&-", &stdin)?;
    assert!(
        status == Some(125) && said.contains("standard input: is closed"),
        "{said}"
    );

    // The program sees it, too.
    let echo = stage
        .exec(["/bin/sh", "-c", "echo text || exit 7"])
        .passed_through();
    assert_eq!(shell("\"$@\" >&-", &echo)?.0, Some(7));
    assert_eq!(shell("\"$@\" > /dev/null", &echo)?.0, Some(0));

    for words in [
        &["--help"][..],
        &["policy", "list"],
        &["doctor"],
        &["context", "list"],
    ] {
        let mut command = Command::new("sh");
        command
            .args(["-c", "\"$@\" >&-", "sh"])
            .arg(&stage.cellblock);
        let output = command.args(words).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(125) && said.contains(closed),
            "{words:?}: {said}"
        );
    }
    Ok(())
}

fn plan(stage: &Stage) -> Check {
    let mut command = Command::new(&stage.cellblock);
    let words = [
        "plan", "run", "--rootfs", "host", "--memory", "64M", "-c", "1",
    ];
    let mut person = Person::start(command.args(words).env("NO_COLOR", "1"))?;
    let shown = person.sees_to_the_end()?;
    for part in [
        "  memory     64M\r\n",
        "  network      none\r\n",
        "writable   /workspace",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains('{') && !shown.contains('\x1b'), "{shown}");
    let mut command = Command::new(&stage.cellblock);
    let mut person = Person::start(command.args(words).arg("--json"))?;
    assert!(
        person
            .sees_to_the_end()?
            .starts_with("{\r\n  \"schema\": \"cellblock.plan.v1\"")
    );
    Ok(())
}
