//! Processes beside a cell's program, as the supervisor sees them.
//!
//! On the supervisor's orders, init starts them, sends them signals and reports their ends
//! (`jail/child/processes.rs`); the supervisor writes their input and reads their output. The orders
//! come from [`Control`], which gets the answers and the output. As with a program's streams,
//! nothing here waits, and nothing grows:
//!
//! - While a process's share of [`WINDOW`] is on its way to a reader, the process is not read from,
//!   and in the end waits.
//! - All processes of a cell together have one pace, like one stream of the program's.
//! - After a process has ended, its own output is read to the end; later output of its children is
//!   not ([`output`]).
//! - Nothing is measured of each process but its wall time.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::Denials;
use super::control::Control;
use super::turn::Pace;
use jail::child::report::{FailedStep, Role};
use jail::launch::ProcessPipes;
use plan::Program;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

mod input;
mod orders;
mod output;
#[cfg(test)]
mod tests;

use input::Input;
use output::Output;

/// The most that run at once in a cell.
const MOST: usize = 32;
/// Bytes of output of a cell's processes that may be on their way to readers; each process has an
/// equal share. The front end must acknowledge parts no larger than the smallest share, that of one
/// of [`MOST`].
const WINDOW: u64 = 256 << 10;
/// How long init may take to start one: code in the cell can stop a process before it is
/// executed, for which init waits.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// The pause before an order to kill a process is sent again, when init had no room for it.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// How often the output of a process that has ended is checked for its end: another process can
/// take the rest of it, which no descriptor shows.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The maximum number of filters: a child of an ended process still has that process's filter.
const MOST_LISTENERS: usize = 256;

/// An order about a process. The caller chooses the process's number.
#[derive(Debug)]
pub enum ProcessOrder {
    /// Start it.
    Start(Box<ProcessStart>),
    /// Give it this input.
    Input(u32, Vec<u8>),
    /// End its input after what it was given before.
    CloseInput(u32),
    /// Send its process group a signal.
    Signal(u32, Signal),
    /// Change the size of its terminal: lines, and characters in each.
    Resize(u32, [u16; 2]),
    /// This number of bytes of its output was taken.
    Taken(u32, u64),
}

/// What a process is started with.
#[derive(Debug)]
pub struct ProcessStart {
    /// Its number, which no other process of the cell has.
    pub number: u32,
    /// The program and its arguments.
    pub argv: Vec<RawText>,
    /// Besides the environment of the cell's program.
    pub env: BTreeMap<String, RawText>,
    /// Instead of the program's.
    pub cwd: Option<PathBuf>,
    /// Whether it has input. With a terminal, it always has.
    pub input: bool,
    /// The size of its terminal: lines, and characters in each.
    pub terminal: Option<[u16; 2]>,
    /// How long it may take.
    pub wall: Option<Duration>,
}

/// News of a process.
#[derive(Debug)]
pub enum ProcessNews<'n> {
    /// The order with this number was carried out. A new process has this pid inside.
    Done(u64, Option<i32>),
    /// The order with this number was not carried out.
    Failed(u64, SetupError),
    /// A process wrote this.
    Output(u32, ProcessStream, &'n [u8]),
    /// A process has ended, with this wait status (wait(2)), and why, if it was ended here.
    Ended(u32, i32, Option<String>),
}

/// The stream that a process writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Its terminal, which is both stdout and stderr.
    Terminal,
}

/// The processes of a cell beside its program.
#[derive(Debug, Default)]
pub(super) struct Processes {
    running: BTreeMap<u32, Process>,
    /// The process that init was ordered to start.
    starting: Option<Starting>,
    /// Filters whose denied calls are answered.
    pub(super) listeners: Vec<OwnedFd>,
    /// What was denied to processes since it was last taken.
    pub(super) denials: Option<Denials>,
    pace: Pace,
    /// Answers that no [`Control`] has got yet.
    answers: Vec<(u64, Result<Option<i32>>)>,
}

#[derive(Debug)]
struct Process {
    /// Its streams, in the order of reading.
    output: Vec<Output>,
    /// `None` where it has no input, or has closed it.
    input: Option<Input>,
    /// Whether its streams are a terminal.
    is_terminal: bool,
    /// Bytes of output that were not taken.
    on_way: u64,
    /// When its wall time is over.
    deadline: Option<Instant>,
    wall: Duration,
    /// Why it was ended.
    why: Option<String>,
    /// Its wait status, once it has ended.
    status: Option<i32>,
}

#[derive(Debug)]
struct Starting {
    order: u64,
    number: u32,
    /// What it executes.
    program: Program,
    pipes: Option<ProcessPipes>,
    wall: Option<Duration>,
    deadline: Instant,
}

impl Process {
    fn has_room(&self, share: u64) -> bool {
        self.on_way < share
    }
}

impl Processes {
    /// Whether another order can be carried out now.
    pub(super) fn takes_orders(&self) -> bool {
        self.starting.is_none()
    }

    /// The streams to read from: the process's number, the stream's index, and its descriptor.
    pub(super) fn readable(&self) -> impl Iterator<Item = (u32, usize, BorrowedFd<'_>)> {
        let rests = self.pace.resumes_at().is_some();
        let share = WINDOW / self.running.len().max(1) as u64;
        let read = self
            .running
            .iter()
            .filter(move |(_, process)| process.has_room(share) && !rests);
        read.flat_map(|(number, process)| {
            let open = process.output.iter().enumerate();
            open.filter_map(|(index, output)| Some((*number, index, output.waits_for()?)))
        })
    }

    /// The inputs to write to, by the processes' numbers.
    pub(super) fn writable(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        let inputs = self.running.iter();
        inputs.filter_map(|(number, process)| Some((*number, process.input.as_ref()?.waits_for()?)))
    }

    /// When there is something to do that no descriptor shows.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let starting = self.starting.iter().map(|starting| starting.deadline);
        let each = self.running.values();
        let each = each.filter_map(|process| match process.status {
            None => process.deadline,
            Some(_) => Some(Instant::now() + LOOK_AGAIN),
        });
        starting.chain(each).chain(self.pace.resumes_at()).min()
    }

    /// Reads once from each of these streams, within one turn.
    pub(super) fn read(&mut self, ready: &[(u32, usize)], control: &dyn Control) {
        // The answer to the order that started a process comes before its output. Init's messages
        // are also read while no `Control` can get that answer.
        self.answer(control);
        if ready.is_empty() {
            return;
        }
        let running = &mut self.running;
        self.pace.turn(|turn| {
            for (number, index) in ready {
                let Some(process) = running.get_mut(number) else {
                    continue;
                };
                let Some(output) = process.output.get_mut(*index) else {
                    continue;
                };
                let stream = output.stream;
                let count = output.read(|bytes| {
                    control.process_news(ProcessNews::Output(*number, stream, bytes));
                });
                process.on_way = process.on_way.saturating_add(count as u64);
                if !turn.goes_on(count) || !control.has_room() {
                    break;
                }
            }
        });
    }

    /// Writes what a process's input has room for.
    pub(super) fn write(&mut self, number: u32) {
        let Some(process) = self.running.get_mut(&number) else {
            return;
        };
        let Some(input) = &mut process.input else {
            return;
        };
        self.answers
            .extend(input.write().map(|order| (order, Ok(None))));
        if input.is_over() {
            self.drop_input(number);
        }
    }

    fn drop_input(&mut self, number: u32) {
        let process = self.running.get_mut(&number);
        if let Some(input) = process.and_then(|process| process.input.take()) {
            let failed = input
                .into_orders()
                .map(|order| (order, Err(closed(number))));
            self.answers.extend(failed);
        }
    }

    /// Gives `control` the answers to its orders.
    fn answer(&mut self, control: &dyn Control) {
        for (order, answer) in self.answers.drain(..) {
            control.process_news(match answer {
                Ok(pid) => ProcessNews::Done(order, pid),
                Err(error) => ProcessNews::Failed(order, error),
            });
        }
    }

    /// Gives `control` the answers to its orders and the ends of processes.
    pub(super) fn report(&mut self, control: &dyn Control) {
        self.answer(control);
        let is_over = |process: &Process| {
            process.status.is_some() && process.output.iter().all(Output::is_over)
        };
        let over: Vec<u32> = (self.running.iter())
            .filter(|(_, process)| is_over(process))
            .map(|(number, _)| *number)
            .collect();
        for number in over {
            if let Some(process) = self.running.remove(&number) {
                let status = process.status.unwrap_or(libc::SIGKILL);
                control.process_news(ProcessNews::Ended(number, status, process.why));
            }
        }
    }

    /// Calls `kill` for processes whose wall time is over; it returns whether init has the order.
    fn end_late(&mut self, now: Instant, kill: impl Fn(u32) -> bool) {
        for (number, process) in &mut self.running {
            if process.deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            if kill(*number) {
                process.deadline = None;
                process.why = Some(format!("its wall time of {:?} was over", process.wall));
            } else {
                process.deadline = Some(now + KILL_AGAIN);
            }
        }
    }

    /// A process has ended.
    pub(super) fn exited(&mut self, number: u32, status: i32) {
        self.drop_input(number);
        if let Some(process) = self.running.get_mut(&number) {
            process.status = Some(status);
            process.deadline = None;
            process.output.iter_mut().for_each(Output::writer_has_ended);
        }
    }

    /// Init has started a process.
    pub(super) fn spawned(&mut self, number: u32, pid: i32, fds: Vec<(Role, OwnedFd)>) {
        let Some(starting) = self.starting.take_if(|starting| starting.number == number) else {
            return;
        };
        let mut terminal = None;
        for (role, fd) in fds {
            match role {
                Role::Listener => self.listeners.push(fd),
                Role::Terminal => terminal = Some(fd),
                _ => {}
            }
        }
        let is_terminal = terminal.is_some();
        let (output, input) = match (starting.pipes, terminal) {
            (Some(ProcessPipes { input, output }), _) => {
                let streams = [ProcessStream::Stdout, ProcessStream::Stderr];
                let output = streams.into_iter().zip(output);
                let output = output.map(|(stream, fd)| Output::new(stream, fd));
                (output.collect(), input)
            }
            (None, Some(master)) => {
                let input = master.try_clone().ok();
                (vec![Output::new(ProcessStream::Terminal, master)], input)
            }
            (None, None) => (Vec::new(), None),
        };
        let process = Process {
            output,
            input: input.map(Input::new),
            is_terminal,
            on_way: 0,
            deadline: starting
                .wall
                .and_then(|wall| Instant::now().checked_add(wall)),
            wall: starting.wall.unwrap_or_default(),
            why: None,
            status: None,
        };
        self.running.insert(number, process);
        self.answers.push((starting.order, Ok(Some(pid))));
    }

    /// Init could not start a process.
    pub(super) fn refused(&mut self, number: u32, failed: FailedStep) {
        let Some(starting) = self.starting.take_if(|starting| starting.number == number) else {
            return;
        };
        let program = &starting.program;
        let error = jail::launch::failed_call(failed.step, failed.syscall, failed.errno);
        let error = match failed.step {
            // By the caller's own name for it, since a client is not shown paths.
            Step::Exec => match program.argv.first() {
                Some(name) => error.on(name),
                None => error,
            },
            Step::Chdir => error.on(program.cwd.display()),
            _ => error,
        };
        self.answers.push((starting.order, Err(error)));
    }

    fn find(&mut self, number: u32) -> Result<&mut Process> {
        let process = self.running.get_mut(&number);
        process
            .filter(|process| process.status.is_none())
            .ok_or_else(|| {
                SetupError::new(Step::Supervise, "no process with this number runs").on(number)
            })
    }
}

fn closed(number: u32) -> SetupError {
    SetupError::new(
        Step::Supervise,
        "the process has no input, or has closed it",
    )
    .on(number)
}
