//! Why the state of a process cannot be carried.

use nix::errno::Errno;

/// The hint for states that cannot be carried.
pub const REPLAY: &str = "create the context with --replay (\"replay\": true), by which what was executed is executed again";

/// Why a state was not carried. Nothing was changed, and the process goes on as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error("the process has {0} threads")]
    Threads(u64),
    #[error("there are other processes in the cell")]
    Processes,
    #[error("the memory at {0:#x} is shared and writable")]
    SharedMemory(u64),
    #[error("the code has made System V segments, semaphores or message queues")]
    SystemV,
    #[error("the memory at {0:#x} is kept out of forks (MADV_DONTFORK)")]
    NotForked(u64),
    #[error("the process has forbidden others to look at it (PR_SET_DUMPABLE)")]
    Undumpable,
    #[error("descriptor {number} is {what}")]
    Descriptor { number: i32, what: String },
    #[error("there are timers of timer_create(2)")]
    Timers,
    #[error("a signal is pending")]
    Signal,
    #[error("the process has confined itself further")]
    Confined,
    #[error("the interpreter is not waiting for its next request")]
    Busy,
    #[error("the interpreter is not a sibling: {0} differs")]
    Unlike(&'static str),
    #[error("the memory at {0:#x} cannot be read")]
    Unreadable(u64),
    #[error("there are more than {most} {what}")]
    TooMuch { what: &'static str, most: u64 },
    #[error("{0:?} does not exist in the other cell")]
    Missing(String),
    #[error("{0:?} is in use, and cannot be carried")]
    LeftOut(String),
    #[error("the image is damaged: {0}")]
    Damaged(&'static str),
    #[error("the processor is not one whose registers are known")]
    Machine,
    #[error("the host does not allow the process to be traced: {0:?}")]
    Tracing(Errno),
    #[error("the process ended")]
    Gone,
    #[error("{0}: {1:?} ({text})", text = .1.desc().to_lowercase())]
    System(&'static str, Errno),
}

impl Refusal {
    /// For code: one word for each kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Threads(_) => "threads",
            Self::Processes => "processes",
            Self::SharedMemory(_) => "shared_memory",
            Self::SystemV => "system_v",
            Self::NotForked(_) => "not_forked",
            Self::Undumpable => "undumpable",
            Self::Descriptor { .. } => "descriptor",
            Self::Timers => "timers",
            Self::Signal => "signal",
            Self::Confined => "confined",
            Self::Busy => "busy",
            Self::Unlike(_) => "unlike",
            Self::Unreadable(_) => "unreadable",
            Self::TooMuch { .. } => "too_much",
            Self::Missing(_) => "missing",
            Self::LeftOut(_) => "left_out",
            Self::Damaged(_) => "damaged",
            Self::Machine => "machine",
            Self::Tracing(_) => "tracing",
            Self::Gone => "gone",
            Self::System(..) => "system",
        }
    }

    /// The way out.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Threads(_) => {
                "join the threads and shut their pools down; OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 keep numpy from starting any"
            }
            Self::Processes => "wait for the processes that the code started, or end them",
            Self::SharedMemory(_) => {
                "close it, or use private memory: mmap.ACCESS_COPY, or mmap_mode=\"c\" in numpy"
            }
            Self::NotForked(_) => "unmap it, or advise MADV_DOFORK (madvise(2))",
            Self::Undumpable => "have the code call prctl(PR_SET_DUMPABLE, 1) first",
            Self::Descriptor { .. } => {
                "close it and open it again afterwards; regular files that have a name can stay open"
            }
            Self::Timers => "delete them; the timers of setitimer(2) are carried",
            Self::Signal => "unblock it, so that it is delivered",
            Self::SystemV | Self::Confined | Self::Machine | Self::System(..) => REPLAY,
            Self::Busy => "wait until the execution ends, or interrupt it",
            Self::Unlike(_) => {
                "only a context of the same template, rootfs and cellblock can take it; a context that was created with --replay (\"replay\": true) needs none"
            }
            Self::Unreadable(_) => "unmap it; guard pages cannot be carried",
            Self::TooMuch { .. } => {
                "free some, or create the context with --replay (\"replay\": true)"
            }
            Self::Missing(_) => "close the file, or open one that is there",
            Self::LeftOut(_) => {
                "close it, or move it: /workspace, /tmp and /dev/shm are carried, except for paths that are too long or nested too deeply"
            }
            Self::Damaged(_) => "take it again",
            Self::Tracing(_) => {
                "create the context with --replay (\"replay\": true), by which what was executed is executed again; kernel.yama.ptrace_scope 0 or 1 allows tracing, and so do the default filters of containers"
            }
            Self::Gone => "restart the context",
        }
    }

    /// For a process that could not be stopped.
    pub fn of_stop(errno: Errno) -> Self {
        match errno {
            Errno::EPERM | Errno::EACCES => Self::Tracing(errno),
            Errno::ENOSYS | Errno::ENOEXEC => Self::Machine,
            Errno::ESRCH => Self::Gone,
            _ => Self::System("ptrace", errno),
        }
    }
}
