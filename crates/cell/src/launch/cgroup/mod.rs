//! The cell's cgroup: found or made, limited, measured, removed (cgroups(7)).
//!
//! [`prepare`] looks for a cgroup that cells may be made in, in this order, and
//! says of each way that did not work why not:
//!
//! 1. the directory that the caller gave;
//! 2. the cgroup that cellblock runs in, or the one above, when it is delegated;
//! 3. where systemd runs, a delegated scope that it makes on request, which all
//!    runs of a user share;
//! 4. none.
//!
//! ```text
//! PARENT                     delegated; controllers enabled for its children
//! ├── cellblock-supervisors  every process that was in PARENT itself
//! ├── cellblock-ID           one cell, with its limits
//! └── cellblock-ID           another
//! ```
//!
//! The leaf is there because a cgroup that has processes of its own cannot
//! enable controllers for its children.
//!
//! A cell's directory goes with its supervisor, however that ends: it removes it
//! itself; a janitor does it for one that was killed; and a directory whose
//! lock (flock(2)) can be had has lost both, and the next [`sweep`] removes it.
//! Where the hierarchy has no controllers, a cell's cgroup enforces nothing, and
//! says so; it is made all the same, to kill the cell and to count its CPU time.

use std::fmt;

use serde::Serialize;

use crate::spec::{Bytes, CgroupChoice};
use record::error::{Result, SetupError, Step};

use find::{Caller, Parent, Standing};

pub use cell::{CellCgroup, CgroupUsage, CpuTime};
pub use enclosing::Acted;
pub use limits::Enforced;

mod cell;
mod dir;
mod dispose;
mod enable;
mod enclosing;
mod find;
mod janitor;
mod limits;
mod lock;
mod parse;
mod sweep;
mod systemd;

/// The leaf for processes that were in a cgroup before cells were made there.
const LEAF: &str = "cellblock-supervisors";
/// What the names of cells' cgroups start with.
const PREFIX: &str = "cellblock-";

/// A controller that cells use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// CPU bandwidth.
    Cpu,
    /// Memory.
    Memory,
    /// The number of processes and threads.
    Pids,
}

impl Controller {
    /// Every controller that cells use.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    /// The kernel's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }

    /// Those that a file such as `cgroup.controllers` lists.
    fn in_list(list: &str) -> Vec<Self> {
        let listed = |controller: &Self| list.split_whitespace().any(|w| w == controller.name());
        Self::ALL.into_iter().filter(listed).collect()
    }
}

/// How a cell's cgroup was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The caller gave the directory.
    Given,
    /// cellblock runs in a delegated cgroup.
    Delegated,
    /// The scope that the user's systemd made.
    SystemdUser,
    /// The scope that the system's systemd made, for root.
    SystemdSystem,
    /// Root, where no systemd manages the cgroups.
    Root,
}

impl Source {
    /// The name used in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Delegated => "delegated",
            Self::SystemdUser => "systemd-user",
            Self::SystemdSystem => "systemd-system",
            Self::Root => "root",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a cell needs.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where the cgroup comes from.
    pub choice: &'a CgroupChoice,
    /// Memory of all processes together.
    pub memory: Option<Bytes>,
    /// Processes and threads of the program; the cell's init is not counted.
    pub processes: Option<u64>,
    /// CPUs that may be busy at once.
    pub cpus: Option<f64>,
    /// Names the cell's cgroup; unique, of letters, digits, `-` and `_`.
    pub id: &'a str,
}

/// A way to a cgroup that did not work, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Which way.
    pub source: Source,
    /// What went wrong, on which file, and the way out.
    pub why: SetupError,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.why)
    }
}

/// What [`prepare`] came to.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The cell's cgroup; `None` when none is to be had, or none was wanted.
    pub cell: Option<CellCgroup>,
    /// The ways that were tried before, or in vain, in order.
    pub tried: Vec<Unavailable>,
}

/// Finds a place for the cell's cgroup, makes it there and sets its limits.
///
/// # Errors
/// When the caller gave a directory and it does not do. Otherwise a cgroup that
/// cannot be had is no error, see [`Prepared::tried`]; nor is a limit that does
/// not hold, see [`CellCgroup::enforced`].
pub fn prepare(request: &Request<'_>) -> Result<Prepared> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if request.id.is_empty() || request.id.len() > 64 || !request.id.chars().all(plain) {
        return Err(SetupError::new(
            Step::Cgroup,
            "an id is 1 to 64 letters, digits, `-` and `_`",
        )
        .on(request.id));
    }
    let caller = Caller::current();
    let prepared = match request.choice {
        CgroupChoice::None => Prepared::default(),
        CgroupChoice::Path(path) => Prepared {
            cell: Some(CellCgroup::create(find::given(path, caller)?, request)?),
            tried: Vec::new(),
        },
        CgroupChoice::Auto => automatic(caller, request),
    };
    Ok(prepared)
}

/// Removes the cgroups of cells whose supervisors are dead and left them there,
/// and says how many. Bounded in time.
pub fn sweep(choice: &CgroupChoice) -> usize {
    let caller = Caller::current();
    let parent = match choice {
        CgroupChoice::None => return 0,
        CgroupChoice::Path(path) => find::given(path, caller),
        CgroupChoice::Auto => find::delegated(caller).map(|standing| match standing {
            Standing::Ours(parent) | Standing::Unclear(parent) => parent,
        }),
    };
    parent.map_or(0, |parent| sweep::sweep(&parent.dir))
}

/// The first way that works, for a caller who leaves the choice to us.
fn automatic(caller: Caller, request: &Request<'_>) -> Prepared {
    let mut tried = Vec::new();
    let found = match find::delegated(caller) {
        Ok(Standing::Ours(parent)) => Some(parent),
        Ok(Standing::Unclear(parent)) => ask_systemd(caller, Some(parent), &mut tried),
        Err(why) => {
            let source = Source::Delegated;
            tried.push(Unavailable { source, why });
            ask_systemd(caller, None, &mut tried)
        }
    };
    let cell = found.and_then(|parent| {
        let source = parent.source;
        CellCgroup::create(parent, request)
            .map_err(|why| tried.push(Unavailable { source, why }))
            .ok()
    });
    Prepared { cell, tried }
}

/// What systemd says is ours, or makes for us.
fn ask_systemd(
    caller: Caller,
    own: Option<Parent>,
    tried: &mut Vec<Unavailable>,
) -> Option<Parent> {
    if !caller.systemd {
        return None;
    }
    let source = if caller.uid.is_root() {
        Source::SystemdSystem
    } else {
        Source::SystemdUser
    };
    systemd::obtain(caller.uid, source, own)
        .map_err(|why| tried.push(Unavailable { source, why }))
        .ok()
}
