//! What a user has a share of, whatever namespaces his processes are in: a cell
//! must not use up the caller's.

use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::cells::process::Watch;

pub(crate) const SUITE: Suite = Suite {
    name: "shares",
    covers: &[26],
    attacks: &[],
    scenes: &[
        Scene {
            name: "inotify-instances",
            needs: &[],
            run: inotify_instances,
        },
        Scene {
            name: "supervisor-s-time",
            needs: &[],
            run: supervisors_time,
        },
    ],
    actors: &[
        Actor {
            name: "take-inotify-instances",
            run: |args| {
                for _ in 0..8 {
                    let _ = crate::cells::raw::fork(|| {
                        while call!(SYS_inotify_init1, 0).is_ok() {}
                        pause()
                    });
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
                let _ = std::fs::write(&args[0], "");
                pause()
            },
        },
        Actor {
            name: "ask-for-what-is-denied",
            run: |_| {
                for _ in 0..7 {
                    let _ = crate::cells::raw::fork(ask);
                }
                ask()
            },
        },
    ],
};

fn pause() -> i32 {
    std::thread::sleep(std::time::Duration::from_secs(60));
    0
}

fn ask() -> i32 {
    loop {
        let _ = call!(SYS_unshare, libc::CLONE_NEWUSER);
    }
}

fn inotify_instances(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let scratch = stage.scratch()?;
    let sync = scratch.dir("sync", 0o777)?;
    let ready = sync.join("ready");
    let cell = stage
        .probe(
            "shares/take-inotify-instances",
            ["/sync/ready", marker.word()],
        )
        .rw(&sync, "/sync".as_ref())
        .spawn()?;
    let start = std::time::Instant::now();
    while !ready.exists() && start.elapsed() < stage.within(5_000) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(ready.exists());
    let own = call!(SYS_inotify_init1, 0).and_then(|instance| call!(SYS_close, instance));
    cell.signal(nix::sys::signal::Signal::SIGTERM)?;
    cell.until_end(stage.within(5_000))?;
    marker.nothing_left()?;
    assert_eq!(own, Ok(0), "a cell took the caller's share");
    Ok(())
}

/// What is denied is counted by the supervisor, on the caller's time: a program
/// that asks on and on must not get much of that.
fn supervisors_time(stage: &Stage) -> Check {
    let mut command = stage
        .probe("shares/ask-for-what-is-denied", [])
        .limit("wall", "1s")
        .command();
    let process = Watch::start(&mut command)?.until_end(stage.within(10_000))?;
    let used = process.cpu_time;
    let run = crate::cells::cell::Run::of(process)?.ended(Outcome::Timeout)?;
    stage.note(format!("{used:?} for {} calls", run.record.denied[0].count));
    assert!(used < stage.within(400), "{used:?} of one second");
    Ok(())
}
