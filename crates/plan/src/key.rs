//! Which cells are alike until their program starts.

use super::{
    EgressPlan, Fallback, Ids, LandlockPlan, Mount, Namespace, Plan, Rlimit, ScratchDir, Trust,
    UsernsLimits,
};
use spec::{CgroupChoice, Stdin, Stdio};

/// The parts of a plan that init has before it waits, in the plan's words. All others
/// come with the program, or are the supervisor's affair: times, caps on output, and
/// where files go.
///
/// Plans with the same key have the same cell until its program starts, so one's blank
/// cell can run the other's program; see [`PlanKey::serves`] for those with fewer hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanKey<'a> {
    namespaces: &'a [Namespace],
    /// `None` where each cell gets an outer id of its own.
    ids: Option<&'a Ids>,
    hostname: &'a str,
    /// Routes and ports; the names come with the program.
    egress: Option<&'a EgressPlan>,
    trust: Option<&'a Trust>,
    mounts: &'a [Mount],
    scratch: &'a [ScratchDir],
    cgroup: &'a CgroupChoice,
    rlimits: &'a [Rlimit],
    counted_rlimits: &'a [Rlimit],
    fallback: &'a Fallback,
    cpus: Option<f64>,
    strict: bool,
    userns_limits: Option<UsernsLimits>,
    landlock: Option<&'a LandlockPlan>,
    seccomp: Option<&'a str>,
    channel: bool,
    inherits_stdin: bool,
    inherits_output: bool,
    rootfs: &'a str,
}

impl PlanKey<'_> {
    /// Whether a blank cell that was made with this key can run programs of plans with the `wanted`
    /// one. It may listen at ports, and have routes, that those plans do not name: the broker
    /// refuses connections to them.
    pub fn serves(&self, wanted: &Self) -> bool {
        self.channel == wanted.channel && self.admits(wanted)
    }

    /// Whether guests of plans with the `wanted` key can be started in a cell with this one. Each has a channel of its own.
    pub fn admits(&self, wanted: &Self) -> bool {
        let listens = match (self.egress, wanted.egress) {
            (Some(made), Some(wanted)) => made.covers(wanted),
            (made, wanted) => made.is_none() && wanted.is_none(),
        };
        let rest = |key: &Self| Self {
            egress: None,
            channel: false,
            ..key.clone()
        };
        listens && rest(self) == rest(wanted)
    }
}

impl Plan {
    /// The key of its blank cells; `None` where the set-up needs something of the
    /// caller's that belongs to one run: its standard streams or other descriptors, or a
    /// directory or archive that is read into the cell.
    pub fn key(&self) -> Option<PlanKey<'_>> {
        let is_own = self.program.stdin != Stdin::Inherit
            && self.watch.stdio == Stdio::Capture
            && self.descriptors.is_empty()
            && self.files_from.is_none()
            && self
                .scratch
                .iter()
                .all(|scratch| scratch.kept_in().is_none());
        is_own.then(|| PlanKey {
            namespaces: &self.namespaces,
            ids: (!self.ids.privileged).then_some(&self.ids),
            hostname: &self.hostname,
            egress: self.egress.as_ref(),
            trust: self.trust.as_ref(),
            mounts: &self.mounts,
            scratch: &self.scratch,
            cgroup: &self.cgroup,
            rlimits: &self.rlimits,
            counted_rlimits: &self.counted_rlimits,
            fallback: &self.fallback,
            cpus: self.limits.cpus,
            strict: self.strict,
            userns_limits: self.userns_limits,
            landlock: self.landlock.as_ref(),
            seccomp: self.seccomp.as_deref(),
            channel: self.program.channel,
            inherits_stdin: self.program.stdin == Stdin::Inherit,
            inherits_output: self.watch.stdio == Stdio::Inherit,
            rootfs: &self.rootfs,
        })
    }
}
