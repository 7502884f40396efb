//! Python modules, compiled ahead.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::adopt::adopt;
use super::prune::Globs;
use super::scratch::failed;
use super::shop::Shop;
use super::tool::{OUT, Tool};
use record::error::Result;

const SCRIPT: &str = include_str!("bytecode.py");

/// Compiles the modules below `directories` and below every `dist-packages` and
/// `site-packages`, except for those that `skip` covers.
///
/// # Errors
/// Python's; a tree that cannot be read.
pub(super) fn compile(
    shop: &mut Shop,
    tree: &Path,
    python: &Path,
    directories: &[PathBuf],
    skip: &Globs,
) -> Result<()> {
    let mut modules = Vec::new();
    collect(tree, PathBuf::new(), directories, skip, &mut modules)?;
    if modules.is_empty() {
        return Ok(());
    }
    modules.sort();
    shop.progress
        .stage(&format!("compiling {} Python modules", modules.len()));
    let place = shop.scratch.writable("compile", shop.writer)?;
    let mut list = Vec::new();
    for module in &modules {
        list.push(b'/');
        list.extend(module.as_os_str().as_bytes());
        list.push(b'\n');
    }
    for (name, content) in [
        ("bytecode.py", SCRIPT.as_bytes()),
        ("list", list.as_slice()),
    ] {
        let path = place.join(name);
        fs::write(&path, content).map_err(failed("write", &path))?;
        shop.writer.give(&path)?;
    }
    let out = shop.scratch.writable("out", shop.writer)?;
    let python = python.display().to_string();
    let words = [
        python.as_str(),
        "-S",
        "/compile/bytecode.py",
        "/compile/list",
        OUT,
    ];
    Tool::new("compile Python modules", words)
        .tree(tree)
        .ro(&place, "/compile")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .out(&out)
        .run()?;
    adopt(&out, tree)?;
    shop.check()
}

fn collect(
    tree: &Path,
    directory: PathBuf,
    wanted: &[PathBuf],
    skip: &Globs,
    found: &mut Vec<PathBuf>,
) -> Result<()> {
    let place = tree.join(&directory);
    for entry in fs::read_dir(&place).map_err(failed("readdir", &place))? {
        let entry = entry.map_err(failed("readdir", &place))?;
        let path = directory.join(entry.file_name());
        let kind = entry.file_type().map_err(failed("stat", &place))?;
        if kind.is_dir() {
            collect(tree, path, wanted, skip, found)?;
        } else if kind.is_file()
            && path.extension().is_some_and(|extension| extension == "py")
            && !path.as_os_str().as_bytes().contains(&b'\n')
            && (wanted.iter().any(|above| path.starts_with(above)) || is_installed(&path))
            && !skip.cover(&path)
        {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether this is where pip and Debian put packages.
fn is_installed(path: &Path) -> bool {
    let names = ["dist-packages", "site-packages"];
    path.components()
        .any(|part| names.iter().any(|name| part.as_os_str() == *name))
}
