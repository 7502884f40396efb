//! Things that a test needs from the host.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::Stage;
use super::raw::{Arg, call};

/// Something that a host may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The harness runs as root.
    Root,
    /// At least this Landlock ABI.
    Landlock(u32),
    /// A kernel of at least this version.
    Kernel(u32, u32),
    /// A program in `/usr`, which cells on the host's rootfs see too.
    Program(&'static str),
    /// A device that this user may open.
    Device(&'static str),
    /// A cgroup that cellblock can limit memory and processes by.
    Cgroup,
    /// More time than the everyday tests take.
    Long,
    /// No test of another user at the same time.
    Alone,
}

impl Need {
    /// Why this host cannot run the test, if it cannot.
    pub(crate) fn missing(self, stage: &Stage) -> Option<String> {
        match self {
            Self::Root if !stage.root() => Some("needs root".into()),
            Self::Landlock(abi) if landlock_abi() < abi => Some(format!(
                "needs landlock ABI {abi}, this kernel has {}",
                landlock_abi()
            )),
            Self::Kernel(major, minor) if kernel() < (major, minor) => {
                let (has_major, has_minor) = kernel();
                Some(format!(
                    "needs Linux {major}.{minor}, this is {has_major}.{has_minor}"
                ))
            }
            Self::Program(name) if program(name).is_none() => {
                Some(format!("{name} is not installed"))
            }
            Self::Device(path) if !openable(path) => Some(format!("{path} cannot be opened")),
            Self::Cgroup if !stage.has_cgroup() => {
                Some("cellblock finds no cgroup to limit memory by".into())
            }
            Self::Long if !stage.long() => Some("takes long; CELLS_LONG=1 runs it".into()),
            _ => None,
        }
    }
}

/// The kernel's Landlock ABI; 0 without Landlock.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    call!(SYS_landlock_create_ruleset, Arg::NULL, 0, VERSION)
        .ok()
        .and_then(|abi| u32::try_from(abi).ok())
        .unwrap_or(0)
}

/// The kernel's version.
pub(crate) fn kernel() -> (u32, u32) {
    let Ok(names) = nix::sys::utsname::uname() else {
        return (0, 0);
    };
    let release = names.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    (next().unwrap_or(0), next().unwrap_or(0))
}

/// A program of the host, where every cell on the host's rootfs sees it.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin"]
        .into_iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
}

fn openable(path: &str) -> bool {
    std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .is_ok()
}

/// Tries to open a file, and closes it again.
pub(crate) fn open(path: &str, flags: i32) -> Result<(), Errno> {
    let flags = nix::fcntl::OFlag::from_bits_retain(flags);
    nix::fcntl::open(path, flags, nix::sys::stat::Mode::from_bits_retain(0o600)).map(drop)
}
