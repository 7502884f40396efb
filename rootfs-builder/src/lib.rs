//! Builds, imports, checks and removes the root file systems that cells run on.
//!
//! # Theory of operation
//!
//! A prepared root file system is a directory tree with a manifest, under a name of
//! a store. [`cell::rootfs`] finds such a tree for a launch; everything that makes or
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
pub use build::{AddRequest, BuildRequest, PlannedBuild, PlannedFile};
pub use cell::rootfs::{Manifest, Store};
pub use import::{ImportRequest, Imported};
pub use listing::{Change, Difference};
pub use recipe::{Recipe, recipes};
pub use store::{Listed, list};

use std::path::PathBuf;

use errors::with_hint;
use record::error::Result;

/// Builds a rootfs from a recipe and puts it into the store.
///
/// # Errors
/// The recipe is invalid; a package, the network or the disk fails. The store is
/// unchanged then, and fetched files stay in the cache.
pub fn build(request: &BuildRequest) -> Result<Manifest> {
    build::build(request).map_err(with_hint)
}

/// The files that [`build`] would fetch.
///
/// # Errors
/// The recipe is invalid; apt or the network fails.
pub fn plan_build(request: &BuildRequest) -> Result<PlannedBuild> {
    build::plan(request).map_err(with_hint)
}

/// Derives a rootfs from another one by adding packages.
///
/// # Errors
/// Those of [`build`]; the base does not exist or cannot run such packages.
pub fn add(request: &AddRequest) -> Result<Manifest> {
    build::add(request).map_err(with_hint)
}

/// Makes a rootfs from an image, an archive or a directory.
///
/// # Errors
/// The source is damaged or the disk fails. The store is unchanged then.
pub fn import(request: &ImportRequest) -> Result<Imported> {
    import::import(request).map_err(with_hint)
}

/// The path and the manifest of a rootfs of the store.
///
/// # Errors
/// It does not exist or has no manifest.
pub fn show(store: &Store, name: &str) -> Result<(PathBuf, Manifest)> {
    let found = store.require(name)?;
    let manifest = store::manifest_of(&found)?;
    Ok((found.path, manifest))
}

/// The manifest of a rootfs, and the changes since it was made: none when every
/// byte, mode and link is the same.
///
/// # Errors
/// It does not exist or cannot be read.
pub fn verify(store: &Store, name: &str) -> Result<(Manifest, Vec<Difference>)> {
    let found = store.require(name)?;
    let manifest = store::manifest_of(&found)?;
    let differences = listing::verify(&found.path, &manifest).map_err(with_hint)?;
    Ok((manifest, differences))
}

/// Removes a rootfs from the store. Cells that run on it keep it until they end.
///
/// # Errors
/// It is not in the store or cannot be removed.
pub fn remove(store: &Store, name: &str) -> Result<()> {
    store::remove(store, name).map_err(with_hint)
}
