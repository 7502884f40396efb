//! cellblock runs code that nobody should trust.
//!
//! # Theory of operation
//!
//! A caller's wish travels through these modules, in this order:
//!
//! 1. [`cli`] reads the command line: syntax only.
//! 2. [`spec`] merges policy profile, spec file and flags into one validated
//!    [`spec::Spec`]. Nothing on the host has been touched.
//! 3. [`probe`] learns what this kernel and host can do ([`probe::HostFacts`]).
//! 4. [`plan`] resolves the spec against those facts: a [`plan::Plan`] is pure
//!    data, printed by `cellblock plan`, tested without privileges.
//! 5. [`launch`] clones the cell's init into new namespaces and a cgroup, maps
//!    ids, and waits for its report.
//! 6. `child` runs inside: an ordered list of steps that ends in `execve`.
//! 7. [`Cell`] is the object outside: it has executions, and an end. Its loop
//!    watches output, limits and denials.
//! 8. `supervise::verdict` turns the evidence into an outcome, and [`run`] writes
//!    the record.
//!
//! Three processes take part: the *supervisor* (this process, the caller's
//! uid), the cell's *init* (pid 1 inside; sets up, then reaps; never runs the
//! caller's code) and the *program* (pid 2 and its children).
//!
//! Beside it, [`import`] and [`rootfs`] prepare the directory trees that cells
//! see, from sources that are unpacked by [`archive`]; `workspace` reads what a
//! workspace starts with and collects what is left in it.
//!
//! Dependencies point down this list only; `tests/architecture.rs` checks it.

// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod child;
pub mod doctor;
pub mod drivers;
mod hints;
mod launch;
pub mod plan;
pub mod probe;
pub mod rootfs;
pub mod run;
pub mod spec;
mod supervise;
mod workspace;

pub use hints::explain;
pub use launch::cgroup;
pub use supervise::{BlockedSignals, Cell, Execution, Frozen, Parent, Request, capture};
