//! A cell as an object: started, given executions, ended.

mod config;
mod egress;
mod end;
mod freeze;
mod request;
mod rest;

use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::capture::Capture;
use crate::meter::{InUse, Meter, SHORT_INTERVAL};
use crate::network::CellBroker;
use crate::proc::{ProcFiles, descendants, used_so_far};
use crate::processes::Processes;
use crate::watch::{Paces, Phase, Watch, setup_deadline};
use crate::{
    Between, BlockedSignals, Denials, DriverReport, Execution, Observed, Parent, SharedMemory,
};
use jail::child::command::Command;
use jail::child::report::Role;
use jail::launch::{Launch, Running, launch};
use languages::frames::FrameReader;
use plan::{Namespace, Plan};
use record::Start;
use record::error::Result;
use sys::identity::Identity;
use sys::process::monotonic_ns;
use sys::watched::Watched;
use verdict::evidence::Stop;

pub use freeze::Frozen;
pub use request::Request;

/// What cancels a cell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cancel<'a> {
    /// The caller's signals.
    pub signals: Option<&'a BlockedSignals>,
    /// The process whose end ends the cell.
    pub parent: Option<&'a Parent>,
}

/// A cell that was started. Dropping it kills and reaps its processes, and removes
/// its cgroup. It has no other effect on the supervisor's process, which may go on.
#[derive(Debug)]
pub struct Cell<'a> {
    pub(crate) running: Running,
    pub(crate) plan: Rc<Plan>,
    pub(crate) cancel: Cancel<'a>,
    /// The seccomp notification handler; counts nothing.
    pub(crate) denials: Denials,
    /// What is to be sent to the driver.
    request: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
    /// Whether the driver gets no other request.
    pub(crate) is_last: bool,
    pub(crate) frames: FrameReader,
    pub(crate) frames_open: bool,
    pub(crate) output_open: [bool; 2],
    pub(crate) paces: Paces,
    pub(crate) meter: Meter,
    pub(crate) listener: Option<OwnedFd>,
    /// The memory of a copy that the kernel watches for as long as this exists.
    pub(crate) watched: Option<Watched>,
    /// What a copy's init has made for its program, until that is there.
    pub(crate) prepared: Option<Vec<(Role, OwnedFd)>>,
    /// The namespaces of a template, below which its copies have theirs.
    pub(crate) namespaces: Vec<(Namespace, OwnedFd)>,
    /// What the broker is to listen at.
    pub(crate) sockets: Vec<(Role, OwnedFd)>,
    /// The broker, once it has been started.
    pub(crate) broker: Option<CellBroker>,
    /// Processes beside the program.
    pub(crate) processes: Processes,
    /// Whether it has had guests.
    pub(crate) was_shared: std::cell::Cell<bool>,
    /// What has happened since the last execution.
    pub(crate) between: Between,
    /// Whether the plan is that of the program; a blank cell gets that later.
    pub(crate) has_program: bool,
    pub(crate) phase: Phase,
    pub(crate) deadline: Option<Instant>,
    pub(crate) next_check: Option<Instant>,
    /// Orders to stop all processes that init has not answered.
    pub(crate) freezes: u32,
    /// Why they are stopped, if they are.
    pub(crate) stopped_for: Option<freeze::Stopped>,
    /// Whether SIGINT was sent to the program during the last execution.
    pub(crate) was_interrupted: bool,
    pub(crate) seen: Observed,
}

impl<'a> Cell<'a> {
    /// Starts a cell, whose filter's denials `denials` answers. Returns while init is
    /// setting it up; what fails there shows at the end.
    ///
    /// # Errors
    /// The step that failed on this side.
    pub fn start(start: Launch<'_>, denials: Denials, cancel: Cancel<'a>) -> Result<Box<Self>> {
        let plan = Rc::clone(&start.plan);
        let has_program = !start.holds;
        let running = launch(start)?;
        Ok(Box::new(Self::of(
            running,
            plan,
            denials,
            cancel,
            has_program,
        )))
    }

    /// A cell whose program is being started.
    pub(crate) fn of(
        running: Running,
        plan: Rc<Plan>,
        denials: Denials,
        cancel: Cancel<'a>,
        has_program: bool,
    ) -> Self {
        Self {
            meter: Meter::new(&running, &plan),
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
            listener: None,
            watched: None,
            prepared: None,
            namespaces: Vec::new(),
            sockets: Vec::new(),
            broker: None,
            processes: Processes::default(),
            was_shared: std::cell::Cell::new(false),
            between: Between::default(),
            has_program,
            phase: Phase::SetUp,
            deadline: Some(Instant::now() + setup_deadline(running.is_guest)),
            next_check: None,
            freezes: 0,
            stopped_for: None,
            was_interrupted: false,
            seen: Observed::default(),
            running,
        }
    }

    /// Has the cell do one piece of work. A cell that ends before ends the execution.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub fn execute(&mut self, request: Request<'_>) -> Result<Execution> {
        let keep =
            |fd: &Option<OwnedFd>| fd.as_ref().map(|_| Capture::new(self.plan.limits.output));
        let mut execution = Execution {
            output: [keep(&self.running.output[0]), keep(&self.running.output[1])],
            denials: self.denials.clone(),
            report: DriverReport::of(request.execution, request.results),
            ..Execution::default()
        };
        if self.lives() {
            self.begin_anew(&mut execution);
        }
        self.meter.rest(false);
        self.request = request.message;
        self.is_last = request.is_last;
        self.was_interrupted = false;
        self.close_if_sent();
        let walls = [request.wall, self.plan.limits.wall];
        let mut watch = Watch {
            wall: walls.into_iter().flatten().min(),
            grace: request.grace,
            observer: request.observer,
            on_start: request.on_start,
            control: request.control,
            is_idle: false,
            owes_interrupt: false,
            urgent_interrupts: request.urgent_interrupts,
            settles: request.settles,
            repeat_at: None,
            is_cut_off: false,
            until: None,
            cell: self,
            execution,
        };
        if watch.cell.lives() {
            watch.begin(monotonic_ns());
            // Its end may have been seen when the last execution was over.
            watch.note_broken_channel();
        }
        while !watch.is_over() {
            watch.step()?;
        }
        watch.take_figures()?;
        let execution = watch.finish();
        if self.lives() {
            // Between executions no time is counted.
            self.phase = Phase::Running;
            self.deadline = None;
        }
        Ok(execution)
    }

    /// Whether the caller's signal ended it.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self.seen.stopped, Some(Stop::Cancelled(_)))
    }

    /// Whether SIGINT was sent to the program during the last execution.
    pub const fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// Whether the cell has, or had, other interpreters than this one.
    pub const fn is_shared(&self) -> bool {
        self.running.is_guest || self.was_shared.get()
    }

    /// Whether the program runs, and can do more work.
    pub fn lives(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Interrupted)
    }

    /// The cell as it was launched, and what was observed of it so far.
    pub fn parts(&self) -> (&Running, &Observed) {
        (&self.running, &self.seen)
    }

    /// Init, the program, and the pipes that the program has to the supervisor: what is
    /// needed to take or replace its state. `None` once they are gone.
    pub fn carried(&self) -> Option<(Pid, Pid, Vec<Identity>)> {
        let init = self.running.init.pid;
        // Its first child; orphans come later.
        let program = descendants(init, &ProcFiles::default()).nth(1)?.pid;
        let channel = self.running.channel.as_ref()?;
        let output = self.running.output.iter().flatten();
        let pipes = [channel.to.as_ref()?, channel.from.as_ref()?]
            .into_iter()
            .chain(output);
        let own: Result<Vec<Identity>, Errno> = pipes.map(Identity::of).collect();
        let mut own = own.ok()?;
        own.extend(self.running.stdin);
        Some((init, program, own))
    }

    /// Whether its processes have made something of System V IPC, as far as that is counted: it
    /// belongs to no process, and nothing takes it to another cell.
    pub fn has_made_ipc(&self) -> bool {
        (self.denials.shared_memory()).is_some_and(|shared| shared.lasting() > 0)
    }

    /// Notes what was used, as seen from outside.
    pub(crate) fn note_use(&mut self) {
        self.seen.used_so_far = used_so_far(self.running.init.pid);
    }

    /// What the cell uses now.
    pub fn in_use(&mut self) -> InUse {
        let cgroup = self.running.cgroup.as_ref();
        let shared = self.denials.shared_memory();
        (self.meter).in_use(cgroup, &self.seen.scratch, shared, &mut self.seen.watched)
    }

    /// Notes that its interpreter was started ahead of its next execution.
    pub fn note_ready(&mut self) {
        if !matches!(self.running.start, Start::Forked | Start::Shared) {
            self.running.start = Start::Ready;
        }
    }

    /// Notes that all of it was made for its execution.
    pub fn note_cold(&mut self) {
        self.running.start = Start::Cold;
    }

    /// Has init send SIGINT to the program, as a terminal would for Ctrl-C; false when
    /// the cell is ending.
    pub fn interrupt(&self) -> bool {
        self.phase == Phase::Running && self.order(Command::Signal(Signal::SIGINT))
    }

    /// Removes the cgroups beside the cell's whose supervisors are dead.
    pub fn sweep_cgroups(&self) {
        if let Some(cgroup) = &self.running.cgroup {
            cgroup.sweep_beside();
        }
    }

    /// Sends init a command; false when init does not take it.
    pub(crate) fn order(&self, command: Command) -> bool {
        command.send(self.running.report.as_fd()).is_ok()
    }

    /// When a wait until `deadline` has to be interrupted, to measure what the cell uses.
    pub(crate) fn wakes_before(&self, deadline: Instant) -> Instant {
        self.next_check
            .map_or(deadline, |check| check.min(deadline))
    }

    /// [`Self::measure`], if it is time for that.
    pub(crate) fn measure_if_due(&mut self) -> Option<Stop> {
        let now = Instant::now();
        let is_due = self.next_check.is_some_and(|check| check <= now);
        is_due.then(|| self.measure(now)).flatten()
    }

    /// Has the next look come soon where a call waits for it.
    pub(crate) fn hasten_check(&mut self) {
        let shared = self.denials.shared_memory();
        if shared.is_some_and(SharedMemory::has_waiting) {
            let soon = Instant::now() + SHORT_INTERVAL;
            self.next_check = Some(self.wakes_before(soon));
        }
    }

    /// Measures what the cell uses; returns the stop for a limit that is exceeded.
    pub(crate) fn measure(&mut self, now: Instant) -> Option<Stop> {
        let cgroup = self.running.cgroup.as_ref();
        let seen = &mut self.seen;
        let shared = self.denials.shared_memory();
        let stop = (self.meter).check(cgroup, &seen.scratch, shared, &mut seen.watched);
        self.next_check = self.meter.next_check(now);
        seen.disks.look(&seen.scratch);
        self.keep_quiet(self.meter.needs_quiet());
        stop
    }
}
