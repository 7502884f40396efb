//! Time limits, and programs that evade them.

use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::cells::raw;

pub(crate) const SUITE: Suite = Suite {
    name: "time",
    covers: &[27],
    attacks: &[],
    scenes: &[
        scene("sleeps-for-ever", sleeps_for_ever),
        scene("burns-and-ignores", burns_and_ignores),
        scene("burns-under-a-false-name", |stage| {
            ends_by_cpu_time(stage, "time/burn-under-a-false-name")
        }),
        scene(
            "burns-in-short-lived-children",
            burns_in_short_lived_children,
        ),
        scene("burns-in-orphans", burns_in_orphans),
    ],
    actors: &[
        Actor {
            name: "sleep",
            run: |_| {
                ignore();
                loop {
                    std::thread::sleep(Duration::from_secs(60));
                }
            },
        },
        Actor {
            name: "burn",
            run: |_| {
                ignore();
                burn(Duration::from_secs(60));
                0
            },
        },
        // A name that looks like the numbers after it in /proc.
        Actor {
            name: "burn-under-a-false-name",
            run: |_| {
                let _ = nix::sys::prctl::set_name(c") S 1 1 1 0 0 0");
                let _ = raw::in_child(|| {
                    let _ = nix::sys::prctl::set_name(c"x\nRssAnon: 0)");
                    burn(Duration::from_secs(60));
                    0
                });
                0
            },
        },
        Actor {
            name: "burn-in-children",
            run: |_| {
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(60) {
                    let _ = raw::in_child(|| {
                        burn_cpu(Duration::from_millis(20));
                        0
                    });
                }
                0
            },
        },
        Actor {
            name: "burn-a-little",
            run: |_| {
                let _ = raw::in_child(|| {
                    let _ = raw::in_child(|| {
                        burn_cpu(Duration::from_millis(600));
                        0
                    });
                    0
                });
                0
            },
        },
        Actor {
            name: "burn-in-orphans",
            run: |_| {
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(60) {
                    // Only init waits for the process that uses the CPU.
                    let _ = raw::in_child(|| {
                        let _ = raw::fork(|| {
                            burn(Duration::from_millis(20));
                            0
                        });
                        0
                    });
                    std::thread::sleep(Duration::from_millis(20));
                }
                0
            },
        },
    ],
};

fn ignore() {
    for number in [
        Signal::SIGTERM,
        Signal::SIGXCPU,
        Signal::SIGINT,
        Signal::SIGHUP,
    ] {
        // SAFETY: to ignore a signal runs no code of ours.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
}

fn burn(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// The same by the process's own clock, which stands still while others run.
fn burn_cpu(duration: Duration) {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
    while nix::time::clock_gettime(clock).is_ok_and(|used| Duration::from(used) < duration) {
        std::hint::spin_loop();
    }
}

fn sleeps_for_ever(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let run = stage
        .probe("time/sleep", [marker.word()])
        .limit("wall", "300ms")
        .run()?
        .ended(Outcome::Timeout)?;
    marker.nothing_left()?;
    assert_eq!(run.record.exit_code, 124);
    assert_eq!(run.record.limits["wall"].hit, Some(true));
    assert!(
        run.record.usage.wall_ms >= 300.0,
        "{}",
        run.record.usage.wall_ms
    );
    Ok(())
}

fn burns_and_ignores(stage: &Stage) -> Check {
    ends_by_cpu_time(stage, "time/burn")
}

/// A limit that the kernel applies to each process separately never ends these.
fn burns_in_short_lived_children(stage: &Stage) -> Check {
    ends_by_cpu_time(stage, "time/burn-in-children")
}

fn burns_in_orphans(stage: &Stage) -> Check {
    ends_by_cpu_time(stage, "time/burn-in-orphans")
}

fn ends_by_cpu_time(stage: &Stage, probe: &str) -> Check {
    let marker = Marker::new()?;
    let run = stage
        .probe(probe, [marker.word()])
        .limit("cpu-time", "300ms")
        .limit("wall", &stage.duration(50_000))
        .deadline(120_000)
        .run()?
        .ended(Outcome::Timeout)?;
    marker.nothing_left()?;
    assert_eq!(run.record.exit_code, 124);
    let hit = (
        run.record.limits["cpu_time"].hit,
        run.record.limits["wall"].hit,
    );
    assert_eq!(hit, (Some(true), Some(false)), "{}", run.json);
    let usage = &run.record.usage;
    let used = usage.cpu_user_ms.unwrap_or(0.0) + usage.cpu_system_ms.unwrap_or(0.0);
    // The kernel counts in ticks of up to 10 ms.
    assert!((270.0..3_000.0).contains(&used), "{used} ms");
    Ok(())
}
