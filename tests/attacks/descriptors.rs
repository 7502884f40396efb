//! Descriptors that leak in: one of a host directory is the whole host
//! (CVE-2024-21626).

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use nix::fcntl::{FcntlArg, fcntl};

use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::{Scratch, chmod};

pub(crate) const SUITE: Suite = Suite {
    name: "descriptors",
    covers: &[3],
    attacks: &[],
    scenes: &[
        scene("inherited", inherited),
        scene(
            "working-directory-by-descriptor",
            working_directory_by_descriptor,
        ),
        scene("streams-opened-anew", streams_opened_anew),
        scene("directory-as-standard-input", directory_as_standard_input),
        scene("file-as-standard-input", file_as_standard_input),
        scene("file-without-its-name", file_without_its_name),
        scene("argument-by-descriptor", argument_by_descriptor),
    ],
    actors: &[
        Actor {
            name: "reach",
            run: |_| {
                let flags = libc::O_RDONLY;
                println!("{:?}", call!(SYS_openat, 0, c"secret", flags).map(drop));
                0
            },
        },
        // Changes what belongs to the file on standard input, through it and
        // through a copy, then reads it.
        Actor {
            name: "alter",
            run: |_| {
                let copy = call!(SYS_dup, 0).unwrap_or(0);
                let all = -1;
                let altered = [
                    call!(SYS_fchmod, 0, 0o604),
                    call!(SYS_fchmod, copy, 0o604),
                    call!(SYS_utimensat, 0, Arg::NULL, Arg::NULL, 0),
                    call!(SYS_fchown, 0, all, all),
                ];
                let names: Vec<String> = altered
                    .iter()
                    .map(|altered| match altered {
                        Ok(_) => "ok".to_owned(),
                        Err(errno) => format!("{errno:?}"),
                    })
                    .collect();
                let mut rest = String::new();
                let _ = std::io::stdin().read_to_string(&mut rest);
                println!("{} {rest}", names.join(" "));
                0
            },
        },
        Actor {
            name: "list",
            run: |_| {
                for number in 0..1024 {
                    const F_GETFD: i32 = 1;
                    if call!(SYS_fcntl, number, F_GETFD).is_ok() {
                        print!("{number} ");
                    }
                }
                0
            },
        },
        Actor {
            name: "read",
            run: |args| {
                for path in args {
                    match std::fs::read_to_string(path) {
                        Ok(text) => print!("{text}"),
                        Err(error) => println!("{:?}", error.raw_os_error()),
                    }
                }
                0
            },
        },
    ],
};

const SECRET: &str = "a secret of the host";
/// The numbers of the leaked descriptors: next to the standard streams, in the middle,
/// and high.
const LEAKED: [i32; 3] = [3, 7, 900];

fn inherited(stage: &Stage) -> Check {
    let host = File::open("/")?;
    let outside = finish(stage, stage.outside("descriptors/list", []), &host)?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "0 1 2 3 7 900 ");

    let cell = stage.probe("descriptors/list", []);
    let run = Run::of(finish(stage, cell.command(), &host)?)?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "0 1 2 ");

    let through = finish(stage, cell.passed_through().command(), &host)?;
    assert_eq!(String::from_utf8_lossy(&through.stdout), "0 1 2 ");
    Ok(())
}

/// The cell's working directory is opened once the cell has been built: it must not
/// lead back to a descriptor that cellblock or its caller holds.
fn working_directory_by_descriptor(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    scratch.file("secret", SECRET)?;
    let host = File::open(scratch.path())?;
    for number in [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 900] {
        let cwd = format!("/proc/self/fd/{number}");
        let cell = stage
            .probe("descriptors/read", ["secret"])
            .option(["--cwd", &cwd]);
        let run = Run::of(finish(stage, cell.command(), &host)?)?.ended(Outcome::Setup)?;
        assert!(!run.json.to_string().contains(SECRET), "{}", run.json);
    }
    Ok(())
}

fn argument_by_descriptor(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    scratch.file("secret", SECRET)?;
    let host = File::open(scratch.path())?;
    let path = ["/proc/self/fd/7/secret"];
    let outside = finish(stage, stage.outside("descriptors/read", path), &host)?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), SECRET);

    let cell = stage.probe("descriptors/read", path);
    let run = Run::of(finish(stage, cell.command(), &host)?)?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), format!("{:?}\n", Some(libc::ENOENT)));
    Ok(())
}

/// The caller's log, passed in append-only: reopened through `/proc`, it could be read
/// and rewritten.
fn streams_opened_anew(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let log = scratch.file("log", SECRET)?;
    chmod(&log, 0o666)?;
    let append = || File::options().append(true).open(&log);
    let paths = ["/proc/self/fd/2", "/dev/fd/2", "/dev/stderr"];

    let mut outside = stage.outside("descriptors/read", paths);
    let outside = outside.stderr(append()?).output()?;
    assert_eq!(
        String::from_utf8_lossy(&outside.stdout),
        SECRET.repeat(3),
        "not live"
    );

    // With a limit on files, the program gets a pipe instead.
    let cell = stage.probe("descriptors/read", paths).passed_through();
    let cell = cell.limit("file-size", "none");
    for (cell, answer) in [
        (cell.clone(), libc::EACCES),
        // No layer but Landlock refuses this.
        (cell.without("landlock"), 0),
    ] {
        let inside = cell.command().stderr(append()?).output()?;
        let told = String::from_utf8_lossy(&inside.stdout).into_owned();
        let refused = format!("{:?}\n", Some(answer)).repeat(3);
        assert_eq!(
            told,
            if answer == 0 {
                SECRET.repeat(3)
            } else {
                refused
            }
        );
    }
    Ok(())
}

/// From a directory's descriptor, `..` leads to every file of the host.
fn directory_as_standard_input(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    scratch.file("secret", SECRET)?;
    let host = || File::open(scratch.path());
    let mut outside = stage.outside("descriptors/reach", []);
    let outside = outside.stdin(host()?).output()?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "Ok(())\n");

    let cell = stage.probe("descriptors/reach", []);
    let mut recorded = cell.command();
    let process = process::finish(recorded.stdin(host()?), stage.patience())?;
    let run = Run::of(process)?.ended(Outcome::Setup)?;
    let error = &run.json["setup_error"];
    assert!(error.to_string().contains("a directory"), "{error}");
    let mut through = cell.passed_through().command();
    let through = process::finish(through.stdin(host()?), stage.patience())?;
    assert_eq!((through.code(), &*through.stdout), (125, &b""[..]));
    Ok(())
}

/// A file that the program's outer uid owns, as one of the caller's may be.
fn own_file(stage: &Stage, scratch: &Scratch) -> Check<PathBuf> {
    let file = scratch.file("input", "skipped, read")?;
    chmod(&file, 0o600)?;
    if stage.root() {
        std::os::unix::fs::chown(&file, Some(OUTER), Some(OUTER))?;
    }
    Ok(file)
}

/// The outer uid of root's cells.
const OUTER: u32 = 0x7200_0000;

fn altering(stage: &Stage) -> Cell<'_> {
    let cell = stage.probe("descriptors/alter", []);
    match stage.root() {
        true => cell.option(["--outer-uid", &OUTER.to_string()]),
        false => cell,
    }
}

fn file_as_standard_input(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = own_file(stage, &scratch)?;
    let alter = |options: &fs::OpenOptions, told: &str, mode: u32| -> Check {
        chmod(&path, 0o600)?;
        let mut file = options.open(&path)?;
        file.seek(SeekFrom::Start(9))?;
        let mut command = altering(stage).command();
        let process = process::finish(command.stdin(file), stage.patience())?;
        let run = Run::of(process)?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), format!("{told} read\n"));
        let now = fs::metadata(&path)?.permissions().mode() & 0o7777;
        assert_eq!(now, mode, "{now:o}");
        Ok(())
    };
    // A limitation that SECURITY.md states: the kernel offers no read-only mount to
    // existing writers.
    let mut writing = File::options();
    alter(writing.read(true).write(true), "ok ok ok ok", 0o604)?;
    let refused = "EROFS EROFS EROFS EROFS";
    alter(File::options().read(true), refused, 0o600)
}

/// An unlinked file cannot be reopened. With another link left, reopening is refused;
/// without one, nothing else can open it.
fn file_without_its_name(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = own_file(stage, &scratch)?;
    let other = scratch.join("other");
    fs::hard_link(&path, &other)?;
    let run = |path: &PathBuf| -> Check<Run> {
        let file = File::open(path)?;
        fs::remove_file(path)?;
        let mut command = altering(stage).command();
        Run::of(process::finish(command.stdin(file), stage.patience())?)
    };
    let refused = run(&path)?.ended(Outcome::Setup)?;
    let error = &refused.json["setup_error"];
    assert_eq!(error["operand"], "standard input", "{error}");
    assert!(error["hint"].to_string().contains("pipe"), "{error}");
    run(&other)?.ended(Outcome::Ok)?;
    Ok(())
}

/// Runs a command that inherits `host` under every number of `LEAKED`.
fn finish(stage: &Stage, mut command: Command, host: &File) -> Check<process::Finished> {
    // Above the numbers that it is duplicated to.
    let host = fcntl(host, FcntlArg::F_DUPFD_CLOEXEC(1000))?;
    // SAFETY: dup2 is async-signal-safe. It may close a descriptor of the
    // child's that only concerns the report of a failed exec.
    unsafe {
        command.pre_exec(move || {
            for number in LEAKED {
                call!(SYS_dup3, host, number, 0)?;
            }
            Ok(())
        });
    }
    process::finish(&mut command, stage.patience())
}
