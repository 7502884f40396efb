//! What holds the broker itself, should a cell or a peer take it over.

mod calls;
mod files;

use std::fs::File;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Gid, Uid, dup2_stderr, getppid, setgroups, setresgid, setresuid};

use crate::config::{Config, Identity};
use crate::report::Ready;

/// Memory that the broker may map beyond what it has, in bytes: for names, hosts(5),
/// reports and what waits there.
const MORE_MEMORY: u64 = 64 << 20;

/// Memory that a connection can need beyond that, in bytes: a head that is rewritten, or a
/// DNS answer by TCP and the room in which it grew.
const MEMORY_PER_CONNECTION: u64 = 128 << 10;

/// Descriptors besides those of connections.
const OTHER_DESCRIPTORS: u64 = 256;

/// The descriptors of a connection: both sockets, one while an address is looked at, and a
/// pipe in each direction.
const PER_CONNECTION: u64 = 7;

/// Ties this process to its parent and gives up its privileges. Nothing of a cell's has
/// been read yet, nor has the configuration.
pub(crate) fn drop_privileges(identity: Option<Identity>) -> io::Result<()> {
    let parent = getppid();
    if let Some(identity) = identity {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        setgroups(&[])?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
    }
    // After the change of ids, which clears it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // What it has to say goes by its reports, not to the caller's terminal.
    dup2_stderr(File::options().write(true).open("/dev/null")?)?;
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    // A broken connection is an error of the call, and a terminal's signals are for the
    // supervisor, whose end ends this process.
    SigSet::all().thread_block()?;
    sys::process::empty_capability_sets()?;
    prctl::set_dumpable(false)?;
    prctl::set_no_new_privs()?;
    Ok(())
}

/// What the broker needs of the host beside its sockets.
pub(crate) struct Needed {
    directories: Vec<PathBuf>,
    ports: Vec<u16>,
}

impl Needed {
    /// By its configuration.
    pub(crate) fn by(config: &Config) -> Self {
        Self {
            directories: readable_directories(config),
            ports: ports(config),
        }
    }
}

/// Gives up all files, ports and system calls that the broker does not need. Returns what
/// to report, with the `connections` that it has room for.
pub(crate) fn confine(needed: &Needed, connections: u32) -> io::Result<Ready> {
    let landlock_abi = files::restrict(&needed.directories, &needed.ports)?;
    let bound = |resource| getrlimit(resource).map(|(soft, _)| soft);
    let memory = bound(Resource::RLIMIT_AS)?;
    let descriptors = bound(Resource::RLIMIT_NOFILE)?;
    calls::filter()?;
    Ok(Ready {
        landlock_abi,
        seccomp: true,
        connections,
        memory_bytes: (memory != RLIM_INFINITY).then_some(memory),
        descriptors,
    })
}

/// The most connections at once for which there are descriptors.
fn most_connections(wanted: u32) -> u32 {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let room = soft.saturating_sub(OTHER_DESCRIPTORS) / PER_CONNECTION;
    wanted.min(u32::try_from(room).unwrap_or(u32::MAX))
}

/// Sets limits (setrlimit(2)) for so many connections at once, and returns for how many
/// there are descriptors.
pub(crate) fn limit(wanted: u32) -> io::Result<u32> {
    let set = |resource, limit| setrlimit(resource, limit, limit);
    set(Resource::RLIMIT_CORE, 0)?;
    set(Resource::RLIMIT_FSIZE, 0)?;
    set(Resource::RLIMIT_NPROC, 0)?;
    let files = u64::from(wanted) * PER_CONNECTION + OTHER_DESCRIPTORS;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    set(Resource::RLIMIT_NOFILE, files.min(hard))?;
    let connections = most_connections(wanted);
    // The broker is a copy of its parent, whose size does not matter.
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = status
        .split(' ')
        .next()
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    let page =
        4096_u64.max(nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(0) as u64);
    let (_, hard) = getrlimit(Resource::RLIMIT_AS)?;
    let more = MORE_MEMORY + u64::from(connections) * MEMORY_PER_CONNECTION;
    set(Resource::RLIMIT_AS, (pages * page + more).min(hard))?;
    Ok(connections)
}

/// The directories of hosts(5) and resolv.conf(5). Rules are for inodes, and both files are
/// replaced while the host runs: so the rules name their directories.
fn readable_directories(config: &Config) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for path in [&config.upstream.hosts, &config.upstream.resolv_conf] {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        for path in [path, &real] {
            directories.extend(path.parent().map(PathBuf::from));
        }
    }
    directories.sort_unstable();
    directories.dedup();
    directories
}

/// The ports to which the broker connects: those of the rules, and of DNS.
fn ports(config: &Config) -> Vec<u16> {
    let mut ports: Vec<u16> = config.rules.ports().into_iter().collect();
    ports.push(hosts::synthetic::DNS_PORT);
    ports.extend(config.upstream.resolver.map(|resolver| resolver.port()));
    ports
}

#[cfg(test)]
mod tests;
