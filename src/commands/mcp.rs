//! `cellblock mcp`: what a server offers, and the client that its front end gets.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use doors::mcp::{About, Interpreter, speak};
use engine::run::interpreter;
use languages::{Driver, TABLE, USUAL, find};
use nix::sys::signal::{SigSet, Signal};
use plan::rootfs::{Manifest, Tree};
use record::error::{Result, SetupError, Step};
use record::words::in_unit;
use spec::{Network, Spec, limits};
use wire::Languages;

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

/// What the cells of a server are like that get no other wishes than `usual`, and with code of a language
/// those `of` it.
///
/// # Errors
/// A rootfs that `usual` names cannot be read.
pub(super) fn about(usual: &Spec, of: impl Fn(&str) -> Result<Spec>) -> Result<About> {
    let found = TABLE.iter().map(|driver| offered(driver, usual));
    let interpreters: Vec<Interpreter> =
        found.filter_map(Result::transpose).collect::<Result<_>>()?;
    let languages_limits = interpreters.iter().map(|one| {
        let spec = of(&one.language)?;
        Ok((one.language.as_str(), spec))
    });
    let specs: Vec<(&str, Spec)> = languages_limits.collect::<Result<_>>()?;
    let limits = limits_of(usual, &specs);
    Ok(About {
        languages: languages(),
        interpreters,
        wall: usual.limits.wall,
        limits,
        network: network_of(&usual.network),
    })
}

/// The languages of code, for crates that know of no driver.
pub(super) fn languages() -> Languages {
    Languages {
        usual: USUAL,
        canonical: |name| find(name).map(|driver| driver.name),
    }
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

/// The limits in words; where languages have different ones, each with its languages.
fn limits_of(usual: &Spec, languages: &[(&str, Spec)]) -> Vec<String> {
    let of = |(field, name): (&str, &str)| {
        let limit = limits::table().find(|limit| limit.field == field)?;
        let amount = |spec: &Spec| {
            let amount = limit.amount(&spec.limits);
            amount.map_or_else(|| "without limit".to_owned(), |it| in_unit(it, limit.unit))
        };
        let mut shared: Vec<(String, Vec<&str>)> = Vec::new();
        for (language, spec) in languages {
            let amount = amount(spec);
            match shared.iter_mut().find(|(known, _)| *known == amount) {
                Some((_, with)) => with.push(language),
                None => shared.push((amount, vec![language])),
            }
        }
        match &*shared {
            [] | [_] => {
                let spec = languages.first().map_or(usual, |(_, spec)| spec);
                limit.amount(&spec.limits)?;
                Some(format!("{name} {}", amount(spec)))
            }
            several => {
                let each = several
                    .iter()
                    .map(|(amount, languages)| format!("{amount} ({})", languages.join(", ")));
                Some(format!("{name} {}", each.collect::<Vec<_>>().join(" or ")))
            }
        }
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
