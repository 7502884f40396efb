//! Bash: the code is a script file, the exit status is the result. `sh` and
//! other shells are not substitutes, since scripts for Bash fail in them late
//! and oddly.

use super::{Delivery, Driver, LastWords};
use record::Category;

/// See the module's documentation.
pub(super) static DRIVER: Driver = Driver {
    name: "bash",
    aliases: &["sh", "shell"],
    extensions: &["sh", "bash"],
    interpreters: &["/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash"],
    flags: &[],
    files: &[],
    delivery: Delivery::File("/run/cellblock/main.sh"),
    heap: None,
    last_words: LAST_WORDS,
    probes: &[],
    compiled: None,
    profile: "shell",
    rootfs: "shell",
};

/// What Bash writes, and what tools get from strerror(3).
const LAST_WORDS: &[LastWords] = &[
    said(
        Category::Processes,
        "fork: retry: Resource temporarily unavailable",
    ),
    said(
        Category::Processes,
        "fork: Resource temporarily unavailable",
    ),
    said(Category::Processes, "Cannot fork"),
    said(Category::Memory, "xrealloc: cannot allocate"),
    said(Category::Memory, "xmalloc: cannot allocate"),
    said(Category::Memory, "annot allocate memory"),
    said(Category::Memory, "memory exhausted"),
    said(Category::Disk, "No space left on device"),
    said(Category::Disk, "File too large"),
    said(Category::File, "Too many open files"),
];

const fn said(category: Category, phrase: &'static str) -> LastWords {
    LastWords {
        category,
        phrase,
        aborts: false,
    }
}
