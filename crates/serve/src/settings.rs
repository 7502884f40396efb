//! What a server was started with.

use std::path::PathBuf;
use std::time::Duration;

/// The limits of a server and what it keeps ready.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most cells of runs and contexts at once.
    pub max_cells: usize,
    /// The most bytes of their memory limits together.
    pub max_memory: Option<u64>,
    /// The most calls that wait for a cell.
    pub max_queue: usize,
    /// How long a call waits for a cell before the answer is `busy`.
    pub queue_wait: Duration,
    /// The memory limit of a cell in bytes, when its request has no lower one.
    pub cell_memory: Option<u64>,
    /// Whether cells reach named hosts only; a request can reduce them further.
    pub named_hosts: bool,
    /// How long a context may have nothing to do: the default, and the most.
    pub idle: Duration,
    /// How long executions may go on when the server ends.
    pub drain: Duration,
    /// End once there has been no client and no context for so long.
    pub idle_exit: Option<Duration>,
    /// The most clients at once.
    pub max_clients: usize,
    /// The most parties whose clients can connect: each has a share of these.
    pub parties: usize,
    /// The most bytes of all parties that wait: see [`wire::Budget`].
    pub max_waiting: u64,
    /// The most of one party.
    pub max_waiting_each: u64,
    /// Cells that wait for calls.
    pub warm: Vec<Warm>,
    /// The most bytes of their memory limits together.
    pub warm_memory: Option<u64>,
    /// The directory that checkpoints are written to; `None` when it could not be made.
    pub checkpoints: Option<PathBuf>,
    /// The most checkpoints at once.
    pub max_checkpoints: usize,
    /// The most bytes of all checkpoints together.
    pub checkpoint_bytes: u64,
}

/// Cells of one kind that wait for calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warm {
    /// The name of the language whose interpreter waits, as requests have it; `None` for
    /// cells that wait for any program.
    pub language: Option<String>,
    /// How many wait.
    pub count: usize,
    /// Whether the interpreter is forked from the server's template.
    pub forked: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_cells: 64,
            max_memory: None,
            max_queue: 256,
            queue_wait: Duration::from_secs(60),
            cell_memory: None,
            named_hosts: false,
            idle: Duration::from_secs(600),
            drain: Duration::from_secs(10),
            idle_exit: None,
            max_clients: 256,
            parties: 1,
            max_waiting: 256 << 20,
            max_waiting_each: 64 << 20,
            warm: Vec::new(),
            warm_memory: None,
            checkpoints: None,
            max_checkpoints: 64,
            checkpoint_bytes: 4 << 30,
        }
    }
}
