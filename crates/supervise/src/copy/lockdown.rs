//! What a copy has, as seen from outside, compared with what its cell is to have.
//!
//! A copy confines itself. Before it gets a byte of a caller's, the supervisor therefore looks at
//! everything that the kernel shows of it. Landlock is the exception: no file of proc(5) shows a
//! domain. So the copy is made to try what its rules deny ([`super::calls`]), and its answer is
//! trusted.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use nix::sys::resource::Resource;
use nix::sys::stat::fstat;
use nix::unistd::Pid;

use cgroup::CellCgroup;
use jail::child::Filter;
use plan::{Fallback, Namespace, Plan, Rlimit};
use record::error::{Result, SetupError, Step};
use sys::other::{limits_of, set_limits_of};

/// What a copy is compared with.
pub(super) struct Expected<'e> {
    pub(super) plan: &'e Plan,
    pub(super) fallback: &'e Fallback,
    pub(super) filter: Option<&'e Filter>,
    /// The cell's init.
    pub(super) init: Pid,
    /// The cell's namespaces.
    pub(super) namespaces: &'e [(Namespace, OwnedFd)],
    /// The copy's own descriptors, from 0 on.
    pub(super) own: &'e [OwnedFd],
    /// The directories of the plan's own scratch places.
    pub(super) scratch: &'e [OwnedFd],
    /// The cell's cgroup, if it has one.
    pub(super) cgroup: Option<&'e CellCgroup>,
}

fn differs(what: &str, found: impl std::fmt::Display) -> SetupError {
    SetupError::new(
        Step::Fork,
        format!("a copy of the template has {what} {found}"),
    )
    .hint("cellblock starts a cell without the template instead; report this")
}

fn read(pid: Pid, name: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{name}");
    fs::read_to_string(&path).map_err(|e| SetupError::io(Step::Fork, "read", &e).on(path))
}

/// Sets the limits of a copy's own (setrlimit(2)).
pub(super) fn set_limits(copy: Pid, plan: &Plan, fallback: &Fallback) -> Result<()> {
    for (resource, limit) in limits(plan, fallback)? {
        set_limits_of(copy, resource, limit.soft, limit.hard)
            .map_err(|e| SetupError::os(Step::Rlimits, "prlimit", e).on(format!("{resource:?}")))?;
    }
    Ok(())
}

/// The limits that a cold cell's program would have: within the supervisor's own, which
/// its init has from it.
fn limits(plan: &Plan, fallback: &Fallback) -> Result<Vec<(Resource, Rlimit)>> {
    let failed = |e| SetupError::os(Step::Rlimits, "getrlimit", e);
    (plan.rlimits(fallback, plan.program.reserve))
        .map(|limit| {
            let (_, hard) = nix::sys::resource::getrlimit(limit.resource).map_err(failed)?;
            Ok((limit.resource, limit.within(hard)))
        })
        .collect()
}

impl Expected<'_> {
    /// Compares the copy with what is expected, all that can be seen.
    ///
    /// # Errors
    /// The first thing that differs.
    pub(super) fn verify(&self, copy: Pid) -> Result<()> {
        self.status(&read(copy, "status")?, &read(self.init, "status")?)?;
        self.namespaces(copy)?;
        self.descriptors(copy)?;
        self.files(copy)?;
        for name in ["cgroup", "oom_score_adj"] {
            let (theirs, inits) = (read(copy, name)?, read(self.init, name)?);
            if theirs != inits {
                return Err(differs(name, theirs.trim()));
            }
        }
        if let Some(cgroup) = self.cgroup {
            cgroup.verify(copy)?;
        }
        for (resource, limit) in limits(self.plan, self.fallback)? {
            let failed = |e| SetupError::os(Step::Rlimits, "prlimit", e);
            let found = limits_of(copy, resource).map_err(failed)?;
            if found != (limit.soft, limit.hard) {
                return Err(differs(&format!("{resource:?}"), found.0));
            }
        }
        Ok(())
    }

    /// proc_pid_status(5)
    fn status(&self, copy: &str, init: &str) -> Result<()> {
        let ids = &self.plan.ids;
        let four = |id: u32| [id; 4].map(|id| id.to_string()).join("\t");
        let filters = |status: &str| field(status, "Seccomp_filters").parse::<u32>().ok();
        let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
        // Absent before Linux 5.9.
        let stacked = filters(&own).map(|count| count + u32::from(self.filter.is_some()));
        let mode = match (&self.filter, field(&own, "Seccomp")) {
            (Some(_), _) => "2",
            (None, own) => own,
        };
        let mut wanted = vec![
            ("Uid", four(ids.outer_uid)),
            ("Gid", four(ids.outer_gid)),
            ("Groups", field(init, "Groups").to_owned()),
            ("PPid", self.init.to_string()),
            ("TracerPid", "0".to_owned()),
            ("Threads", "1".to_owned()),
            ("NoNewPrivs", "1".to_owned()),
            ("Seccomp", mode.to_owned()),
            ("SigBlk", format!("{:016x}", 0)),
        ];
        wanted.extend(
            ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
                .map(|set| (set, format!("{:016x}", 0))),
        );
        wanted.extend(stacked.map(|count| ("Seccomp_filters", count.to_string())));
        for (name, value) in wanted {
            let found = field(copy, name);
            if found != value {
                return Err(differs(name, format_args!("`{found}`, not `{value}`")));
            }
        }
        Ok(())
    }

    fn namespaces(&self, copy: Pid) -> Result<()> {
        for (kind, fd) in self.namespaces {
            let path = format!("/proc/{copy}/ns/{}", kind.file());
            let found = fs::metadata(&path)
                .map_err(|e| SetupError::io(Step::Fork, "stat", &e).on(&path))?;
            let wanted = fstat(fd).map_err(|e| SetupError::os(Step::Fork, "fstat", e))?;
            if (found.dev(), found.ino()) != (wanted.st_dev, wanted.st_ino) {
                return Err(differs("another namespace of kind", kind.file()));
            }
        }
        Ok(())
    }

    /// It has its own descriptors and no other.
    fn descriptors(&self, copy: Pid) -> Result<()> {
        let path = format!("/proc/{copy}/fd");
        let failed = |e: std::io::Error| SetupError::io(Step::Fork, "open", &e).on(&path);
        let mut open: Vec<String> = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            open.push(
                entry
                    .map_err(failed)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        open.sort_unstable();
        let wanted: Vec<String> = (0..self.own.len()).map(|n| n.to_string()).collect();
        if open != wanted {
            return Err(differs("the descriptors", open.join(" ")));
        }
        for (number, own) in self.own.iter().enumerate() {
            let found = fs::metadata(format!("{path}/{number}")).map_err(failed)?;
            let own = fstat(own).map_err(|e| SetupError::os(Step::Fork, "fstat", e))?;
            if (found.dev(), found.ino()) != (own.st_dev, own.st_ino) {
                return Err(differs("something else as descriptor", number));
            }
        }
        Ok(())
    }

    /// Its root directory is the cell's.
    fn files(&self, copy: Pid) -> Result<()> {
        for (scratch, fd) in self.plan.own_scratch().zip(self.scratch) {
            let path = format!("/proc/{copy}/root{}", scratch.name.path());
            let found = fs::metadata(&path)
                .map_err(|e| SetupError::io(Step::Fork, "stat", &e).on(&path))?;
            let wanted = fstat(fd).map_err(|e| SetupError::os(Step::Fork, "fstat", e))?;
            if (found.dev(), found.ino()) != (wanted.st_dev, wanted.st_ino) {
                return Err(differs("another file system at", scratch.name.path()));
            }
        }
        Ok(())
    }
}

/// A field of proc_pid_status(5); empty where the file has no such field.
fn field<'s>(status: &'s str, name: &str) -> &'s str {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim()
}
