//! A cell as an object: started, given executions, ended.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::capture::Capture;
use super::evidence::Stop;
use super::meter::{InUse, Meter};
use super::network::CellBroker;
use super::proc::descendants;
use super::processes::Processes;
use super::watch::{Paces, Phase, SETUP_DEADLINE, Watch};
use super::{
    Between, BlockedSignals, Control, Denials, Disks, DriverReport, Execution, Observed, Observer,
    OnStart, Parent,
};
use crate::carry::Identity;
use crate::child::command::Command;
use crate::child::report::Role;
use crate::drivers::frames::FrameReader;
use crate::launch::cgroup::CellCgroup;
use crate::launch::{Launch, Running, Signed, launch, wait_for};
use crate::plan::{EgressPlan, Namespace, Plan};
use crate::spec::Bytes;
use record::Start;
use record::error::{Result, SetupError, Step};
use sys::process::monotonic_ns;
use sys::watched::Watched;

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
    /// The most wall time, where that is less than the plan's.
    pub(crate) wall: Option<Duration>,
    /// The time between SIGINT and the cell's end, for an execution that takes too long
    /// or writes too much in a cell that is to go on. `None` ends the cell.
    pub(crate) grace: Option<Duration>,
    /// Whether SIGINT is sent again and again in that time.
    pub(crate) forgets_interrupts: bool,
    /// Whether what was printed before a frame has been read when the frame is sent.
    pub(crate) settles: bool,
    /// Sees what happens meanwhile.
    pub(crate) observer: Option<&'o dyn Observer>,
    /// Hears that the program was executed.
    pub(crate) on_start: Option<&'o dyn OnStart>,
    /// Controls it meanwhile.
    pub(crate) control: Option<&'o dyn Control>,
}

/// A cell that was started. Dropping it kills and reaps its processes, and removes
/// its cgroup. It has no other effect on the supervisor's process, which may go on.
#[derive(Debug)]
pub struct Cell<'a> {
    pub(super) running: Running,
    pub(super) plan: Rc<Plan>,
    pub(super) cancel: Cancel<'a>,
    /// Answers for the filter; counts nothing.
    pub(super) denials: Denials,
    /// What is to be sent to the driver.
    request: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
    /// Whether the driver gets no other request.
    pub(super) is_last: bool,
    pub(super) frames: FrameReader,
    pub(super) frames_open: bool,
    pub(super) output_open: [bool; 2],
    pub(super) paces: Paces,
    pub(super) meter: Meter,
    pub(super) listener: Option<OwnedFd>,
    /// The memory of a copy that the kernel watches for as long as this exists.
    pub(super) watched: Option<Watched>,
    /// What a copy's init has made for its program, until that is there.
    pub(super) prepared: Option<Vec<(Role, OwnedFd)>>,
    /// The namespaces of a template, below which its copies have theirs.
    pub(super) namespaces: Vec<(Namespace, OwnedFd)>,
    /// What the broker is to listen at.
    pub(super) sockets: Vec<(Role, OwnedFd)>,
    /// The broker, once it has been started.
    pub(super) broker: Option<CellBroker>,
    /// Processes beside the program.
    pub(super) processes: Processes,
    /// What has happened since the last execution.
    pub(super) between: Between,
    /// Whether the plan is that of the program; a blank cell gets that later.
    pub(super) has_program: bool,
    pub(super) phase: Phase,
    pub(super) deadline: Option<Instant>,
    pub(super) next_check: Option<Instant>,
    pub(super) is_frozen: bool,
    /// Whether SIGINT was sent to the program during the last execution.
    pub(super) was_interrupted: bool,
    pub(super) seen: Observed,
}

impl<'a> Cell<'a> {
    /// Starts a cell, whose filter's denials `denials` answers. Returns while init is
    /// setting it up; what fails there shows at the end.
    ///
    /// # Errors
    /// The step that failed on this side.
    pub(crate) fn start(start: Launch<'_>, denials: Denials, cancel: Cancel<'a>) -> Result<Self> {
        let plan = Rc::clone(&start.plan);
        let has_program = !start.holds;
        let running = launch(start)?;
        Ok(Self {
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
            between: Between::default(),
            has_program,
            phase: Phase::SetUp,
            deadline: Some(Instant::now() + SETUP_DEADLINE),
            next_check: None,
            is_frozen: false,
            was_interrupted: false,
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
            forgets_interrupts: request.forgets_interrupts,
            settles: request.settles,
            repeat_at: None,
            is_cut_off: false,
            until: None,
            cell: self,
            execution,
        };
        if watch.cell.lives() {
            watch.begin(monotonic_ns());
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
    pub(crate) const fn is_cancelled(&self) -> bool {
        matches!(self.seen.stopped, Some(Stop::Cancelled(_)))
    }

    /// Whether SIGINT was sent to the program during the last execution.
    pub(crate) const fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// Whether the program runs, and can do more work.
    pub(crate) fn lives(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Interrupted)
    }

    /// Notes what was used before the execution, and leaves aside what was written
    /// since the one before: it belongs to neither.
    fn begin_anew(&mut self, execution: &mut Execution) {
        let cgroup = self.running.cgroup.as_ref();
        execution.cgroup_before = cgroup.map(CellCgroup::usage).unwrap_or_default();
        let seen = &mut self.seen;
        execution.cpu_before = (self.meter).cpu_used_so_far(cgroup, &mut seen.watched);
        (seen.watched.memory, seen.watched.processes) = (None, None);
        seen.disks = Disks::default();
        execution.between = std::mem::take(&mut self.between);
        if let Some(denials) = self.processes.denials.take() {
            execution.between.add_denials(denials);
        }
        let written = &mut execution.between.written;
        for (fd, written) in self.running.output.iter().zip(written) {
            *written = fd.as_ref().map_or(0, |fd| discard(fd.as_fd()));
        }
        if let Some(broker) = &mut self.broker {
            broker.read(None);
            execution.between.add_network(broker.take_log());
        }
    }

    /// Watches the cell while it does nothing, until `control` has work, or the cell
    /// has ended, or `until`. What processes write meanwhile stays in their pipes, and
    /// they wait once these are full.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub(crate) fn rest(&mut self, control: &dyn Control, until: Option<Instant>) -> Result<()> {
        self.meter.rest(true);
        let mut watch = self.idle();
        (watch.control, watch.until) = (Some(control), until);
        let is_late = |until: Instant| until <= Instant::now();
        // At least once: other work must not keep processes from being read.
        while watch.cell.phase != Phase::Over {
            if control.has_work() {
                watch.until = Some(Instant::now());
            }
            watch.step()?;
            if control.has_work() || until.is_some_and(is_late) {
                break;
            }
        }
        let denials = watch.execution.denials;
        self.between.add_denials(denials);
        Ok(())
    }

    /// Watches the cell while it executes nothing until something happens, or this time is
    /// over. No process is read from.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub(crate) fn watch_for(&mut self, time: Duration) -> Result<()> {
        let mut watch = self.idle();
        watch.until = Some(Instant::now() + time);
        watch.step()?;
        let denials = watch.execution.denials;
        self.between.add_denials(denials);
        Ok(())
    }

    /// The cell as it was launched, and what was observed of it so far.
    pub(crate) fn parts(&self) -> (&Running, &Observed) {
        (&self.running, &self.seen)
    }

    /// Init, the program, and the pipes that the program has to the supervisor: what is
    /// needed to take or replace its state. `None` once they are gone.
    pub(crate) fn carried(&self) -> Option<(Pid, Pid, Vec<Identity>)> {
        let init = self.running.init.pid;
        // Its first child; orphans come later.
        let program = descendants(init).nth(1)?.pid;
        let channel = self.running.channel.as_ref()?;
        let output = self.running.output.iter().flatten();
        let pipes = [channel.to.as_ref()?, &channel.from]
            .into_iter()
            .chain(output);
        let own: Result<Vec<Identity>, Errno> = pipes.map(Identity::of).collect();
        let mut own = own.ok()?;
        own.extend(self.running.stdin);
        Some((init, program, own))
    }

    /// What the cell uses now.
    pub(crate) fn in_use(&mut self) -> InUse {
        let cgroup = self.running.cgroup.as_ref();
        (self.meter).in_use(cgroup, &self.seen.scratch, &mut self.seen.watched)
    }

    /// Why a cell that has ended has, as the beginning of a sentence.
    pub(crate) fn why_over(&self) -> String {
        match (&self.seen.stopped, self.seen.status) {
            (Some(Stop::MemoryWatchdog), _) => "the cell used up its memory".to_owned(),
            (Some(Stop::CpuTimeout(_)), _) => "the cell used up its CPU time".to_owned(),
            (None, Some(status)) if libc::WIFEXITED(status) => {
                format!(
                    "the interpreter ended with status {}",
                    libc::WEXITSTATUS(status)
                )
            }
            (None, Some(status)) => {
                let signal = Signal::try_from(libc::WTERMSIG(status));
                format!(
                    "{} ended the interpreter",
                    signal.map_or("a signal", Signal::as_str)
                )
            }
            _ => "the cell ended".to_owned(),
        }
    }

    /// Whether the cell has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Notes that its interpreter was started ahead of its next execution.
    pub(crate) fn note_ready(&mut self) {
        if self.running.start != Start::Forked {
            self.running.start = Start::Ready;
        }
    }

    /// Notes that all of it was made for its execution.
    pub(crate) fn note_cold(&mut self) {
        self.running.start = Start::Cold;
    }

    /// Has init send SIGINT to the program, as a terminal would for Ctrl-C; false when
    /// the cell is ending.
    pub fn interrupt(&self) -> bool {
        self.phase == Phase::Running && self.order(Command::Signal(Signal::SIGINT))
    }

    /// Waits until the cell is set up, or has failed to be.
    ///
    /// # Errors
    /// Only when watching itself is impossible.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let mut watch = self.idle();
        while watch.cell.phase == Phase::SetUp {
            watch.step()?;
        }
        Ok(())
    }

    /// Stops all processes for as long as the returned value lives, so that files can
    /// be looked at while nothing changes them. A process that waits in the kernel
    /// stops when that ends.
    ///
    /// # Errors
    /// Init does not answer.
    pub fn freeze(&mut self) -> Result<Frozen<'_, 'a>> {
        self.freeze_within(FREEZE_DEADLINE)
    }

    /// [`Self::freeze`] with a deadline of its own.
    ///
    /// # Errors
    /// Init does not answer in this time.
    pub(super) fn freeze_within(&mut self, most: Duration) -> Result<Frozen<'_, 'a>> {
        let failed =
            || SetupError::new(Step::Supervise, "the cell's processes could not be stopped");
        self.is_frozen = false;
        let deadline = Instant::now() + most;
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

    /// Ends the cell; returns what was observed of it.
    ///
    /// # Errors
    /// Only when watching itself is impossible; the cell is ended then too.
    pub(crate) fn end(mut self) -> Result<Observed> {
        self.end_processes(false, None)?;
        Ok(self.seen)
    }

    /// Ends what runs in the cell. Where `early` is set, init may still be on its way out:
    /// it has no process any more, and has said how the program ended. `observer` sees
    /// what the broker still reports.
    ///
    /// # Errors
    /// Only when watching itself is impossible; the cell is to be dropped then.
    pub(crate) fn end_processes(
        &mut self,
        early: bool,
        observer: Option<&dyn Observer>,
    ) -> Result<()> {
        let mut watch = self.idle();
        while !(watch.cell.is_over() || early && watch.cell.is_empty()) {
            if watch.cell.phase == Phase::Running {
                watch.end_now();
            }
            watch.step()?;
        }
        self.seen.disks.look(&self.seen.scratch);
        if let Some(broker) = self.broker.take() {
            self.seen.network = Some(broker.finish(observer));
        }
        Ok(())
    }

    /// Whether init has reaped everything, and is on its way out.
    pub(super) fn is_empty(&self) -> bool {
        self.phase == Phase::Ending && self.seen.reaped.is_some()
    }

    /// Takes the cell's own scratch places ([`Plan::own_scratch`], in that order).
    pub(crate) fn take_scratch(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.seen.scratch)
    }

    /// Removes the cgroup of a cell that is over.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn remove_cgroup(&mut self) -> Result<()> {
        let cgroup = self.running.cgroup.take();
        cgroup.map_or(Ok(()), CellCgroup::remove)
    }

    /// Takes sockets for the broker from init, and starts it with the last of them.
    ///
    /// # Errors
    /// Init sends more than the plan has, or the broker cannot be started.
    pub(super) fn take_sockets(&mut self, fds: Vec<(Role, OwnedFd)>, are_last: bool) -> Result<()> {
        let most = self
            .plan
            .egress
            .as_ref()
            .map_or(0, EgressPlan::most_sockets);
        if self.broker.is_some() || self.sockets.len() + fds.len() > most {
            let message = "init sent more sockets than it was to make";
            return Err(SetupError::new(Step::Egress, message));
        }
        self.sockets.extend(fds);
        if !are_last {
            return Ok(());
        }
        let sockets = std::mem::take(&mut self.sockets);
        self.broker = Some(CellBroker::start(
            sockets,
            &self.plan,
            self.running.init.pid,
        )?);
        self.configure_broker()
    }

    /// Tells the broker what the program may reach.
    pub(super) fn configure_broker(&self) -> Result<()> {
        match (&self.broker, self.plan.broker_config()) {
            (Some(broker), Some(mut config)) if self.has_program => {
                let signed = self.running.signed.as_ref();
                config.certificate = signed.map(Signed::open);
                broker.configure(&config, &self.plan, signed)
            }
            _ => Ok(()),
        }
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
            on_start: None,
            control: None,
            wall: None,
            grace: None,
            is_idle: true,
            owes_interrupt: false,
            forgets_interrupts: false,
            settles: false,
            repeat_at: None,
            is_cut_off: false,
            until: None,
        }
    }

    /// Takes the next message of init's.
    pub(super) fn receive_message(&mut self) {
        self.idle().on_message();
    }

    /// Notes that the program runs, and waits for a request.
    pub(super) fn park(&mut self, fds: Vec<(Role, OwnedFd)>) {
        self.idle().on_started(fds);
        if self.lives() {
            // Between executions no time is counted.
            self.deadline = None;
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

    /// Whether the driver still has the pipe from which it reads requests.
    pub(super) fn takes_requests(&self) -> bool {
        let channel = self.running.channel.as_ref();
        let Some(to) = channel.and_then(|end| end.to.as_ref()) else {
            return true;
        };
        let mut fds = [PollFd::new(to.as_fd(), PollFlags::empty())];
        let polled = poll(&mut fds, PollTimeout::ZERO);
        !polled.is_ok_and(|count| count > 0)
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

/// Reads what is in a pipe at this moment, and drops it; returns the number of bytes. A
/// program that goes on writing does not keep this from ending.
fn discard(pipe: BorrowedFd<'_>) -> u64 {
    let mut left = sys::process::readable(pipe).unwrap_or(0);
    let mut buffer = [0; 64 << 10];
    let mut dropped = 0;
    while left > 0 {
        let most = left.min(buffer.len());
        match nix::unistd::read(pipe, &mut buffer[..most]) {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                left -= count;
                dropped += count as u64;
            }
        }
    }
    dropped
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
