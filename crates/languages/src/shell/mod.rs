//! Bash: the code is a script file, the exit status is the result. `sh` and
//! other shells are not substitutes, since scripts for Bash fail in them late
//! and oddly.
//!
//! # Several executions
//!
//! A shell that goes on is another driver ([`Driver::lasting`]): an interactive Bash,
//! which keeps variables, functions, options, the working directory, open descriptors and
//! background jobs, and returns to its top level when SIGINT interrupts it. Code is
//! evaluated at the top level; its stdin is empty. It differs from a script in these:
//!
//! * Messages name the code, and no line of it.
//! * `$-` has an `i`; on stderr appear the number of a background job, an empty line after
//!   an interrupt, and `exit`.
//! * `exit` ends the shell, and so does what `set -e` makes of a failure. A syntax error
//!   does not.
//! * Descriptors 200 to 203 are the driver's while no code runs; children have none of
//!   them.
//!
//! Bash leaves SIGINT to the command that it waits for, and forgets it, trap and all, if that
//! ends well: in a loop of `/bin/true` every second one is lost. At the wrong moment SIGINT makes
//! Bash send it to itself without end. So an interrupt is SIGURG, for which neither holds, and only
//! the commands that Bash waits for get SIGINT. A trap of the driver's for URG sends SIGINT to the
//! shell between two commands, where a handler of the code's for INT takes effect. Both signals are
//! sent again until the code stops, since a child between fork and exec gets none. Where such a
//! handler lets the code go on, the status of an interrupted `wait` is 151, for SIGURG.
//!
//! `exit`, and a failure under `set -e`, are announced by a trap for EXIT, which code may
//! replace by its own.
//!
//! The status of the last command goes with the frame `done`, and `$?` has it at the
//! beginning of the next code. A handler that the code sets for INT is in force while its code
//! runs. Variables are described as `declare -p` has them, which evaluates nothing.

use super::{Delivery, Driver, DriverFile, SCRIPT, file, profile};

/// See the module's documentation.
pub(super) static DRIVER: Driver = Driver {
    delivery: Delivery::File("/run/cellblock/main.sh"),
    lasting: Some(&LASTING),
    ..COMMON
};

const COMMON: Driver = Driver {
    name: "bash",
    aliases: &["sh", "shell"],
    extensions: &["sh", "bash"],
    interpreters: &["/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash"],
    profile: Some(profile!("shell", "profile.toml")),
    rootfs: "shell",
    ..SCRIPT
};

const SHIM: DriverFile = file!("shim.sh");

static LASTING: Driver = Driver {
    flags: &[SHIM.path],
    files: &[SHIM, file!("session.sh")],
    delivery: Delivery::Channel,
    urgent_interrupts: true,
    ..COMMON
};
