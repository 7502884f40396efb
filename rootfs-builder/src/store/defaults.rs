//! Chooses the default rootfs of languages; [`Store::find_default`] follows the choice.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, symlink};

use super::{fresh_id, lock, make_trees};
use crate::errors::failed;
use plan::rootfs::{Store, check_name, is_absent};
use record::error::Result;

/// Makes the rootfs `name` the default where `usual` would be.
///
/// # Errors
/// The store cannot be written.
pub fn choose_default(store: &Store, usual: &str, name: &str) -> Result<()> {
    check_name(name)?;
    make_trees(store)?;
    let _lock = lock(store)?;
    let link = store.choice(usual);
    let directory = link.parent().unwrap_or(store.path());
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(failed("mkdir", directory))?;
    let fresh = directory.join(format!(".{}", fresh_id()));
    symlink(name, &fresh).map_err(failed("symlink", &fresh))?;
    fs::rename(&fresh, &link).map_err(|e| {
        let _ = fs::remove_file(&fresh);
        failed("rename", &link)(e)
    })?;
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(failed("fsync", directory))
}

/// Withdraws the choice of a default where `usual` would be, if there is one.
///
/// # Errors
/// The store cannot be written.
pub fn withdraw_default(store: &Store, usual: &str) -> Result<()> {
    let link = store.choice(usual);
    match fs::remove_file(&link) {
        Err(e) if !is_absent(&e) => Err(failed("unlink", &link)(e)),
        _ => Ok(()),
    }
}
