//! Bash: the code is a script file, the exit status is the result. `sh` and
//! other shells are not substitutes, since scripts for Bash fail in them late
//! and oddly.

use super::{Delivery, Driver};

/// See the module's documentation.
pub(super) static DRIVER: Driver = Driver {
    name: "bash",
    aliases: &["sh", "shell"],
    extensions: &["sh", "bash"],
    interpreters: &["/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash"],
    flags: &[],
    files: &[],
    delivery: Delivery::File("/run/cellblock/main.sh"),
    memory_flags: super::no_memory_flags,
    out_of_memory: &[],
    probes: &[],
    compiled: None,
    profile: "shell",
    rootfs: "shell",
};
