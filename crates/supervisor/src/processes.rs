//! Processes in a context's cell: the orders about them, and what is reported.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::orders::{OrderName, Report};
use engine::run::Chunks;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use supervise::{self, ProcessNews, ProcessStream};

/// Why the processes of a cell have ended with it.
const CELL_ENDED: &str = "the cell has ended";

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// An order about a process. It does not wait for an execution.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessOrder {
    /// Starts a process. The answer comes when it was executed.
    Start(ProcessStart),
    /// Gives it input. The answer comes when its pipe or terminal has taken all of it.
    Input {
        /// The process's number.
        process: u32,
        /// The input.
        data: RawText,
    },
    /// Ends its standard input.
    CloseInput {
        /// The process's number.
        process: u32,
    },
    /// Sends its process group a signal.
    Signal {
        /// The process's number.
        process: u32,
        /// The signal's number.
        signal: i32,
    },
    /// Changes the size of its terminal.
    Resize {
        /// The process's number.
        process: u32,
        /// The new size.
        terminal: TerminalSize,
    },
    /// Output was taken, so that more may come. It has no answer.
    Taken {
        /// The process's number.
        process: u32,
        /// How many bytes, as the report had it.
        bytes: u64,
    },
}

/// What a process is started with.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessStart {
    /// Its number, which no other process of this supervisor has or had.
    pub process: u32,
    /// The program and its arguments.
    pub argv: Vec<RawText>,
    /// Variables besides those of the context.
    #[serde(default)]
    pub env: BTreeMap<String, RawText>,
    /// Its working directory; without it, that of the context.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Whether it has input.
    #[serde(default)]
    pub input: bool,
    /// The size of its terminal, if its streams are one.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// Its wall time in milliseconds.
    #[serde(default)]
    pub wall_ms: Option<u64>,
}

impl TerminalSize {
    const fn pair(self) -> [u16; 2] {
        [self.rows, self.columns]
    }
}

impl ProcessOrder {
    fn is_start(&self) -> bool {
        matches!(self, Self::Start(_))
    }

    /// The order as the cell takes it.
    ///
    /// # Errors
    /// The signal does not exist.
    fn for_cell(self) -> Result<supervise::ProcessOrder> {
        Ok(match self {
            Self::Start(start) => {
                supervise::ProcessOrder::Start(Box::new(supervise::ProcessStart {
                    number: start.process,
                    argv: start.argv,
                    env: start.env,
                    cwd: start.cwd,
                    input: start.input,
                    terminal: start.terminal.map(TerminalSize::pair),
                    wall: start.wall_ms.map(Duration::from_millis),
                }))
            }
            Self::Input { process, data } => {
                supervise::ProcessOrder::Input(process, data.as_bytes().to_vec())
            }
            Self::CloseInput { process } => supervise::ProcessOrder::CloseInput(process),
            Self::Signal { process, signal } => {
                let unknown = |errno| SetupError::os(Step::Spec, "kill", errno).on("signal");
                let signal = Signal::try_from(signal).map_err(unknown)?;
                supervise::ProcessOrder::Signal(process, signal)
            }
            Self::Resize { process, terminal } => {
                supervise::ProcessOrder::Resize(process, terminal.pair())
            }
            Self::Taken { process, bytes } => supervise::ProcessOrder::Taken(process, bytes),
        })
    }
}

/// Orders about processes, and what has been reported of them.
#[derive(Default)]
pub(super) struct Processes {
    /// Each with its number, and the bytes of its line.
    waiting: VecDeque<(u64, ProcessOrder, usize)>,
    /// Orders that a cell has taken: the cell, and the process that the order starts, if it does.
    given: BTreeMap<u64, (String, Option<u32>)>,
    /// Processes that run, and their cells.
    running: BTreeMap<u32, Running>,
}

struct Running {
    cell: String,
    /// By stream: text that is held back until the rest of a character comes.
    chunks: BTreeMap<ProcessStream, Chunks>,
}

impl Processes {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn add(&mut self, id: u64, order: ProcessOrder, bytes: usize) {
        self.waiting.push_back((id, order, bytes));
    }

    /// The next order for this cell, its number, and the bytes of its line.
    pub(super) fn next(
        &mut self,
        cell: &str,
    ) -> Option<(u64, Result<supervise::ProcessOrder>, usize)> {
        let (id, order, bytes) = self.waiting.pop_front()?;
        let starts = match &order {
            ProcessOrder::Start(start) => Some(start.process),
            _ => None,
        };
        if !matches!(order, ProcessOrder::Taken { .. }) {
            self.given.insert(id, (cell.to_owned(), starts));
        }
        Some((id, order.for_cell(), bytes))
    }

    /// Refuses the orders that wait, or only those that need a running process. Returns the bytes
    /// of their lines.
    pub(super) fn refuse(
        &mut self,
        keeps_starts: bool,
        error: &SetupError,
        reports: &mut Vec<Report>,
    ) -> usize {
        let waiting = std::mem::take(&mut self.waiting);
        let mut freed = 0;
        for (id, order, bytes) in waiting {
            if keeps_starts && order.is_start() {
                self.waiting.push_back((id, order, bytes));
                continue;
            }
            freed += bytes;
            if !matches!(order, ProcessOrder::Taken { .. }) {
                reports.push(failed(id, error.clone()));
            }
        }
        freed
    }

    /// Reports the end of processes in other cells than this, and refuses orders that those had.
    pub(super) fn keep_cell(&mut self, cell: Option<&str>, reports: &mut Vec<Report>) {
        let is_here = |own: &str| Some(own) == cell;
        let given = std::mem::take(&mut self.given).into_iter();
        let (given, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            given.partition(|(_, (own, _))| is_here(own));
        self.given = given;
        for id in gone.into_keys() {
            reports.push(failed(id, cell_ended()));
        }
        let running = std::mem::take(&mut self.running).into_iter();
        let (running, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            running.partition(|(_, running)| is_here(&running.cell));
        self.running = running;
        for (process, running) in gone {
            let why = Some(CELL_ENDED.to_owned());
            reports.extend(running.rest(process));
            reports.push(ended(process, libc::SIGKILL, why));
        }
    }

    /// Turns news about processes into reports.
    pub(super) fn hear(&mut self, news: ProcessNews<'_>, reports: &mut Vec<Report>) {
        match news {
            ProcessNews::Done(id, pid) => {
                if let Some((cell, Some(process))) = self.given.remove(&id) {
                    let chunks = BTreeMap::new();
                    self.running.insert(process, Running { cell, chunks });
                }
                reports.push(Report::ProcessDone { id, pid });
            }
            ProcessNews::Failed(id, error) => {
                self.given.remove(&id);
                reports.push(failed(id, error));
            }
            ProcessNews::Output(process, stream, bytes) => {
                let running = self.running.get_mut(&process);
                let piece = running
                    .and_then(|running| running.chunks.entry(stream).or_default().next(bytes));
                let (text, base64) =
                    piece.map_or_else(Default::default, |piece| (piece.text, piece.base64));
                reports.push(Report::ProcessOutput {
                    process,
                    stream: name(stream).to_owned(),
                    text,
                    base64,
                    bytes: bytes.len() as u64,
                });
            }
            ProcessNews::Ended(process, status, why) => {
                if let Some(running) = self.running.remove(&process) {
                    reports.extend(running.rest(process));
                }
                reports.push(ended(process, status, why));
            }
        }
    }
}

impl Running {
    /// Reports of the text that was held back.
    fn rest(self, process: u32) -> impl Iterator<Item = Report> {
        let rest = self.chunks.into_iter();
        rest.filter_map(move |(stream, mut chunks)| {
            let piece = chunks.end()?;
            Some(Report::ProcessOutput {
                process,
                stream: name(stream).to_owned(),
                text: piece.text,
                base64: piece.base64,
                bytes: 0,
            })
        })
    }
}

const fn name(stream: ProcessStream) -> &'static str {
    match stream {
        ProcessStream::Stdout => "stdout",
        ProcessStream::Stderr => "stderr",
        ProcessStream::Terminal => "terminal",
    }
}

fn ended(process: u32, status: i32, why: Option<String>) -> Report {
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    let name = |number| match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => format!("signal {number}"),
    };
    Report::ProcessEnded {
        process,
        exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: signal.map(name),
        why,
    }
}

/// The error of an order about a process whose cell is gone.
pub(super) fn cell_ended() -> SetupError {
    SetupError::new(Step::Supervise, CELL_ENDED)
}

fn failed(id: u64, error: SetupError) -> Report {
    Report::Failed {
        order: OrderName::Process,
        id: Some(id),
        error: hints::explain(error),
        state: None,
        why: None,
    }
}
