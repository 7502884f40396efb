//! What docs/MIGRATING.md says of bubblewrap's and nsjail's options: its lines are run, and
//! its tables are complete.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use crate::cells::host::program;
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::chmod;

pub(crate) const SUITE: Suite = Suite {
    name: "migrating",
    covers: &[],
    attacks: &[],
    scenes: &[
        scene("bubblewrap-lines", |stage| lines(stage, "bwrap")),
        scene("nsjail-lines", |stage| lines(stage, "nsjail")),
        scene("bubblewrap-options", bubblewrap_options).needs(&[Need::Program("bwrap")]),
        scene("options-exist", options_exist),
        scene("lines-have-every-option", lines_have_every_option),
    ],
    actors: &[],
};

const DOCUMENT: &str = include_str!("../../docs/MIGRATING.md");

/// The lines of the blocks of code, without empty ones.
fn code() -> Vec<&'static str> {
    let blocks = DOCUMENT.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(str::lines);
    lines.filter(|line| !line.trim().is_empty()).collect()
}

/// A line for another tool, and the one for cellblock.
fn pairs(tool: &str) -> Vec<(&'static str, &'static str)> {
    let calls = format!("{tool} ");
    let all = code();
    let all = all.iter().zip(all.iter().skip(1));
    all.filter(|(line, next)| line.contains(&calls) && next.contains("cellblock "))
        .map(|(line, next)| (*line, *next))
        .collect()
}

/// Rows of a tool's table: its option and what cellblock has.
fn rows(heading: &str) -> Vec<(&'static str, &'static str)> {
    let section = DOCUMENT
        .split("\n## ")
        .find(|part| part.starts_with(heading));
    let lines = section.unwrap_or_default().lines();
    let cells = lines.filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?, cells.next()?))
    });
    cells
        .map(|(theirs, ours)| (theirs.trim_end_matches('`'), ours))
        .collect()
}

/// The options that a text names.
fn options(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    words
        .filter(|word| word.len() > 2 && word.starts_with("--"))
        .collect()
}

/// What a line of the document prints, and its exit status.
fn run(stage: &Stage, line: &str) -> Check<(String, i32)> {
    let scratch = stage.scratch()?;
    scratch.file("file", "content\n")?;
    scratch.dir("dir", 0o777)?;
    let bin = scratch.dir("bin", 0o755)?;
    // Not a link: the name of the executable says how it starts cells.
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", stage.cellblock.display());
    fs::write(bin.join("cellblock"), script)?;
    chmod(&bin.join("cellblock"), 0o755)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let settings = code().into_iter().filter(|line| {
        let name = line.split('=').next().unwrap_or_default();
        ["BASE", "JAIL"].contains(&name)
    });
    let settings: Vec<&str> = settings.collect();
    let mut command = Command::new("bash");
    command
        .args(["-c", &format!("{}\n{line}", settings.join("\n"))])
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("CELLBLOCK_STORE", stage.dir.join("no-store"))
        .env("D", scratch.path())
        .stdin(Stdio::null());
    let ended = process::finish(&mut command, stage.patience())?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    if said.is_empty() && ended.code() != 0 {
        return Err(fail(format!("{line}\n{}", ended.complaint())));
    }
    Ok((said, ended.code()))
}

fn lines(stage: &Stage, tool: &'static str) -> Check {
    let has_tool = program(tool).is_some();
    if !has_tool {
        stage.note(format!(
            "{tool} is not installed: only cellblock's lines were run"
        ));
    }
    let pairs = pairs(tool);
    assert!(pairs.len() > 8, "{pairs:?}");
    for (theirs, ours) in pairs {
        if theirs.contains("/dev/autofs") && fs::File::open("/dev/autofs").is_err() {
            stage.note("/dev/autofs cannot be opened here");
            continue;
        }
        let own = run(stage, ours)?;
        // What prints nothing and succeeds shows nothing, except an empty directory.
        assert!(
            !own.0.is_empty() || ours.ends_with("/bin/ls /tmp"),
            "{ours}"
        );
        if has_tool {
            assert_eq!(run(stage, theirs)?, own, "{theirs}\n{ours}");
        }
    }
    Ok(())
}

/// Every option of the installed bubblewrap has its row.
fn bubblewrap_options(_: &Stage) -> Check {
    let help = Command::new("bwrap").arg("--help").output()?.stdout;
    let help = String::from_utf8_lossy(&help).into_owned();
    let declared = help.lines().filter_map(|line| {
        let word = line.trim().split(' ').next()?;
        word.starts_with("--").then_some(word)
    });
    let rows = rows("bubblewrap");
    let known: BTreeSet<&str> = rows
        .iter()
        .filter_map(|(theirs, _)| theirs.split(' ').next())
        .collect();
    let missing: Vec<&str> = declared.filter(|option| !known.contains(option)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    Ok(())
}

/// What the tables name of cellblock's exists.
fn options_exist(stage: &Stage) -> Check {
    let help = Command::new(&stage.cellblock)
        .args(["exec", "--help"])
        .output()?
        .stdout;
    let help = String::from_utf8_lossy(&help).into_owned();
    let known = options(&help);
    for heading in ["bubblewrap", "nsjail"] {
        let rows = rows(heading);
        assert!(rows.len() > 50, "{}", rows.len());
        for (theirs, ours) in rows {
            for option in options(ours) {
                let is_known = known.contains(option) || option == "--version";
                assert!(is_known, "{theirs}: {option}");
            }
            let is_said = ours.contains('`') || ours == "always" || ours == "—";
            assert!(is_said, "{theirs}: {ours}");
        }
    }
    Ok(())
}

/// Options of bubblewrap that cellblock has something for are in a line that is run.
fn lines_have_every_option(_: &Stage) -> Check {
    let settings = code().into_iter().filter(|line| line.starts_with("BASE="));
    let tried: String = pairs("bwrap")
        .into_iter()
        .map(|(theirs, _)| theirs)
        .chain(settings)
        .collect::<Vec<_>>()
        .join("\n");
    let tried = options(&tried);
    // --unshare-all stands for these.
    let implied = [
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup",
    ];
    let untried: Vec<&str> = rows("bubblewrap")
        .into_iter()
        .filter(|(_, ours)| *ours != "—")
        .filter_map(|(theirs, _)| theirs.split(' ').next())
        .filter(|option| !["--help", "--version"].contains(option))
        .filter(|option| !tried.contains(option) && !implied.contains(option))
        .collect();
    assert!(untried.is_empty(), "{untried:?}");
    Ok(())
}
