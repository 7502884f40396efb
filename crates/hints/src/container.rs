//! How to start a container so that cells can be made inside of it.

use super::Facts;

/// What a cell needs and the container must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// New namespaces: the engines' system call filters deny them.
    Namespaces,
    /// Mounts: their AppArmor profiles deny these.
    Mounts,
    /// A `/proc` without covers, so that there can be another one.
    Proc,
}

/// An engine, and its options that allow each need.
struct Engine {
    name: &'static str,
    namespaces: &'static str,
    mounts: &'static str,
    proc: &'static str,
    /// For writable cgroups; `None` where that takes more than an option.
    cgroups: Option<&'static str>,
    /// The separator of options.
    between: &'static str,
}

const ENGINES: [Engine; 3] = [
    Engine {
        name: "docker",
        namespaces: "--security-opt seccomp=unconfined",
        mounts: "--security-opt apparmor=unconfined",
        proc: "--security-opt systempaths=unconfined",
        cgroups: Some("--security-opt writable-cgroups=true"),
        between: " ",
    },
    Engine {
        name: "podman",
        namespaces: "--security-opt seccomp=unconfined",
        mounts: "--security-opt apparmor=unconfined --security-opt label=disable",
        proc: "--security-opt unmask=ALL",
        cgroups: Some("--security-opt unmask=/sys/fs/cgroup"),
        between: " ",
    },
    Engine {
        name: "kubernetes",
        namespaces: "securityContext.seccompProfile.type: Unconfined",
        mounts: "securityContext.appArmorProfile.type: Unconfined",
        proc: "securityContext.procMount: Unmasked",
        cgroups: None,
        between: ", ",
    },
];

/// The engine around this process, if it is one of those above.
fn engine(facts: &Facts) -> Option<&'static Engine> {
    let name = facts.container.as_deref()?;
    ENGINES.iter().find(|engine| engine.name == name)
}

/// How the sandbox around this process can allow `need`, and everything else that it
/// denies.
pub(super) fn allow(facts: &Facts, need: Need) -> String {
    let denied = match need {
        Need::Namespaces => "its system call filter denies what a cell is made of",
        Need::Mounts => "its security profile denies what a cell is made of",
        Need::Proc => "it covers parts of /proc",
    };
    match engine(facts) {
        Some(engine) => format!(
            "this is a {} container, and {denied}: start it with `{}`",
            engine.name,
            engine.options(facts, need)
        ),
        None => format!(
            "this process is in a sandbox, and {denied}: start cellblock outside of it, or have it allowed there (docker: `{}`)",
            ENGINES[0].options(facts, need)
        ),
    }
}

/// How the container around this process gets cgroups that it may change.
pub(super) fn writable_cgroups(facts: &Facts) -> Option<String> {
    let engine = engine(facts)?;
    let option = engine.cgroups?;
    Some(format!(
        "cgroups are read-only in this {} container: start it with `{option}`",
        engine.name
    ))
}

impl Engine {
    fn options(&self, facts: &Facts, need: Need) -> String {
        [
            (need == Need::Namespaces || facts.filters.deny_anything()).then_some(self.namespaces),
            (need == Need::Mounts || facts.apparmor_profile.is_some()).then_some(self.mounts),
            (need == Need::Proc || !facts.proc_covers.is_empty()).then_some(self.proc),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(self.between)
    }
}
