//! Signals to init, to the supervisor, to everything.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::{process, raw};

pub(crate) const SUITE: Suite = Suite {
    name: "signals",
    covers: &[20],
    attacks: &[],
    scenes: &[
        scene("everything-is-killed", everything_is_killed),
        scene("init-ignores-its-program", init_ignores_its_program),
        scene("stopped-cell-still-ends", stopped_cell_still_ends),
        scene("the-group-of-the-caller", the_group_of_the_caller),
    ],
    actors: ACTORS,
};

const ACTORS: &[Actor] = &[
    // Kills every process that it may; kill(-1) spares the caller.
    Actor {
        name: "kill-everything",
        run: |_| {
            let child = raw::fork(sleep);
            println!("{:?}", kill(Pid::from_raw(-1), Signal::SIGKILL));
            let ended = child.and_then(|child| nix::sys::wait::waitpid(child, None));
            println!("{}", ended.is_ok());
            0
        },
    },
    Actor {
        name: "signal-init",
        run: |_| {
            for signal in Signal::iterator() {
                let _ = kill(Pid::from_raw(1), signal);
            }
            std::thread::sleep(Duration::from_millis(20));
            // Init is still there, and this program still its child.
            println!("{}", nix::unistd::getppid());
            0
        },
    },
    Actor {
        name: "signal",
        run: |args| {
            let pid = Pid::from_raw(args[0].parse().unwrap_or(0));
            println!("{:?}", kill(pid, Signal::SIGKILL));
            0
        },
    },
    Actor {
        name: "stop-everything",
        run: |_| {
            let _ = raw::fork(sleep);
            let _ = kill(Pid::from_raw(1), Signal::SIGSTOP);
            let _ = kill(Pid::from_raw(-1), Signal::SIGSTOP);
            let _ = kill(Pid::this(), Signal::SIGSTOP);
            sleep()
        },
    },
    Actor {
        name: "kill-own-group",
        run: |_| {
            println!("{:?}", kill(Pid::from_raw(0), Signal::SIGTERM));
            0
        },
    },
];

fn sleep() -> i32 {
    std::thread::sleep(Duration::from_secs(60));
    0
}

/// A process outside, of the program's outer user where that is possible.
struct Bystander(std::process::Child);

impl Bystander {
    /// It leads a process group of its own.
    fn new() -> Check<Self> {
        let mut command = Command::new("/bin/sleep");
        command.arg("60").stdin(Stdio::null()).process_group(0);
        Ok(Self(command.spawn()?))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    fn lives(&mut self) -> Check<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    /// Waits for its end, which a signal brings about.
    fn dies(&mut self, stage: &Stage) -> Check {
        stage.wait_until("the bystander is dead", || Ok(!self.lives()?))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It is not tried without a cell: it would kill the processes of the user who tests.
fn everything_is_killed(stage: &Stage) -> Check {
    let mut bystander = Bystander::new()?;
    let run = stage
        .probe("signals/kill-everything", [])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "Ok(())\ntrue\n");
    assert!(bystander.lives()?);

    // Outside, that process can be killed by its pid; inside, it has none.
    let number = bystander.0.id().to_string();
    let run = stage.probe("signals/signal", [&number]).run()?;
    assert_eq!(run.stdout(), "Err(ESRCH)\n");
    assert!(bystander.lives()?);
    kill(bystander.pid(), Signal::SIGKILL)?;
    Ok(())
}

fn init_ignores_its_program(stage: &Stage) -> Check {
    for cell in [
        stage.probe("signals/signal-init", []),
        // Without Landlock's scope on signals, the pid namespace still protects init.
        stage.probe("signals/signal-init", []).without("landlock"),
    ] {
        let run = cell.run()?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "1\n");
    }
    Ok(())
}

fn stopped_cell_still_ends(stage: &Stage) -> Check {
    let run = stage
        .probe("signals/stop-everything", [])
        .limit("wall", "300ms")
        .run()?
        .ended(Outcome::Timeout)?;
    assert_eq!(run.record.exit_code, 124);
    Ok(())
}

/// The program is not in the caller's process group.
fn the_group_of_the_caller(stage: &Stage) -> Check {
    let mut bystander = Bystander::new()?;
    let group = bystander.pid().as_raw();
    let mut outside = stage.outside("signals/kill-own-group", []);
    process::finish(outside.process_group(group), stage.patience())?;
    bystander.dies(stage)?;

    let mut bystander = Bystander::new()?;
    let group = bystander.pid().as_raw();
    let mut inside = stage.probe("signals/kill-own-group", []).command();
    let run = Run::of(process::finish(
        inside.process_group(group),
        stage.patience(),
    )?)?;
    // It reaches the program alone, and the record names the signal.
    assert_eq!(run.record.outcome, Outcome::Signal);
    assert_eq!(run.record.signal.as_deref(), Some("SIGTERM"));
    assert!(bystander.lives()?);
    Ok(())
}
