//! Bash: the code is a script file, the exit status is the result. `sh` and
//! other shells are not substitutes, since scripts for Bash fail in them late
//! and oddly.

use super::{Delivery, Driver, LastWords, SCRIPT, profile};
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
const LAST_WORDS: &[LastWords] = &[
    gives_up(
        Category::Processes,
        "fork: retry: Resource temporarily unavailable",
    ),
    gives_up(
        Category::Processes,
        "fork: Resource temporarily unavailable",
    ),
    gives_up(Category::Processes, "Cannot fork"),
    gives_up(Category::Memory, "xrealloc: cannot allocate"),
    gives_up(Category::Memory, "xmalloc: cannot allocate"),
    gives_up(Category::Memory, "annot allocate memory"),
    gives_up(Category::Memory, "memory exhausted"),
    gives_up(Category::Disk, "No space left on device"),
    gives_up(Category::Disk, "File too large"),
    gives_up(Category::File, "Too many open files"),
];

const fn gives_up(category: Category, phrase: &'static str) -> LastWords {
    LastWords {
        category,
        phrase,
        aborts: false,
    }
}
