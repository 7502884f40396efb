//! Facts about this host that decide which way out of a failure is the right one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use plan::probe::mounts::{MOUNTINFO, mounts};
use plan::probe::{Filters, has_systemd, read};
use sys::trial::is_filtered;

/// Settings and surroundings that explain failures. A fact that cannot be read is
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The caller's effective uid.
    pub uid: u32,
    /// This executable's real path.
    pub executable: Option<PathBuf>,
    /// `kernel.unprivileged_userns_clone`, a setting of Debian's kernels.
    pub userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`.
    pub apparmor_restricts: Option<u64>,
    /// The AppArmor profile that confines this process.
    pub apparmor_profile: Option<String>,
    /// `user.max_*_namespaces`, by their full names.
    pub namespace_limits: BTreeMap<String, u64>,
    /// The security modules in force, in their order.
    pub security_modules: Option<Vec<String>>,
    /// Whether a sandbox around this process filters its system calls.
    pub filtered: bool,
    /// Calls that a cell needs and such filters deny.
    pub filters: Filters,
    /// The service of systemd's that this process is part of.
    pub service: Option<Service>,
    /// The container engine around this process: `docker`, `podman`,
    /// `kubernetes`, or what systemd calls it.
    pub container: Option<String>,
    /// Mounts over parts of `/proc`.
    pub proc_covers: Vec<PathBuf>,
    /// Whether `/proc` is mounted read-only.
    pub proc_read_only: bool,
    /// Whether cgroup v2 is mounted read-only.
    pub cgroup_read_only: bool,
    /// Whether systemd manages this host.
    pub systemd: bool,
    /// Controllers that cgroup v1 has, so that v2 cannot.
    pub cgroup_v1: Vec<String>,
    /// Controllers that were disabled at boot.
    pub cgroup_disabled: Vec<String>,
}

/// A service of systemd's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    /// The unit's name, such as `agent.service`.
    pub unit: String,
    /// Whether a user's manager runs it, not the system's.
    pub of_user: bool,
    /// Whether it was made by systemd-run(1) and has no unit file to edit.
    pub transient: bool,
    /// Whether it runs with an id that systemd made for it (`DynamicUser=`).
    pub dynamic_user: bool,
}

const KINDS: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

impl Facts {
    /// Reads some twenty small files of the kernel's; for use after a failure.
    pub fn gather() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cgroups = text("/proc/cgroups");
        let mountinfo = fs::read(MOUNTINFO).unwrap_or_default();
        let uid = nix::unistd::geteuid().as_raw();
        Self {
            uid,
            executable: fs::read_link("/proc/self/exe").ok(),
            userns_clone: sysctl("kernel/unprivileged_userns_clone"),
            apparmor_restricts: sysctl("kernel/apparmor_restrict_unprivileged_userns"),
            apparmor_profile: confined_by(&text("/proc/self/attr/apparmor/current")),
            namespace_limits: KINDS
                .iter()
                .filter_map(|kind| {
                    let limit = sysctl(&format!("user/max_{kind}_namespaces"))?;
                    Some((format!("user.max_{kind}_namespaces"), limit))
                })
                .collect(),
            security_modules: fs::read_to_string("/sys/kernel/security/lsm")
                .ok()
                .map(|list| list.trim().split(',').map(str::to_owned).collect()),
            filtered: is_filtered(),
            filters: Filters::current().clone(),
            service: own_service().clone(),
            container: container(),
            proc_covers: proc_covers(&mountinfo),
            proc_read_only: is_read_only(&mountinfo, "proc", "/proc"),
            cgroup_read_only: is_read_only(&mountinfo, "cgroup2", "/sys/fs/cgroup"),
            systemd: has_systemd(),
            cgroup_v1: controllers(&cgroups, |hierarchy, _| hierarchy != "0"),
            cgroup_disabled: controllers(&cgroups, |_, enabled| enabled == "0"),
        }
    }

    /// Whether AppArmor takes the capabilities of unprivileged user namespaces.
    pub fn apparmor(&self) -> bool {
        self.apparmor_restricts.is_some_and(|value| value != 0)
    }
}

fn sysctl(name: &str) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    text.trim().parse().ok()
}

/// The profile in a label such as `docker-default (enforce)` (aa_getcon(2)).
fn confined_by(label: &str) -> Option<String> {
    let label = label.trim_end_matches(['\n', '\0']);
    let name = label.split(" (").next().unwrap_or(label);
    (!name.is_empty() && name != "unconfined" && !label.ends_with("(unconfined)"))
        .then(|| name.to_owned())
}

/// The service that this process was started in, read once: the process may leave it
/// for a cell's cgroup.
pub fn own_service() -> &'static Option<Service> {
    static SERVICE: OnceLock<Option<Service>> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let path = read("/proc/self/cgroup").ok()?;
        let path = String::from_utf8(path).ok()?;
        let (unit, of_user) = service(&path)?;
        let uid = nix::unistd::geteuid().as_raw();
        has_systemd().then(|| Service {
            transient: is_transient(&unit, of_user),
            dynamic_user: DYNAMIC_IDS.contains(&uid),
            unit,
            of_user,
        })
    })
}

/// Ids that systemd hands out for `DynamicUser=` (systemd.exec(5)).
const DYNAMIC_IDS: std::ops::RangeInclusive<u32> = 61184..=65519;

/// The service whose cgroup the text of `/proc/self/cgroup` names, and whether it is a
/// user's. A scope below a service does not count as one.
fn service(cgroup: &str) -> Option<(String, bool)> {
    let path = cgroup.lines().find_map(|line| {
        // Version 2, or where version 1 has the controllers, systemd's own.
        line.strip_prefix("0::")
            .filter(|path| *path != "/")
            .or_else(|| line.split_once(":name=systemd:").map(|(_, path)| path))
    })?;
    let unit = path
        .split('/')
        .rfind(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
    let is_manager = unit.starts_with("user@");
    let of_user = path.contains("/user@") && !is_manager;
    (unit.ends_with(".service") && !is_manager).then(|| (unit.to_owned(), of_user))
}

fn is_transient(unit: &str, of_user: bool) -> bool {
    let system = Path::new("/run/systemd/transient").join(unit);
    let own = std::env::var_os("XDG_RUNTIME_DIR")
        .map(|directory| Path::new(&directory).join("systemd/transient").join(unit));
    (!of_user && system.exists()) || (of_user && own.is_some_and(|path| path.exists()))
}

/// Whether the latest mount at `point` is of type `kind` and read-only.
fn is_read_only(mountinfo: &[u8], kind: &str, point: &str) -> bool {
    let mount = mounts(mountinfo).rfind(|mount| mount.point() == Path::new(point));
    mount.is_some_and(|mount| mount.is_of(kind) && mount.is_read_only())
}

fn container() -> Option<String> {
    let exists = |path: &str| Path::new(path).exists();
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("kubernetes".to_owned());
    }
    if exists("/run/.containerenv") {
        return Some("podman".to_owned());
    }
    if exists("/.dockerenv") {
        return Some("docker".to_owned());
    }
    // Written by systemd when it runs in a container.
    let name = fs::read_to_string("/run/systemd/container").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Mount points strictly below `/proc`. One on an empty directory that is meant for it
/// covers nothing.
fn proc_covers(mountinfo: &[u8]) -> Vec<PathBuf> {
    const HARMLESS: [&str; 3] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd", "/proc/xen"];
    let mut points: Vec<PathBuf> = mounts(mountinfo)
        .map(|mount| mount.point())
        .filter(|point| point.starts_with("/proc") && point != Path::new("/proc"))
        .filter(|point| !HARMLESS.iter().any(|harmless| point == Path::new(harmless)))
        .collect();
    points.sort_unstable();
    points.dedup();
    points
}

/// The controllers that cells use and of whose line in `/proc/cgroups` `is`
/// holds, which gets hierarchy and enabled.
fn controllers(cgroups: &str, is: impl Fn(&str, &str) -> bool) -> Vec<String> {
    cgroups
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [name, hierarchy, _, enabled] = fields[..] else {
                return None;
            };
            (CONTROLLERS.contains(&name) && is(hierarchy, enabled)).then(|| name.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_by_its_cgroup() {
        for (path, expected) in [
            (
                "0::/system.slice/agent.service",
                Some(("agent.service", false)),
            ),
            (
                "0::/system.slice/agent.service/cellblock-supervisors",
                Some(("agent.service", false)),
            ),
            (
                "0::/user.slice/user-7.slice/user@7.service/app.slice/a.service",
                Some(("a.service", true)),
            ),
            (
                "0::/user.slice/user-7.slice/user@7.service/app.slice/a.scope",
                None,
            ),
            (
                "0::/user.slice/user-7.slice/user@7.service/init.scope",
                None,
            ),
            ("0::/user.slice/user-7.slice/session-2.scope", None),
            ("0::/", None),
            (
                "0::/\n3:memory:/x\n1:name=systemd:/system.slice/old.service",
                Some(("old.service", false)),
            ),
            ("", None),
        ] {
            let expected = expected.map(|(unit, of_user)| (unit.to_owned(), of_user));
            assert_eq!(service(path), expected, "{path}");
        }
    }

    #[test]
    fn read_only_mounts_are_seen() {
        let mounts = b"22 27 0:21 / /proc rw,nosuid - proc proc rw\n\
            23 27 0:22 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n\
            24 27 0:21 / /proc ro,nosuid - proc proc rw\n";
        assert!(is_read_only(mounts, "cgroup2", "/sys/fs/cgroup"));
        assert!(is_read_only(mounts, "proc", "/proc"));
        assert!(!is_read_only(mounts, "proc", "/sys/fs/cgroup"));
        assert!(!is_read_only(b"", "proc", "/proc"));
    }

    #[test]
    fn a_label_is_read() {
        for (label, profile) in [
            ("docker-default (enforce)\n", Some("docker-default")),
            ("/usr/bin/a b (complain)", Some("/usr/bin/a b")),
            ("unconfined\n", None),
            ("cellblock (unconfined)\n", None),
            ("", None),
        ] {
            assert_eq!(confined_by(label).as_deref(), profile, "{label}");
        }
    }

    #[test]
    fn covers_of_proc_are_seen() {
        let mountinfo = b"22 27 0:21 / /proc rw - proc proc rw\n\
            30 22 0:29 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n\
            31 22 0:30 / /proc/acpi ro - tmpfs tmpfs ro\n\
            32 22 0:21 /sys /proc/sys ro - proc proc rw\n\
            33 22 0:21 /sys /proc/sys ro - proc proc rw\n\
            34 22 0:21 / /process rw - tmpfs tmpfs rw\n";
        assert_eq!(
            proc_covers(mountinfo),
            [Path::new("/proc/acpi"), Path::new("/proc/sys")]
        );
    }

    #[test]
    fn controllers_are_sorted_by_their_hierarchy() {
        let cgroups = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n\
            cpuset\t3\t1\t1\ncpu\t1\t1\t1\nmemory\t0\t15\t0\npids\t0\t1\t1\n";
        assert_eq!(
            controllers(cgroups, |hierarchy, _| hierarchy != "0"),
            ["cpu"]
        );
        assert_eq!(
            controllers(cgroups, |_, enabled| enabled == "0"),
            ["memory"]
        );
        assert!(controllers("", |_, _| true).is_empty());
    }
}
