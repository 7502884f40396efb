//! Resources that the kernel counts per user, whatever the namespace: a cell must not
//! use up the caller's share.

use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

use crate::cells::cell::Run;
use crate::cells::left::Marker;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "shares",
    covers: &[26, 41, 50],
    attacks: &[],
    scenes: &[
        scene("inotify-instances", inotify_instances),
        scene("inotify-limit", inotify_limit),
        scene("pseudo-terminals", pseudo_terminals),
        scene("queued-signals", queued_signals),
        scene("limits-of-processes", limits_of_processes),
        scene("supervisor-s-time", supervisors_time),
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
            name: "count-inotify-instances",
            run: |_| {
                let taken = (0..10).take_while(|_| call!(SYS_inotify_init1, 0).is_ok());
                println!("{}", taken.count());
                0
            },
        },
        // Takes as many of the host's as it gets, and tries for more than a cell may
        // have.
        Actor {
            name: "take-terminals",
            run: |_| {
                let flags = OFlag::O_RDWR | OFlag::O_NOCTTY;
                let open = || nix::fcntl::open("/dev/ptmx", flags, Mode::empty()).ok();
                let taken: Vec<OwnedFd> = std::iter::from_fn(open).take(40).collect();
                println!("{}", taken.len());
                0
            },
        },
        Actor {
            name: "queue-signals",
            run: |_| {
                // Real-time signals are queued one by one.
                let signal = libc::SIGRTMIN() + 5;
                let mask = [1_u64 << (signal - 1)];
                let _ = call!(SYS_rt_sigprocmask, libc::SIG_BLOCK, &mask, Arg::NULL, 8);
                // `siginfo_t` as sigqueue(3) makes it: SI_QUEUE is -1.
                let mut info = [0_i32; 32];
                info[2] = -1;
                let myself = std::process::id();
                let queued = (0..1000)
                    .take_while(|_| call!(SYS_rt_sigqueueinfo, myself, signal, &info).is_ok())
                    .count();
                println!("{queued}");
                0
            },
        },
        Actor {
            name: "tell-limits",
            run: |_| {
                for number in 0..16 {
                    let mut limit = [0_u64; 2];
                    let _ = call!(SYS_prlimit64, 0, number, Arg::NULL, &mut limit);
                    println!("{} {}", limit[0], limit[1]);
                }
                0
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

/// Several cells at once: the kernel counts them together per user.
fn inotify_instances(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let scratch = stage.scratch()?;
    let mut cells = Vec::new();
    for number in 0..5 {
        let sync = scratch.dir(&number.to_string(), 0o777)?;
        let ready = sync.join("ready");
        let mut cell = stage
            .probe(
                "shares/take-inotify-instances",
                ["/sync/ready", marker.word()],
            )
            .rw(&sync, "/sync".as_ref())
            .spawn()?;
        cell.until_exists(&ready, stage.patience())?;
        cells.push(cell);
    }
    let own = call!(SYS_inotify_init1, 0).and_then(|instance| call!(SYS_close, instance));
    for cell in cells {
        cell.signal(Signal::SIGTERM)?;
        cell.until_end(stage.patience())?;
    }
    marker.nothing_left()?;
    assert_eq!(own, Ok(0), "a cell took the caller's share");
    Ok(())
}

/// What a cell gets, without the limit and with it.
fn inotify_limit(stage: &Stage) -> Check {
    let cell = || stage.probe("shares/count-inotify-instances", []);
    let open = cell().without("userns-limit").run()?.ended(Outcome::Ok)?;
    assert_eq!(open.stdout().trim(), "10");
    let run = cell().run()?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout().trim(), "4");
    let isolation = run.record.isolation.as_ref();
    assert_eq!(
        isolation.and_then(|isolation| isolation.inotify_instances),
        Some(4)
    );
    Ok(())
}

fn said_outside(stage: &Stage, actor: &str) -> Check<String> {
    let mut command = stage.outside(actor, []);
    let process = crate::cells::process::finish(&mut command, stage.patience())?;
    Ok(String::from_utf8_lossy(&process.stdout).trim().to_owned())
}

fn said_inside(stage: &Stage, actor: &str) -> Check<Run> {
    stage.probe(actor, []).run()?.ended(Outcome::Ok)
}

/// The kernel's own limit is one for the whole host.
fn pseudo_terminals(stage: &Stage) -> Check {
    let actor = "shares/take-terminals";
    assert_eq!(said_outside(stage, actor)?, "40");
    assert_eq!(said_inside(stage, actor)?.stdout().trim(), "16");
    Ok(())
}

/// The caller's share is charged as well.
fn queued_signals(stage: &Stage) -> Check {
    let actor = "shares/queue-signals";
    assert_eq!(said_outside(stage, actor)?, "1000");
    assert_eq!(said_inside(stage, actor)?.stdout().trim(), "256");
    Ok(())
}

/// The record says what each process has.
fn limits_of_processes(stage: &Stage) -> Check {
    let run = said_inside(stage, "shares/tell-limits")?;
    let lines: Vec<&str> = run.stdout().lines().collect();
    let isolation = run.record.isolation.as_ref();
    let recorded = isolation.map_or(&[][..], |isolation| &isolation.rlimits);
    // In the place of a cgroup.
    let fallbacks = [
        ("memory", "RLIMIT_DATA", libc::RLIMIT_DATA),
        ("processes", "RLIMIT_NPROC", libc::RLIMIT_NPROC),
    ];
    let is_fallback = |limit: &str| run.record.limits[limit].by.starts_with("rlimit");
    let fallbacks = (fallbacks.into_iter())
        .filter(|(limit, ..)| is_fallback(limit))
        .map(|(_, name, number)| (name, number));
    let numbers = [
        ("RLIMIT_CPU", libc::RLIMIT_CPU),
        ("RLIMIT_FSIZE", libc::RLIMIT_FSIZE),
        ("RLIMIT_STACK", libc::RLIMIT_STACK),
        ("RLIMIT_CORE", libc::RLIMIT_CORE),
        ("RLIMIT_NOFILE", libc::RLIMIT_NOFILE),
        ("RLIMIT_MEMLOCK", libc::RLIMIT_MEMLOCK),
        ("RLIMIT_SIGPENDING", libc::RLIMIT_SIGPENDING),
        ("RLIMIT_MSGQUEUE", libc::RLIMIT_MSGQUEUE),
        ("RLIMIT_NICE", libc::RLIMIT_NICE),
        ("RLIMIT_RTPRIO", libc::RLIMIT_RTPRIO),
    ];
    for (name, number) in numbers.into_iter().chain(fallbacks) {
        let limit = recorded.iter().find(|limit| limit.resource == name);
        let limit = limit.ok_or_else(|| fail(format!("{name} is not recorded")))?;
        let bound = |value: Option<u64>| value.unwrap_or(libc::RLIM_INFINITY);
        let line = format!("{} {}", bound(limit.soft), bound(limit.hard));
        assert_eq!(lines[number as usize], line, "{name}");
    }
    // The kernel runs a piped core handler at a limit of 0, but not at 1.
    assert_eq!(lines[libc::RLIMIT_CORE as usize], "1 1");
    Ok(())
}

/// The supervisor counts denials in the caller's time: a program that never stops
/// asking must not get much of it.
fn supervisors_time(stage: &Stage) -> Check {
    let cell = stage
        .probe("shares/ask-for-what-is-denied", [])
        .limit("wall", "1s")
        .measured();
    let process = cell.finish()?;
    let (used, elapsed) = (process.taken()?.cpu_time, process.elapsed);
    let run = Run::of(process)?.ended(Outcome::Timeout)?;
    stage.note(format!("{used:?} for {} calls", run.record.denied[0].count));
    assert!(used < elapsed * 2 / 5, "{used:?} of {elapsed:?}");
    Ok(())
}
