//! Runs a program in a cell: from a specification to a record.
//!
//! A request travels through these modules, in this order:
//!
//! 1. [`spec`] merges policy profile, spec file and flags into one valid
//!    [`spec::Spec`]. Nothing on the host has been touched.
//! 2. [`probe`] finds out what this kernel and host can do ([`probe::HostFacts`]).
//! 3. [`plan`] resolves the spec against those facts: a [`plan::Plan`] is pure data,
//!    printed by `cellblock plan`, tested without privileges.
//! 4. `launch` clones the cell's init into new namespaces and a cgroup, and maps ids.
//! 5. `child` runs inside: an ordered list of steps that ends in execve(2).
//! 6. `supervise` is the [`Cell`]: its executions, limits, denials and end; and the
//!    verdict on them.
//! 7. [`run`] calls all of these and writes the record.
//! 8. `context` keeps a cell for several executions; [`server`] has one process for each.
//!
//! Three processes take part: the *supervisor* (this process, with the caller's uid),
//! the cell's *init* (pid 1 inside; it sets up and reaps, and never runs the caller's
//! code) and the *program* (pid 2 and its children).
//!
//! docs/LIFE.md has the details; `tests/architecture.rs` checks the order of modules.

// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod carry;
mod child;
mod context;
pub mod doctor;
pub mod drivers;
mod hints;
mod launch;
pub mod plan;
pub mod probe;
pub mod rootfs;
pub mod run;
pub mod server;
pub mod spec;
mod supervise;
mod workspace;

pub use context::execute_carried;
pub use hints::explain;
pub use launch::{cgroup, secrets};
pub use supervise::{Blank, BlockedSignals, Cell, Execution, Frozen, Parent, Request, capture};
