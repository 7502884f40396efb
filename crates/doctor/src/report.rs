//! The findings, as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use hints::{self, Concern, Facts};
use record::error::{Result, SetupError};

/// Name and version of the findings' format.
pub const SCHEMA: &str = "cellblock.doctor.v1";

/// Everything that `doctor` found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// `cellblock.doctor.v1`.
    pub schema: String,
    /// cellblock's version.
    pub version: String,
    /// Whether a cell with every security layer works.
    pub works: bool,
    /// What was looked at.
    pub host: Host,
    /// What was tried, in order.
    pub checks: Vec<Check>,
    /// The result of the search for a cgroup; null when it was not tried.
    pub cgroup: Option<CgroupFindings>,
}

/// What was looked at, not tried.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// The kernel's release.
    pub release: String,
    /// The machine, such as `x86_64`.
    pub machine: String,
    /// The Landlock ABI; 0 without Landlock.
    pub landlock_abi: u32,
    /// Settings and surroundings.
    #[serde(flatten)]
    pub facts: Facts,
}

/// One thing that was tried.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Its stable name, such as `user-namespace`.
    pub name: String,
    /// The result.
    pub status: Status,
    /// What was found, in words.
    pub detail: String,
    /// What failed: step, system call, error number.
    pub error: Option<SetupError>,
    /// Ways out; any of them helps.
    pub fixes: Vec<String>,
    /// A file to install, where that is the way out.
    pub install: Option<Paste>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It does what it should.
    Works,
    /// Cells can be made, with less.
    Degraded,
    /// It is not here; only callers that want it miss it.
    Absent,
    /// It does not work, and no cell with every layer can be made.
    Fails,
    /// It was not tried, because something that it needs does not work.
    Untried,
}

/// A file to install.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Paste {
    /// Where it goes.
    pub path: String,
    /// Its content.
    pub content: String,
    /// The command that makes it take effect.
    pub then: String,
}

/// The result of the search for a cgroup.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CgroupFindings {
    /// How it was found: `delegated`, `systemd-user`, `systemd-system`, `root`;
    /// null without a cgroup.
    pub source: Option<String>,
    /// Its path.
    pub path: Option<String>,
    /// Controllers in force.
    pub controllers: Vec<String>,
    /// Limits that were asked for and read back; null for one that does not hold.
    pub limits: Limits,
    /// Ways that did not work.
    pub tried: Vec<Tried>,
    /// Why limits do not hold.
    pub unenforced: Vec<SetupError>,
}

/// Limits as read back from a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// CPUs.
    pub cpus: Option<f64>,
}

/// A way to a cgroup that did not work.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// Which.
    pub source: String,
    /// Why not.
    pub error: SetupError,
}

impl Check {
    /// A check that passed.
    pub(super) fn works(name: &str, detail: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            status: Status::Works,
            detail: detail.into(),
            error: None,
            fixes: Vec::new(),
            install: None,
        }
    }

    /// A check of something that cells can do without.
    pub(super) fn degraded(name: &str, detail: impl Into<String>, fixes: Vec<String>) -> Self {
        Self {
            status: Status::Degraded,
            fixes,
            ..Self::works(name, detail)
        }
    }

    /// A check for something that few hosts have all of.
    pub(super) fn absent(name: &str, error: SetupError, fix: String) -> Self {
        Self {
            status: Status::Absent,
            fixes: vec![fix],
            error: Some(error.clone()),
            ..Self::works(name, error.message)
        }
    }

    /// A check that failed, with the fix that suits this host.
    pub(super) fn fails(name: &str, error: SetupError, facts: &Facts) -> Self {
        let fix = hints::hint(&error, Concern::Cell, facts).or_else(|| error.hint.clone());
        let install = hints::apparmor_profile(facts)
            .filter(|_| fix.as_deref().is_some_and(hints::asks_for_profile))
            .map(|content| Paste {
                path: hints::APPARMOR_FILE.to_owned(),
                content,
                then: format!("apparmor_parser -r {}", hints::APPARMOR_FILE),
            });
        Self {
            status: Status::Fails,
            error: Some(error.clone()),
            fixes: fix.into_iter().collect(),
            install,
            ..Self::works(name, error.to_string())
        }
    }

    fn untried(name: &str, need: &str, facts: &Facts) -> Self {
        Self {
            status: Status::Untried,
            fixes: hints::foreseen(name, facts).into_iter().collect(),
            ..Self::works(name, format!("needs {need}"))
        }
    }
}

/// The checks so far.
pub(super) struct Checks<'a> {
    facts: &'a Facts,
    list: Vec<Check>,
}

impl<'a> Checks<'a> {
    pub(super) const fn new(facts: &'a Facts) -> Self {
        Self {
            facts,
            list: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, check: Check) {
        self.list.push(check);
    }

    /// The first of `needs` that does not work.
    fn lacks(&self, needs: &[&'static str]) -> Option<&'static str> {
        let usable = |name: &str| {
            self.list.iter().any(|check| {
                check.name == name && matches!(check.status, Status::Works | Status::Degraded)
            })
        };
        needs.iter().copied().find(|need| !usable(need))
    }

    /// Adds what `check` finds, unless something that it needs does not work.
    pub(super) fn add_after(
        &mut self,
        name: &str,
        needs: &[&'static str],
        check: impl FnOnce(&Facts) -> Check,
    ) {
        let check = match self.lacks(needs) {
            Some(need) => Check::untried(name, need, self.facts),
            None => check(self.facts),
        };
        self.add(check);
    }

    /// The last check tried the whole. Where planning refused it, no system call
    /// says why; the part that failed at the same step does.
    pub(super) fn explain_by_parts(&mut self) {
        let Some((whole, parts)) = self.list.split_last_mut() else {
            return;
        };
        let Some(refusal) = whole.error.as_ref().filter(|error| error.errno.is_none()) else {
            return;
        };
        let at_fault = |part: &&Check| {
            let step = part.error.as_ref().map(|error| error.step);
            part.status == Status::Fails && step == Some(refusal.step)
        };
        if let Some(part) = parts.iter().find(at_fault) {
            whole.fixes.clone_from(&part.fixes);
        }
    }

    /// Does something that others need; `None` when it does not work.
    pub(super) fn after<T>(
        &mut self,
        name: &str,
        needs: &[&'static str],
        make: impl FnOnce() -> Result<T>,
    ) -> Option<T> {
        let mut made = None;
        self.add_after(name, needs, |facts| match make() {
            Ok(value) => {
                made = Some(value);
                Check::works(name, "")
            }
            Err(error) => Check::fails(name, error, facts),
        });
        made
    }

    pub(super) fn into_list(self) -> Vec<Check> {
        self.list
    }
}

impl Report {
    pub(super) fn new(facts: Facts, checks: Vec<Check>, cgroup: Option<CgroupFindings>) -> Self {
        let names = nix::sys::utsname::uname().ok();
        let name = |pick: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
            names.as_ref().map_or_else(String::new, |names| {
                pick(names).to_string_lossy().into_owned()
            })
        };
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            works: checks
                .iter()
                .all(|check| !matches!(check.status, Status::Fails | Status::Untried)),
            host: Host {
                release: name(nix::sys::utsname::UtsName::release),
                machine: name(nix::sys::utsname::UtsName::machine),
                landlock_abi: plan::probe::landlock_abi(),
                facts,
            },
            checks,
            cgroup,
        }
    }
}
