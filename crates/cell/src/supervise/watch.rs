//! The poll(2) loop: what happens in a cell, and what is done about it.
//!
//! # Nothing from a cell blocks or exhausts the supervisor
//!
//! Limits and signals are looked at after each round of the loop, and a round takes
//! at most 20 ms, because no call in it can wait and each source has a budget
//! ([`super::turn`]). Call by call:
//!
//! | what | why it does not wait |
//! |---|---|
//! | report socket | `MSG_DONTWAIT`. It may carry descriptors, so only init ever has the other end: it is close-on-exec and above the numbers that the program is given. From init's first message on it takes them only while init starts a process (`SO_PASSRIGHTS`, Linux 6.16) |
//! | streams, frames | read(2) of pipes by open file descriptions of our own, which are `O_NONBLOCK` and which no process of the cell shares. Pipes carry no descriptors, so none is ever closed here for a cell |
//! | requests | write(2) to a pipe, likewise |
//! | processes | read(2) and write(2) of their pipes, likewise; of their terminals, by the masters, which are `O_NONBLOCK` and which no process of the cell has |
//! | reported calls | `NOTIF_RECV` only after poll(2) has reported that a call waits; arguments are never read from the program's memory. The answer to sysinfo(2) is written into it, and that write can wait like the pipes below |
//! | broker's reports | read(2) of a pipe, likewise; its last ones have a deadline |
//! | changes of files | read(2) of an inotify descriptor that is non-blocking, and directories of the tmpfs, in turns and with rests |
//! | pidfds, signals | waitid(2) with `WNOHANG`; the signalfd is non-blocking |
//! | `/proc`, cgroups | reads that take no lock which a program holds for long; each look is bounded in time |
//! | the tmpfs | fstatvfs(2) on descriptors that init sent; files are opened when all processes are gone, `O_NONBLOCK`, and never through links or mounts |
//!
//! A pipe's lock is held while a writer copies from its own memory. That copy waits
//! for the memory's own lock, which the kernel holds for as long as its work on that memory
//! takes, and for memory that has to be fetched: `userfaultfd` is denied, and a program
//! has files of network file systems only where the caller binds them in.
//!
//! What comes is bounded in memory as well: streams by their cap, results by theirs
//! (`results.rs`), a frame on its way by what one result may hold
//! (`drivers/frames/`), denials by the number of different calls that are counted.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::capture::{Capture, ReadStatus};
use super::cell::Cell;
use super::driver::{Channel, read_frames};
use super::evidence::Stop;
use super::poll_set::Slot;
use super::turn::{Pace, Turn};
use super::{Asked, Control, Execution, Observer, OnStart, Stream};
use crate::child::report::{Message, Role};
use crate::launch::cgroup::CellCgroup;
use crate::launch::terminal::RELAY_DEADLINE;
use crate::launch::{END_DEADLINE, in_words, wait_for};
use crate::spec::OnOutput;
use record::Start;
use record::error::{Result, SetupError, Step};
use sys::process::monotonic_ns;

/// Setting a cell up takes a millisecond; a bind of a dead network file system
/// can take for ever.
pub(super) const SETUP_DEADLINE: Duration = Duration::from_secs(30);
/// What is left in pipes when an execution has ended is read for no longer.
const DRAIN_DEADLINE: Duration = Duration::from_millis(100);
/// How soon a program that has closed the driver's channel is to end.
const EXIT_DEADLINE: Duration = Duration::from_secs(2);
/// How long init may take to send the signal of an interrupt: long, so that an overloaded host does
/// not cost a context its state. The front end ends a cell that takes longer.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of output from which on the supervisor's own memory counts.
const HEAVY: u64 = 256 << 10;

/// How far a cell has come, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Init sets up.
    SetUp,
    /// All is set up, and init waits for its program.
    Waiting,
    /// The program runs.
    Running,
    /// The program was interrupted, and has time to stop what it does.
    Interrupted,
    /// The program was warned of its end, and has time for it.
    Grace,
    /// Init was asked to end everything.
    Counting,
    /// Init has killed everything; the kernel frees what it held, and init will
    /// count what was used.
    Freeing,
    /// Init itself was killed, or is on its way out.
    Ending,
    /// Init is gone, or given up on.
    Over,
}

/// What each source may take over time.
#[derive(Debug)]
pub(super) struct Paces {
    pub(super) output: [Pace; 2],
    pub(super) frames: Pace,
    pub(super) denials: Pace,
}

impl Default for Paces {
    fn default() -> Self {
        Self {
            output: [Pace::of_bytes(), Pace::of_bytes()],
            frames: Pace::of_bytes(),
            denials: Pace::of_calls(),
        }
    }
}

/// A cell, and the execution in it that is being watched.
pub(super) struct Watch<'w, 'a> {
    pub(super) cell: &'w mut Cell<'a>,
    pub(super) execution: Execution,
    pub(super) observer: Option<&'w dyn Observer>,
    pub(super) on_start: Option<&'w dyn OnStart>,
    pub(super) control: Option<&'w dyn Control>,
    /// The most wall time.
    pub(super) wall: Option<Duration>,
    /// The time between an interrupt and the cell's end, where the cell is to go on.
    pub(super) grace: Option<Duration>,
    /// Whether the cell executes nothing: then no stream and no frame is read.
    pub(super) is_idle: bool,
    /// Whether SIGINT is to be sent once the interpreter has begun with the code: before
    /// that, drivers ignore it.
    pub(super) owes_interrupt: bool,
    /// Whether SIGINT may have to be sent again.
    pub(super) forgets_interrupts: bool,
    /// Whether what was printed before a frame has been read when the frame is sent. What
    /// is printed after it must then be read after it: frames first, and output by one read
    /// at a time, since a frame may come between two.
    pub(super) settles: bool,
    /// When it is.
    pub(super) repeat_at: Option<Instant>,
    /// Whether the driver can report nothing more.
    pub(super) is_cut_off: bool,
    /// When to look up again, whatever happens.
    pub(super) until: Option<Instant>,
}

impl Watch<'_, '_> {
    /// Waits for something to happen and deals with it.
    pub(super) fn step(&mut self) -> Result<()> {
        let mut frames_wait = false;
        let mut of_processes = Vec::new();
        for slot in self.wait()? {
            match slot {
                Slot::Report => self.on_message(),
                Slot::Init => self.on_init_gone(),
                Slot::Signals => self.on_signal(),
                Slot::Parent => self.on_parent_gone(),
                Slot::Output(_) if frames_wait => {}
                Slot::Output(stream) => self.on_output(stream),
                Slot::Frames => {
                    frames_wait = self.read_frames(None) == Channel::More && self.settles;
                }
                Slot::Requests => self.cell.send_request(),
                Slot::Listener => self.on_denial(),
                Slot::Process(number, stream) => of_processes.push((number, stream)),
                Slot::ProcessInput(number) => self.cell.processes.write(number),
                Slot::ProcessListener(index) => self.cell.answer_denied(index),
                Slot::Broker => self.read_broker(),
                Slot::Control => self.on_control(),
                // Written below, with what came in this turn.
                Slot::Events => {}
            }
        }
        self.on_time();
        if let Some(observer) = self.observer {
            observer.flush();
        }
        if let Some(control) = self.control {
            self.serve_processes(&of_processes, control);
            control.flush();
        }
        Ok(())
    }

    /// Reads from processes beside the program, and carries out orders about them.
    fn serve_processes(&mut self, ready: &[(u32, usize)], control: &dyn Control) {
        self.cell.processes.read(ready, control);
        while self.cell.lives()
            && self.cell.processes.takes_orders()
            && let Some((order, what)) = control.next_process_order(&self.cell.plan.id)
        {
            self.cell.order_process(order, what);
        }
        self.cell.processes.report(control);
    }

    pub(super) fn on_message(&mut self) {
        match Message::receive(self.cell.running.report.as_fd()) {
            Ok(Some(message)) => self.take_message(message),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // End of file: init is gone.
            Ok(None) | Err(_) => self.kill(),
        }
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Started { fds } => self.on_started(fds),
            Message::Waiting { fds } => {
                self.take_descriptors(fds);
                self.cell.phase = Phase::Waiting;
                self.cell.deadline = None;
            }
            Message::Sockets { fds, is_last } => {
                if let Err(error) = self.cell.take_sockets(fds, is_last) {
                    self.cell.seen.failure = Some(error);
                    self.kill();
                }
            }
            Message::Prepared { fds } => self.cell.prepared = Some(fds),
            Message::Failed(failed) => {
                let failure = in_words(&self.cell.plan, failed);
                self.cell.seen.failure = Some(failure);
                self.kill();
            }
            Message::Staying => self.on_started(Vec::new()),
            Message::Spawned { number, pid, fds } => {
                self.cell.process_is_started();
                self.cell.processes.spawned(number, pid, fds);
            }
            Message::Refused { number, failed } => {
                self.cell.process_is_started();
                self.cell.processes.refused(number, failed);
            }
            Message::Exited { number, status } => self.cell.processes.exited(number, status),
            Message::Frozen => self.cell.is_frozen = true,
            Message::Ended { status, usage } => {
                self.cell.seen.status = Some(status);
                self.cell.seen.reaped = Some(usage);
                self.execution.ended_ns = monotonic_ns();
                self.enter(Phase::Ending, END_DEADLINE);
            }
        }
    }

    pub(super) fn on_started(&mut self, fds: Vec<(Role, OwnedFd)>) {
        // It needs no more descriptors. Older kernels do not know the option.
        let _ = sys::process::take_descriptors(self.cell.running.report.as_fd(), false);
        self.take_descriptors(fds);
        if self.cell.seen.failure.is_some() {
            return;
        }
        let executed_ns =
            (self.cell.running.progress.began_ns(Step::Exec)).unwrap_or_else(monotonic_ns);
        self.cell.seen.executed_ns = executed_ns;
        self.cell.phase = Phase::Running;
        self.begin(executed_ns);
        if let Some(on_start) = self.on_start {
            on_start.started();
        }
        if let Some(Err(error)) = self.cell.running.cgroup.as_ref().map(CellCgroup::throttle) {
            self.end(Stop::Internal(error.to_string()));
            return;
        }
        let is_alone = self.control.is_none() && self.cell.running.start == Start::Cold;
        if is_alone && self.cell.running.output.iter().any(Option::is_some) {
            // Room for output, while the program is still starting. A cell that waits for
            // a call is to answer it fast.
            sys::text::drop_text_pages();
        }
        if let Some(stop) = self.cell.seen.stopped.take() {
            self.end(stop);
        }
    }

    fn take_descriptors(&mut self, fds: Vec<(Role, OwnedFd)>) {
        for (role, fd) in fds {
            match role {
                Role::Listener => self.cell.listener = Some(fd),
                Role::Scratch(index) if index == self.cell.seen.scratch.len() => {
                    self.cell.seen.scratch.push(fd);
                }
                Role::Terminal => self.show_terminal(fd),
                Role::Namespace(kind) => self.cell.namespaces.push((kind, fd)),
                // Out of order or place: not from an init of this version.
                Role::Scratch(_) | Role::Ruleset | Role::Socket(..) => {}
            }
        }
    }

    /// Makes the caller's terminal show the cell's, which has this `master`.
    fn show_terminal(&mut self, master: OwnedFd) {
        let display = self.cell.running.display.take();
        match display.map(|display| display.show(master)).transpose() {
            Ok(relay) => self.cell.running.relay = relay,
            Err(error) => {
                self.cell.seen.failure = Some(error);
                self.kill();
            }
        }
    }

    /// Whether the execution has ended. In a cell that is to go on, it ends with the
    /// driver's `done`.
    pub(super) fn is_over(&self) -> bool {
        let report = &self.execution.report;
        let is_done = report.is_done && !report.is_ending && !self.cell.is_last;
        // A caller that waits for the record does not wait for init's own exit: that init has
        // reaped everything is enough.
        let is_empty = self.control.is_some() && self.cell.is_empty();
        (is_done && self.cell.lives()) || is_empty || self.cell.phase == Phase::Over
    }

    /// Looks at what the cell uses when an execution has ended and the cell goes on. A
    /// limit that is exceeded ends it here.
    pub(super) fn take_figures(&mut self) -> Result<()> {
        if !self.cell.lives() {
            return Ok(());
        }
        let stop = match (self.settle_interrupt(), self.cell.takes_requests()) {
            (Err(error), _) => Some(Stop::Internal(error.to_string())),
            (Ok(()), true) => self.cell.measure(Instant::now()),
            (Ok(()), false) => Some(Stop::ChannelBroken),
        };
        if let Some(stop) = stop {
            self.end_for_good(stop);
            while self.cell.phase != Phase::Over {
                self.step()?;
            }
        }
        Ok(())
    }

    /// Waits for init's answer, before which it has sent the signal of an interrupt. A later signal
    /// could reach the next execution.
    fn settle_interrupt(&mut self) -> Result<()> {
        if self.cell.was_interrupted {
            self.cell.phase = Phase::Running;
            self.cell.freeze_within(SETTLE_DEADLINE)?;
        }
        Ok(())
    }

    /// Begins to count the execution's time.
    pub(super) fn begin(&mut self, began_ns: u64) {
        let now = Instant::now();
        self.cell.next_check = self.cell.meter.next_check(now);
        self.cell.deadline = self.wall.and_then(|wall| now.checked_add(wall));
        if self.is_idle {
            return;
        }
        self.execution.began_ns = began_ns;
        if let Some(observer) = self.observer {
            observer.started();
        }
    }

    pub(super) fn on_init_gone(&mut self) {
        let killed_by = self.cell.running.init.reap();
        // What init had sent before its end is still in the socket.
        while let Ok(Some(message)) = Message::receive(self.cell.running.report.as_fd()) {
            self.take_message(message);
        }
        self.cell.phase = Phase::Over;
        let seen = &mut self.cell.seen;
        let is_silent = seen.failure.is_none() && seen.status.is_none();
        if is_silent && seen.executed_ns == 0 && seen.stopped.is_none() {
            // The shared page knows during which step.
            let step = self.cell.running.progress.step().unwrap_or(Step::Clone);
            let signal = killed_by.unwrap_or(Signal::SIGKILL);
            seen.failure = Some(
                SetupError::new(step, format!("the cell's init was killed by {signal}"))
                    .hint("is there too little memory for the files that go in?"),
            );
        }
    }

    fn on_signal(&mut self) {
        let Some(signals) = self.cell.cancel.signals else {
            return;
        };
        while let Ok(Some(info)) = signals.fd().read_signal() {
            if let Ok(signal) = Signal::try_from(info.ssi_signo as i32) {
                self.end(Stop::Cancelled(signal as i32));
            }
        }
    }

    fn on_parent_gone(&mut self) {
        self.cell.cancel.parent = None;
        self.end(Stop::ParentEnded);
    }

    fn on_control(&mut self) {
        match self.control.and_then(Control::take) {
            None => {}
            Some(Asked::Interrupt(grace)) => {
                self.grace = Some(grace);
                self.end(Stop::Cancelled(Signal::SIGINT as i32));
            }
            Some(Asked::End) => self.end_for_good(Stop::Cancelled(Signal::SIGTERM as i32)),
        }
    }

    fn on_output(&mut self, stream: Stream) {
        self.read_output(stream);
        if let Some(stop) = self.too_much_output() {
            self.end(stop);
        }
    }

    /// The stream that has more than its cap, where that ends a cell.
    fn too_much_output(&self) -> Option<Stop> {
        let over = |stream: &Stream| {
            let capture = self.execution.output[*stream as usize].as_ref();
            capture.is_some_and(Capture::over_cap)
        };
        let stream = Stream::ALL.into_iter().find(over)?;
        let limits = &self.cell.plan.limits;
        (limits.on_output == OnOutput::Kill).then(|| Stop::OutputLimit {
            stream: stream.name(),
            cap: limits.output,
        })
    }

    /// Whether a stream has bytes that wait. Where nothing was written, no room is made.
    fn has_output(&self, stream: Stream) -> bool {
        let fd = self.cell.running.output[stream as usize].as_ref();
        let fd = fd.filter(|_| self.cell.output_open[stream as usize]);
        fd.is_some_and(|fd| sys::process::readable(fd.as_fd()).unwrap_or(1) > 0)
    }

    /// Reads for one turn; returns whether there may be more.
    fn read_output(&mut self, stream: Stream) -> bool {
        let index = stream as usize;
        let (Some(fd), Some(capture)) = (
            &self.cell.running.output[index],
            &mut self.execution.output[index],
        ) else {
            return false;
        };
        let (observer, settles) = (self.observer, self.settles);
        let on_bytes = |parts: [&[u8]; 2]| {
            let has_room = observer.is_none_or(|observer| {
                for bytes in parts.into_iter().filter(|bytes| !bytes.is_empty()) {
                    observer.wrote(stream, bytes);
                }
                observer.has_room()
            });
            has_room && !settles
        };
        let before = capture.total();
        let pace = &mut self.cell.paces.output[index];
        let read = pace.turn(|turn| capture.read_turn(fd.as_fd(), turn, on_bytes));
        let status = read.unwrap_or(ReadStatus::Closed);
        let count = capture.total() - before;
        self.execution.report.results.wrote(stream, count);
        self.cell.output_open[index] = status != ReadStatus::Closed;
        status == ReadStatus::More
    }

    /// Reads frames for one turn, which is of the channel's pace unless given.
    fn read_frames(&mut self, turn: Option<&mut Turn>) -> Channel {
        let Some(end) = &self.cell.running.channel else {
            return Channel::Closed;
        };
        let (reader, report) = (&mut self.cell.frames, &mut self.execution.report);
        let observer = self.observer;
        let mut read = |turn: &mut Turn| read_frames(&end.from, reader, report, observer, turn);
        let state = match turn {
            Some(turn) => read(turn),
            None => self.cell.paces.frames.turn(read),
        };
        if state == Channel::Closed {
            self.cell.frames_open = false;
        }
        self.pay_interrupt();
        self.note_broken_channel();
        state
    }

    /// A cell that was to go on ends when no further `done` can come: unless the
    /// program is ending, of which init reports soon.
    fn note_broken_channel(&mut self) {
        let is_lost = !self.cell.frames_open || self.execution.report.is_broken;
        if is_lost && !self.is_cut_off && !self.cell.is_last && self.cell.lives() {
            self.is_cut_off = true;
            let soon = Instant::now() + EXIT_DEADLINE;
            self.cell.deadline = Some(self.cell.deadline.map_or(soon, |until| until.min(soon)));
        }
    }

    fn read_broker(&mut self) {
        if let Some(broker) = &mut self.cell.broker {
            broker.read(self.observer);
        }
    }

    fn on_denial(&mut self) {
        let Some(listener) = &self.cell.listener else {
            return;
        };
        let observer = self.observer;
        let first = |number| {
            if let Some(observer) = observer {
                observer.denied(number);
            }
        };
        // Frames that were sent before the call was made have been read in this
        // turn: their slot is before this one.
        let has_channel = self.cell.running.channel.is_some();
        let has_begun = !has_channel || self.execution.report.started_ns.is_some();
        let (pace, denials) = (&mut self.cell.paces.denials, &mut self.execution.denials);
        if !pace.turn(|turn| denials.answer(listener.as_fd(), has_begun, turn, first)) {
            self.cell.listener = None;
        }
    }

    /// Reads the last output of the cell's terminal, and restores the caller's.
    fn leave_terminal(&mut self) {
        let Some(relay) = self.cell.running.relay.take() else {
            return;
        };
        let until = Instant::now() + RELAY_DEADLINE;
        // It closes its pipe when it has carried all that there is.
        while let Some(shown) = &self.cell.running.output[0]
            && self.cell.output_open[0]
            && wait_for(shown.as_fd(), until)
        {
            self.read_output(Stream::Stdout);
        }
        drop(relay);
    }

    fn drain_output(&mut self) {
        for stream in Stream::ALL {
            let until = Instant::now() + DRAIN_DEADLINE;
            while self.has_output(stream) && self.read_output(stream) && Instant::now() < until {}
        }
    }

    fn drain_frames(&mut self) {
        let until = Instant::now() + DRAIN_DEADLINE;
        while self.cell.frames_open
            && self.read_frames(Some(&mut Turn::begin())) == Channel::More
            && Instant::now() < until
        {}
    }

    /// Takes what is left in the pipes when an execution has ended.
    pub(super) fn finish(mut self) -> Execution {
        self.leave_terminal();
        match self.settles {
            true => {
                self.drain_frames();
                self.drain_output();
            }
            false => {
                self.drain_output();
                self.drain_frames();
            }
        }
        let report = &mut self.execution.report;
        report.is_cut_short = !report.is_broken && !self.cell.frames.is_between_frames();
        // A program that ends right after a flood leaves it in the pipes.
        if let Some(stop) = self.too_much_output()
            && self.cell.seen.failure.is_none()
        {
            match self.cell.phase {
                Phase::Over => drop(self.cell.seen.stopped.get_or_insert(stop)),
                _ => self.end(stop),
            }
        }
        let kept = self.execution.output.iter().flatten().map(Capture::total);
        if kept.sum::<u64>() > HEAVY {
            // What watched makes room for what writes the record.
            sys::text::drop_text_pages();
        }
        if let Some(broker) = &mut self.cell.broker {
            match self.cell.phase {
                // The rest is read when the broker ends as well.
                Phase::Over => broker.read(self.observer),
                _ => broker.catch_up(self.observer),
            }
            self.execution.network = Some(broker.take_log());
        }
        if let Some(observer) = self.observer {
            // A stream whose writer could not be killed has not ended.
            for stream in Stream::ALL {
                observer.stream_ended(stream);
            }
            observer.flush();
        }
        if self.execution.ended_ns == 0 {
            self.execution.ended_ns = monotonic_ns();
        }
        self.execution
    }
}
