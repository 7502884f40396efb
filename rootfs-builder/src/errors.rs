//! Errors: each names the call and the path, and its hint follows from the error
//! number.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use record::error::{SetupError, Step};

/// An error that no system call reported.
pub(crate) fn store_error(message: impl Into<String>) -> SetupError {
    SetupError::new(Step::Store, message)
}

/// An error of `call` on `path`, for `map_err`.
pub(crate) fn failed<E: Into<io::Error>>(call: &str, path: &Path) -> impl Fn(E) -> SetupError {
    move |error| SetupError::io(Step::Store, call, &error.into()).on(path.display())
}

/// Adds the hint that follows from the error number, unless there is one: for the errors
/// of all of this crate.
pub fn with_hint(error: SetupError) -> SetupError {
    if error.step != Step::Store || error.hint.is_some() {
        return error;
    }
    match error.errno.map(Errno::from_raw) {
        Some(Errno::ENOSPC | Errno::EDQUOT) => error.hint(NO_SPACE),
        Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => {
            error.hint("choose directories that you may write to, with --store and XDG_CACHE_HOME")
        }
        Some(Errno::EBADF | Errno::ENOLCK | Errno::EOPNOTSUPP) => error.hint(
            "a store needs a file system with locks on directories, which network file systems \
             lack; choose one on a local disk with --store",
        ),
        _ => error,
    }
}

pub(crate) const NO_SPACE: &str = "make room on that file system, or choose other directories \
    with --store and XDG_CACHE_HOME; fetched files are kept, and the same command continues \
    from there";
