//! The security layers as they were in force.

use hosts::NameChecks;

use super::FilterPolicy;
use jail::launch::Running;
use plan::{LandlockPlan, MountKind, Plan, Rlimit};
use record::{CgroupRecord, IdRecord, Isolation, PlaceRecord, RlimitRecord};
use spec::{Network, Spec, Stdio};

/// Each layer of `plan`. The set-up ends at the first one that does not hold, so
/// for a program that ran, all of them did.
pub(super) fn isolation(
    spec: &Spec,
    plan: &Plan,
    cell: &Running,
    filter: Option<&FilterPolicy>,
    cgroup: Option<CgroupRecord>,
    places: Vec<PlaceRecord>,
) -> Isolation {
    let mut nested = Vec::new();
    nested.extend(plan.userns_limits.map(|_| "limit".to_owned()));
    nested.extend(filter.map(|_| "seccomp".to_owned()));
    let landlock_scopes = plan.landlock.as_ref().map_or_else(Vec::new, |rules| {
        landlock_scopes(
            rules.abi,
            [rules.tcp.is_some(), rules.udp.is_some()],
            rules.scoped,
        )
    });
    let is_unchecked = matches!(
        &plan.network,
        Network::Hosts(egress) if egress.check_names == NameChecks::Off
    );
    Isolation {
        namespaces: plan
            .namespaces
            .iter()
            .map(|namespace| format!("{namespace:?}").to_lowercase())
            .collect(),
        uid: IdRecord {
            inside: plan.ids.inner_uid,
            outside: plan.ids.outer_uid,
        },
        gid: IdRecord {
            inside: plan.ids.inner_gid,
            outside: plan.ids.outer_gid,
        },
        capabilities: Vec::new(),
        no_new_privs: true,
        landlock_abi: plan.landlock.as_ref().map(|rules| rules.abi),
        landlock_scopes,
        landlock_flags: (plan.landlock.iter())
            .flat_map(LandlockPlan::flags)
            .map(|flag| flag.name.to_owned())
            .collect(),
        seccomp: filter.map(|policy| policy.compiled().identity()),
        rlimits: (plan.rlimits(&cell.fallback, plan.program.reserve))
            .map(|limit| rlimit(cell.in_force(limit)))
            .collect(),
        nested_userns: nested,
        inotify_instances: plan.userns_limits.map(|limits| limits.inotify_instances),
        inotify_watches: plan.userns_limits.map(|limits| limits.inotify_watches),
        network: match &plan.network {
            Network::None => "none",
            Network::Hosts(_) => "hosts",
            Network::Host => "host",
        }
        .to_owned(),
        proc: proc_shown(plan).to_owned(),
        rootfs: plan.rootfs.clone(),
        places,
        descriptors: (plan.descriptors.iter())
            .map(|descriptor| descriptor.record.clone())
            .collect(),
        terminal: plan.watch.stdio == Stdio::Terminal,
        profile: spec.profile.clone(),
        cgroup,
        given_up: spec
            .without
            .iter()
            .map(|layer| layer.name().to_owned())
            .chain(is_unchecked.then(|| "name-checks".to_owned()))
            .collect(),
    }
}

/// What rulesets of this ABI hold; `fs` is always among it.
pub(super) fn landlock_scopes(abi: u32, [tcp, udp]: [bool; 2], scoped: bool) -> Vec<String> {
    let all = [
        ("fs", true),
        ("tcp", tcp),
        ("udp", udp),
        ("ioctl_dev", abi >= 5),
        ("abstract_unix_socket", scoped),
        ("signal", scoped),
    ];
    all.iter()
        .filter(|(_, on)| *on)
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// A limit in the record's terms.
fn rlimit(limit: Rlimit) -> RlimitRecord {
    let bound = |value| (value != libc::RLIM_INFINITY).then_some(value);
    RlimitRecord {
        resource: format!("{:?}", limit.resource),
        soft: bound(limit.soft),
        hard: bound(limit.hard),
    }
}

fn proc_shown(plan: &Plan) -> &'static str {
    let shown = plan.mounts.iter().find_map(|mount| match mount.kind {
        MountKind::Machine(_) => Some("machine"),
        MountKind::Proc => Some("processes"),
        _ => None,
    });
    shown.unwrap_or("host")
}
