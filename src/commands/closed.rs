//! Standard streams that the caller has closed.

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{dup2_stderr, dup2_stdout};
use record::error::{Result, SetupError, Step};
use sys::streams::was_closed;

/// Has writes to closed streams fail, as they did before Rust's runtime put something in their place: also
/// those of a program that gets them.
pub(super) fn make_writes_fail() {
    if !was_closed(1) && !was_closed(2) {
        return;
    }
    let Ok(unwritable) = open(
        "/dev/null",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    ) else {
        return;
    };
    if was_closed(1) {
        let _ = dup2_stdout(&unwritable);
    }
    if was_closed(2) {
        let _ = dup2_stderr(&unwritable);
    }
}

/// Standard output can be written to.
///
/// # Errors
/// It is closed.
pub(super) fn stdout() -> Result<()> {
    open_as(1, "standard output", "> FILE, or > /dev/null")
}

/// Standard input can be read.
///
/// # Errors
/// It is closed.
pub(super) fn stdin() -> Result<()> {
    open_as(0, "standard input", "< FILE, or < /dev/null")
}

fn open_as(stream: i32, name: &str, redirection: &str) -> Result<()> {
    match was_closed(stream) {
        true => Err(SetupError::new(Step::Spec, "is closed")
            .on(name)
            .hint(format!("leave it open, or redirect it: {redirection}"))),
        false => Ok(()),
    }
}
