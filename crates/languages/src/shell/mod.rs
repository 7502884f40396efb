//! Bash: the code is a script file, the exit status is the result. `sh` and
//! other shells are not substitutes, since scripts for Bash fail in them late
//! and oddly.
//!
//! # Several executions
//!
//! A shell that goes on is another driver ([`Driver::lasting`]), and its code is executed as a
//! script is: by a Bash that is not interactive, one command after the other, at the top level. It
//! keeps variables, functions, options, traps, the working directory, open descriptors and
//! background jobs. `$0` and what messages begin with is the name of the code, `$LINENO` its line,
//! and `$?` at the beginning the status of the last command before.
//!
//! The driver is not written in the shell's language, in which nothing is out of the code's reach:
//! a function can be called `read`, a builtin be disabled, a DEBUG trap see every command. It is a
//! shared object (`driver/`) that Bash loads as it loads a builtin, and whose function is the
//! shell's main loop from then on. Versions since 4.4 load such objects if they are linked dynamically; the
//! shim says so where one does not.
//!
//! It differs from a script in these:
//!
//! * An error that ends a script (a syntax error, an unset variable under `set -u`) ends the
//!   execution, and the shell goes on. `exit` ends the shell, and so does what `set -e` makes of a
//!   failure.
//! * `set -n` is over with its execution, since nothing could take it back.
//! * SIGURG is the driver's, unless the code sets a trap for it, and two descriptors below the limit
//!   of open files, which no program that the code executes has.
//!
//! # Interrupts
//!
//! Bash leaves SIGINT to the command that it waits for, and forgets it, trap and all, if that
//! ends well: in a loop of `/bin/true` every second one is lost. At the wrong moment SIGINT makes
//! Bash send it to itself without end. So an interrupt is SIGURG, for which neither holds, and only
//! the commands that Bash waits for get SIGINT. The driver's handler of SIGURG does what Bash's own
//! of SIGINT does: it ends the code before the next command, or calls the code's own handler,
//! once for each interrupt. Both signals are sent again until the code stops, since a child between
//! fork and exec gets none.
//!
//! Variables are described as `declare -p` has them, which evaluates nothing.

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

/// What the build script has compiled of `driver/`.
const LOOP: DriverFile = DriverFile {
    path: "/run/cellblock/driver.so",
    content: include_bytes!(concat!(env!("OUT_DIR"), "/driver.so")),
};

static LASTING: Driver = Driver {
    flags: &[SHIM.path],
    files: &[SHIM, LOOP],
    delivery: Delivery::Channel,
    urgent_interrupts: true,
    ..COMMON
};
