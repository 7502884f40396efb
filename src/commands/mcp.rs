//! `cellblock mcp`: what a server offers, and the client that its front end gets.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use engine::run::interpreter;
use languages::{Driver, TABLE};
use nix::sys::signal::{SigSet, Signal};
use plan::rootfs::{Manifest, Tree};
use record::error::{Result, SetupError, Step};
use record::words::in_unit;
use serve::mcp::{About, Interpreter, speak};
use spec::{Network, Spec, limits};

/// Limits that a model can do something about.
const LIMITS: [(&str, &str); 5] = [
    ("wall", "real time"),
    ("memory", "memory"),
    ("processes", "processes and threads"),
    ("output", "output"),
    ("workspace.size", "/workspace"),
];

/// Puts the protocol between `client`, which is a pair of descriptors to read and to write,
/// and a server. Returns the descriptors that the server reads and writes instead.
///
/// The protocol's thread ends with the client, and the server then sees the end of its own
/// client, as if that had been on its standard streams.
///
/// # Errors
/// The kernel refuses a socket or a thread.
pub(super) fn between(about: About, client: (OwnedFd, OwnedFd)) -> Result<(OwnedFd, OwnedFd)> {
    let failed = |call: &'static str| {
        move |error: std::io::Error| SetupError::io(Step::Supervise, call, &error).on("mcp")
    };
    // A signal to the process must reach the server's loop, which blocks them too late for
    // this thread.
    let mut ending = SigSet::empty();
    ending.add(Signal::SIGTERM);
    ending.add(Signal::SIGINT);
    ending
        .thread_block()
        .map_err(|errno| SetupError::os(Step::Supervise, "rt_sigprocmask", errno))?;
    let (server, door) = UnixStream::pair().map_err(failed("socketpair"))?;
    let (input, output) = client;
    thread::Builder::new()
        .name("mcp".into())
        .spawn(move || speak(about, input, output, door))
        .map_err(failed("clone3"))?;
    let writes = server.try_clone().map_err(failed("dup"))?;
    Ok((server.into(), writes.into()))
}

/// What the cells of a server are like that get no other wishes than `usual`.
///
/// # Errors
/// A rootfs that `usual` names cannot be read.
pub(super) fn about(usual: &Spec) -> Result<About> {
    let found = TABLE.iter().map(|driver| offered(driver, usual));
    let interpreters = found.filter_map(Result::transpose).collect::<Result<_>>()?;
    Ok(About {
        interpreters,
        wall: usual.limits.wall,
        limits: limits_of(usual),
        network: network_of(&usual.network),
    })
}

/// The language of a driver, if its rootfs has an interpreter.
fn offered(driver: &'static Driver, usual: &Spec) -> Result<Option<Interpreter>> {
    let tree = Tree::find(&usual.rootfs, usual.store.as_deref(), Some(driver.rootfs))?;
    if interpreter(&tree, driver).is_err() {
        return Ok(None);
    }
    let manifest = Manifest::read(&tree.base)?;
    let version = manifest
        .as_ref()
        .and_then(|manifest| manifest.interpreters.get(driver.name));
    let packages = manifest.iter().flat_map(|manifest| &manifest.packages);
    let packages = packages.filter(|package| Some(package.source.as_str()) == index_of(driver));
    Ok(Some(Interpreter {
        language: driver.name.to_owned(),
        version: version.map(|interpreter| interpreter.version.clone()),
        packages: packages.map(|package| package.name.clone()).collect(),
    }))
}

/// The source of the packages that code of a language imports, as manifests call it.
fn index_of(driver: &Driver) -> Option<&'static str> {
    match driver.name {
        "python" => Some("pypi"),
        "javascript" => Some("npm"),
        _ => None,
    }
}

fn limits_of(usual: &Spec) -> Vec<String> {
    let of = |(field, name): (&str, &str)| {
        let limit = limits::table().find(|limit| limit.field == field)?;
        let amount = limit.amount(&usual.limits)?;
        Some(format!("{name} {}", in_unit(amount, limit.unit)))
    };
    LIMITS.into_iter().filter_map(of).collect()
}

fn network_of(network: &Network) -> String {
    match network {
        Network::None => "none. Code reaches no host, and installs no packages.".to_owned(),
        Network::Hosts(egress) => {
            let hosts: Vec<String> = egress.rules.allow.iter().map(ToString::to_string).collect();
            format!(
                "only {}. Other hosts are refused at once.",
                hosts.join(", ")
            )
        }
        Network::Host => "the network of this computer.".to_owned(),
    }
}
