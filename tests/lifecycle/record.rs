//! Destinations of the record, and records that cannot be written.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};

use crate::cells::cell;
use crate::cells::prelude::*;
use crate::cells::{private, process};
use crate::events::assert_valid_events;

pub(crate) const SUITE: Suite = Suite {
    name: "record",
    covers: &[30, 41],
    attacks: &[],
    scenes: &[
        scene("to-a-file", to_a_file),
        scene("to-a-descriptor", to_a_descriptor),
        scene("to-a-full-device", to_a_full_device),
        scene("to-a-full-disk", to_a_full_disk),
        scene("to-nowhere", to_nowhere),
        scene("through-a-planted-link", through_a_planted_link),
        scene("forged-on-every-descriptor", forged_on_every_descriptor),
    ],
    actors: &[
        Actor {
            name: "say",
            run: |args| {
                print!("{}", args[0]);
                args[1].parse().unwrap_or(0)
            },
        },
        // Puts links at the paths of a later call's files.
        Actor {
            name: "plant",
            run: |args| {
                let plant = |name: &str, target: &str| {
                    let place = Path::new("/shared").join(name);
                    let _ = fs::remove_file(&place);
                    println!("{:?}", std::os::unix::fs::symlink(target, place).is_ok());
                };
                plant("file.json", &args[0]);
                plant("directory", &args[1]);
                0
            },
        },
        // Writes a record of its own wherever there is a descriptor.
        Actor {
            name: "forge",
            run: |_| {
                let forged = br#"{"schema":"cellblock.record.v1","outcome":"ok","exit_code":0}"#;
                let mut written = 0;
                for number in 3..1024 {
                    written += i32::from(call!(SYS_write, number, forged, forged.len()).is_ok());
                    for pid in ["1", "self"] {
                        let path = format!("/proc/{pid}/fd/{number}");
                        let file = File::options().write(true).open(path);
                        written +=
                            i32::from(file.and_then(|mut file| file.write_all(forged)).is_ok());
                    }
                }
                println!("{written}");
                // The program may write to the caller's streams.
                let _ = std::io::stdout().write_all(forged);
                7
            },
        },
        Actor {
            name: "on-a-full-disk",
            run: |args| match on_a_full_disk(&args[0], &args[1..]) {
                Ok(code) => code,
                Err(stop) => {
                    eprintln!("{stop:?}");
                    96
                }
            },
        },
    ],
};

/// A directory that cells write to, as the destination of records and events.
fn through_a_planted_link(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let shared = scratch.dir("shared", 0o777)?;
    let elsewhere = scratch.dir("elsewhere", 0o777)?;
    let secret = scratch.file("secret", "kept")?;
    let targets = [&secret, &elsewhere].map(|path| path.to_string_lossy());
    let plant = || {
        let cell = stage.probe("record/plant", [&targets[0], &targets[1]]);
        cell.rw(&shared, Path::new("/shared"))
    };
    // The first run's record is open already when its name is taken.
    let record = shared.join("file.json");
    let to = |option: &str, path: &Path| plant().option([option, &path.to_string_lossy()]);
    let first = to("--record", &record).run()?.ended(Outcome::Ok)?;
    assert_eq!(first.stdout(), "true\ntrue\n");
    assert_eq!(fs::read_link(&record)?, secret, "not live");
    assert_eq!(fs::read_link(shared.join("directory"))?, elsewhere);

    for option in ["--record", "--events"] {
        for path in [&record, &shared.join("directory/file.json")] {
            let process = to(option, path).finish()?;
            assert_eq!(process.code(), 125, "{}", process.complaint());
            assert!(
                process.complaint().contains("ELOOP"),
                "{}",
                process.complaint()
            );
        }
    }
    assert_eq!(fs::read_to_string(&secret)?, "kept");
    assert_eq!(fs::read_dir(&elsewhere)?.count(), 0);
    // Without a bind of it, a link as the last component is not followed either.
    let words = ["--record", &record.to_string_lossy()];
    let process = stage
        .probe("record/say", ["x", "0"])
        .option(words)
        .finish()?;
    assert_eq!(process.code(), 125);
    assert_eq!(fs::read_to_string(&secret)?, "kept");
    Ok(())
}

fn to_a_file(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("record.json");
    let mut command = stage
        .probe("record/say", ["hello", "3"])
        .passed_through()
        .option(["--record", &path.to_string_lossy()])
        .command();
    let process = process::finish(&mut command, stage.patience())?;
    assert_eq!(
        (process.code(), process.stdout.as_slice()),
        (3, &b"hello"[..])
    );
    let record = cell::read(&path)?;
    assert_eq!((record.outcome, record.exit_code), (Outcome::Exit, 3));
    // Passed through, the output is the caller's and not in the record.
    assert_eq!(record.stdout, None);
    Ok(())
}

fn to_a_descriptor(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let file = File::create(scratch.join("record.json"))?;
    let descriptor = file.as_raw_fd();
    let mut command = stage
        .probe("descriptors/list", [])
        .passed_through()
        .option(["--record", "fd:9"])
        .command();
    // SAFETY: dup3 is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            call!(SYS_dup3, descriptor, 9, 0)?;
            Ok(())
        });
    }
    let process = process::finish(&mut command, stage.patience())?;
    // The program has no such descriptor.
    assert_eq!(String::from_utf8_lossy(&process.stdout), "0 1 2 ");
    let record = cell::read(&scratch.join("record.json"))?;
    assert_eq!(record.outcome, Outcome::Ok);
    Ok(())
}

fn to_a_full_device(stage: &Stage) -> Check {
    let mut command = stage
        .probe("record/say", ["hello", "0"])
        .passed_through()
        .option(["--record", "/dev/full"])
        .command();
    let process = process::finish(&mut command, stage.patience())?;
    tells_of(&process, "/dev/full");

    // With --json, the record goes to stdout.
    let mut command = stage.probe("record/say", ["hello", "0"]).command();
    let full = File::options().write(true).open("/dev/full")?;
    let status = command
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()?;
    assert_eq!(status.code(), Some(125));
    Ok(())
}

fn to_a_full_disk(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let dir = scratch.dir("full", 0o755)?;
    let record = dir.join("record.json");
    let long = "hello".repeat(2000);
    let cell = stage
        .probe("record/say", [&*long, "0"])
        .option(["--record", &record.to_string_lossy()])
        .command();
    let mut outside = stage.outside("record/on-a-full-disk", []);
    outside
        .arg(&dir)
        .arg(cell.get_program())
        .args(cell.get_args());
    let process = process::finish(&mut outside, stage.patience())?;
    tells_of(&process, "record.json");
    Ok(())
}

/// Without its record a call has not succeeded, and stderr must say why.
fn tells_of(process: &process::Finished, operand: &str) {
    assert_eq!(process.code(), 125, "{}", process.complaint());
    let told = String::from_utf8_lossy(&process.stderr);
    assert!(told.contains(operand) && told.contains("ENOSPC"), "{told}");
}

fn on_a_full_disk(dir: &str, command: &[String]) -> Check<i32> {
    private::enter()?;
    mount(
        Some("full"),
        dir,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=8k"),
    )?;
    let filled = File::create(Path::new(dir).join("filler"))?.write_all(&[0; 1 << 16]);
    if filled.is_ok() {
        return Err(fail("the disk is not full"));
    }
    // Room for a part of a record.
    File::options()
        .write(true)
        .open(Path::new(dir).join("filler"))?
        .set_len(4096)?;
    let status = Command::new(&command[0]).args(&command[1..]).status()?;
    // Half a document must not look like one.
    match fs::metadata(Path::new(dir).join("record.json")) {
        Ok(record) if record.len() > 0 => Err(fail("a part of the record was left")),
        _ => Ok(status.code().unwrap_or(95)),
    }
}

/// A bad destination is found before the program runs.
fn to_nowhere(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let missing = scratch.join("missing/record.json");
    for destination in [&*missing.to_string_lossy(), "fd:77"] {
        let ran = scratch.dir("ran", 0o777)?;
        let mut command = stage
            .probe("mounts/write", ["/ran/new"])
            .passed_through()
            .rw(&ran, Path::new("/ran"))
            .option(["--record", destination])
            .command();
        let process = process::finish(&mut command, stage.patience())?;
        assert_eq!(process.code(), 125, "{}", process.complaint());
        assert!(!process.stderr.is_empty());
        assert!(
            !fs::exists(ran.join("new"))?,
            "{destination}: the program ran"
        );
        fs::remove_dir(ran)?;
    }
    Ok(())
}

fn forged_on_every_descriptor(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("record.json");
    let events = scratch.join("events.jsonl");
    let mut command = stage
        .probe("record/forge", [])
        .passed_through()
        .option(["--record", &path.to_string_lossy()])
        .option(["--events", &events.to_string_lossy()])
        .command();
    let process = process::finish(&mut command, stage.patience())?;
    assert!(
        process.stdout.starts_with(b"0\n"),
        "{:?}",
        String::from_utf8_lossy(&process.stdout)
    );
    let record = cell::read(&path)?;
    assert_eq!((record.outcome, record.exit_code), (Outcome::Exit, 7));
    assert_eq!(assert_valid_events(&fs::read_to_string(events)?).len(), 2);
    Ok(())
}
