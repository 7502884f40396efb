//! The sandbox's own executable, reached from inside and overwritten, so that
//! the next call runs the attacker's code outside (CVE-2019-5736).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::chmod;

pub(crate) const SUITE: Suite = Suite {
    name: "self-exe",
    covers: &[2],
    attacks: &[
        attack("open-executable-of-init", || {
            open("/proc/1/exe", libc::O_RDONLY)
        })
        .live(naive())
        .refused(INVISIBLE)
        .weaker(BY_INIT_ITSELF),
        attack("run-executable-of-init", || run("/proc/1/exe"))
            .live(naive())
            .refused(INVISIBLE)
            .weaker(BY_INIT_ITSELF),
        attack("map-files-of-init", || {
            fs::read_dir("/proc/1/map_files").map(drop).map_err(errno)
        })
        .live(naive())
        .refused(INVISIBLE)
        .weaker(BY_INIT_ITSELF),
    ],
    scenes: &[
        scene(
            "interpreter-is-the-executable",
            interpreter_is_the_executable,
        ),
        scene("executables-are-read-only", executables_are_read_only),
    ],
    actors: &[Actor {
        name: "overwrite",
        run: |args| {
            for path in args {
                println!("{path} {:?}", open(path, libc::O_WRONLY));
            }
            0
        },
    }],
};

/// `/proc` shows no process that the program may not trace, and init is one.
const INVISIBLE: &[Errno] = &[Errno::ENOENT];
/// Not because of Landlock: init is not dumpable.
const BY_INIT_ITSELF: &[Weaker] = &[(&["landlock"], With(INVISIBLE))];

fn run(path: &str) -> Attempt {
    Command::new(path)
        .arg("--list")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map(drop)
        .map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The program is a script whose interpreter is `/proc/self/exe`: at that moment,
/// cellblock itself.
fn interpreter_is_the_executable(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    // A copy of cellblock that the program's user could write if it were in reach. Its
    // name says how it starts cells.
    let victim = scratch.join(stage.cellblock.file_name().unwrap_or_default());
    fs::copy(&stage.cellblock, &victim)?;
    chmod(&victim, 0o777)?;
    let before = fs::read(&victim)?;
    let shared = scratch.dir("shared", 0o777)?;
    let script = shared.join("script");
    fs::write(&script, "#!/proc/self/exe\n")?;
    chmod(&script, 0o755)?;

    // Outside, such a script runs the program that executes it: this harness, which
    // lists the tests whose names contain the script's path.
    run(&script.to_string_lossy())?;

    for without in [&[][..], &["landlock"], &["landlock", "seccomp"]] {
        let cell = stage
            .exec(["/shared/script"])
            .rw(&shared, Path::new("/shared"))
            .without_all(without);
        let mut command = Command::new(&victim);
        command
            .args(cell.command().get_args())
            .stdin(tempfile::tempfile_in(scratch.path())?);
        let run = Run::of(process::finish(&mut command, stage.patience())?)?;
        if without.is_empty() {
            // Landlock lets only files in the cell's directories be executed.
            assert_eq!(
                (run.record.outcome, run.record.exit_code),
                (Outcome::Setup, 126)
            );
        } else {
            assert_ne!(run.record.outcome, Outcome::Ok, "{}", run.json);
        }
        assert!(fs::read(&victim)? == before, "the executable was changed");
    }
    Ok(())
}

fn executables_are_read_only(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    // A copy, since the kernel refuses to write an executable that is running.
    let program = scratch.join("program");
    fs::copy(&stage.probe, &program)?;
    chmod(&program, 0o777)?;
    let before = fs::read(&program)?;
    let run = stage
        .probe("self-exe/overwrite", ["/program"])
        .ro(&program, Path::new("/program"))
        .without("landlock")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "/program Err(EROFS)\n");
    assert!(fs::read(&program)? == before);
    Ok(())
}
