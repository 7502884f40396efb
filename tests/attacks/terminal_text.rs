//! Names, messages and values from a cell or an archive, shown on a terminal: they
//! neither control it nor hide in it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::cells::prelude::*;
use crate::cells::scratch::Scratch;

pub(crate) const SUITE: Suite = Suite {
    name: "terminal-text",
    covers: &[16],
    attacks: &[],
    scenes: &[
        python_scene("of-runs", of_runs),
        scene("of-errors", of_errors),
        scene("of-archives", of_archives),
    ],
    actors: &[],
};

/// One of each kind: escape, C1, direction mark, zero width, byte order mark, soft
/// hyphen, tag, line separator. No slash and no NUL, so that it can be a file name.
const HOSTILE: &str = "\x1b[31m\x07\u{9b}\u{202e}\u{2066}\u{200b}\u{feff}\u{ad}\u{e0041}\u{2028}";

/// Those of [`HOSTILE`] that `shown` has.
fn hostile_in(shown: &str) -> String {
    HOSTILE
        .chars()
        .filter(|c| !c.is_ascii_graphic() && shown.contains(*c))
        .collect()
}

fn of_runs(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let code = format!(
        "h = '{}'\nopen(h, 'w').write(h)\nimport sys, os\nos.symlink(h, 'l' + h)\nprint(h); print(h, file=sys.stderr)\nraise ValueError(h)",
        HOSTILE.escape_unicode()
    );
    let code = python_escapes(&code);
    let record = scratch.join("record.json");
    let on = |words: &[&str]| on_terminal(stage, &words.iter().map(OsStr::new).collect::<Vec<_>>());

    // Live: without a record, the program's own output passes unchanged.
    let live = on(&["exec", "--", "/usr/bin/env", "printf", "%s", HOSTILE])?;
    assert_eq!(hostile_in(&live).chars().count(), 10, "not live: {live:?}");

    let record_option = record.to_string_lossy().into_owned();
    let inline = "--inline-files=1M";
    let base = ["run", "--lang", "python", inline];
    for more in [
        &["--record", &record_option][..],
        &["--json"],
        &["--json", "--format", "mcp"],
        &["--json", "--format", "anthropic", "--tool-call-id", "x"],
        &["--events", "-"],
    ] {
        let words: Vec<&str> = (base.iter().chain(more).copied())
            .chain(["-c", &code])
            .collect();
        let shown = on(&words)?;
        assert!(shown.contains("ValueError"), "{words:?}: {shown}");
        assert_eq!(hostile_in(&shown), "", "{words:?}: {shown:?}");
        if more[0] == "--json" && more.len() == 1 {
            let value: serde_json::Value = serde_json::from_str(&shown)?;
            assert_eq!(value["stdout"], format!("{HOSTILE}\n"));
        }
    }
    // The record has them, the view of the record does not.
    assert_eq!(
        hostile_in(&fs::read_to_string(&record)?).chars().count(),
        8,
        "C0 is escaped in JSON anyway"
    );
    for more in [&[][..], &["--format", "record"], &["--html"]] {
        let words: Vec<&str> = ["show", &record_option]
            .iter()
            .chain(more)
            .copied()
            .collect();
        let shown = on(&words)?;
        assert!(shown.contains("ValueError"), "{words:?}: {shown}");
        assert_eq!(hostile_in(&shown), "", "{words:?}: {shown:?}");
    }
    Ok(())
}

/// `\u{1b}` as Python writes it.
fn python_escapes(code: &str) -> String {
    let mut text = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("\\u{") {
        let (digits, behind) = after.split_once('}').unwrap_or((after, ""));
        text.push_str(before);
        text.push_str(&format!("\\U{digits:0>8}"));
        rest = behind;
    }
    text + rest
}

fn of_errors(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let policy = scratch.file(
        &format!("{HOSTILE}.toml"),
        format!("nonsense = \"{HOSTILE}"),
    )?;
    let policy = policy.to_string_lossy().into_owned();
    let option = format!("--{HOSTILE}");
    let file = format!("{HOSTILE}:x");
    for words in [
        &["exec", "--file", &file, "--", "true"][..],
        &["exec", "--rootfs", HOSTILE, "--", "true"],
        &["exec", "--ro", HOSTILE, "--", "true"],
        &["exec", "--seccomp", HOSTILE, "--", "true"],
        &["exec", "--policy", &policy, "--", "true"],
        &["exec", "--env", HOSTILE, "--", "true"],
        &["exec", "--wall", HOSTILE, "--", "true"],
        &[
            "exec",
            "--workspace",
            "/dev/null",
            "--out",
            HOSTILE,
            "--",
            "true",
        ],
        &["exec", "--", HOSTILE],
        &["exec", "--json", "--", HOSTILE],
        &["exec", &option],
        &[HOSTILE],
        &["run", "--lang", HOSTILE, "-c", "x"],
        &["show", HOSTILE],
        &["policy", "show", HOSTILE],
        &["policy", "check", &policy],
        &["rootfs", "show", HOSTILE],
        &["rootfs", "import", HOSTILE, HOSTILE],
        &[
            "plan",
            "exec",
            "--hostname",
            "x",
            "--env",
            &format!("A={HOSTILE}"),
            "--",
            HOSTILE,
        ],
    ] {
        let shown = on_terminal(stage, &words.iter().map(OsStr::new).collect::<Vec<_>>())?;
        assert!(shown.len() > 20, "{words:?}: {shown:?}");
        assert_eq!(hostile_in(&shown), "", "{words:?}: {shown:?}");
    }
    Ok(())
}

fn of_archives(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let archive = hostile_names(&scratch)?;
    let store = scratch.join("store").to_string_lossy().into_owned();
    let archive = archive.to_string_lossy().into_owned();
    let rootfs = |verb: &str, more: &[&str]| {
        let start = ["rootfs", verb, "--store", &store];
        let words: Vec<&OsStr> = (start.iter()).chain(more).map(OsStr::new).collect();
        on_terminal(stage, &words)
    };
    // The line of progress is cleared before it is drawn again.
    let shown = rootfs("import", &["some", &archive])?.replace("\r\u{1b}[2K", "");
    assert_eq!(hostile_in(&shown), "", "{shown:?}");
    // Something was left out, and its name is shown.
    assert!(shown.contains("\\u{202e}"), "{shown:?}");
    let trees: Vec<_> = walk(&scratch.join("store"))?;
    let file = trees
        .iter()
        .find(|path| path.to_string_lossy().ends_with(&format!("f{HOSTILE}")));
    let file = file.ok_or_else(|| fail(format!("not live: {trees:?}")))?;
    fs::write(file, "changed")?;
    for (verb, more) in [
        ("list", &[][..]),
        ("list", &["--json"]),
        ("show", &["some"]),
        ("show", &["some", "--json"]),
        ("verify", &["some"]),
        ("verify", &["some", "--json"]),
    ] {
        let shown = rootfs(verb, more)?;
        assert!(!shown.is_empty(), "{verb} {more:?}");
        assert_eq!(hostile_in(&shown), "", "{verb} {more:?}: {shown:?}");
    }
    let words = ["exec", "--json", "--files-from", &archive, "--", "true"];
    let shown = on_terminal(stage, &words.map(OsStr::new))?;
    assert!(shown.contains("is left out"), "{shown}");
    assert_eq!(hostile_in(&shown), "", "{shown:?}");
    Ok(())
}

/// An archive with names that control a terminal, one of them of an entry that is left
/// out.
fn hostile_names(scratch: &Scratch) -> Check<std::path::PathBuf> {
    let path = scratch.join("names.tar");
    let mut tar = tar::Builder::new(File::create(&path)?);
    for (name, kind) in [
        (format!("f{HOSTILE}"), tar::EntryType::Regular),
        (format!("p{HOSTILE}"), tar::EntryType::Fifo),
        (format!("d{HOSTILE}"), tar::EntryType::Char),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(0);
        if kind == tar::EntryType::Char {
            header.set_device_major(1)?;
            header.set_device_minor(3)?;
        }
        tar.append_data(&mut header, name, std::io::empty())?;
    }
    tar.finish()?;
    Ok(path)
}

fn walk(top: &std::path::Path) -> Check<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    Ok(found)
}

/// The output of cellblock when stdout and stderr are a terminal.
fn on_terminal(stage: &Stage, words: &[&OsStr]) -> Check<String> {
    const TIOCSPTLCK: u64 = 0x4004_5431;
    const TIOCGPTPEER: u64 = 0x5441;
    let mut person = File::options().read(true).write(true).open("/dev/ptmx")?;
    call!(SYS_ioctl, person.as_raw_fd(), TIOCSPTLCK, &0_i32)?;
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let line = call!(SYS_ioctl, person.as_raw_fd(), TIOCGPTPEER, flags)?;
    // SAFETY: the call has just made this descriptor, for us alone.
    let line = unsafe { File::from_raw_fd(line as i32) };
    let mut command = Command::new(&stage.cellblock);
    command
        .args(words)
        .env("CELLBLOCK_STORE", stage.dir.join("no-store"))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(line.try_clone()?)
        .stderr(line);
    let mut child = command.spawn()?;
    // The command holds copies of the terminal; reading ends when all are closed.
    drop(command);
    call!(
        SYS_fcntl,
        person.as_raw_fd(),
        libc::F_SETFL,
        libc::O_NONBLOCK
    )?;
    let (began, mut shown) = (Instant::now(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    loop {
        match person.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => shown.extend_from_slice(&buffer[..got]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if began.elapsed() > stage.patience() {
                    child.kill()?;
                    return Err(fail(format!("{words:?} does not end")));
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            // The other side is closed.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => break,
            Err(error) => return Err(error.into()),
        }
    }
    child.wait()?;
    // Removes the terminal's line ends and the sequence by which cellblock rewrites a
    // line.
    let shown = String::from_utf8(shown).map_err(|e| fail(e.to_string()))?;
    Ok(shown.replace("\r\n", "\n").replace("\r\x1b[K", ""))
}
