//! A supervisor that is killed at any moment, or asked to stop.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::cells::cell::Run;
use crate::cells::left::{Marker, supervisor_of};
use crate::cells::prelude::*;
use crate::cells::process::Watch;

pub(crate) const SUITE: Suite = Suite {
    name: "supervisor",
    covers: &[20, 28],
    attacks: &[],
    scenes: &[
        scene("cgroup-is-named-after-it", cgroup_is_named_after_it),
        scene("killed-at-every-step", killed_at_every_step),
        scene("killed-while-running", killed_while_running),
        scene(
            "killed-with-a-fork-bomb-inside",
            killed_with_a_fork_bomb_inside,
        ),
        scene("cancelled", cancelled),
        scene("cancelled-at-every-step", cancelled_at_every_step),
    ],
    actors: &[],
};

/// The name by which these tests and later calls find leftovers.
fn cgroup_is_named_after_it(stage: &Stage) -> Check {
    let watch = stage.exec(["/bin/true"]).spawn()?;
    let pid = watch.pid();
    let run = Run::of(watch.until_end(stage.within(5_000))?)?;
    let cgroup = run.record.isolation.and_then(|isolation| isolation.cgroup);
    match cgroup {
        Some(cgroup) => assert_eq!(supervisor_of(cgroup.path.as_ref()), Some(pid), "{cgroup:?}"),
        None => stage.note("there is none here"),
    }
    Ok(())
}

const MOMENTS: u32 = 60;

/// Moments in the life of a cell, from its start until it certainly runs.
fn moments(stage: &Stage) -> Check<impl Iterator<Item = Duration>> {
    let whole = stage.exec(["/bin/true"]).run()?.process.elapsed * 3 / 2;
    let count = stage.times(MOMENTS);
    Ok((0..count).map(move |moment| whole * moment / count))
}

fn start(stage: &Stage, probe: &str, marker: &Marker) -> Check<Watch> {
    stage
        .probe(probe, [marker.word()])
        .limit("processes", "64")
        .spawn()
}

/// Kills cellblock with a signal that it cannot handle.
fn kill(watch: Watch) -> Check {
    watch.signal(Signal::SIGKILL)?;
    let ended = watch.until_end(Duration::from_secs(5))?;
    assert_eq!(ended.code(), 128 + libc::SIGKILL);
    Ok(())
}

/// Waits until the program runs under its own name.
fn wait_for_program(stage: &Stage, marker: &Marker) -> Check {
    let start = Instant::now();
    while !marker
        .processes()?
        .iter()
        .any(|line| line.contains("(/probe "))
    {
        if start.elapsed() > stage.within(5_000) {
            return Err(fail("the program did not start"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn killed_at_every_step(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    for moment in moments(stage)? {
        let child = start(stage, "time/sleep", &marker)?;
        std::thread::sleep(moment);
        kill(child)?;
        marker
            .nothing_left_unattended(stage)
            .map_err(|stop| fail(format!("killed after {moment:?}: {stop:?}")))?;
    }
    Ok(())
}

fn killed_while_running(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let child = start(stage, "time/sleep", &marker)?;
    wait_for_program(stage, &marker)?;
    kill(child)?;
    marker.nothing_left_unattended(stage)
}

fn killed_with_a_fork_bomb_inside(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let child = start(stage, "ends/fork-bomb", &marker)?;
    wait_for_program(stage, &marker)?;
    std::thread::sleep(Duration::from_millis(50));
    kill(child)?;
    marker.nothing_left_unattended(stage)
}

/// The record is written whichever side ends the run, and names it.
fn cancelled(stage: &Stage) -> Check {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGALRM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGXCPU,
        Signal::SIGIO,
    ] {
        let marker = Marker::new()?;
        let child = start(stage, "time/sleep", &marker)?;
        wait_for_program(stage, &marker)?;
        child.signal(signal)?;
        let run = Run::of(child.until_end(stage.within(5_000))?)?;
        let run = run.ended(Outcome::Cancelled)?;
        assert_eq!(run.record.exit_code, 128 + signal as i32);
        marker.nothing_left()?;
    }
    Ok(())
}

fn cancelled_at_every_step(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let mut told = 0;
    for moment in moments(stage)? {
        let child = start(stage, "time/sleep", &marker)?;
        std::thread::sleep(moment);
        child.signal(Signal::SIGTERM)?;
        let process = child.until_end(stage.within(5_000))?;
        marker.nothing_left()?;
        // Until cellblock handles the signal, the signal kills it.
        if process.stdout.is_empty() && process.code() == 128 + libc::SIGTERM {
            continue;
        }
        Run::of(process)?.ended(Outcome::Cancelled)?;
        told += 1;
    }
    assert!(told > stage.times(MOMENTS) / 4, "only {told} records");
    Ok(())
}
