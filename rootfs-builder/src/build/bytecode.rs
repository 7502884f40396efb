//! Compiles Python modules ahead of time.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::sys::stat::SFlag;

use super::BuildContext;
use super::prune::Globs;
use crate::files::walk;
use crate::tool::{OUT, Tool};
use record::error::Result;

const SCRIPT: &str = include_str!("bytecode.py");

/// Compiles the modules below `directories` and below every `dist-packages` and
/// `site-packages`, except those that `skip` covers.
///
/// # Errors
/// Python's; a tree that cannot be read.
pub(super) fn compile(
    context: &BuildContext,
    tree: &Path,
    python: &Path,
    directories: &[PathBuf],
    skip: &Globs,
) -> Result<()> {
    let mut modules = Vec::new();
    walk(tree, &mut |path, kind| {
        let is_chosen = kind == SFlag::S_IFREG
            && path.extension().is_some_and(|extension| extension == "py")
            && !path.as_os_str().as_bytes().contains(&b'\n')
            && (directories.iter().any(|above| path.starts_with(above)) || is_package(path))
            && !skip.cover(path);
        if is_chosen {
            modules.push(Path::new("/").join(path));
        }
        Ok(())
    })?;
    if modules.is_empty() {
        return Ok(());
    }
    modules.sort_unstable();
    let count = modules.len();
    context
        .job
        .step(&format!("compiling {count} Python modules"));
    let paths: Vec<&[u8]> = modules.iter().map(|m| m.as_os_str().as_bytes()).collect();
    let paths = paths.join(&b'\n');
    let files = [
        ("bytecode.py", SCRIPT.as_bytes()),
        ("list", paths.as_slice()),
    ];
    let python = python.display().to_string();
    let words = [
        python.as_str(),
        "-S",
        "/compile/bytecode.py",
        "/compile/list",
        OUT,
    ];
    let tool = Tool::new("compile Python modules", words)
        .tree(tree)
        .ro(&context.directory_with("compile", files)?, "/compile")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    context.install(tree, tool).map(drop)
}

/// Whether this is where pip and Debian install packages.
fn is_package(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str() == "dist-packages" || part.as_os_str() == "site-packages")
}
