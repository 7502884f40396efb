//! Builds, imports, checks and removes the root file systems that cells run on.
//!
//! # Theory of operation
//!
//! A prepared root file system is a directory tree with a manifest, under a name of
//! a store. [`plan::rootfs`] finds such a tree for a launch; everything that makes or
//! changes one is here:
//!
//! - [`recipe`] reads recipes and lock files.
//! - [`packages`] resolves and fetches packages of Debian, PyPI and npm.
//! - [`build`] puts packages and a recipe's steps together to a tree.
//! - [`import`] unpacks images, archives and directories.
//! - [`store`] begins, names and removes trees.
//! - [`listing`] digests a tree's content, and finds changes.
//!
//! No package, image or tool is trusted: every program runs in a cell ([`tool`]),
//! and its output is checked before it becomes part of a tree.
#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod build;
mod errors;
mod files;
mod import;
mod job;
mod listing;
mod packages;
mod recipe;
mod store;
mod tool;

pub use archive::{Report, Skipped};
pub use build::{AddRequest, BuildRequest, PlannedBuild, PlannedFile, add, build, plan};
pub use errors::with_hint;
pub use import::{ImportRequest, Imported, import};
pub use listing::{Change, Difference};
pub use plan::rootfs::{Manifest, Store};
pub use recipe::{Recipe, recipes};
pub use store::{Listed, choose_default, list, remove, withdraw_default};

use std::path::PathBuf;

use record::error::Result;

/// The path and the manifest of a rootfs of the store.
///
/// # Errors
/// It does not exist or has no manifest.
pub fn show(store: &Store, name: &str) -> Result<(PathBuf, Manifest)> {
    let found = store.require(name)?;
    let manifest = store::manifest_at(&found.path)?;
    Ok((found.path, manifest))
}

/// The manifest of a rootfs, and the changes since it was made: none when every
/// byte, mode and link is the same.
///
/// # Errors
/// It does not exist or cannot be read.
pub fn verify(store: &Store, name: &str) -> Result<(Manifest, Vec<Difference>)> {
    let found = store.require(name)?;
    let manifest = store::manifest_at(&found.path)?;
    let differences = listing::verify(&found.path, &manifest)?;
    Ok((manifest, differences))
}
