//! Directory trees that may hold anything: how to walk them, and how to be rid
//! of them.

mod erase;
mod walk;

pub use erase::erase;
pub use walk::{Entry, each, open_top};

/// Seconds since 1970 that no file's time is beyond, which is the year 2242: file
/// systems differ in what they take.
pub const LATEST: u64 = 1 << 33;

/// A path below a tree, for a message; `.` for its top.
pub fn shown(path: &[u8]) -> String {
    match path {
        [] => ".".to_owned(),
        path => String::from_utf8_lossy(path).into_owned(),
    }
}
