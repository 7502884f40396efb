//! R 4.2 and later, by `Rscript`. Nothing but base R is needed.
//!
//! What the shim does for the code, beyond running it in a global environment
//! that is empty:
//!
//! * The code is parsed as a whole, then evaluated expression by expression. As
//!   in IRkernel, every visible value of the top level is a result, in order, and
//!   the last expression's is the main one: as `print` shows it, and a data frame
//!   also as HTML (60 rows) and as the record's `data` (as many of its first rows
//!   as fit, and how many there are).
//!   Values that are printed by `print` or `cat` are plain output.
//! * What is drawn without a device of the program's own becomes results, one
//!   for each page, when the page is done: when the next one begins, or at the
//!   end. As PNG by cairo; without libpng as SVG, and without cairo as PDF.
//! * Messages and warnings go to stderr at once (`warn = 1`).
//! * An uncaught error becomes an error frame with the calls that led to it, and
//!   exit status 1. `quit(status =)` is plain R's, and so is `.Last`.
//! * `commandArgs()` has the caller's arguments.
//!
//! # Interrupts and variables
//!
//! R itself holds SIGINT back outside of the code; there it raises R's condition
//! `interrupt`. Variables are described by their internal values: no method of a class is
//! called. Only the value of a promise (`delayedAssign`) is computed.
//!
//! # The channel
//!
//! R reads and writes files by name, and `/proc/self/fd` names the channel's two
//! pipes. The shim opens them for each message, and no connection of R's that code could list refers to them.
//! Code that opens these names reaches the channel, as do its child processes,
//! which inherit the descriptors; what comes of it is a broken channel, or
//! results of its own making.
//!
//! # Memory
//!
//! R asks for memory by malloc(3) and raises an error when there is none. In a
//! cgroup there always is, until the kernel kills; so the shim sets R's own
//! limit on vectors a little below the cell's (`mem.maxVSize`).

use super::{
    Delivery, Driver, DriverFile, Exceptions, Heap, Modules, Provider, SCRIPT, file, profile,
};
use record::Category;

const MAIN: DriverFile = file!("driver.R");

/// See the module's documentation.
pub(super) static DRIVER: Driver = Driver {
    name: "r",
    aliases: &["rscript"],
    extensions: &["R"],
    interpreters: &[
        "/usr/bin/Rscript",
        "/usr/local/bin/Rscript",
        "/opt/R/bin/Rscript",
    ],
    flags: &["--vanilla", MAIN.path],
    files: &[
        MAIN,
        file!("describe.R"),
        file!("errors.R"),
        file!("interrupts.R"),
        file!("plots.R"),
        file!("protocol.R"),
        file!("results.R"),
        file!("session.R"),
    ],
    delivery: Delivery::Channel,
    heap: Some(Heap {
        // What the shim sets `mem.maxVSize` to.
        limit: |memory| memory.saturating_sub(80).max(64),
        flag: None,
        besides: 32,
    }),
    profile: Some(profile!("r", "profile.toml")),
    rootfs: "r",
    exceptions: EXCEPTIONS,
    modules: Some(Modules {
        missing: &["there is no package called "],
        provider: |module, _| {
            let package = format!("r-cran-{}", module.to_lowercase());
            Some(Provider::Package("--apt", package))
        },
    }),
    ..SCRIPT
};

/// Most errors are of the class `simpleError`.
const EXCEPTIONS: Exceptions = Exceptions {
    decisive: &[],
    classes: &[
        (Category::Syntax, "parseError"),
        (Category::Import, "packageNotFoundError"),
        (Category::Value, "subscriptOutOfBoundsError"),
    ],
    messages: &[
        (Category::Memory, "cannot allocate vector"),
        (Category::Memory, "vector memory exhausted"),
        (Category::Import, "there is no package called"),
        (Category::Network, "cannot open url"),
        (Category::File, "cannot open file"),
        (Category::File, "cannot open the connection"),
        (Category::Name, "could not find function"),
        (Category::Name, "' not found"),
        (Category::Name, "\u{2019} not found"),
        (Category::Type, "non-numeric argument"),
        (Category::Type, "invalid 'type'"),
        (Category::Value, "subscript out of bounds"),
        (Category::Value, "undefined columns selected"),
    ],
};
