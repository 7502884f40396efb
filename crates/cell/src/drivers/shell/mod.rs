//! Bash: the code is a script file, the exit status is the result. `sh` and
//! other shells are not substitutes, since scripts for Bash fail in them late
//! and oddly.

use super::{Delivery, Driver, SCRIPT, profile};
use record::Category;

/// See the module's documentation.
pub(super) static DRIVER: Driver = Driver {
    name: "bash",
    aliases: &["sh", "shell"],
    extensions: &["sh", "bash"],
    interpreters: &["/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash"],
    delivery: Delivery::File("/run/cellblock/main.sh"),
    profile: Some(profile!("shell", "profile.toml")),
    rootfs: "shell",
    last_words: LAST_WORDS,
    ..SCRIPT
};

/// Messages of Bash, and of tools that print strerror(3).
const LAST_WORDS: &[(Category, &str)] = &[
    (
        Category::Processes,
        "fork: retry: Resource temporarily unavailable",
    ),
    (
        Category::Processes,
        "fork: Resource temporarily unavailable",
    ),
    (Category::Processes, "Cannot fork"),
    (Category::Memory, "xrealloc: cannot allocate"),
    (Category::Memory, "xmalloc: cannot allocate"),
    (Category::Memory, "annot allocate memory"),
    (Category::Memory, "memory exhausted"),
    (Category::Disk, "No space left on device"),
    (Category::Disk, "File too large"),
    (Category::File, "Too many open files"),
];
