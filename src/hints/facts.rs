//! What of this host decides which way out of a failure is the right one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings and surroundings that explain failures. A fact that the host keeps
/// to itself is absent.
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
    /// `user.max_*_namespaces`, by their whole names.
    pub namespace_limits: BTreeMap<String, u64>,
    /// The security modules in force, in their order.
    pub security_modules: Option<Vec<String>>,
    /// Whether a sandbox around this process filters its system calls.
    pub filtered: bool,
    /// The container engine around this process: `docker`, `podman`,
    /// `kubernetes`, or what systemd calls it.
    pub container: Option<String>,
    /// What is mounted over parts of `/proc`.
    pub proc_covers: Vec<PathBuf>,
    /// Whether systemd manages this host.
    pub systemd: bool,
    /// Controllers that cgroup v1 has, so that v2 cannot.
    pub cgroup_v1: Vec<String>,
    /// Controllers that were disabled at boot.
    pub cgroup_disabled: Vec<String>,
}

const KINDS: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

impl Facts {
    /// Looks at this host. It reads some twenty small files of the kernel's, so
    /// it is for when something has failed already.
    pub fn gather() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cgroups = text("/proc/cgroups");
        Self {
            uid: nix::unistd::geteuid().as_raw(),
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
            filtered: is_filtered(&text("/proc/self/status")),
            container: container(),
            proc_covers: proc_covers(&text("/proc/self/mountinfo")),
            systemd: Path::new("/run/systemd/system").is_dir(),
            cgroup_v1: controllers(&cgroups, |hierarchy, _| hierarchy != "0"),
            cgroup_disabled: controllers(&cgroups, |_, enabled| enabled == "0"),
        }
    }

    /// The limits on namespaces that are zero.
    pub fn zero_limits(&self) -> Vec<&str> {
        self.namespace_limits
            .iter()
            .filter(|(_, limit)| **limit == 0)
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Whether AppArmor takes the power out of unprivileged user namespaces.
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

/// `Seccomp:` is 2 for a process under a filter (proc_pid_status(5)).
fn is_filtered(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() == "2")
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

/// Mount points strictly below `/proc`, from the text of mountinfo
/// (proc_pid_mountinfo(5)). One on an empty directory that is there for it
/// covers nothing.
fn proc_covers(mountinfo: &str) -> Vec<PathBuf> {
    const HARMLESS: [&str; 3] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd", "/proc/xen"];
    let mut points: Vec<PathBuf> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| point.starts_with("/proc/") && !HARMLESS.contains(point))
        .map(PathBuf::from)
        .collect();
    points.sort();
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
    fn a_filter_is_seen() {
        assert!(is_filtered(
            "Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!is_filtered("Seccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(!is_filtered(""));
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
        let mountinfo = "22 27 0:21 / /proc rw - proc proc rw\n\
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
