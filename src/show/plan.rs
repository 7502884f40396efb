//! A plan for people: what a run would see, use and reach.

use std::collections::BTreeSet;
use std::path::Path;

use super::page::{Page, Style, Tone};
use plan::{Mount, MountKind, Plan, Seal, Source};
use record::words::bytes;
use spec::units::show_duration;
use spec::{CgroupChoice, Layer, Network};

/// The plan of a run with the policy `profile` and without the layers `given_up`.
pub fn render_plan(plan: &Plan, profile: &str, given_up: &BTreeSet<Layer>, style: Style) -> String {
    let mut page = Page::new(style);
    let words = plan.program.argv.iter().map(|word| word.to_lossy());
    page.put(Tone::Heading, &words.collect::<Vec<_>>().join(" "));
    page.end_line();
    page.pairs(&[
        ("rootfs", plan.rootfs.clone()),
        ("profile", profile.to_owned()),
        ("directory", plan.program.cwd.display().to_string()),
        ("user", user(plan)),
        ("network", network(plan)),
        ("cgroup", cgroup(plan)),
        ("environment", names(plan.program.env.keys())),
    ]);
    page.table("files that it sees", &[], &mounts(plan));
    for protected in &plan.protected {
        page.heading(&format!("protected in {}", protected.target.display()));
        let paths = protected.paths.iter().map(|path| path.to_string_lossy());
        page.prose(2, 2, &names(paths));
        page.end_line();
    }
    page.heading("limits");
    page.pairs(&limits(plan));
    page.heading("layers");
    page.pairs(&layers(plan, given_up));
    page.end_line();
    page.prose(0, 2, "Nothing was run. `--json` prints all of it.");
    page.into_text()
}

fn names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names
        .into_iter()
        .map(|name| name.as_ref().to_owned())
        .collect();
    names.join(" ")
}

fn user(plan: &Plan) -> String {
    let ids = &plan.ids;
    format!("uid {} inside, {} outside", ids.inner_uid, ids.outer_uid)
}

fn cgroup(plan: &Plan) -> String {
    match &plan.cgroup {
        CgroupChoice::Auto => "the first way that works".to_owned(),
        CgroupChoice::Path(path) => format!("below {}", path.display()),
        CgroupChoice::None => "none: limits are best effort".to_owned(),
    }
}

fn network(plan: &Plan) -> String {
    match &plan.network {
        Network::None => "none".to_owned(),
        Network::Host => "the host's".to_owned(),
        Network::Hosts(egress) => {
            let allowed = egress.rules.allow.iter().map(ToString::to_string);
            format!(
                "these hosts only: {}",
                allowed.collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// A row for each part of a host's or rootfs's files, and each that is written to. What cellblock itself needs
/// inside is left out.
fn mounts(plan: &Plan) -> Vec<Vec<String>> {
    plan.mounts.iter().filter_map(mount).collect()
}

fn mount(mount: &Mount) -> Option<Vec<String>> {
    let from = |path: &Path| format!("from {}", path.display());
    let (access, what) = match &mount.kind {
        MountKind::Bind { device: true, .. } => return None,
        MountKind::Bind {
            source, writable, ..
        } => {
            let access = if *writable { "writable" } else { "read only" };
            let source = match source {
                Source::Host(path) => from(path),
                Source::Beneath { base, path } => from(&base.join(path)),
            };
            (access, source)
        }
        MountKind::Overlay { source, size, .. } => {
            let size = bytes(size.0);
            (
                "writable",
                format!("{}, changes kept apart (up to {size})", from(source)),
            )
        }
        MountKind::Tmpfs {
            size,
            seal: Seal::Writable,
            ..
        } => (
            "writable",
            format!("empty at first, up to {}", bytes(size.0)),
        ),
        MountKind::Device { source, .. } => ("device", from(source)),
        MountKind::Workspace => ("writable", "the workspace once more".to_owned()),
        MountKind::Proc => ("read only", "the cell's processes".to_owned()),
        MountKind::Machine(_) => (
            "read only",
            "the cell's processes, and a machine of its size".to_owned(),
        ),
        MountKind::HostProc => ("read only", "the host's processes".to_owned()),
        _ => return None,
    };
    Some(vec![
        access.to_owned(),
        mount.target.display().to_string(),
        what,
    ])
}

fn limits(plan: &Plan) -> Vec<(&'static str, String)> {
    let limits = &plan.limits;
    let none = || "none".to_owned();
    let size = |size: Option<spec::Bytes>| size.map_or_else(none, |size| bytes(size.0));
    let time = |time: Option<std::time::Duration>| time.map_or_else(none, show_duration);
    vec![
        ("real time", time(limits.wall)),
        ("CPU time", time(limits.cpu_time)),
        (
            "CPUs",
            limits.cpus.map_or_else(none, |cpus| cpus.to_string()),
        ),
        ("memory", size(limits.memory)),
        (
            "processes",
            limits
                .processes
                .map_or_else(none, |count| count.to_string()),
        ),
        ("one file", size(limits.file_size)),
        (
            "output",
            format!("{} of each stream", bytes(limits.output.0)),
        ),
        ("results", bytes(limits.results.0)),
    ]
}

fn layers(plan: &Plan, given_up: &BTreeSet<Layer>) -> Vec<(&'static str, String)> {
    let given = given_up.iter().map(|layer| layer.name());
    let missing = || "none: given up".to_owned();
    let landlock = plan.landlock.as_ref();
    vec![
        (
            "namespaces",
            names(plan.namespaces.iter().map(|namespace| namespace.file())),
        ),
        (
            "Landlock",
            landlock.map_or_else(missing, |rules| {
                format!("ABI {}, {} rules", rules.abi, rules.rules.len())
            }),
        ),
        ("seccomp", plan.seccomp.clone().unwrap_or_else(missing)),
        ("given up", given.collect::<Vec<_>>().join(", ")),
    ]
}
