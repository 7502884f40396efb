//! Device nodes of the host's that the caller lets a cell have.

use std::path::{Component, Path, PathBuf};

use nix::sys::stat::{major, minor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A character device of the host's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name below `/dev`, on the host and inside, such as `fuse` or `dri/renderD128`.
    pub name: PathBuf,
    /// Whether the program may only read from it; false by default.
    #[serde(default)]
    pub read_only: bool,
}

/// What a device node stands for (makedev(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u64,
    /// The driver's device.
    pub minor: u64,
}

impl DeviceNumber {
    /// Of the node with this `st_rdev`.
    pub const fn of(rdev: libc::dev_t) -> Self {
        Self {
            major: major(rdev),
            minor: minor(rdev),
        }
    }
}

/// What every cell has in `/dev`. Below the last three lie pseudo-terminals, shared memory
/// and descriptors.
const OWN: [&str; 13] = [
    "null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "ptmx", "pts",
    "shm", "fd",
];

impl Device {
    /// Where it is, on the host and inside.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Why no cell can have it, whatever the host has there.
    pub(super) fn fault(&self) -> Option<String> {
        let shown = self.name.display();
        let mut parts = self.name.components();
        let is_own = parts.next().is_some_and(|first| {
            OWN.iter()
                .any(|own| first == Component::Normal(own.as_ref()))
        });
        if is_own {
            return Some(format!("is `{shown}`, but a cell has its own /dev/{shown}"));
        }
        let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
        let is_below = !self.name.as_os_str().is_empty()
            && self.name.components().all(is_name)
            && !super::validate::has_nul(self.name.as_os_str());
        let wanted = "but wants the name of a device below /dev, such as fuse or dri/renderD128";
        (!is_below).then(|| format!("is `{shown}`, {wanted}"))
    }
}
