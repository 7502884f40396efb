//! Pictures of a record, written to files.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::destination;
use crate::show;
use record::Record;
use record::error::{Result, SetupError, Step};

/// Makes the directory, unless it is there.
///
/// # Errors
/// It cannot be made.
pub(super) fn prepare(directory: &Path) -> Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(SetupError::io(Step::Spec, "mkdir", &error)
                .on(directory.display())
                .hint("name a directory that you may write to with --plots"))
        }
        _ => Ok(()),
    }
}

/// Writes each picture to its file; returns their paths. No links are followed in the
/// directories `shared` with a cell.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(record: &Record, directory: &Path, shared: &[PathBuf]) -> Result<Vec<PathBuf>> {
    prepare(directory)?;
    let mut written = Vec::new();
    for (name, content) in show::plots(record) {
        let path = directory.join(name);
        let mut file = destination::create(&path, shared)
            .map_err(|errno| SetupError::os(Step::Outputs, "open", errno).on(path.display()))?;
        file.write_all(&content).map_err(|error| {
            SetupError::io(Step::Outputs, "write", &error)
                .on(path.display())
                .hint("make sure that there is room")
        })?;
        written.push(path);
    }
    Ok(written)
}
