//! The parts of the record that show what was used and measured, and what limited it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// What an execution used. A value is null when nothing measured it.
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
    /// them all.
    pub processes_peak: Option<u64>,
    /// How long the CPU limit held processes back, in milliseconds.
    pub throttled_ms: Option<f64>,
    /// What measured it: `cgroup`, or `rusage` (incomplete for processes that were
    /// never reaped; memory is that of the largest process).
    pub by: String,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitRecord {
    /// What the caller requested, in `unit`.
    #[serde(serialize_with = "plain")]
    pub requested: f64,
    /// What is enforced, read back from the kernel where it can be; `best effort`
    /// when a hostile program can get past the mechanism; null when nothing enforces
    /// the limit.
    pub enforced: Option<Enforced>,
    /// `bytes`, `ms`, `count`, `count/s` or `cpus`.
    pub unit: String,
    /// The mechanism: `cgroup`, `cgroup+watchdog`, `rlimit`, `rlimit+watchdog`,
    /// `watchdog`, `affinity`, `tmpfs`, `timer`, `capture`, `broker`, `bind` (a bind
    /// mount of the caller's is there, and nothing limits it), `overlay` (an overlay is
    /// there, and the size of `/tmp` limits its changes), or `none`.
    pub by: String,
    /// Whether the run hit the limit, as measured; null when nothing measures it, such
    /// as whether an allocation was refused.
    pub hit: Option<bool>,
}

/// Writes a whole number without a point, as integers are.
fn plain<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    /// 2^53: every whole number below it is an f64.
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    match value.fract() == 0.0 && (0.0..=LARGEST).contains(value) {
        true => serializer.serialize_u64(*value as u64),
        false => serializer.serialize_f64(*value),
    }
}

/// The enforced value of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Enforced {
    /// This much, in the limit's unit.
    Exactly(#[serde(serialize_with = "plain")] f64),
    /// The requested limit, against programs that do not try to get past it.
    BestEffort(BestEffort),
}

impl Enforced {
    /// The requested limit, against programs that do not try to get past it.
    pub const BEST_EFFORT: Self = Self::BestEffort(BestEffort::BestEffort);
}

/// The words `best effort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BestEffort {
    /// See [`Enforced::BestEffort`].
    #[serde(rename = "best effort")]
    BestEffort,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// From the call's begin until the program was executed. What was done ahead of the
    /// call (`start`) is not part of it.
    pub setup_ms: f64,
    /// From the program's execution until the interpreter began to run the code;
    /// null for `exec`.
    pub interpreter_ms: Option<f64>,
    /// From then until the program ended.
    pub code_ms: f64,
    /// The part of `code_ms` after the program was warned of its end (`--grace`);
    /// null when it was not.
    #[serde(default)]
    pub grace_ms: Option<f64>,
    /// From the program's end until all processes were gone and counted.
    pub teardown_ms: f64,
    /// All of the call's time, without a gap: `prepare` until the cell's first process begins,
    /// the steps of the set-up, `program`, and `teardown`. They add up to the other fields.
    /// Neither what comes before the call's begin, such as the start of cellblock's own process,
    /// nor writing the record is part of it.
    pub steps: BTreeMap<String, f64>,
}
