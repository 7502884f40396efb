//! What happened: the one JSON document that every call yields.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::RawText;
use crate::error::SetupError;

use crate::json::{Form, Json};
use crate::stream::{Base64, Text};

/// Name and version of the record's format. A change that an old reader could
/// misunderstand gets a new number; new optional fields do not.
pub const SCHEMA: &str = "cellblock.record.v1";

/// The record of one execution.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// `cellblock.record.v1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Unique to this execution.
    pub id: String,
    /// cellblock's version.
    pub version: String,
    /// The language, for `run`; null for `exec`.
    pub language: Option<String>,
    /// The program's argument vector, for `exec`; null for `run`.
    pub argv: Option<Vec<RawText>>,
    /// How it ended, in one word.
    pub outcome: Outcome,
    /// The exit status: the program's own, or 124 for a time limit, 125 when
    /// the cell could not be set up, 126 or 127 when the program could not be
    /// executed, 128+n for signal n. `outcome` tells these from a program's
    /// own use of the same numbers.
    pub exit_code: i32,
    /// The signal that ended the program, such as `SIGSEGV`, also when cellblock
    /// sent it.
    pub signal: Option<String>,
    /// Seconds of real time from the program's start to its end.
    pub execution_time: f64,
    /// Whether the run failed in any way.
    pub is_error: bool,
    /// What kind of failure it was.
    pub error_category: Option<Category>,
    /// Whether changed code could succeed where this failed: not for outcomes
    /// `setup`, `internal` and `cancelled`, nor where the network does not reach
    /// what the code wants. Also true where the same call could succeed later, since
    /// another run is using a directory of `--workspace` or `--keep-tmp`.
    pub is_retryable: bool,
    /// One sentence for the code's author.
    pub context: Option<String>,
    /// What the program wrote to stdout; invalid UTF-8 is shown as U+FFFD. Null
    /// when it was passed through.
    #[schemars(with = "Option<String>")]
    pub stdout: Option<Text>,
    /// The same for stderr.
    #[schemars(with = "Option<String>")]
    pub stderr: Option<Text>,
    /// The bytes kept of stdout, only when they are not valid UTF-8.
    #[schemars(with = "Option<String>")]
    pub stdout_base64: Option<Base64>,
    /// The bytes kept of stderr, only when they are not valid UTF-8.
    #[schemars(with = "Option<String>")]
    pub stderr_base64: Option<Base64>,
    /// Values that the code produced, in order.
    pub results: Vec<ResultItem>,
    /// The exception that ended the code.
    pub error: Option<CodeError>,
    /// Files below `/workspace` that the run created, modified or deleted, by
    /// path; directories are not listed.
    pub files: Vec<FileChange>,
    /// Files that could not be listed or copied out, and why.
    #[serde(default)]
    #[schemars(required)]
    pub files_skipped: Vec<FileSkipped>,
    /// What was cut: `stdout`, `stderr`, `files`, `files_skipped`,
    /// `inline_files`, `results`, `denied`.
    pub truncated: BTreeMap<String, Truncation>,
    /// What the program tried and was not allowed.
    pub denied: Vec<Denied>,
    /// The same of what the interpreter tries by itself at every start, before it
    /// begins with the code, and does without.
    pub denied_to_interpreter: Vec<Denied>,
    /// What it used.
    pub usage: Usage,
    /// Each limit: what was asked, what holds, and by what mechanism.
    pub limits: BTreeMap<String, LimitRecord>,
    /// Each security layer as it was in force.
    pub isolation: Option<Isolation>,
    /// Where the time went.
    pub timing: Timing,
    /// Why the cell could not be set up, for outcome `setup` and `internal`.
    pub setup_error: Option<SetupError>,
    /// Things that the caller should know, such as a fallback in use.
    #[serde(default)]
    #[schemars(required)]
    pub warnings: Vec<String>,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ended by itself with status 0.
    Ok,
    /// The code raised an exception.
    Error,
    /// The program ended by itself with another status.
    Exit,
    /// A signal that cellblock did not send ended it.
    Signal,
    /// The wall time or CPU time limit ended it.
    Timeout,
    /// It ran out of memory, and the figures show it.
    Memory,
    /// It ran into the limit on processes, and the figures show it.
    Processes,
    /// It exceeded the output cap, and the caller wanted it ended for that.
    Output,
    /// It filled a disk that it was given, or a file to its limit, as was seen.
    Disk,
    /// The system call filter killed it. Not given where SIGSYS alone says so: a
    /// program can send it to itself, and the outcome is then `signal`.
    Denied,
    /// The caller cancelled it.
    Cancelled,
    /// The cell could not be set up; the program did not run.
    Setup,
    /// cellblock itself failed.
    Internal,
}

impl Outcome {
    /// Its name, as in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Output => "output",
            Self::Disk => "disk",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Setup => "setup",
            Self::Internal => "internal",
        }
    }
}

/// What kind of failure it was: by what was measured, and where no figure shows
/// it, as with outcomes `error` and `exit`, by what the code reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// The code does not parse.
    Syntax,
    /// An unknown name or attribute.
    Name,
    /// A missing or broken module.
    Import,
    /// A value of the wrong type.
    Type,
    /// A value out of range, a missing key or index.
    Value,
    /// A missing or unusable file.
    File,
    /// Something that the cell forbids.
    Permission,
    /// The network, or its absence.
    Network,
    /// Memory ran out.
    Memory,
    /// Time ran out.
    Timeout,
    /// Too much output.
    Output,
    /// The disk filled up.
    Disk,
    /// Too many processes.
    Processes,
    /// Ended by a signal.
    Killed,
    /// The cell could not be set up.
    Setup,
    /// The code failed in a way of its own: any other exception, or a non-zero
    /// exit status.
    Runtime,
    /// cellblock itself failed.
    Internal,
}

/// One value that the code produced, in Jupyter's terms a mimebundle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultItem {
    /// Whether it is the value of the last expression.
    pub is_main_result: bool,
    /// Its `text/plain` form.
    pub text: Option<String>,
    /// Its forms by media type; binary ones as base64.
    pub formats: BTreeMap<String, Form>,
    /// The data behind a plot: `type` (`line`, `scatter`, `bar`, `pie`,
    /// `box_and_whisker`, `superchart` of several, or `unknown`), `title`,
    /// axes with labels, units, scales and ticks, and `elements`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub chart: Option<Json>,
    /// A table as `columns` and `rows`, with `total_rows` and `total_columns`
    /// where it was cut; an `index` where it says more than the row's number.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<Json>,
    /// What the code says about the forms, by media type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<Json>,
    /// The name under which the code may have replaced the forms later; they
    /// are the last ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub display_id: Option<String>,
    /// Which forms are missing or cut, and why.
    #[serde(default)]
    #[schemars(required)]
    pub notes: Vec<String>,
}

/// An exception that ended the code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeError {
    /// Its class, such as `ValueError`.
    pub name: String,
    /// Its message.
    pub message: String,
    /// Its traceback, line by line, without the driver's own frames.
    pub traceback: Vec<String>,
    /// The line of the caller's code that it passed through last, from 1.
    pub line: Option<u64>,
    /// The system's error number, for errors that carry one.
    pub errno: Option<i32>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It was not there before.
    Created,
    /// Its content differs from what was put in.
    Modified,
    /// It was put in and is gone.
    Deleted,
}

/// A file that the run changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Path below `/workspace`.
    pub path: RawText,
    /// What became of it.
    pub change: Change,
    /// Size in bytes; null for a deleted file.
    pub size: Option<u64>,
    /// SHA-256 of the content in hexadecimal; null for a deleted file.
    pub sha256: Option<String>,
    /// Media type, from the content and the name; null for a deleted file.
    pub media_type: Option<String>,
    /// The whole content, when it was asked for, had room, and is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<String>")]
    pub content: Option<Text>,
    /// The whole content when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<String>")]
    pub content_base64: Option<Base64>,
}

/// A file that was left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileSkipped {
    /// Path below `/workspace`.
    pub path: RawText,
    /// Why, in words.
    pub reason: String,
}

/// How something was cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Truncation {
    /// How much there was, in bytes (for lists and `inline_files`: items).
    pub total: u64,
    /// How much of it the record holds.
    pub kept: u64,
    /// Which part: `head`, or `head+tail`; for `inline_files`, `whole`: the
    /// files that fitted in the order of their paths.
    pub part: String,
    /// Bytes of the head, for `head+tail`: the gap is right behind them, in the
    /// text a line that is not the program's, in the base64 form nothing.
    pub head: Option<u64>,
}

/// Something that the program tried and was not allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denied {
    /// What kind of thing: `syscall`.
    pub kind: String,
    /// Its name, such as `ptrace`.
    pub name: String,
    /// How often.
    pub count: u64,
    /// What the program saw, such as `EPERM`.
    pub action: String,
    /// Why the policy denies it.
    pub reason: Option<String>,
}

/// What an execution used. A value is null where nothing measured it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Real time from the program's start to its end, in milliseconds.
    pub wall_ms: f64,
    /// CPU time in user mode, all processes, in milliseconds.
    pub cpu_user_ms: Option<f64>,
    /// CPU time in the kernel, all processes, in milliseconds.
    pub cpu_system_ms: Option<f64>,
    /// The most memory at any one time, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// The most processes and threads at any one time; null when nothing counted
    /// them as they came.
    pub processes_peak: Option<u64>,
    /// How long the CPU limit held processes back, in milliseconds.
    pub throttled_ms: Option<f64>,
    /// How these were measured: `cgroup`, or `rusage` (processes that were
    /// never reaped are missing in part; memory is the largest single process).
    pub by: String,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitRecord {
    /// What the caller asked for, in `unit`.
    pub requested: f64,
    /// What holds, read back from the kernel where the kernel keeps it; `best
    /// effort` when a program that means to can get past the mechanism; null when
    /// nothing holds.
    pub enforced: Option<Enforced>,
    /// `bytes`, `ms`, `count` or `cpus`.
    pub unit: String,
    /// The mechanism: `cgroup`, `cgroup+watchdog`, `rlimit`, `rlimit+watchdog`,
    /// `watchdog`, `affinity`, `tmpfs`, `timer`, `capture`, `bind` for a place that
    /// the caller's bind covers and nothing limits, or `none`.
    pub by: String,
    /// Whether the run came up against it, as far as cellblock measured: null
    /// where nothing tells, such as whether an allocation was refused.
    pub hit: Option<bool>,
}

/// What holds of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Enforced {
    /// This much, in the limit's unit.
    Exactly(f64),
    /// The limit as asked for, for programs that do not try to get past it.
    BestEffort(BestEffort),
}

impl Enforced {
    /// The limit as asked for, as far as the mechanism sees.
    pub const BEST_EFFORT: Self = Self::BestEffort(BestEffort::BestEffort);

    /// The value, where one holds.
    pub const fn exactly(self) -> Option<f64> {
        match self {
            Self::Exactly(value) => Some(value),
            Self::BestEffort(_) => None,
        }
    }
}

/// The words `best effort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BestEffort {
    /// See [`Enforced::BestEffort`].
    #[serde(rename = "best effort")]
    BestEffort,
}

/// Each security layer as it was in force.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// Namespaces of the cell's own.
    pub namespaces: Vec<String>,
    /// The program's uid inside, and what it is outside.
    pub uid: IdRecord,
    /// The program's gid inside, and what it is outside.
    pub gid: IdRecord,
    /// Capabilities of the program: none.
    pub capabilities: Vec<String>,
    /// Whether `no_new_privs` is set.
    pub no_new_privs: bool,
    /// The Landlock ABI in force; null when Landlock was given up.
    pub landlock_abi: Option<u32>,
    /// What Landlock restricts: `fs`, `tcp`, `ioctl_dev`, `abstract_unix_socket`, `signal`.
    pub landlock_scopes: Vec<String>,
    /// The system call policy and its digest, `name@sha256:…`; null when given up.
    pub seccomp: Option<String>,
    /// Limits of every process by setrlimit(2).
    #[serde(default)]
    pub rlimits: Vec<RlimitRecord>,
    /// How nested user namespaces are prevented: `limit`, `seccomp`.
    pub nested_userns: Vec<String>,
    /// The network: `none` or `host`.
    pub network: String,
    /// `/proc`: `own`, or `host` when that layer was given up.
    pub proc: String,
    /// The rootfs: `host`, or a directory, or `name@sha256:…`.
    pub rootfs: String,
    /// The policy profile.
    pub profile: String,
    /// The cgroup, and how it was come by; null without one.
    pub cgroup: Option<CgroupRecord>,
    /// Layers that the caller gave up by name.
    pub given_up: Vec<String>,
}

/// A resource limit (getrlimit(2)), in the resource's own unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RlimitRecord {
    /// Its name, such as `RLIMIT_STACK`.
    pub resource: String,
    /// What holds; null for no limit.
    pub soft: Option<u64>,
    /// How far the program may raise it; null for no limit.
    pub hard: Option<u64>,
}

/// An id inside and outside of the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdRecord {
    /// In the cell's user namespace.
    pub inside: u32,
    /// In the supervisor's.
    pub outside: u32,
}

/// The cell's cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupRecord {
    /// Path below the cgroup2 mount.
    pub path: String,
    /// `given`, `delegated`, `systemd-user`, `systemd-system` or `root`.
    pub source: String,
    /// Controllers in force.
    pub controllers: Vec<String>,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// From cellblock's start until the program was executed.
    pub setup_ms: f64,
    /// From the program's execution until the interpreter began with the code;
    /// null for `exec`.
    pub interpreter_ms: Option<f64>,
    /// From there to the end of the program.
    pub code_ms: f64,
    /// Of `code_ms`, the time since the program was told of its end (`grace`);
    /// null when it was not.
    #[serde(default)]
    pub grace_ms: Option<f64>,
    /// From the end of the program until everything was gone and counted.
    pub teardown_ms: f64,
    /// The set-up's steps, each in milliseconds.
    pub steps: BTreeMap<String, f64>,
}
