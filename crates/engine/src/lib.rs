//! Runs a program in a cell: from a specification to a record.
//!
//! A request travels through these crates, in this order:
//!
//! 1. [`spec`] merges policy profile, spec file and flags into one valid
//!    [`spec::Spec`]. Nothing on the host has been touched.
//! 2. [`plan::probe`] finds out what this kernel and host can do ([`plan::probe::HostFacts`]).
//! 3. [`plan`] resolves the spec against those facts: a [`plan::Plan`] is pure data,
//!    printed by `cellblock plan`, tested without privileges.
//! 4. [`jail::launch`] clones the cell's init into new namespaces and a cgroup, and maps ids.
//! 5. [`jail::child`] runs inside: an ordered list of steps that ends in execve(2).
//! 6. [`supervise`] is the [`supervise::Cell`]: its executions, limits, denials and end.
//! 7. [`verdict`] judges what was observed.
//! 8. [`run`] calls all of these and writes the record.
//! 9. [`context`] keeps a cell for several executions; the crate `supervisor` has one process for
//!    each.
//!
//! Three processes take part: the *supervisor* (this process, with the caller's uid),
//! the cell's *init* (pid 1 inside; it sets up and reaps, and never runs the caller's
//! code) and the *program* (pid 2 and its children).
//!
//! docs/LIFE.md has the details.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod context;
pub mod run;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
