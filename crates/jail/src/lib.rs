//! What runs inside of a cell, and the one place that clones it.
//!
//! [`launch`] clones the cell's init into new namespaces and a cgroup, and maps ids. [`child`] runs
//! inside: an ordered list of steps that ends in execve(2).

// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod child;
pub mod launch;
