//! What a front end and the supervisor of one cell say to each other.
//!
//! Both are processes of one executable, joined by a Unix stream socket that carries
//! JSON Lines in both directions: [`Order`]s to the supervisor, [`Report`]s from it. A
//! report holds what came out of a cell, so the front end bounds and escapes it like any
//! other hostile input. Each line is one object with the order's or report's name as its
//! only key (raw JSON inside of it is passed on without being parsed).
//!
//! ```text
//!   front end                              supervisor
//!   open {request}                  ──────► spec, plan, cell
//!                                   ◄────── opened | failed
//!   execute {execution, code …}     ──────► runs the code
//!                                   ◄────── event … (if asked for)
//!   interrupt {execution}, stop {id} ─────► SIGINT, grace, kill
//!                                   ◄────── answer {state, record}
//!   describe, file, restart, resume,
//!   checkpoint, restore, compare    ──────► between executions, in their order
//!   admit + socket                  ──────► forks the supervisor of another interpreter
//!   process {start, input, signal …} ─────► programs beside the interpreter
//!                                   ◄────── process_output, process_ended …
//!   end, or the socket's end        ──────► the cell ends
//!                                   ◄────── ended
//! ```
//!
//! `interrupt`, `cancel`, `stop` and `end` take effect at once; `admit` and orders about processes
//! wait for a running cell but not for an execution; every other order waits for the orders before
//! it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::processes::ProcessOrder;
pub use engine::context::{Layout, State};
use record::Start;
use record::bytes::RawText;
use record::error::SetupError;
use spec::Unread;
use spec::counted::Files;

/// From the front end to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Makes the cell. Always the first order.
    Open(Open),
    /// Executes code.
    Execute(Execute),
    /// Interrupts an execution: SIGINT, then `grace_ms` for the code's own end, then the
    /// cell is killed. Has no effect on an execution that is over, as its report says.
    Interrupt {
        /// Which execution.
        execution: u64,
        /// Milliseconds between SIGINT and the kill.
        grace_ms: u64,
    },
    /// Cancels an execution that has not begun, or ends its cell at once.
    Cancel {
        /// Which execution.
        execution: u64,
    },
    /// Stops the replay that an order to restore or to resume carries out. What is executed again
    /// is interrupted, and the state is lost. Has no effect once that order is over.
    Stop {
        /// The number of that order.
        id: u64,
        /// Milliseconds between SIGINT and the kill.
        grace_ms: u64,
    },
    /// Ends the cell and makes a new one of the same plan; the workspace is kept.
    Restart,
    /// Lists the variables and what the cell uses.
    Describe,
    /// Admits a guest to the cell. Its supervisor, which begins with an `open` of its own, gets the
    /// socket that comes with this line. It has no report of its own: a
    /// refusal is the report of the `open`.
    Admit,
    /// An order about a process beside the interpreter.
    Process {
        /// The number that the answer repeats.
        id: u64,
        /// The order.
        what: ProcessOrder,
    },
    /// Something to do with the workspace's files.
    File {
        /// The number that the answer repeats.
        id: u64,
        /// What.
        what: FileOrder,
    },
    /// Writes the interpreter's state and the workspace to a new directory, from which
    /// this context or another of the same request can go on.
    Checkpoint {
        /// The number that the answer repeats.
        id: u64,
        /// The directory, which must not exist yet.
        to: PathBuf,
        /// The most bytes of memory and files; `None` for any number.
        #[serde(default)]
        most: Option<u64>,
    },
    /// Replaces the state and the workspace by those of a checkpoint.
    Restore {
        /// The number that the answer repeats.
        id: u64,
        /// The directory.
        from: PathBuf,
        /// That of the interpreter whose state it is.
        #[serde(default)]
        layout: Layout,
        /// The reason that this order's report and the answer to the next execution give.
        #[serde(default)]
        why: Option<String>,
    },
    /// Compares the workspace with that of a checkpoint.
    Compare {
        /// The number that the answer repeats.
        id: u64,
        /// The directory.
        with: PathBuf,
    },
    /// Notes from now on what is executed, so that a new interpreter can execute it again:
    /// checkpoints hold that instead of memory. It has no report.
    Remember,
    /// Reports the state, as `restored`. A lost state is made again if its history is known.
    Resume {
        /// The number that the answer repeats.
        id: u64,
    },
    /// Ends the cell and then the supervisor.
    End,
}

impl Order {
    /// Its name, and the number of its execution or file order.
    pub(super) fn name(&self) -> (OrderName, Option<u64>) {
        match self {
            Self::Open(_) => (OrderName::Open, None),
            Self::Execute(execute) => (OrderName::Execute, Some(execute.execution)),
            Self::Interrupt { execution, .. } => (OrderName::Interrupt, Some(*execution)),
            Self::Cancel { execution } => (OrderName::Cancel, Some(*execution)),
            Self::Stop { id, .. } => (OrderName::Stop, Some(*id)),
            Self::Restart => (OrderName::Restart, None),
            Self::Describe => (OrderName::Describe, None),
            Self::Admit => (OrderName::Admit, None),
            Self::Process { id, .. } => (OrderName::Process, Some(*id)),
            Self::File { id, .. } => (OrderName::File, Some(*id)),
            Self::Checkpoint { id, .. } => (OrderName::Checkpoint, Some(*id)),
            Self::Restore { id, .. } => (OrderName::Restore, Some(*id)),
            Self::Compare { id, .. } => (OrderName::Compare, Some(*id)),
            Self::Remember => (OrderName::Remember, None),
            Self::Resume { id } => (OrderName::Resume, Some(*id)),
            Self::End => (OrderName::End, None),
        }
    }
}

/// The name of an [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "those of the orders")]
pub enum OrderName {
    Open,
    Execute,
    Interrupt,
    Cancel,
    Stop,
    Restart,
    Describe,
    Admit,
    Process,
    File,
    Checkpoint,
    Restore,
    Compare,
    Remember,
    Resume,
    End,
}

/// What cell to make.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Open {
    /// The request, as request(5) has it, laid over what the server was started with.
    pub request: Box<RawValue>,
    /// Whether the driver stays alive for further executions. Otherwise the cell serves
    /// one execution, whose record is that of `cellblock run`.
    pub lasting: bool,
    /// Whether to start the interpreter now, so that it waits for its first execution.
    pub ready: bool,
    /// Whether the context's interpreters are to be forked from the server's template.
    /// Where that fails they are started as usual, and their first record says why.
    #[serde(default)]
    pub forked: bool,
    /// Whether an execution waits for it. A copy of the template then gets no memory for itself
    /// in advance: that takes longer than most executions.
    #[serde(default)]
    pub awaited: bool,
    /// Whether to make only a blank cell, which waits for any program of the request's
    /// plan: what runs, its environment, its files and the limits that are no part of the
    /// set-up (wall time, grace, output) may differ. A second `open` says what it is for;
    /// where that is another plan's, a new cell is made. The record has what it was.
    #[serde(default)]
    pub blank: bool,
    /// Milliseconds after which a lasting cell that executes nothing ends; `None` for
    /// never.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// Whether the memory of an interpreter that is not forked from a template is laid out
    /// without randomisation, so that its state fits every context of this request.
    #[serde(default)]
    pub fixed_layout: bool,
}

/// One piece of code.
#[derive(Debug, Serialize, Deserialize)]
pub struct Execute {
    /// Its number; each is larger than the one before.
    pub execution: u64,
    /// The code. In a cell that is not lasting, the request's code when it is left out.
    pub code: Option<Unread<RawText>>,
    /// Its name in tracebacks.
    pub name: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<RawText>,
    /// The most wall time in milliseconds, at most what the plan allows.
    pub wall_ms: Option<u64>,
    /// Milliseconds between the interrupt at the end of the wall time and the kill.
    pub grace_ms: Option<u64>,
    /// Whether events are sent while it goes on.
    #[serde(default)]
    pub events: bool,
    /// Whether it is the cell's last, so that its record is that of `cellblock run`. In
    /// a cell that is not lasting, it always is. A pool opens lasting cells, and only an
    /// execution shows what they serve.
    #[serde(default)]
    pub last: bool,
}

/// Something to do with files below the workspace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOrder {
    /// Writes a file and the directories above it.
    Write {
        /// Relative to the workspace.
        path: PathBuf,
        /// Its whole content.
        content: Unread<RawText>,
        /// Whether the owner may execute it.
        #[serde(default)]
        executable: bool,
        /// Whether the content is added at the end of a file that exists.
        #[serde(default)]
        append: bool,
    },
    /// Writes a part of a file that nobody sees before it is complete.
    WritePart {
        /// The number of the client that sends it.
        client: u64,
        /// Relative to the workspace.
        path: PathBuf,
        /// What follows the parts before.
        content: Unread<RawText>,
        /// Whether the owner may execute the file.
        executable: bool,
        /// Whether it begins the file.
        is_first: bool,
        /// Whether the file is complete.
        is_last: bool,
    },
    /// Drops the files of which a client has sent parts.
    DropParts {
        /// Its number.
        client: u64,
    },
    /// Writes the files of a request.
    WriteAll {
        /// The files.
        files: Unread<Files>,
    },
    /// Describes the entry at a path.
    Stat {
        /// Relative to the workspace; empty for the workspace itself.
        path: PathBuf,
    },
    /// Makes a directory and those above it.
    MakeDirectory {
        /// Relative to the workspace.
        path: PathBuf,
    },
    /// Renames an entry.
    Move {
        /// Relative to the workspace.
        from: PathBuf,
        /// Relative to the workspace.
        to: PathBuf,
    },
    /// Reads a part of a file.
    Read {
        /// Relative to the workspace.
        path: PathBuf,
        /// The first byte.
        offset: u64,
        /// The most bytes.
        limit: u64,
    },
    /// Lists a directory.
    List {
        /// Relative to the workspace; empty for the workspace itself.
        path: PathBuf,
        /// How many levels of directories are listed: 1 is this one alone.
        depth: usize,
    },
    /// Removes a file, or a directory with everything in it.
    Remove {
        /// Relative to the workspace.
        path: PathBuf,
    },
    /// Reports changes below a directory until the watch is removed, or the directory or
    /// the cell ends.
    Watch {
        /// Relative to the workspace; empty for the workspace itself.
        path: PathBuf,
    },
    /// Ends the watch that has this number.
    Unwatch {
        /// The `id` of the order that began it.
        watch: u64,
    },
}

/// From a supervisor to the front end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The cell exists, and its interpreter waits if that was asked for.
    Opened {
        /// Its id.
        id: String,
        /// Its language, if it has one.
        language: Option<String>,
        /// The prepared rootfs, with its digest.
        rootfs: String,
        /// Whether its interpreter was forked from the server's template.
        #[serde(default)]
        forked: bool,
        /// That template, as it was then.
        #[serde(default)]
        template: Option<record::Template>,
    },
    /// The cell could not be made, or an order could not be carried out. `order` names it.
    Failed {
        /// Its name.
        order: OrderName,
        /// The number of the execution or file order, if it has one.
        id: Option<u64>,
        /// Why.
        error: SetupError,
        /// What the next execution finds, if the order was to change that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<State>,
        /// Why, unless the state was kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Something happened in an execution (events(5)).
    Event {
        /// Which execution.
        execution: u64,
        /// The event.
        event: Box<RawValue>,
    },
    /// An execution is over.
    Answer {
        /// Which.
        execution: u64,
        /// What became of the interpreter's state.
        state: State,
        /// Why, in one sentence, unless the state was kept after a normal end.
        why: Option<String>,
        /// What the cell was before; `None` when there was none.
        start: Option<Start>,
        /// Whether its interpreter goes on.
        is_alive: bool,
        /// The record.
        record: Box<RawValue>,
    },
    /// What became of an order to interrupt. It comes before the execution's answer.
    Interrupted {
        /// Which execution was meant.
        execution: u64,
        /// Whether that execution goes on and is interrupted, or was not begun and never is.
        sent: bool,
    },
    /// What a cell holds and uses.
    Described {
        /// Its description.
        description: Box<RawValue>,
    },
    /// The answer to an order about a process.
    ProcessDone {
        /// The number of the order.
        id: u64,
        /// The pid inside of a process that was started.
        pid: Option<i32>,
    },
    /// A process wrote something. At most a window of output is reported before
    /// [`ProcessOrder::Taken`].
    ProcessOutput {
        /// The process's number.
        process: u32,
        /// `stdout`, `stderr` or `terminal`.
        stream: String,
        /// As text.
        text: String,
        /// The bytes, when they are not text.
        base64: Option<String>,
        /// The number of bytes.
        bytes: u64,
    },
    /// A process has ended.
    ProcessEnded {
        /// The process's number.
        process: u32,
        /// Its exit status.
        exit_code: Option<i32>,
        /// The name of the signal that ended it.
        signal: Option<String>,
        /// Why, if it was ended from outside.
        why: Option<String>,
    },
    /// The answer to a file order, and each change that a watch sees.
    File {
        /// The number of the order.
        id: u64,
        /// The answer.
        answer: Box<RawValue>,
    },
    /// A watch has ended by itself.
    WatchEnded {
        /// The number of the order that began it.
        id: u64,
        /// Why.
        why: String,
    },
    /// A checkpoint was made.
    Checkpointed {
        /// The number of the order.
        id: u64,
        /// Bytes of memory and files in it.
        bytes: u64,
        /// Which other interpreters can go on from it.
        #[serde(default)]
        layout: Layout,
        /// What it has not of the workspace, and why: things that are neither files,
        /// directories nor links.
        left_out: BTreeMap<String, String>,
    },
    /// An order to restore or to resume was carried out.
    Restored {
        /// The number of the order.
        id: u64,
        /// What the next execution finds. `lost` where a replay failed: the workspace is
        /// that of the checkpoint then, too.
        state: State,
        /// Why, unless the state was kept.
        why: Option<String>,
    },
    /// How a workspace differs from that of a checkpoint.
    Compared {
        /// The number of the order.
        id: u64,
        /// Files created, modified and deleted, as in the record.
        files: Box<RawValue>,
    },
    /// The cell was made anew.
    Restarted {
        /// Its new id.
        id: String,
    },
    /// The cell is gone; the last report.
    Ended {
        /// Why, unless the front end asked for it.
        why: Option<String>,
    },
}
