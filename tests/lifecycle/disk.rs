//! Full disks, exhausted inodes, terabyte files.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;

use nix::sys::resource::{Resource, setrlimit};

use crate::cells::cell::read;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "disk",
    covers: &[29],
    attacks: &[],
    scenes: &[
        scene("filled", filled),
        scene("inodes-used-up", inodes_used_up),
        scene("sparse-terabyte", sparse_terabyte),
        scene("root-has-no-room", root_has_no_room),
        scene("full-and-emptied", full_and_emptied),
        scene("room-for-the-cache-of-go", cache_of_go).needs(&[Need::Program("go")]),
        scene("room-for-the-cache-of-npm", cache_of_npm).needs(&[Need::Program("npm")]),
        scene("callers-file-is-not-limited", callers_file),
        scene("callers-file-is-full", callers_full_file),
    ],
    actors: &[
        Actor {
            name: "fill",
            run: |args| {
                let path = format!("{}/fill", args[0]);
                let mut written: u64 = 0;
                let block = [b'x'; 65536];
                let came = File::create(path).and_then(|mut file| {
                    while written < 1 << 30 {
                        written += file.write(&block)? as u64;
                    }
                    Ok(())
                });
                report(written, came)
            },
        },
        Actor {
            name: "litter",
            run: |args| {
                let mut made = 0;
                let came = (0..2_000_000_u64).try_for_each(|number| {
                    made = number;
                    File::create(format!("{}/{number}", args[0])).map(drop)
                });
                report(made, came)
            },
        },
        Actor {
            name: "sparse",
            run: |args| {
                // SIGXFSZ would end the process.
                // SAFETY: ignoring a signal runs no code of ours.
                let _ = unsafe {
                    nix::sys::signal::signal(
                        nix::sys::signal::Signal::SIGXFSZ,
                        nix::sys::signal::SigHandler::SigIgn,
                    )
                };
                let came = File::create(format!("{}/sparse", args[0]))
                    .and_then(|file| file.set_len(1 << 40));
                report(0, came)
            },
        },
    ],
};

fn report(count: u64, came: std::io::Result<()>) -> i32 {
    match came {
        Ok(()) => {
            println!("{count} all of it");
            0
        }
        Err(error) => {
            println!(
                "{count} {:?}",
                Errno::from_raw(error.raw_os_error().unwrap_or(0))
            );
            1
        }
    }
}

fn filled(stage: &Stage) -> Check {
    for (place, option) in [
        ("/tmp", "tmp-size"),
        ("/workspace", "workspace-size"),
        ("/dev/shm", "shm-size"),
    ] {
        let run = stage
            .probe("disk/fill", [place])
            .limit(option, "1M")
            .run()?
            .ended(Outcome::Disk)?;
        assert_eq!(run.stdout(), "1048576 ENOSPC\n", "{place}");
        assert_eq!(run.record.exit_code, 1);
        let limits = &run.record.limits;
        let inodes = option.replace("-size", "_inodes");
        assert_eq!(limits[&option.replace('-', "_")].hit, Some(true));
        assert_eq!(limits[&inodes].hit, None, "{}", run.json);
    }
    Ok(())
}

fn inodes_used_up(stage: &Stage) -> Check {
    for (place, name) in [("/tmp", "tmp"), ("/workspace", "workspace")] {
        let run = stage
            .probe("disk/litter", [place])
            .run()?
            .ended(Outcome::Disk)?;
        assert!(
            run.stdout().ends_with(" ENOSPC\n"),
            "{place}: {}",
            run.stdout()
        );
        let hit = |kind| run.record.limits[&format!("{name}_{kind}")].hit;
        assert_eq!(hit("inodes"), Some(true), "{}", run.json);
        assert_ne!(hit("size"), Some(true), "{}", run.json);
    }
    Ok(())
}

/// Temporary files and the cache of a compiler fit into a default cell, also of a whole package of the
/// standard library.
fn cache_of_go(stage: &Stage) -> Check {
    let script =
        "printf 'package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hello\") }\n' > a.go
go run a.go && go build -a errors";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .limit("wall", "300s")
        .limit("cpu-time", "300s")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "hello\n", "{}", run.json);
    Ok(())
}

fn cache_of_npm(stage: &Stage) -> Check {
    let script = "mkdir dep
echo '{\"name\": \"dep\", \"version\": \"1.0.0\"}' > dep/package.json
echo '{\"name\": \"a\", \"dependencies\": {\"dep\": \"file:./dep\"}}' > package.json
npm install --offline >&2 && ls node_modules";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .limit("wall", "300s")
        .limit("cpu-time", "300s")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "dep\n", "{}", run.json);
    Ok(())
}

/// A limit that was hit stays hit though the program makes room again: where the disk was seen full,
/// and where it had too little room for what was to be written at once.
fn full_and_emptied(stage: &Stage) -> Check {
    let fill = "head -c 60000000 /dev/zero > /tmp/x";
    let scripts = [
        format!("{fill}; head -c 9000000 /dev/zero > /tmp/y; sleep 1; rm /tmp/x /tmp/y; exit 1"),
        format!("{fill}; fallocate -l 9000000 /tmp/y; sleep 1; rm /tmp/x; exit 1"),
    ];
    for script in scripts {
        let run = stage
            .exec(["/bin/sh", "-c", &script])
            .limit("tmp-size", "64M")
            .run()?
            .ended(Outcome::Disk)?;
        assert_eq!(
            run.record.limits["tmp_size"].hit,
            Some(true),
            "{}",
            run.json
        );
        assert_ne!(run.record.limits["workspace_size"].hit, Some(true));
    }
    Ok(())
}

const WRITES: &str = "
printf 'out\\n'
printf 'err\\n' >&2
head -c 3000000 /dev/zero
printf 'last\\n' >&2";

/// The limit on files in the cell does not hold for the caller's file, to which the output is redirected.
fn callers_file(stage: &Stage) -> Check {
    let path = stage.dir.join("out");
    let same_file = |limit: &str| -> Check<Vec<u8>> {
        fs::write(&path, "before\n")?;
        let file = fs::OpenOptions::new().append(true).open(&path)?;
        let cell = stage.exec(["/bin/sh", "-c", WRITES]).passed_through();
        let mut command = cell.limit("file-size", limit).command();
        command.stdout(file.try_clone()?).stderr(file);
        command.status()?;
        Ok(fs::read(&path)?)
    };
    let expected = [&b"before\nout\nerr\n"[..], &[0; 3_000_000], b"last\n"].concat();
    for limit in ["1M", "none"] {
        let written = same_file(limit)?;
        assert!(written == expected, "{limit}: {}", written.len());
    }
    let files = ["1", "2"].map(|name| stage.dir.join(name));
    let record = stage.dir.join("record");
    let cell = stage.exec(["/bin/sh", "-c", WRITES]).passed_through();
    let cell = cell.limit("file-size", "1M");
    let mut command = cell
        .option(["--record", &record.to_string_lossy()])
        .command();
    command.stdout(File::create(&files[0])?);
    command.stderr(File::create(&files[1])?);
    command.status()?;
    assert_eq!(fs::metadata(&files[0])?.len(), 3_000_004);
    assert_eq!(fs::read_to_string(&files[1])?, "err\nlast\n");
    let record = read(&record)?;
    assert_eq!(record.outcome, Outcome::Ok);
    // The cell's own files are limited.
    let run = stage
        .exec(["/bin/sh", "-c", "head -c 3000000 /dev/zero > x"])
        .limit("file-size", "1M")
        .run()?
        .ended(Outcome::Disk)?;
    assert_eq!(run.record.limits["file_size"].hit, Some(true));
    Ok(())
}

/// Output that the caller's file has no room for is said to be missing.
fn callers_full_file(stage: &Stage) -> Check {
    let record = stage.dir.join("record");
    let cell = stage
        .exec(["/bin/sh", "-c", "head -c 3000000 /dev/zero; true"])
        .passed_through();
    let mut command = cell
        .option(["--record", &record.to_string_lossy()])
        .command();
    command.stdout(File::create(stage.dir.join("out"))?);
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_FSIZE, 1 << 20, 1 << 20)?));
    }
    command.status()?;
    assert_eq!(fs::metadata(stage.dir.join("out"))?.len(), 1 << 20);
    let warnings = read(&record)?.warnings.join("; ");
    assert!(
        warnings.contains("the rest of it is missing: EFBIG"),
        "{warnings}"
    );
    Ok(())
}

fn sparse_terabyte(stage: &Stage) -> Check {
    let run = stage
        .probe("disk/sparse", ["/tmp"])
        .limit("file-size", "16M")
        .run()?
        .ended(Outcome::Exit)?;
    assert_eq!(run.stdout(), "0 EFBIG\n");
    Ok(())
}

/// The tmpfs of the cell's root offers the program no disk space.
fn root_has_no_room(stage: &Stage) -> Check {
    for place in ["/", "/etc", "/dev", "/run"] {
        let run = stage
            .probe("disk/fill", [place])
            .without("landlock")
            .run()?;
        let refused = ["0 EROFS\n", "0 ENOENT\n", "0 EACCES\n"].contains(&run.stdout());
        assert!(refused, "{place}: {}", run.stdout());
    }
    Ok(())
}
