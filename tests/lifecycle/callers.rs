//! The connection between a call and its caller: the caller's end, its signals, and the
//! grace period in which a program can finish.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::{Mode, umask};

use crate::cells::cell::{self, Run};
use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::cells::process;

pub(crate) const SUITE: Suite = Suite {
    name: "callers",
    covers: &[20, 28],
    attacks: &[],
    scenes: &[
        scene("parent-s-end-ends-the-cell", parents_end_ends_the_cell),
        scene(
            "end-of-the-parent-s-thread-does-not",
            end_of_the_parents_thread_does_not,
        ),
        scene(
            "parent-in-another-pid-namespace",
            parent_in_another_pid_namespace,
        ),
        scene("grace-at-a-time-limit", grace_at_a_time_limit),
        scene("grace-used-up", grace_used_up),
        scene("grace-for-a-flood", grace_for_a_flood),
        scene("grace-at-a-cancellation", grace_at_a_cancellation),
        scene("cancelled-twice", cancelled_twice),
        scene("ignored-signals-stay-ignored", ignored_signals_stay_ignored),
        scene("a-caller-that-ignores-its-children", ignored_children),
        scene("a-caller-s-umask", callers_umask),
        scene("exec-names-the-limit", exec_names_the_limit),
        scene("nobody-reads-which-limit", nobody_reads_which_limit),
    ],
    actors: ACTORS,
};

const ACTORS: &[Actor] = &[
    // Starts a command and waits, to be killed meanwhile.
    Actor {
        name: "be-a-parent",
        run: |args| match Command::new(&args[0]).args(&args[1..]).status() {
            Ok(status) => status.code().unwrap_or(97),
            Err(_) => 96,
        },
    },
    // Starts a command by a thread that ends at once.
    Actor {
        name: "be-a-parent-of-threads",
        run: |args| {
            let mut command = Command::new(&args[0]);
            command.args(&args[1..]);
            let started = std::thread::spawn(move || command.spawn()).join();
            match started.map(|child| child.and_then(|mut child| child.wait())) {
                Ok(Ok(status)) => status.code().unwrap_or(97),
                _ => 96,
            }
        },
    },
    // Ends when a file appears.
    Actor {
        name: "wait-for-file",
        run: |args| {
            while !Path::new(&args[0]).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            0
        },
    },
    // Starts a command as pid 1 of a pid namespace.
    Actor {
        name: "be-a-parent-outside",
        run: |args| {
            if unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID).is_err() {
                return 95;
            }
            match Command::new(&args[0]).args(&args[1..]).status() {
                Ok(status) => status.code().unwrap_or(97),
                Err(_) => 96,
            }
        },
    },
    // Reports the warning signal and tries to outlive it.
    Actor {
        name: "fork-when-warned",
        run: |_| {
            use nix::sys::signal::SigSet;
            let mut set = SigSet::empty();
            set.add(Signal::SIGTERM);
            if set.thread_block().is_err() {
                return 1;
            }
            println!("ready");
            while !matches!(set.wait(), Ok(Signal::SIGTERM)) {}
            println!("warned");
            for _ in 0..4 {
                let _ = crate::cells::raw::fork(|| {
                    let _ = nix::unistd::setsid();
                    std::thread::sleep(Duration::from_secs(60));
                    0
                });
            }
            std::thread::sleep(Duration::from_secs(60));
            0
        },
    },
];

/// `command` as the arguments of an actor outside.
fn by(stage: &Stage, actor: &str, command: &Command) -> Command {
    let mut outside = stage.outside(actor, []);
    outside
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        outside.env(name, value.unwrap_or_default());
    }
    outside
}

fn program_runs(marker: &Marker) -> Check<bool> {
    let processes = marker.processes()?;
    Ok(processes.iter().any(|line| line.contains("(/probe ")))
}

fn parents_end_ends_the_cell(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let record = scratch.join("record.json");
    let shared = scratch.dir("shared", 0o777)?;
    for tied in [false, true] {
        let marker = Marker::new()?;
        let mut cell = stage
            .probe("callers/wait-for-file", ["/shared/end", marker.word()])
            .rw(&shared, Path::new("/shared"))
            .passed_through()
            .limit("wall", &stage.duration(120_000))
            .option(["--record", &record.to_string_lossy()]);
        if tied {
            cell = cell.option(["--die-with-parent"]);
        }
        let mut parent = by(stage, "callers/be-a-parent", &cell.command())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        stage.wait_until("the program runs", || program_runs(&marker))?;
        parent.kill()?;
        parent.wait()?;
        if !tied {
            // Without `--die-with-parent`, the cell goes on.
            std::thread::sleep(Duration::from_millis(200));
            assert!(program_runs(&marker)?, "not live");
            std::fs::write(shared.join("end"), "")?;
        }
        stage.wait_until("nothing is left", || Ok(marker.nothing_left().is_ok()))?;
        let record = cell::read(&record)?;
        if !tied {
            std::fs::remove_file(shared.join("end"))?;
        }
        let expected = match tied {
            true => (Outcome::Cancelled, 128 + libc::SIGTERM),
            false => (Outcome::Ok, 0),
        };
        assert_eq!((record.outcome, record.exit_code), expected);
        if tied {
            let context = record.context.unwrap_or_default();
            assert!(context.contains("the process that started cellblock ended"));
        }
    }
    Ok(())
}

/// PR_SET_PDEATHSIG would end this run.
fn end_of_the_parents_thread_does_not(stage: &Stage) -> Check {
    let cell = stage
        .exec(["/bin/sleep", "0.3"])
        .option(["--die-with-parent"]);
    let mut command = by(stage, "callers/be-a-parent-of-threads", &cell.command());
    let process = process::finish(&mut command, stage.patience())?;
    Run::of(process)?.ended(Outcome::Ok)?;
    Ok(())
}

fn parent_in_another_pid_namespace(stage: &Stage) -> Check {
    let cell = stage.exec(["/bin/true"]).option(["--die-with-parent"]);
    let mut command = by(stage, "callers/be-a-parent-outside", &cell.command());
    let process = process::finish(&mut command, stage.patience())?;
    if process.code() == 95 {
        return Err(crate::cells::Stop::Skip("no user namespaces here".into()));
    }
    let run = Run::of(process)?.ended(Outcome::Setup)?;
    assert_eq!(run.record.exit_code, 125);
    let error = run.record.setup_error.unwrap_or_else(|| panic!("no error"));
    assert!(error.message.contains("another pid namespace"), "{error}");
    assert!(error.hint.is_some());
    Ok(())
}

/// A shell, whose trap runs once the command that it waits for has ended.
fn trap(signal: &str, then: &str) -> [String; 3] {
    let script = format!("trap '{then}' {signal}; echo ready; while :; do sleep 0.05; done");
    ["/bin/sh".into(), "-c".into(), script]
}

fn grace_at_a_time_limit(stage: &Stage) -> Check {
    let cell = stage.exec(trap("TERM", "echo bye; exit 0"));
    let without = cell.run_to_limit(500, |run| run.stdout() == "ready\n")?;
    assert!(!without.record.limits.contains_key("grace"));
    assert_eq!(without.record.timing.grace_ms, None);

    let run = cell
        .limit("grace", &stage.duration(60_000))
        .run_to_limit(500, |run| run.stdout() == "ready\nbye\n")?;
    assert_eq!(run.record.exit_code, 124);
    assert_eq!(run.record.limits["wall"].hit, Some(true));
    let grace = &run.record.limits["grace"];
    assert_eq!((grace.by.as_str(), grace.hit), ("timer", Some(false)));
    let took = run.record.timing.grace_ms.unwrap_or(f64::MAX);
    assert!(took < run.record.timing.code_ms, "{}", run.json);
    Ok(())
}

/// The rest dies then, and the results of that time count.
fn grace_used_up(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let run = stage
        .probe("callers/fork-when-warned", [marker.word()])
        .limit("grace", "2s")
        .run_to_limit(500, |run| run.stdout() == "ready\nwarned\n")?;
    marker.nothing_left()?;
    assert_eq!(run.record.limits["grace"].hit, Some(true), "{}", run.json);
    assert!(run.record.timing.grace_ms >= Some(1_900.0), "{}", run.json);
    Ok(())
}

fn grace_for_a_flood(stage: &Stage) -> Check {
    let run = stage
        .probe("output/flood-both", [])
        .limit("output", "64K")
        .limit("on-output", "kill")
        .limit("grace", &stage.duration(60_000))
        .run()?
        .ended(Outcome::Output)?;
    // The program ignores SIGTERM.
    assert_eq!(run.record.signal.as_deref(), Some("SIGTERM"));
    assert_eq!(run.record.limits["grace"].hit, Some(false), "{}", run.json);
    Ok(())
}

/// The program gets the signal that cancels.
fn grace_at_a_cancellation(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    for (name, number) in [("INT", Signal::SIGINT), ("USR1", Signal::SIGUSR1)] {
        let shared = scratch.dir(name, 0o777)?;
        let script = format!(
            "trap 'echo got {name}; exit 9' {name}; >/shared/ready; while :; do sleep 0.05; done"
        );
        let mut watch = stage
            .exec(["/bin/sh", "-c", &script])
            .rw(&shared, Path::new("/shared"))
            .limit("wall", &stage.duration(120_000))
            .limit("grace", &stage.duration(60_000))
            .spawn()?;
        watch.until_exists(&shared.join("ready"), stage.patience())?;
        watch.signal(number)?;
        let run = Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Cancelled)?;
        assert_eq!(run.stdout(), format!("got {name}\n"));
        assert_eq!(run.record.exit_code, 128 + number as i32);
    }
    Ok(())
}

fn cancelled_twice(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let shared = scratch.dir("shared", 0o777)?;
    let script = "trap '>/shared/warned' TERM; >/shared/ready; while :; do sleep 0.05; done";
    let mut watch = stage
        .exec(["/bin/sh", "-c", script])
        .rw(&shared, Path::new("/shared"))
        .limit("grace", "10m")
        .limit("wall", "20m")
        .spawn()?;
    watch.until_exists(&shared.join("ready"), stage.patience())?;
    watch.signal(Signal::SIGTERM)?;
    watch.until_exists(&shared.join("warned"), stage.patience())?;
    assert!(
        watch.pump(Duration::from_millis(100))?.is_none(),
        "no grace"
    );
    watch.signal(Signal::SIGINT)?;
    let run = Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Cancelled)?;
    // The first signal counts.
    assert_eq!(run.record.exit_code, 128 + libc::SIGTERM);
    Ok(())
}

/// nohup(1) and shells that start jobs in the background rely on it.
fn ignored_signals_stay_ignored(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let mut command = stage
        .probe("time/sleep", [marker.word()])
        .limit("wall", &stage.duration(120_000))
        .command();
    // SAFETY: signal is async-signal-safe, and to ignore one runs no code of ours.
    unsafe {
        command.pre_exec(|| {
            signal(Signal::SIGHUP, SigHandler::SigIgn)?;
            Ok(())
        });
    }
    let watch = process::Watch::start(&mut command)?;
    stage.wait_until("the program runs", || program_runs(&marker))?;
    watch.signal(Signal::SIGHUP)?;
    watch.signal(Signal::SIGTERM)?;
    let run = Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Cancelled)?;
    // The first signal counts, unless it is ignored.
    assert_eq!(run.record.exit_code, 128 + libc::SIGTERM);
    marker.nothing_left()
}

/// SIGCHLD that is ignored is inherited, and then the kernel tells nobody about ends.
fn ignored_children(stage: &Stage) -> Check {
    let mut command = stage
        .exec(["/bin/sh", "-c", "/bin/true; exit 3"])
        .limit("wall", &stage.duration(120_000))
        .command();
    // SAFETY: signal is async-signal-safe, and to ignore one runs no code of ours.
    unsafe {
        command.pre_exec(|| {
            signal(Signal::SIGCHLD, SigHandler::SigIgn)?;
            Ok(())
        });
    }
    let run = Run::of(process::finish(&mut command, stage.patience())?)?.ended(Outcome::Exit)?;
    assert_eq!(run.record.exit_code, 3);
    Ok(())
}

/// The program has it, and the cell does not depend on it.
fn callers_umask(stage: &Stage) -> Check {
    for mask in [0o027, 0o177, 0o477, 0o777] {
        let mut command = stage.exec(["/bin/sh", "-c", "umask"]).command();
        // SAFETY: umask is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                umask(Mode::from_bits_truncate(mask));
                Ok(())
            });
        }
        let run = Run::of(process::finish(&mut command, stage.patience())?)?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), format!("0{mask:03o}\n"));
    }
    Ok(())
}

fn exec_names_the_limit(stage: &Stage) -> Check {
    let through = |cell: cell::Cell<'_>| {
        process::finish(&mut cell.passed_through().command(), stage.patience())
    };
    let ended = through(stage.exec(["/bin/sleep", "60"]).limit("wall", "200ms"))?;
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.code(), 124);
    assert_eq!(
        told,
        "cellblock: the code ran longer than its limit of 200ms\n"
    );
    // No message when the program ends by itself.
    for (argv, code) in [
        (["/bin/sh", "-c", "exit 124"], 124),
        (["/bin/sh", "-c", "exit 0"], 0),
    ] {
        let ended = through(stage.exec(argv))?;
        assert_eq!((ended.code(), ended.stderr.len()), (code, 0));
    }
    // The record has it already.
    let recorded = stage
        .exec(["/bin/sleep", "60"])
        .limit("wall", "200ms")
        .run()?;
    assert!(recorded.process.stderr.is_empty());
    Ok(())
}

/// A full, unread pipe on standard error delays nothing.
fn nobody_reads_which_limit(stage: &Stage) -> Check {
    let mut command = stage
        .exec(["/bin/sh", "-c", "yes >&2"])
        .passed_through()
        .limit("wall", "300ms")
        .command();
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let start = std::time::Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > stage.patience() => {
                child.kill()?;
                return Err(fail("no end while nobody reads"));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert_eq!(status.code(), Some(124));
    Ok(())
}
