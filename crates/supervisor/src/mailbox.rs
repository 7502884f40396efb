//! Orders as they arrive, and reports as they leave.
//!
//! Nothing here waits. What takes effect at once (`interrupt`, `cancel`, `end`, and the
//! socket's end) is noted while the order before it is still carried out; all else is
//! queued, and the queue is bounded.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::inotify::{InitFlags, Inotify};
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::guests::Guests;
use super::orders::{Order, OrderName, Report};
use super::processes::Processes;
use engine::context::{Context, FileAnswer, Turned, Watches};
use engine::run::Outbox;
use jail::launch::SharedCell;
use jail::launch::process::receive;
use record::error::{Result, SetupError, Step};
use supervise::{Asked, Control, ProcessNews, ProcessOrder};
use sys::buffer::ReadBuffer;

/// Bytes of the longest line. The code in it may be 64 MiB, and more in JSON.
const LONGEST: usize = 160 << 20;
/// The most orders that wait.
const MOST_ORDERS: usize = 1024;
/// The most bytes of orders that wait.
const MOST_BYTES: usize = 256 << 20;
/// The most bytes that are read at a time.
const TURN: usize = 4 << 20;

/// Why no further order is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The front end ordered it.
    Ordered,
    /// The front end has closed its end, or takes no reports.
    Gone,
    /// It sent something that is no order.
    Garbage(String),
}

/// Something that the supervisor does in its turn.
#[derive(Debug)]
pub(super) enum Task {
    /// Carries out an order.
    Order(Order),
    /// Answers that the execution of this number was cancelled before it began.
    Cancelled(u64),
    /// Refuses an order: its name, its number and the reason.
    Refused(OrderName, Option<u64>, SetupError),
}

/// Work that is being done and can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    /// The execution of this number.
    Execution(u64),
    /// The order of this number, which may execute again what was executed before.
    Replay(u64),
}

/// The supervisor's end of its socket.
pub(super) struct Mailbox {
    socket: OwnedFd,
    out: Rc<Outbox>,
    current: Cell<Option<Current>>,
    /// A request about the current replay, which applies to all executions of the replay.
    stopped: Cell<Option<Asked>>,
    arrived: RefCell<Arrived>,
    /// Files whose changes are reported, and what tells of them.
    watches: RefCell<Option<Watches>>,
    processes: RefCell<Processes>,
    pub(super) guests: Guests,
    inotify: OnceCell<Rc<Inotify>>,
}

#[derive(Default)]
struct Arrived {
    /// The beginning of a line.
    line: Vec<u8>,
    /// Each with the bytes of its line.
    tasks: VecDeque<(Task, usize)>,
    bytes: usize,
    /// Sockets that came with lines which are not complete, or are not taken yet.
    sockets: VecDeque<OwnedFd>,
    closed: Option<Closed>,
}

impl Mailbox {
    pub(super) fn new(socket: OwnedFd) -> Result<Self> {
        let failed = |e: &std::io::Error| SetupError::io(Step::Supervise, "dup", e);
        let copy = socket.try_clone().map_err(|e| failed(&e))?;
        let out = Outbox::new(File::from(copy)).map_err(|e| failed(&e))?;
        Ok(Self {
            socket,
            out: Rc::new(out),
            current: Cell::new(None),
            stopped: Cell::new(None),
            arrived: RefCell::default(),
            watches: RefCell::default(),
            processes: RefCell::default(),
            guests: Guests::default(),
            inotify: OnceCell::new(),
        })
    }

    /// Where reports go.
    pub(super) fn out(&self) -> &Rc<Outbox> {
        &self.out
    }

    /// Why no further order is carried out, once that is so.
    pub(super) fn closed(&self) -> Option<Closed> {
        if self.out.broken().is_some() {
            return Some(Closed::Gone);
        }
        self.arrived.borrow().closed.clone()
    }

    /// The next thing to do, while there is room for its report.
    pub(super) fn next(&self) -> Option<Task> {
        if !self.out.has_room() {
            return None;
        }
        let arrived = &mut *self.arrived.borrow_mut();
        let (task, bytes) = arrived.tasks.pop_front()?;
        arrived.bytes -= bytes;
        self.current.set(match &task {
            Task::Order(Order::Execute(execute)) => Some(Current::Execution(execute.execution)),
            Task::Order(Order::Restore { id, .. } | Order::Resume { id }) => {
                Some(Current::Replay(*id))
            }
            _ => None,
        });
        Some(task)
    }

    /// Notes that the current work is over.
    pub(super) fn task_is_over(&self) {
        self.current.set(None);
        self.stopped.set(None);
    }

    /// Queues a report.
    pub(super) fn report(&self, report: &impl Serialize) {
        self.out.add(usize::MAX, |queue| {
            serde_json::to_writer(&mut *queue, report)?;
            queue.write_all(b"\n")
        });
    }

    /// Begins to report changes below a directory of a context's workspace.
    ///
    /// # Errors
    /// The cell cannot be started or stopped, or the directory not be watched.
    pub(super) fn watch(
        &self,
        context: &mut Context<'_>,
        id: u64,
        path: &Path,
    ) -> Result<FileAnswer> {
        let inotify = match self.inotify.get() {
            Some(inotify) => inotify,
            None => {
                let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
                let inotify = Inotify::init(flags).map_err(|errno| {
                    SetupError::os(Step::Outputs, "inotify_init1", errno)
                        .hint("end other watches, or raise fs.inotify.max_user_instances")
                })?;
                self.inotify.get_or_init(|| Rc::new(inotify))
            }
        };
        context.prepare()?;
        self.check_watches(Some(context));
        let cell = context.id().to_owned();
        let watches = &mut *self.watches.borrow_mut();
        context.in_workspace(|workspace| {
            let watches = match watches {
                Some(watches) => watches,
                None => watches.insert(Watches::new(cell, inotify, workspace)?),
            };
            watches.add(id, path)
        })?;
        Ok(FileAnswer::Watching {})
    }

    /// Ends a watch.
    pub(super) fn unwatch(&self, id: u64) -> FileAnswer {
        let watches = &mut *self.watches.borrow_mut();
        let path = watches.as_mut().and_then(|watches| watches.remove(id));
        FileAnswer::Unwatched { path }
    }

    /// Ends the watches of a cell that is gone.
    pub(super) fn check_watches(&self, context: Option<&Context<'_>>) {
        let cell = context.and_then(Context::cell);
        let is_gone = |watches: &Watches| Some(watches.cell()) != cell;
        if self.watches.borrow().as_ref().is_some_and(is_gone) {
            self.end_watches();
        }
    }

    /// Reports changes of files while there is room for them.
    fn report_changes(&self) {
        let watches = &mut *self.watches.borrow_mut();
        let Some(watches) = watches.as_mut().filter(|_| self.out.has_room()) else {
            return;
        };
        self.report_turn(watches.turn());
    }

    fn report_turn(&self, turned: Turned) {
        for (id, seen) in turned.seen {
            // Text and numbers; there is nothing in it that JSON does not have.
            if let Ok(answer) = to_raw_value(&seen) {
                self.report(&Report::File { id, answer });
            }
        }
        for id in turned.gone {
            let why = "the directory is gone".to_owned();
            self.report(&Report::WatchEnded { id, why });
        }
    }

    /// Ends all watches, after what they have seen until now.
    fn end_watches(&self) {
        let Some(mut watches) = self.watches.borrow_mut().take() else {
            return;
        };
        self.report_turn(watches.last_turn());
        for id in watches.ids() {
            let why = "the cell has ended".to_owned();
            self.report(&Report::WatchEnded { id, why });
        }
    }

    /// Reports the end of processes whose cell is gone, and refuses orders that it had.
    pub(super) fn check_processes(&self, context: Option<&Context<'_>>) {
        let cell = context.and_then(Context::cell);
        let mut reports = Vec::new();
        self.processes.borrow_mut().keep_cell(cell, &mut reports);
        reports.iter().for_each(|report| self.report(report));
    }

    /// Refuses orders about processes: all, or those that do not start one.
    pub(super) fn refuse_process_orders(&self, keeps_starts: bool, error: &SetupError) {
        let mut reports = Vec::new();
        let mut processes = self.processes.borrow_mut();
        let freed = processes.refuse(keeps_starts, error, &mut reports);
        self.arrived.borrow_mut().bytes -= freed;
        reports.iter().for_each(|report| self.report(report));
    }

    /// Reads the orders that have come; returns what they request about the current execution or
    /// replay.
    fn read(&self) -> Option<Asked> {
        let arrived = &mut *self.arrived.borrow_mut();
        let mut buffer = ReadBuffer::default();
        let mut asked = None;
        let mut read = 0;
        while arrived.closed.is_none() && read < TURN {
            let socket = self.socket.as_fd();
            match buffer.read(|room| receive(socket, room, &mut arrived.sockets)) {
                Ok([]) => arrived.closed = Some(Closed::Gone),
                Ok(bytes) => {
                    read += bytes.len();
                    self.take_bytes(arrived, bytes, &mut asked);
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(_) => arrived.closed = Some(Closed::Gone),
            }
        }
        match arrived.closed {
            Some(_) => Some(Asked::End),
            None => asked.or(self.stopped.get()),
        }
    }

    fn take_bytes(&self, arrived: &mut Arrived, mut bytes: &[u8], asked: &mut Option<Asked>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (rest, next) = bytes.split_at(end);
            bytes = &next[1..];
            let mut line = std::mem::take(&mut arrived.line);
            line.extend_from_slice(rest);
            if arrived.closed.is_none() {
                self.take_line(arrived, &line, asked);
            }
        }
        if arrived.line.len() + bytes.len() > LONGEST {
            let why = format!("a line of more than {LONGEST} bytes");
            arrived.closed.get_or_insert(Closed::Garbage(why));
            return;
        }
        arrived.line.extend_from_slice(bytes);
    }

    fn take_line(&self, arrived: &mut Arrived, line: &[u8], asked: &mut Option<Asked>) {
        let order = match record::json::from_slice(line) {
            Ok(order) => order,
            Err(error) => {
                arrived.closed = Some(Closed::Garbage(format!("no order: {error}")));
                return;
            }
        };
        match order {
            Order::End => arrived.closed = Some(Closed::Ordered),
            Order::Interrupt {
                execution,
                grace_ms,
            } if self.current.get() == Some(Current::Execution(execution)) => {
                let sent = true;
                self.report(&Report::Interrupted { execution, sent });
                if *asked != Some(Asked::End) {
                    *asked = Some(Asked::Interrupt(Duration::from_millis(grace_ms)));
                }
            }
            Order::Cancel { execution }
                if self.current.get() == Some(Current::Execution(execution)) =>
            {
                *asked = Some(Asked::End);
            }
            Order::Stop { id, grace_ms } => {
                if self.current.get() == Some(Current::Replay(id)) {
                    let grace = Duration::from_millis(grace_ms);
                    self.stopped.set(Some(Asked::Interrupt(grace)));
                }
            }
            Order::Interrupt { execution, .. } => {
                let sent = arrived.cancel(execution);
                self.report(&Report::Interrupted { execution, sent });
            }
            Order::Cancel { execution } => {
                arrived.cancel(execution);
            }
            Order::Admit => match arrived.sockets.pop_front() {
                Some(socket) => self.guests.add(socket),
                None => arrived.closed = Some(Closed::Garbage("no socket to admit".to_owned())),
            },
            Order::Process { id, what } => {
                let mut processes = self.processes.borrow_mut();
                match arrived.makes_room(processes.waiting(), line.len()) {
                    Ok(()) => processes.add(id, what, line.len()),
                    Err(error) => arrived.refuse(OrderName::Process, Some(id), error),
                }
            }
            order => arrived.queue(order, line.len()),
        }
    }
}

impl Arrived {
    /// Cancels an execution that has not begun; whether there is one. One that is over stays as it
    /// is.
    fn cancel(&mut self, number: u64) -> bool {
        let is_meant = |task: &Task| match task {
            Task::Order(Order::Execute(execute)) => execute.execution == number,
            _ => false,
        };
        let task = self.tasks.iter_mut().find(|(task, _)| is_meant(task));
        task.map(|(task, _)| *task = Task::Cancelled(number))
            .is_some()
    }

    fn queue(&mut self, order: Order, bytes: usize) {
        let (name, id) = order.name();
        match self.makes_room(self.tasks.len(), bytes) {
            Ok(()) => self.tasks.push_back((Task::Order(order), bytes)),
            Err(error) => self.refuse(name, id, error),
        }
    }

    /// Counts another order of this length, if there is room beside the `waiting` ones of its
    /// queue.
    fn makes_room(&mut self, waiting: usize, bytes: usize) -> Result<()> {
        if waiting < MOST_ORDERS && self.bytes + bytes <= MOST_BYTES {
            self.bytes += bytes;
            return Ok(());
        }
        Err(
            SetupError::new(Step::Serve, "too many orders wait for this cell")
                .hint("wait for an answer before the next order"),
        )
    }

    fn refuse(&mut self, name: OrderName, id: Option<u64>, error: SetupError) {
        // Twice the bound ends a front end that does not heed the first.
        if self.tasks.len() < 2 * MOST_ORDERS {
            self.tasks.push_back((Task::Refused(name, id, error), 0));
        } else {
            self.closed = Some(Closed::Garbage("too many orders".to_owned()));
        }
    }
}

impl Control for Mailbox {
    fn reads(&self) -> Option<BorrowedFd<'_>> {
        let is_open = self.arrived.borrow().closed.is_none();
        is_open.then(|| self.socket.as_fd())
    }

    fn writes(&self) -> Option<BorrowedFd<'_>> {
        self.out.waits_for()
    }

    fn watches(&self) -> Option<BorrowedFd<'_>> {
        let is_due = self.watches.borrow().as_ref()?.resumes_at().is_none();
        let inotify = self.inotify.get()?;
        (is_due && self.out.has_room()).then(|| inotify.as_fd())
    }

    fn resumes_at(&self) -> Option<Instant> {
        let watches = self.watches.borrow();
        let resumes_at = watches.as_ref().and_then(Watches::resumes_at);
        resumes_at.filter(|_| self.out.has_room())
    }

    fn take(&self) -> Option<Asked> {
        self.read()
    }

    fn flush(&self) {
        self.report_changes();
        self.out.flush();
    }

    fn has_process_orders(&self) -> bool {
        self.processes.borrow().waiting() > 0
    }

    fn next_process_order(&self, cell: &str) -> Option<(u64, ProcessOrder)> {
        loop {
            let (id, order, bytes) = self.processes.borrow_mut().next(cell)?;
            self.arrived.borrow_mut().bytes -= bytes;
            match order {
                Ok(order) => return Some((id, order)),
                Err(error) => self.process_news(ProcessNews::Failed(id, error)),
            }
        }
    }

    fn has_guests(&self) -> bool {
        self.guests.wait()
    }

    fn admit_guests(&self, share: &dyn Fn() -> Result<SharedCell>) {
        self.guests.admit(share);
    }

    fn process_news(&self, news: ProcessNews<'_>) {
        let mut reports = Vec::new();
        self.processes.borrow_mut().hear(news, &mut reports);
        reports.iter().for_each(|report| self.report(report));
    }

    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    fn has_work(&self) -> bool {
        self.closed().is_some() || (self.out.has_room() && !self.arrived.borrow().tasks.is_empty())
    }
}
