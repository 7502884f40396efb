//! How to change a service of systemd's so that cells can be made in it.

use std::fmt::Display;

use super::Facts;
use super::facts::Service;

/// How to set `lines` for `service`; each is one line of its unit.
pub(super) fn set(service: &Service, lines: &[impl Display]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("`{line}`")).collect();
    let user = if service.of_user { " --user" } else { "" };
    let unit = &service.unit;
    let place = if service.transient {
        format!("start it again with these properties (`systemd-run{user} -p …`)")
    } else {
        format!(
            "add these lines to its [Service] section (`systemctl{user} edit {unit}`, then `systemctl{user} restart {unit}`)"
        )
    };
    format!("{place}: {}", lines.join(", "))
}

/// The lines that allow what filters deny. Assigning a list of calls again adds to a
/// list of allowed calls, and takes away from a list of denied ones (systemd.exec(5)).
pub(super) fn allow_calls(facts: &Facts) -> Vec<String> {
    let filters = &facts.filters;
    let mut lines = Vec::new();
    let calls = filters.denied_by_name();
    if !calls.is_empty() {
        lines.push(format!("SystemCallFilter={}", calls.join(" ")));
    }
    let mut set = |wanted: bool, line: &str| {
        if wanted {
            lines.push(line.to_owned());
        }
    };
    let dynamic_user = facts.service.as_ref().is_some_and(|s| s.dynamic_user);
    // A list that kills hides the option's own answer.
    let hides_host_name = filters.denial("sethostname").is_some();
    set(filters.set_user_id, "RestrictSUIDSGID=no");
    set(filters.set_user_id && dynamic_user, "DynamicUser=no");
    set(filters.host_name || hides_host_name, "ProtectHostname=no");
    set(filters.namespaces, "RestrictNamespaces=no");
    if !filters.families.is_empty() {
        let families = filters.families.join(" ");
        lines.push(format!("RestrictAddressFamilies={families}"));
    }
    lines
}

/// The lines that uncover `/proc`.
pub(super) fn uncover_proc(facts: &Facts) -> Vec<&'static str> {
    const INACCESSIBLE_LOG: &str = "/proc/kmsg";
    let covers = || facts.proc_covers.iter().map(|path| path.to_string_lossy());
    let mut lines = Vec::new();
    if covers().any(|path| TUNABLES.contains(&&*path)) {
        lines.push("ProtectKernelTunables=no");
    }
    if covers().any(|path| path == INACCESSIBLE_LOG) {
        lines.push("ProtectKernelLogs=no");
    }
    if covers().any(|path| !TUNABLES.contains(&&*path) && path != INACCESSIBLE_LOG) {
        lines.extend(["InaccessiblePaths=", "ReadOnlyPaths="]);
    }
    lines
}

/// What `ProtectKernelTunables=` covers or makes read-only.
const TUNABLES: [&str; 14] = [
    "/proc/acpi",
    "/proc/apm",
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/latency_stats",
    "/proc/mtrr",
    "/proc/scsi",
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/timer_stats",
];
