//! The user that is measured, and the binary where this user can execute it.

use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::Result;

/// The user to measure as when root starts the harness.
const PLAIN_USER: u32 = 61_234;

/// The user that everything measured runs as.
pub(crate) fn user() -> u32 {
    let me = Uid::effective();
    match me.is_root() {
        true => PLAIN_USER,
        false => me.as_raw(),
    }
}

/// Copies the binary that `CELLBLOCK` names, or else the one that cargo built, to this directory.
pub(crate) fn binary(directory: &Path) -> Result<PathBuf> {
    let built = std::env::var_os("CELLBLOCK");
    let built = built.unwrap_or_else(|| env!("CARGO_BIN_EXE_cellblock").into());
    let copy = directory.join("cellblock");
    std::fs::copy(&built, &copy)
        .map_err(|error| format!("{}: {error}", Path::new(&built).display()))?;
    Ok(copy)
}
