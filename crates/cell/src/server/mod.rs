//! The processes of a server: a spawner, and one supervisor for each cell.
//!
//! ```text
//!   front end ──► spawner ──fork──► supervisor ──clone3──► init ──► program
//!       └────────── orders, reports ─────┘
//! ```
//!
//! The front end may have threads; the spawner is forked from it before it has any.

#[cfg(test)]
mod carry_tests;
mod mailbox;
mod orders;
mod spawner;
pub mod supervisor;
#[cfg(test)]
mod tests;

pub use orders::{Execute, FileOrder, Open, Order, Report, State};
pub use spawner::Spawner;

use std::path::PathBuf;

use crate::spec::Partial;

/// What a server was started with; each request is laid over it.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The spec file.
    pub spec: Option<PathBuf>,
    /// The flags.
    pub flags: Partial,
    /// Where relative host paths start.
    pub cwd: PathBuf,
}
