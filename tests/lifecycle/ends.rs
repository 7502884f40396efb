//! Processes that try to outlive their program: none does.

use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

use crate::cells::left::Marker;
use record::Enforced;

use crate::cells::prelude::*;
use crate::cells::{process, raw};

pub(crate) const SUITE: Suite = Suite {
    name: "ends",
    covers: &[22, 23],
    attacks: &[],
    scenes: &[
        scene("fork-bomb", fork_bomb),
        scene("process-limit", process_limit),
        scene(
            "process-limit-is-each-cell-s-own",
            process_limit_is_each_cells_own,
        ),
        scene("thread-limit", thread_limit),
        scene("daemon-that-holds-stdout", daemon_that_holds_stdout),
        scene(
            "daemon-that-holds-the-caller-s-pipe",
            daemon_that_holds_the_callers_pipe,
        ),
        scene("stopped-and-traced-children", stopped_children),
    ],
    actors: ACTORS,
};

const ACTORS: &[Actor] = &[
    // Endless double forks, new sessions and stopped processes.
    Actor {
        name: "fork-bomb",
        run: |_| {
            loop {
                let _ = raw::fork(|| {
                    let _ = nix::unistd::setsid();
                    loop {
                        let grandchild = raw::fork(|| {
                            ignore_what_can_be_ignored();
                            loop {
                                let _ = raw::fork(pause);
                                let _ = kill(Pid::this(), Signal::SIGSTOP);
                            }
                        });
                        if grandchild.is_err() {
                            return pause();
                        }
                    }
                });
            }
        },
    },
    // Lasting children, until fork fails.
    Actor {
        name: "count-forks",
        run: |_| {
            let mut count = 0;
            while count < 5000 && raw::fork(pause).is_ok() {
                count += 1;
            }
            println!("{count} {:?}", Errno::last());
            // Long enough for a watchdog to see them.
            std::thread::sleep(Duration::from_millis(300));
            0
        },
    },
    Actor {
        name: "count-threads",
        run: |_| {
            let mut threads = Vec::new();
            while threads.len() < 5000
                && let Ok(thread) = std::thread::Builder::new()
                    .stack_size(64 * 1024)
                    .spawn(|| std::thread::sleep(Duration::from_secs(60)))
            {
                threads.push(thread);
            }
            println!("{}", threads.len());
            0
        },
    },
    Actor {
        name: "leave-a-daemon",
        run: |_| {
            let _ = raw::in_child(|| {
                let _ = nix::unistd::setsid();
                let _ = raw::fork(|| {
                    ignore_what_can_be_ignored();
                    pause()
                });
                0
            });
            println!("done");
            0
        },
    },
    Actor {
        name: "leave-stopped-children",
        run: |_| {
            for _ in 0..8 {
                let _ = raw::fork(|| {
                    ignore_what_can_be_ignored();
                    let _ = kill(Pid::this(), Signal::SIGSTOP);
                    pause()
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            0
        },
    },
];

fn pause() -> i32 {
    std::thread::sleep(Duration::from_secs(60));
    0
}

fn ignore_what_can_be_ignored() {
    for number in Signal::iterator() {
        // SAFETY: to ignore a signal runs no code of ours.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
}

fn fork_bomb(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let run = stage
        .probe("ends/fork-bomb", [marker.word()])
        .limit("processes", "64")
        .limit("wall", "400ms")
        .run()?
        .ended(Outcome::Timeout)?;
    marker.nothing_left()?;
    assert_eq!(run.record.exit_code, 124);
    Ok(())
}

fn process_limit(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let run = stage
        .probe("ends/count-forks", [marker.word()])
        .limit("processes", "20")
        .run()?;
    marker.nothing_left()?;
    // The program is one of the twenty; whether init counts depends on the mechanism.
    let counted = matches!(run.stdout(), "18 EAGAIN\n" | "19 EAGAIN\n");
    assert!(counted, "{:?}", run.stdout());
    let limit = &run.record.limits["processes"];
    let enforced = Some(Enforced::Exactly(20.0));
    assert_eq!((limit.requested, limit.enforced), (20.0, enforced));
    assert_eq!(limit.hit, Some(true), "{}", run.json);
    let peak = run.record.usage.processes_peak;
    assert!(matches!(peak, Some(19 | 20)), "{peak:?}");
    assert!(
        ["cgroup", "rlimit"].contains(&limit.by.as_str()),
        "{}",
        limit.by
    );
    Ok(())
}

/// Two cells of one user at the same time each have their own twenty.
fn process_limit_is_each_cells_own(stage: &Stage) -> Check {
    let (one, other) = (Marker::new()?, Marker::new()?);
    let bomb = |marker: &Marker| {
        stage
            .probe("ends/fork-bomb", [marker.word()])
            .limit("processes", "20")
            .limit("wall", &stage.duration(120_000))
    };
    let first = bomb(&one).spawn()?;
    stage.wait_until("the first has many", || Ok(one.processes()?.len() >= 15))?;
    let second = stage
        .probe("ends/count-forks", [other.word()])
        .limit("processes", "20")
        .run()?;
    assert!(second.stdout().starts_with("18 ") || second.stdout().starts_with("19 "));
    first.signal(Signal::SIGTERM)?;
    first.until_end(stage.patience())?;
    one.nothing_left()?;
    other.nothing_left()
}

fn thread_limit(stage: &Stage) -> Check {
    let run = stage
        .probe("ends/count-threads", [])
        .limit("processes", "20")
        .run()?;
    let count: usize = run.stdout().trim().parse().unwrap_or(usize::MAX);
    assert!((17..20).contains(&count), "{count} threads");
    Ok(())
}

fn daemon_that_holds_stdout(stage: &Stage) -> Check {
    let outside = process::finish(
        &mut stage.outside("ends/leave-a-daemon", []),
        stage.patience(),
    )?;
    assert!(outside.pipes_still_held, "not live");

    let marker = Marker::new()?;
    let run = stage
        .probe("ends/leave-a-daemon", [marker.word()])
        .run()?
        .ended(Outcome::Ok)?;
    marker.nothing_left()?;
    assert_eq!(run.stdout(), "done\n");
    Ok(())
}

fn daemon_that_holds_the_callers_pipe(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let mut command = stage
        .probe("ends/leave-a-daemon", [marker.word()])
        .passed_through()
        .command();
    let through = process::finish(&mut command, stage.patience())?;
    marker.nothing_left()?;
    assert_eq!(
        (through.code(), through.stdout.as_slice()),
        (0, &b"done\n"[..])
    );
    assert!(!through.pipes_still_held);
    Ok(())
}

fn stopped_children(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    stage
        .probe("ends/leave-stopped-children", [marker.word()])
        .run()?
        .ended(Outcome::Ok)?;
    marker.nothing_left()
}
