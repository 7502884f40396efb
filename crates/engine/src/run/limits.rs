//! Each limit in the record: what was asked for, what holds, and by what.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::Resource;

use super::measures::CgroupFacts;
use jail::launch::Running;
use plan::{Plan, ScratchDir, Storage};
use record::{Enforced, LimitRecord, Outcome, Truncation};
use spec::Scratch;
use spec::limits::{self, Name};
use supervise::disks::DiskSize;
use supervise::{Grace, NetworkLog, Observed};
use sys::process::allowed_cpus;
use verdict::Verdict;
use verdict::evidence::Measured;
use verdict::evidence::{Exhausted, Stop};

/// The evidence of which limits hold, and which ones the run reached.
pub(super) struct Evidence<'a> {
    pub(super) plan: &'a Plan,
    pub(super) cell: &'a Running,
    pub(super) cgroup: Option<&'a CgroupFacts>,
    pub(super) observed: &'a Observed,
    pub(super) stopped: Option<&'a Stop>,
    pub(super) grace: Option<Grace>,
    pub(super) verdict: &'a Verdict,
    pub(super) measured: &'a Measured,
    /// The most wall time that this execution had.
    pub(super) wall: Option<Duration>,
    pub(super) truncated: &'a BTreeMap<String, Truncation>,
    /// What the broker reported, in a cell that has one.
    pub(super) network: Option<&'a NetworkLog>,
}

/// How a limit is enforced.
struct Holding {
    enforced: Option<Enforced>,
    by: &'static str,
    /// Null where nothing shows it.
    hit: Option<bool>,
}

impl Holding {
    fn new(by: &'static str, enforced: Option<f64>, hit: impl Into<Option<bool>>) -> Self {
        Self {
            by: if enforced.is_some() { by } else { "none" },
            enforced: enforced.map(Enforced::Exactly),
            hit: hit.into(),
        }
    }

    /// A program that means to can get past the mechanism.
    fn best_effort(by: &'static str, hit: Option<bool>) -> Self {
        Self {
            enforced: Some(Enforced::BEST_EFFORT),
            by,
            hit,
        }
    }
}

impl Evidence<'_> {
    /// Every limit that was asked for.
    pub(super) fn limits(&self) -> BTreeMap<String, LimitRecord> {
        let record = |limit: &limits::Limit| {
            let own = self.wall.filter(|_| limit.name == Name::Wall);
            let own = own.map(|wall| wall.as_secs_f64() * 1000.0);
            let requested = own
                .or_else(|| limit.amount(&self.plan.limits))
                .or_else(|| self.chosen(limit))?;
            let held = self.holding(limit.name, requested)?;
            let Holding { enforced, by, hit } = held;
            let record = LimitRecord {
                requested,
                enforced,
                unit: limit.unit.to_owned(),
                by: by.to_owned(),
                hit,
            };
            Some((limit.record_name(), record))
        };
        limits::table().filter_map(record).collect()
    }

    /// The value that cellblock chose, where it was to choose one and found that a limit is
    /// needed.
    fn chosen(&self, limit: &limits::Limit) -> Option<f64> {
        match limit.name {
            Name::Data => self.rlimit(Resource::RLIMIT_DATA),
            Name::OpenFiles => self.rlimit(Resource::RLIMIT_NOFILE),
            _ => None,
        }
    }

    /// How a limit is enforced; `None` where it means nothing for this run.
    fn holding(&self, name: Name, requested: f64) -> Option<Holding> {
        let measured = self.measured;
        Some(match name {
            Name::Wall => {
                let hit = matches!(self.stopped, Some(Stop::WallTimeout(_)));
                Holding::new("timer", Some(requested), hit)
            }
            Name::Grace => {
                let hit = self.grace.is_some_and(|grace| grace.used_up);
                Holding::new("timer", Some(requested), hit)
            }
            // Nothing counts processes that end before the watchdog sees them, when
            // their parent does not wait for them.
            Name::CpuTime => match self.cgroup {
                Some(_) => Holding::new("cgroup+watchdog", Some(requested), measured.cpu_time),
                None => Holding::best_effort("rlimit+watchdog", measured.cpu_time),
            },
            Name::Cpus => self.cpus(),
            Name::Memory => self.memory(),
            Name::Processes => {
                let (by, held) = match self.cell.fallback.processes {
                    Some(count) => ("rlimit", Some(count)),
                    None => ("cgroup", self.cgroup.and_then(|c| c.enforced.processes)),
                };
                Holding::new(by, held.map(|count| count as f64), measured.processes)
            }
            Name::Data => Holding::new("rlimit", self.rlimit(Resource::RLIMIT_DATA), None),
            // The kernel counts no refusal, and descriptors are closed again.
            Name::OpenFiles => Holding::new("rlimit", self.rlimit(Resource::RLIMIT_NOFILE), None),
            Name::AddressSpace => Holding::new("rlimit", self.rlimit(Resource::RLIMIT_AS), None),
            Name::Stack => Holding::new("rlimit", self.rlimit(Resource::RLIMIT_STACK), None),
            Name::FileSize => Holding::new(
                "rlimit",
                self.rlimit(Resource::RLIMIT_FSIZE),
                measured.file_size,
            ),
            Name::Output => {
                self.cell.output.iter().flatten().next()?;
                let cut = |stream: &&str| self.truncated.contains_key(*stream);
                Holding::new(
                    "capture",
                    Some(requested),
                    ["stdout", "stderr"].iter().any(cut),
                )
            }
            Name::Results => {
                self.cell.channel.as_ref()?;
                let hit = self.truncated.contains_key("results");
                Holding::new("capture", Some(requested), hit)
            }
            Name::NetSent => self.network("sent_bytes", requested)?,
            Name::NetReceived => self.network("received_bytes", requested)?,
            Name::Connections => {
                let most = self
                    .network?
                    .most_connections()
                    .map_or(requested, f64::from);
                self.network("connections", requested.min(most))?
            }
            Name::ConnectionsTotal => self.network("connections_total", requested)?,
            Name::ConnectionRate => self.network("connections_per_second", requested)?,
            Name::DnsQueries => self.network("queries", requested)?,
            Name::Size(scratch) | Name::Inodes(scratch) => self.tmpfs(name, scratch)?,
        })
    }

    /// What the broker holds, by its own name of the limit ([`broker::Limits`]).
    fn network(&self, name: &str, held: f64) -> Option<Holding> {
        let network = self.network?;
        let held = network.most_connections().map(|_| held);
        Some(Holding::new("broker", held, network.has_hit(name)))
    }

    fn cpus(&self) -> Holding {
        // A limit above the number of CPUs has no effect.
        let there = || allowed_cpus().map_or(f64::MAX, |cpus| cpus.len() as f64);
        // An interpreter in another supervisor's cell is bound to the CPUs of its init.
        let shared = (self.cell.fallback.cpus.filter(|_| self.cell.is_guest))
            .map(|count| there().min(count as f64));
        let share = self.cell.cpus.as_ref();
        let Some(bound) = share.map(|share| share.cpus().len() as f64).or(shared) else {
            let held = self.cgroup.and_then(|c| c.enforced.cpus);
            let throttled = self.cgroup.and_then(|c| c.usage.throttled);
            let hit = throttled.map(|time| time > Duration::ZERO);
            return Holding::new("cgroup", held.map(|cpus| cpus.min(there())), hit);
        };
        // Without the filter, a program can choose other CPUs.
        match self.plan.seccomp.as_deref() {
            Some("default" | "strict") => Holding::new("affinity", Some(bound), None),
            _ => Holding::best_effort("affinity", None),
        }
    }

    fn memory(&self) -> Holding {
        let hit = match self.verdict.outcome {
            Outcome::Memory => Some(true),
            _ => self.measured.memory,
        };
        if self.cell.fallback.memory.is_some() {
            return Holding::best_effort("rlimit+watchdog", hit);
        }
        let held = self.cgroup.and_then(|c| c.enforced.memory);
        Holding::new("cgroup", held.map(|bytes| bytes.0 as f64), hit)
    }

    /// The size or the inodes of a tmpfs, as the file system itself states them.
    fn tmpfs(&self, name: Name, scratch: Scratch) -> Option<Holding> {
        let planned = self.plan.scratch.iter().find(|dir| dir.name == scratch)?;
        if !planned.is_own() {
            return self.callers(planned);
        }
        let open = self.observed.scratch.iter();
        let mut own = (self.plan.own_scratch()).zip(open.zip(&self.observed.disks.0));
        let (_, (directory, disk)) = own.find(|(dir, _)| dir.name == scratch)?;
        let size = disk.size.or_else(|| DiskSize::of(directory));
        let held = size.map(|size| match name {
            Name::Inodes(_) => size.inodes as f64,
            _ => size.space as f64,
        });
        Some(Holding::new("tmpfs", held, self.was_full(name, planned)))
    }

    /// cellblock bounds no bind; its own file system may. The changes of an overlay have the
    /// size of `/tmp`, which the record's places have.
    fn callers(&self, planned: &ScratchDir) -> Option<Holding> {
        // Without a program there is nothing to say about any place.
        let began = !self.observed.scratch.is_empty() || self.observed.status.is_some();
        began.then_some(Holding {
            enforced: None,
            by: match planned.storage {
                Storage::Overlay { .. } => "overlay",
                _ => "bind",
            },
            hit: None,
        })
    }

    /// Whether a tmpfs was seen full. What was not seen may have happened: a disk that
    /// is full is soon emptied. But the pages of a tmpfs are part of the cgroup's
    /// memory, so a lower peak of that rules it out.
    fn was_full(&self, name: Name, scratch: &ScratchDir) -> Option<bool> {
        let of = match name {
            Name::Inodes(_) => Exhausted::Inodes(scratch.limit.inodes),
            _ => Exhausted::Space(scratch.limit.size),
        };
        let place = scratch.name.path();
        let mut disks = self.measured.disks.iter();
        if disks.any(|disk| disk.name == place && disk.exhausted == of) {
            return Some(true);
        }
        let Exhausted::Space(size) = of else {
            return None;
        };
        // The program reports it, and there was hardly room.
        let mut files = self.measured.files.iter();
        if self.verdict.outcome == Outcome::Disk
            && files.any(|files| files.name == place && files.was_nearly_full())
        {
            return Some(true);
        }
        let peak = self.cgroup.and_then(|c| c.usage.memory_peak)?;
        (peak < size).then_some(false)
    }

    fn rlimit(&self, resource: Resource) -> Option<f64> {
        let plan = self.plan;
        plan.rlimits(&self.cell.fallback, plan.program.reserve)
            .find(|limit| limit.resource == resource)
            .map(|limit| self.cell.in_force(limit).soft as f64)
    }
}
