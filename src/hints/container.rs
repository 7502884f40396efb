//! What to tell a container engine so that cells can be made inside of it.

use super::Facts;

/// What the container must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// New namespaces: the engines' system call filters deny them.
    Namespaces,
    /// Mounts: their AppArmor profiles deny these.
    Mounts,
}

/// An engine, and what makes it allow things.
struct Engine {
    name: &'static str,
    namespaces: &'static str,
    mounts: &'static str,
    proc: &'static str,
}

const DOCKER: Engine = Engine {
    name: "docker",
    namespaces: "--security-opt seccomp=unconfined",
    mounts: "--security-opt apparmor=unconfined",
    proc: "--security-opt systempaths=unconfined",
};

const OTHERS: [Engine; 2] = [
    Engine {
        name: "podman",
        namespaces: "--security-opt seccomp=unconfined",
        mounts: "--security-opt apparmor=unconfined --security-opt label=disable",
        proc: "--security-opt unmask=ALL",
    },
    Engine {
        name: "kubernetes",
        namespaces: "securityContext.seccompProfile.type: Unconfined",
        mounts: "securityContext.appArmorProfile.type: Unconfined",
        proc: "securityContext.procMount: Unmasked",
    },
];

/// The engine around this process, if it is one of those above.
fn engine(facts: &Facts) -> Option<&'static Engine> {
    let name = facts.container.as_deref()?;
    [&DOCKER]
        .into_iter()
        .chain(&OTHERS)
        .find(|engine| engine.name == name)
}

/// How the sandbox around this process lets it have what it needs.
pub(super) fn allow(facts: &Facts, need: Need) -> String {
    let (denied, option): (_, fn(&Engine) -> &str) = match need {
        Need::Namespaces => ("its system call filter denies new namespaces", |e| {
            e.namespaces
        }),
        Need::Mounts => ("its security profile denies what a cell is made of", |e| {
            e.mounts
        }),
    };
    match engine(facts) {
        Some(engine) => format!(
            "this is a {} container, and {denied}: start it with `{}`",
            engine.name,
            option(engine)
        ),
        None => format!(
            "this process is in a sandbox, and {denied}: start cellblock outside of it, or have it allowed there (docker: `{}`)",
            option(&DOCKER)
        ),
    }
}

/// How the container around this process gets a `/proc` without covers.
pub(super) fn uncover_proc(facts: &Facts) -> String {
    match engine(facts) {
        Some(engine) => format!("start the {} container with `{}`", engine.name, engine.proc),
        None => format!(
            "start the container around cellblock with an uncovered one (docker: `{}`)",
            DOCKER.proc
        ),
    }
}
