//! The poll(2) loop: what happens in a cell, and what is done about it.
//!
//! # Nothing from a cell blocks or exhausts the supervisor
//!
//! Limits and signals are looked at after each round of the loop, and a round takes
//! at most 20 ms, because no call in it can wait and each source has a budget
//! ([`crate::turn`]). Call by call:
//!
//! | what | why it does not wait |
//! |---|---|
//! | report socket | `MSG_DONTWAIT`. It may carry descriptors, so only init ever has the other end: it is close-on-exec and above the numbers that the program is given. From init's first message on it takes them only while init starts a process (`SO_PASSRIGHTS`, Linux 6.16) |
//! | streams, frames | read(2) of pipes by open file descriptions of our own, which are `O_NONBLOCK` and which no process of the cell shares. Pipes carry no descriptors, so none is ever closed here for a cell |
//! | requests | write(2) to a pipe, likewise |
//! | processes | read(2) and write(2) of their pipes, likewise; of their terminals, by the masters, which are `O_NONBLOCK` and which no process of the cell has |
//! | reported calls | `NOTIF_RECV` only after poll(2) has reported that a call waits; arguments are never read from the program's memory. The answer to sysinfo(2) is written into it, and that write can wait like the pipes below. A call that waits for a survey of shared memory is answered later |
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
//! (`languages/frames/`), denials by the number of different calls that are counted.

mod messages;
mod output;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::capture::Capture;
use crate::cell::Cell;
use crate::driver::Channel;
use crate::network::{CATCH_UP_DEADLINE, CellBroker};
use crate::poll_set::Slot;
use crate::turn::Pace;
use crate::{Asked, Control, Execution, Observer, OnStart, Stream};
use record::error::Result;
use sys::process::monotonic_ns;
use verdict::evidence::Stop;

/// Setting a cell up takes a millisecond; a bind of a dead network file system
/// can take for ever.
pub(crate) const SETUP_DEADLINE: Duration = Duration::from_secs(30);
/// How long init may take to start something in a cell of several supervisors: it starts nothing
/// while one of them has all processes stopped, to read files.
pub(crate) const SHARED_DEADLINE: Duration = Duration::from_secs(60);
/// How long init may take to send the signal of an interrupt: long, so that an overloaded host does
/// not cost a context its state. The front end ends a cell that takes longer.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of output from which on the supervisor's own memory counts.
const HEAVY: u64 = 256 << 10;

/// How long the set-up may take, in another supervisor's cell or in its own.
pub(crate) const fn setup_deadline(is_guest: bool) -> Duration {
    match is_guest {
        true => SHARED_DEADLINE,
        false => SETUP_DEADLINE,
    }
}

/// How far a cell has come, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
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
    /// In another supervisor's cell: init was ordered to end everything that it started for this
    /// one.
    Leaving,
    /// Init itself was killed, or is on its way out.
    Ending,
    /// Init is gone, or given up on.
    Over,
}

/// What each source may take over time.
#[derive(Debug)]
pub(crate) struct Paces {
    pub(crate) output: [Pace; 2],
    pub(crate) frames: Pace,
    pub(crate) denials: Pace,
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
pub(crate) struct Watch<'w, 'a> {
    pub(crate) cell: &'w mut Cell<'a>,
    pub(crate) execution: Execution,
    pub(crate) observer: Option<&'w dyn Observer>,
    pub(crate) on_start: Option<&'w dyn OnStart>,
    pub(crate) control: Option<&'w dyn Control>,
    /// The most wall time.
    pub(crate) wall: Option<Duration>,
    /// The time between an interrupt and the cell's end, where the cell is to go on.
    pub(crate) grace: Option<Duration>,
    /// Whether the cell executes nothing: then no stream and no frame is read.
    pub(crate) is_idle: bool,
    /// Whether SIGINT is to be sent once the interpreter has begun with the code: before
    /// that, drivers ignore it.
    pub(crate) owes_interrupt: bool,
    /// Whether SIGURG interrupts the interpreter, and is sent again.
    pub(crate) urgent_interrupts: bool,
    /// Whether what was printed before a frame has been read when the frame is sent. What
    /// is printed after it must then be read after it: frames first, and output by one read
    /// at a time, since a frame may come between two.
    pub(crate) settles: bool,
    /// When it is.
    pub(crate) repeat_at: Option<Instant>,
    /// Whether the driver can report nothing more.
    pub(crate) is_cut_off: bool,
    /// When to look up again, whatever happens.
    pub(crate) until: Option<Instant>,
}

impl Watch<'_, '_> {
    /// Waits for something to happen and deals with it.
    pub(crate) fn step(&mut self) -> Result<()> {
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
        self.on_late_denials();
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
        if self.cell.lives() && control.has_guests() {
            control.admit_guests(&|| self.cell.share());
        }
    }

    /// Whether the execution has ended. In a cell that is to go on, it ends with the
    /// driver's `done`.
    pub(crate) fn is_over(&self) -> bool {
        let report = &self.execution.report;
        let is_done = report.is_done && !report.is_ending && !self.cell.is_last;
        // A caller that waits for the record does not wait for init's own exit: that init has
        // reaped everything is enough.
        let is_empty = self.control.is_some() && self.cell.is_empty();
        (is_done && self.cell.lives()) || is_empty || self.cell.phase == Phase::Over
    }

    /// Looks at what the cell uses when an execution has ended and the cell goes on. A
    /// limit that is exceeded ends it here.
    pub(crate) fn take_figures(&mut self) -> Result<()> {
        if !self.cell.lives() {
            return Ok(());
        }
        match self.catch_up().or_else(|| self.check_rest()) {
            Some(stop) => self.end_for_good(stop),
            None if self.cell.takes_requests() => return Ok(()),
            None => self.cut_off(),
        }
        while self.cell.phase != Phase::Over {
            self.step()?;
        }
        Ok(())
    }

    /// Settles an interrupt, and checks the limits of a cell that is to go on.
    fn check_rest(&mut self) -> Option<Stop> {
        match self.settle_interrupt() {
            Err(error) => Some(Stop::Internal(error.to_string())),
            Ok(()) => self.cell.measure(Instant::now()),
        }
    }

    /// Reads what the broker has to report of the execution. The limits of the cell, in which
    /// processes may go on, are checked meanwhile.
    fn catch_up(&mut self) -> Option<Stop> {
        let until = Instant::now() + CATCH_UP_DEADLINE;
        self.cell.broker.as_mut()?.ask_mark();
        while self.cell.broker.as_ref().is_some_and(CellBroker::is_behind) && Instant::now() < until
        {
            let next = self.cell.wakes_before(until);
            if let Some(broker) = &mut self.cell.broker {
                broker.wait(next, self.observer);
            }
            if let Some(stop) = self.cell.measure_if_due() {
                return Some(stop);
            }
        }
        None
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
    pub(crate) fn begin(&mut self, began_ns: u64) {
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

    fn on_signal(&mut self) {
        let Some(signals) = self.cell.cancel.signals else {
            return;
        };
        while let Some(signal) = signals.next() {
            self.end(Stop::Cancelled(signal as i32));
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

    fn read_broker(&mut self) {
        if let Some(broker) = &mut self.cell.broker {
            broker.read(self.observer);
        }
    }

    fn on_denial(&mut self) {
        let Some(listener) = &self.cell.listener else {
            return;
        };
        let first = |number| note_denied(self.observer, number);
        // Frames that were sent before the call was made have been read in this
        // turn: their slot is before this one.
        let has_begun = self.has_begun();
        let (pace, denials) = (&mut self.cell.paces.denials, &mut self.execution.denials);
        if !pace.turn(|turn| denials.answer(listener.as_fd(), has_begun, turn, first)) {
            self.cell.listener = None;
        }
        self.cell.hasten_check();
    }

    /// Counts calls that were denied after they had waited.
    fn on_late_denials(&mut self) {
        let first = |number| note_denied(self.observer, number);
        let has_begun = self.has_begun();
        self.execution.denials.count_late(has_begun, first);
    }

    /// Whether the interpreter has begun with the code.
    fn has_begun(&self) -> bool {
        self.cell.running.channel.is_none() || self.execution.report.started_ns.is_some()
    }

    /// Takes what is left in the pipes when an execution has ended.
    pub(crate) fn finish(mut self) -> Execution {
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
            // The code that watched is dropped from memory to make room for the code that writes
            // the record.
            sys::text::drop_text_pages();
        }
        if let Some(broker) = &mut self.cell.broker {
            // The rest is read when the broker ends as well.
            broker.read(self.observer);
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

fn note_denied(observer: Option<&dyn Observer>, number: i64) {
    if let Some(observer) = observer {
        observer.denied(number);
    }
}
