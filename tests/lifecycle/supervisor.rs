//! A supervisor that is killed at any moment, or asked to stop.

use std::time::Duration;

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
    let run = Run::of(watch.until_end(stage.patience())?)?;
    let cgroup = run.record.isolation.and_then(|isolation| isolation.cgroup);
    match cgroup {
        Some(cgroup) => assert_eq!(supervisor_of(cgroup.path.as_ref()), Some(pid), "{cgroup:?}"),
        None => stage.note("there is none here"),
    }
    Ok(())
}

const MOMENTS: u32 = 60;

/// Moments in the life of a cell, from its start until it runs if the host is as busy then.
fn moments(stage: &Stage) -> Check<Vec<Duration>> {
    let whole = stage.exec(["/bin/true"]).run()?.process.elapsed * 3 / 2;
    let count = stage.times(MOMENTS);
    Ok((0..count).map(|moment| whole * moment / count).collect())
}

/// Its limit on time is longer than a busy harness may take to look at all processes.
fn start(stage: &Stage, probe: &str, marker: &Marker) -> Check<Watch> {
    stage
        .probe(probe, [marker.word()])
        .limit("processes", "64")
        .limit("wall", &stage.duration(120_000))
        .spawn()
}

/// Kills cellblock with a signal that it cannot handle.
fn kill(stage: &Stage, watch: Watch) -> Check {
    watch.signal(Signal::SIGKILL)?;
    let ended = watch.until_end(stage.patience())?;
    assert_eq!(ended.code(), 128 + libc::SIGKILL);
    Ok(())
}

/// Waits until the program runs under its own name.
fn wait_for_program(stage: &Stage, marker: &Marker) -> Check {
    stage.wait_until("the program runs", || {
        let processes = marker.processes()?;
        Ok(processes.iter().any(|line| line.contains("(/probe ")))
    })
}

fn killed_at_every_step(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    for moment in moments(stage)? {
        let child = start(stage, "time/sleep", &marker)?;
        std::thread::sleep(moment);
        kill(stage, child)?;
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
    kill(stage, child)?;
    marker.nothing_left_unattended(stage)
}

fn killed_with_a_fork_bomb_inside(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let child = start(stage, "ends/fork-bomb", &marker)?;
    wait_for_program(stage, &marker)?;
    std::thread::sleep(Duration::from_millis(50));
    kill(stage, child)?;
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
        let run = Run::of(child.until_end(stage.patience())?)?;
        let run = run.ended(Outcome::Cancelled)?;
        assert_eq!(run.record.exit_code, 128 + signal as i32);
        marker.nothing_left()?;
    }
    Ok(())
}

fn cancelled_at_every_step(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let moments = moments(stage)?;
    // A host that is busier by now has come less far at each moment.
    for later in [1, 10] {
        let told = cancelled_at(stage, &marker, moments.iter().map(|moment| *moment * later))?;
        if told > moments.len() / 4 {
            return Ok(());
        }
    }
    Err(fail("hardly any of the cells left a record"))
}

/// Cancels a cell at each of these moments; returns how many left a record.
fn cancelled_at(
    stage: &Stage,
    marker: &Marker,
    moments: impl Iterator<Item = Duration>,
) -> Check<usize> {
    let mut told = 0;
    for moment in moments {
        let child = start(stage, "time/sleep", marker)?;
        std::thread::sleep(moment);
        child.signal(Signal::SIGTERM)?;
        let process = child.until_end(stage.patience())?;
        marker.nothing_left()?;
        // Until cellblock handles the signal, the signal kills it.
        if process.stdout.is_empty() && process.code() == 128 + libc::SIGTERM {
            continue;
        }
        Run::of(process)?.ended(Outcome::Cancelled)?;
        told += 1;
    }
    Ok(told)
}
