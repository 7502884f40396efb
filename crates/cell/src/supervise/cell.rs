//! A cell as an object: started, given executions, ended.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::capture::Capture;
use super::evidence::Stop;
use super::meter::Meter;
use super::watch::{Paces, Phase, SETUP_DEADLINE, Watch};
use super::{BlockedSignals, Denials, DriverReport, Execution, Observed, Observer, Parent};
use crate::child::command::Command;
use crate::drivers::frames::FrameReader;
use crate::launch::{Launch, Running, launch, wait_for};
use crate::plan::Plan;
use crate::spec::Bytes;
use record::error::{Result, SetupError, Step};
use sys::process::monotonic_ns;

/// How long init gets to stop all processes.
const FREEZE_DEADLINE: Duration = Duration::from_millis(500);

/// What cancels a cell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cancel<'a> {
    /// The caller's signals.
    pub(crate) signals: Option<&'a BlockedSignals>,
    /// The process whose end ends the cell.
    pub(crate) parent: Option<&'a Parent>,
}

/// One piece of work for a cell.
#[derive(Default)]
pub struct Request<'o> {
    /// Its number, which the driver repeats in every frame; no two have the same.
    pub(crate) execution: u64,
    /// The driver's request; empty where the program itself is the work.
    pub(crate) message: Vec<u8>,
    /// Whether it is the cell's last. Then the driver sees the end of its requests,
    /// and the execution ends with the program instead of with the driver's `done`.
    pub(crate) is_last: bool,
    /// The most that is kept of its results.
    pub(crate) results: Bytes,
    /// Sees what happens meanwhile.
    pub(crate) observer: Option<&'o dyn Observer>,
}

/// A cell that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What is left of it: its cgroup, with what was counted, and its set-up's times.
    pub(crate) cell: Running,
    /// What was observed of it.
    pub(crate) observed: Observed,
}

/// A cell that was started. Dropping it kills and reaps its processes, and removes
/// its cgroup. It has no other effect on the supervisor's process, which may go on.
#[derive(Debug)]
pub struct Cell<'a> {
    pub(super) running: Running,
    pub(super) plan: &'a Plan,
    pub(super) cancel: Cancel<'a>,
    /// Answers for the filter; counts nothing.
    pub(super) denials: Denials,
    /// What is to be sent to the driver.
    request: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
    /// Whether the driver gets no other request.
    is_last: bool,
    pub(super) frames: FrameReader,
    pub(super) frames_open: bool,
    pub(super) output_open: [bool; 2],
    pub(super) paces: Paces,
    pub(super) meter: Meter,
    pub(super) listener: Option<OwnedFd>,
    pub(super) phase: Phase,
    pub(super) deadline: Option<Instant>,
    pub(super) next_check: Option<Instant>,
    pub(super) is_frozen: bool,
    pub(super) seen: Observed,
}

impl<'a> Cell<'a> {
    /// Starts a cell, whose filter's denials `denials` answers. Returns while init is
    /// setting it up; what fails there shows at the end.
    ///
    /// # Errors
    /// The step that failed on this side.
    pub(crate) fn start(start: Launch<'a>, denials: Denials, cancel: Cancel<'a>) -> Result<Self> {
        let plan = start.plan;
        let running = launch(start)?;
        Ok(Self {
            plan,
            cancel,
            denials,
            request: Vec::new(),
            sent: 0,
            is_last: false,
            frames: FrameReader::new(),
            frames_open: running.channel.is_some(),
            output_open: [running.output[0].is_some(), running.output[1].is_some()],
            paces: Paces::default(),
            meter: Meter::new(&running, plan),
            listener: None,
            phase: Phase::SetUp,
            deadline: Some(Instant::now() + SETUP_DEADLINE),
            next_check: None,
            is_frozen: false,
            seen: Observed::default(),
            running,
        })
    }

    /// Has the cell do one piece of work. A cell that ends before ends the execution.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub fn execute(&mut self, request: Request<'_>) -> Result<Execution> {
        let keep =
            |fd: &Option<OwnedFd>| fd.as_ref().map(|_| Capture::new(self.plan.limits.output));
        let execution = Execution {
            cpu_before: self.cpu_so_far(),
            output: [keep(&self.running.output[0]), keep(&self.running.output[1])],
            denials: self.denials.clone(),
            report: DriverReport::of(request.execution, request.results),
            ..Execution::default()
        };
        self.request = request.message;
        self.is_last = request.is_last;
        self.close_if_sent();
        let mut watch = Watch {
            cell: self,
            execution,
            observer: request.observer,
        };
        if watch.cell.phase == Phase::Running {
            watch.begin(monotonic_ns());
        }
        let is_over = |watch: &Watch<'_, '_>| {
            let is_done = watch.execution.report.is_done && !watch.cell.is_last;
            is_done || watch.cell.phase == Phase::Over
        };
        while !is_over(&watch) {
            watch.step()?;
        }
        let execution = watch.finish();
        if self.phase == Phase::Running {
            // Between executions no time is counted.
            self.deadline = None;
        }
        Ok(execution)
    }

    /// Has init send SIGINT to the program, as a terminal would for Ctrl-C; false when
    /// the cell is ending.
    pub fn interrupt(&self) -> bool {
        self.phase == Phase::Running && self.order(Command::Signal(Signal::SIGINT))
    }

    /// Stops all processes for as long as the returned value lives, so that files can
    /// be looked at while nothing changes them. A process that waits in the kernel
    /// stops when that ends.
    ///
    /// # Errors
    /// Init does not answer.
    pub fn freeze(&mut self) -> Result<Frozen<'_, 'a>> {
        let failed =
            || SetupError::new(Step::Supervise, "the cell's processes could not be stopped");
        self.is_frozen = false;
        let deadline = Instant::now() + FREEZE_DEADLINE;
        if self.phase != Phase::Running || !self.order(Command::Freeze) {
            return Err(failed());
        }
        while !self.is_frozen {
            if self.phase != Phase::Running || !wait_for(self.running.report.as_fd(), deadline) {
                return Err(failed());
            }
            self.idle().on_message();
        }
        Ok(Frozen(self))
    }

    /// Removes the cgroups beside the cell's whose supervisors are dead.
    pub(crate) fn sweep_cgroups(&self) {
        if let Some(cgroup) = &self.running.cgroup {
            cgroup.sweep_beside();
        }
    }

    /// Ends the cell.
    ///
    /// # Errors
    /// Only when watching itself is impossible; the cell is ended then too.
    pub(crate) fn end(mut self) -> Result<Ended> {
        let mut watch = self.idle();
        while watch.cell.phase != Phase::Over {
            if watch.cell.phase == Phase::Running {
                watch.end_now();
            }
            watch.step()?;
        }
        self.seen.disks.look(&self.seen.scratch);
        Ok(Ended {
            cell: self.running,
            observed: self.seen,
        })
    }

    /// The cell with no execution in it.
    pub(super) fn idle(&mut self) -> Watch<'_, 'a> {
        Watch {
            execution: Execution {
                denials: self.denials.clone(),
                ..Execution::default()
            },
            cell: self,
            observer: None,
        }
    }

    /// Sends init a command; false when init does not take it.
    pub(super) fn order(&self, command: Command) -> bool {
        command.send(self.running.report.as_fd()).is_ok()
    }

    /// Whether there is something to send to the driver.
    pub(super) fn has_request(&self) -> bool {
        self.sent < self.request.len()
    }

    /// Sends the driver as much of its request as it takes.
    pub(super) fn send_request(&mut self) {
        let channel = self.running.channel.as_ref();
        let Some(to) = channel.and_then(|end| end.to.as_ref()) else {
            return;
        };
        match nix::unistd::write(to, &self.request[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // The driver has closed it, and the rest is not sent.
            Err(_) => self.sent = self.request.len(),
        }
        self.close_if_sent();
    }

    /// Frees a request that was sent; behind the last one, the driver sees the end.
    fn close_if_sent(&mut self) {
        if self.has_request() {
            return;
        }
        self.request = Vec::new();
        self.sent = 0;
        if let (true, Some(end)) = (self.is_last, &mut self.running.channel) {
            end.to = None;
        }
    }

    /// CPU time that the program has used; nothing before it began.
    fn cpu_so_far(&mut self) -> Duration {
        if self.phase != Phase::Running {
            return Duration::ZERO;
        }
        let cgroup = self.running.cgroup.as_ref();
        (self.meter).cpu_used_so_far(cgroup, &mut self.seen.watched)
    }

    /// Measures what the cell uses; returns the stop for a limit that is exceeded.
    pub(super) fn measure(&mut self, now: Instant) -> Option<Stop> {
        let cgroup = self.running.cgroup.as_ref();
        let seen = &mut self.seen;
        let stop = (self.meter).check(cgroup, &seen.scratch, &mut seen.watched);
        self.next_check = self.meter.next_check(now);
        seen.disks.look(&seen.scratch);
        stop
    }
}

/// A cell whose processes are stopped. Dropping this lets them go on.
#[derive(Debug)]
pub struct Frozen<'c, 'a>(&'c mut Cell<'a>);

impl Frozen<'_, '_> {
    /// The cell's own scratch places ([`Plan::own_scratch`], in that order).
    pub fn scratch(&self) -> &[OwnedFd] {
        &self.0.seen.scratch
    }
}

impl Drop for Frozen<'_, '_> {
    fn drop(&mut self) {
        // An init that does not take it is gone, and the cell with it.
        self.0.order(Command::Thaw);
    }
}
