//! The cell's cgroup: found or made, limited, measured, removed (cgroups(7)).
//!
//! [`CgroupSite::find`] looks for a cgroup that cells may be made in, in this order,
//! and records why each way that failed did:
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
//! itself, or a janitor does after the supervisor was killed. A directory whose
//! lock (flock(2)) is free has lost both, and the next sweep removes it.
//! Where the hierarchy has no controllers, a cell's cgroup enforces nothing, and
//! reports that; it is made all the same, to kill the cell and to count its CPU time.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt;

use nix::unistd::Uid;

use hints::own_service;
use plan::probe::has_systemd;
use record::error::{Result, SetupError, Step};
use spec::{Bytes, CgroupChoice};

use find::{Caller, CgroupParent, Delegation};

pub use cell::{CellCgroup, CgroupUsage};
pub use enclosing::Acted;

mod cell;
mod dir;
mod enable;
mod enclosing;
mod find;
mod limits;
mod location;
mod removal;
mod sweep;
mod systemd;

/// The leaf for processes that were in a cgroup before cells were made there.
const LEAF: &str = "cellblock-supervisors";
/// The prefix of the names of cells' cgroups.
const PREFIX: &str = "cellblock-";

/// A controller that cells use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// The controllers that a file such as `cgroup.controllers` lists.
    fn in_list(list: &str) -> Vec<Self> {
        let listed = |controller: &Self| list.split_whitespace().any(|w| w == controller.name());
        Self::ALL.into_iter().filter(listed).collect()
    }
}

/// How the cgroup was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupSource {
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

impl CgroupSource {
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

/// Limits of a cgroup; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupLimits {
    /// `memory.max`, with swap off. What is enforced is rounded down to whole pages.
    pub memory: Option<Bytes>,
    /// `pids.max` without the cell's init: processes and threads of the program.
    pub processes: Option<u64>,
    /// `cpu.max`: CPUs that may be busy at once.
    pub cpus: Option<f64>,
}

/// A way to a cgroup that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Which way.
    pub source: CgroupSource,
    /// What went wrong, on which file, and the way out.
    pub why: SetupError,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source.name(), self.why)
    }
}

/// Where this process makes the cgroups of its cells. It is found once and serves
/// any number of cells.
#[derive(Debug, Default)]
pub struct CgroupSite {
    parent: Option<CgroupParent>,
    /// The controllers that cells get there.
    controllers: Vec<Controller>,
    /// Ways that failed before one worked, or all of them.
    tried: Vec<Unavailable>,
}

/// The result of [`CgroupSite::cell`].
#[derive(Debug, Default)]
pub struct Attempt {
    /// The cell's cgroup; `None` when there is no site for it, or none was wanted.
    pub cell: Option<CellCgroup>,
    /// The ways that failed, in order.
    pub tried: Vec<Unavailable>,
}

impl CgroupSite {
    /// Looks for a cgroup that cells may be made in, and enables its controllers.
    ///
    /// # Errors
    /// When the directory that the caller gave cannot be used. Otherwise a missing
    /// cgroup is no error, see [`Attempt::tried`].
    pub fn find(choice: &CgroupChoice) -> Result<Self> {
        let caller = Caller {
            uid: Uid::effective(),
            systemd: has_systemd(),
        };
        let mut tried = Vec::new();
        let parent = match choice {
            CgroupChoice::None => None,
            CgroupChoice::Path(path) => Some(find::given(path, caller)?),
            CgroupChoice::Auto => find_automatically(caller, &mut tried),
        };
        let mut site = Self {
            tried,
            ..Self::default()
        };
        if let Some(parent) = parent {
            match enable::controllers(&parent.dir) {
                Ok(controllers) => {
                    site.controllers = controllers;
                    site.parent = Some(parent);
                }
                Err(why) => site.tried.push(parent.unavailable(why)?),
            }
        }
        Ok(site)
    }

    /// Makes the cgroup of one cell and sets its limits. `id` names it: unique, of
    /// letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// When `id` is malformed, or a cgroup cannot be made in the directory that the
    /// caller gave. A limit that does not hold is no error, see
    /// [`CellCgroup::enforced`].
    pub fn cell(&self, id: &str, limits: &CgroupLimits) -> Result<Attempt> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if id.is_empty() || id.len() > 64 || !id.chars().all(is_plain) {
            let message = "an id is 1 to 64 letters, digits, `-` and `_`";
            return Err(SetupError::new(Step::Cgroup, message).on(id));
        }
        let mut attempt = Attempt {
            cell: None,
            tried: self.tried.clone(),
        };
        if let Some(parent) = &self.parent {
            match CellCgroup::create(parent, &self.controllers, id, limits) {
                Ok(cell) => attempt.cell = Some(cell),
                Err(why) => attempt.tried.push(parent.unavailable(why)?),
            }
        }
        Ok(attempt)
    }

    /// Removes the cgroups of cells whose supervisors are dead and left them there,
    /// and returns their number. Bounded in time.
    pub fn sweep(&self) -> usize {
        let parent = self.parent.as_ref();
        parent.map_or(0, |parent| sweep::sweep(&parent.dir))
    }
}

impl CgroupParent {
    /// What a failure here means: a way that did not work; or an error, when the
    /// caller asked for this directory.
    fn unavailable(&self, why: SetupError) -> Result<Unavailable> {
        match self.source {
            CgroupSource::Given => Err(why),
            source => Ok(Unavailable { source, why }),
        }
    }
}

/// The first way that works, for a caller who leaves the choice to us.
fn find_automatically(caller: Caller, tried: &mut Vec<Unavailable>) -> Option<CgroupParent> {
    let own = match find::delegated(caller) {
        Ok(Delegation::Certain(own)) => return Some(own),
        Ok(Delegation::Possible(own)) => Some(own),
        Err(why) => {
            let source = CgroupSource::Delegated;
            tried.push(Unavailable { source, why });
            None
        }
    };
    if !caller.systemd {
        return own;
    }
    let source = if caller.uid.is_root() {
        CgroupSource::SystemdSystem
    } else {
        CgroupSource::SystemdUser
    };
    // Hints name the service, which systemd may take this process out of.
    own_service();
    systemd::obtain(caller.uid, source, own)
        .map_err(|why| tried.push(Unavailable { source, why }))
        .ok()
}
