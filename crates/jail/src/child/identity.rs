//! The cell's own network, names and ids.

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::setgroups;

use super::Role;
use super::fail::{At, Call, Fail, Site};
use super::report::Reporter;
use plan::{Namespace, Plan};
use record::error::Step;
use sys::net::{Failed, NewNetwork};

/// Starts making the cell's network, if it has one of its own: the slowest
/// namespace by far, made aside while the mounts are made.
pub(super) fn begin_network(
    plan: &Plan,
    report: &Reporter<'_>,
) -> Result<Option<NewNetwork>, Fail> {
    report.enter(Step::Network);
    plan.has(Namespace::Net)
        .then(NewNetwork::start)
        .transpose()
        .map_err(network_failed)
}

/// Enters the network that [`begin_network`] began. From here on, init and
/// program see nothing but `lo`.
pub(super) fn enter_network(
    network: Option<NewNetwork>,
    report: &Reporter<'_>,
) -> Result<(), Fail> {
    report.enter(Step::Network);
    network
        .map_or(Ok(()), NewNetwork::enter)
        .map_err(network_failed)
}

fn network_failed(failed: Failed) -> Fail {
    let (call, errno) = match failed {
        Failed::Clone(errno) => (Call::Clone, errno),
        Failed::Unshare(errno) => (Call::Unshare, errno),
        Failed::Ioctl(errno) => (Call::Ioctl, errno),
        Failed::Setns(errno) => (Call::Setns, errno),
    };
    Site::new(Step::Network).failed(call, errno)
}

/// The NIS domain name would otherwise be the host's.
pub(super) fn set_host_name(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    if !plan.has(Namespace::Uts) {
        return Ok(());
    }
    let site = report.enter(Step::Hostname);
    nix::unistd::sethostname(&plan.hostname).at(site, Call::Sethostname)?;
    sys::process::set_domain_name("(none)").at(site, Call::Setdomainname)
}

/// Maps the ids of a cell below a template's: the kernel takes a map only from a process
/// in the namespace itself, or in the one above.
pub(super) fn map_own_ids(
    plan: &Plan,
    (uid, gid): (u32, u32),
    report: &Reporter<'_>,
) -> Result<(), Fail> {
    let site = report.enter(Step::IdMap);
    let write = |name: &str, content: String| {
        let path = format!("/proc/self/{name}");
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = open(path.as_str(), flags, Mode::empty()).at(site, Call::Open)?;
        nix::unistd::write(&file, content.as_bytes())
            .map(drop)
            .at(site, Call::Write)
    };
    let ids = &plan.ids;
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{} {uid} 1", ids.inner_uid))?;
    write("gid_map", format!("{} {gid} 1", ids.inner_gid))
}

/// Takes the inner ids. Capabilities stay for now: no id of this user namespace
/// is 0, and only leaving 0 drops them (capabilities(7)).
pub(super) fn become_inner_user(
    plan: &Plan,
    role: Role,
    report: &Reporter<'_>,
) -> Result<(), Fail> {
    if !plan.has(Namespace::User) {
        return Ok(());
    }
    let site = report.enter(Step::Ids);
    let ids = &plan.ids;
    // An unprivileged process must keep its groups, since a group may also deny
    // access (user_namespaces(7)). A copy's init has dropped them on its way.
    if ids.privileged && !matches!(role, Role::Copy { .. }) {
        setgroups(&[]).at(site, Call::Setgroups)?;
    }
    sys::process::become_group(ids.inner_gid).at(site, Call::Setresgid)?;
    sys::process::become_user(ids.inner_uid).at(site, Call::Setresuid)?;
    // `/proc/1` would show the supervisor's environment: init is a copy of it.
    nix::sys::prctl::set_dumpable(false).at(site, Call::Prctl)
}

/// A cgroup namespace shows the cgroup it was made in as its root, so it is
/// made only now that init is in the cell's.
pub(super) fn enter_cgroup_namespace(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    if !plan.has(Namespace::Cgroup) {
        return Ok(());
    }
    let site = report.enter(Step::CgroupNamespace);
    unshare(CloneFlags::CLONE_NEWCGROUP).at(site, Call::Unshare)
}
