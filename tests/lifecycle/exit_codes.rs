//! Programs that end with exit codes of cellblock's own: the record distinguishes them.

use std::fs;

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::cells::prelude::*;
use crate::cells::scratch::chmod;

pub(crate) const SUITE: Suite = Suite {
    name: "exit-codes",
    covers: &[32],
    attacks: &[],
    scenes: &[
        scene("used-by-programs", used_by_programs),
        scene("by-signals", by_signals),
        scene("used-by-cellblock", used_by_cellblock),
    ],
    actors: &[
        Actor {
            name: "exit",
            run: |args| args[0].parse().unwrap_or(99),
        },
        Actor {
            name: "die",
            run: |args| {
                let number: i32 = args[0].parse().unwrap_or(0);
                let Ok(number) = Signal::try_from(number) else {
                    return 2;
                };
                // Rust's runtime handles one of these signals.
                // SAFETY: the default action runs no code of ours.
                let _ = unsafe { signal(number, SigHandler::SigDfl) };
                let _ = nix::sys::signal::raise(number);
                98
            },
        },
    ],
};

fn used_by_programs(stage: &Stage) -> Check {
    for code in [1, 2, 124, 125, 126, 127, 128, 137, 143, 159, 255] {
        let run = stage
            .probe("exit-codes/exit", [&code.to_string()])
            .run()?
            .ended(Outcome::Exit)?;
        assert_eq!((run.record.exit_code, run.record.signal), (code, None));
    }
    let run = stage
        .probe("exit-codes/exit", ["0"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.record.exit_code, 0);
    Ok(())
}

fn by_signals(stage: &Stage) -> Check {
    for (number, name) in [
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGUSR1, "SIGUSR1"),
    ] {
        let run = stage
            .probe("exit-codes/die", [&number.to_string()])
            .run()?
            .ended(Outcome::Signal)?;
        assert_eq!(run.record.exit_code, 128 + number);
        assert_eq!(run.record.signal.as_deref(), Some(name));
    }
    Ok(())
}

fn used_by_cellblock(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let missing = stage
        .exec(["/no/such/program"])
        .itself()
        .run()?
        .ended(Outcome::Setup)?;
    assert_eq!(missing.record.exit_code, 127);

    let plain = scratch.file("plain", "not a program")?;
    let mode = stage
        .exec(["/plain"])
        .itself()
        .ro(&plain, "/plain".as_ref())
        .run()?
        .ended(Outcome::Setup)?;
    assert_eq!(mode.record.exit_code, 126);

    fs::write(&plain, [0; 64])?;
    chmod(&plain, 0o755)?;
    let format = stage
        .exec(["/plain"])
        .itself()
        .ro(&plain, "/plain".as_ref())
        .run()?
        .ended(Outcome::Setup)?;
    assert_eq!(format.record.exit_code, 126);

    let source = scratch.join("missing");
    let bind = stage
        .exec(["/bin/true"])
        .ro(&source, "/missing".as_ref())
        .run()?
        .ended(Outcome::Setup)?;
    assert_eq!(bind.record.exit_code, 125);
    let error = bind
        .record
        .setup_error
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(error.contains(&*source.to_string_lossy()), "{error}");
    Ok(())
}
