//! Builds and imports the root file systems that cells run on.
#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod build;
pub mod import;
