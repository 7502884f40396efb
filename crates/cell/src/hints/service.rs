//! What to change in a service of systemd's so that cells can be made in it.

use super::Facts;
use super::facts::Service;

/// How `service` gets `lines` in force; each is one line of its unit.
pub(super) fn set(service: &Service, lines: &[String]) -> String {
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

/// The lines that undo what filters deny. A list of calls goes behind the others:
/// in a list of what is allowed it adds, from one of what is denied it takes away
/// (systemd.exec(5)).
pub(super) fn allow_calls(facts: &Facts) -> Vec<String> {
    let filters = &facts.filters;
    let mut lines = Vec::new();
    let calls = filters.denied_by_name();
    if !calls.is_empty() {
        lines.push(format!("SystemCallFilter={}", calls.join(" ")));
    }
    if filters.set_user_id {
        lines.push("RestrictSUIDSGID=no".to_owned());
        if facts
            .service
            .as_ref()
            .is_some_and(|service| service.dynamic_user)
        {
            lines.push("DynamicUser=no".to_owned());
        }
    }
    // A list that kills hides what the option would answer.
    let hides_host_name = filters.denial("sethostname").is_some();
    if filters.host_name || hides_host_name {
        lines.push("ProtectHostname=no".to_owned());
    }
    if filters.namespaces {
        lines.push("RestrictNamespaces=no".to_owned());
    }
    if !filters.families.is_empty() {
        lines.push(format!(
            "RestrictAddressFamilies={}",
            filters.families.join(" ")
        ));
    }
    lines
}

/// The lines that uncover `/proc`.
pub(super) fn uncover_proc(facts: &Facts) -> Vec<String> {
    const INACCESSIBLE_LOG: &str = "/proc/kmsg";
    let covers = || facts.proc_covers.iter().map(|path| path.to_string_lossy());
    let mut lines = Vec::new();
    if covers().any(|path| TUNABLES.contains(&&*path)) {
        lines.push("ProtectKernelTunables=no".to_owned());
    }
    if covers().any(|path| path == INACCESSIBLE_LOG) {
        lines.push("ProtectKernelLogs=no".to_owned());
    }
    if covers().any(|path| !TUNABLES.contains(&&*path) && path != INACCESSIBLE_LOG) {
        lines.extend(["InaccessiblePaths=", "ReadOnlyPaths="].map(str::to_owned));
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
