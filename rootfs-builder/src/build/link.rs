//! A new tree from an old one, in a moment: hard links to its files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::adopt::copy_to;
use super::scratch::failed;
use record::error::Result;

/// Makes everything of the tree `from` anew in the empty directory `to`. Files
/// are shared where the file system allows that, and copied otherwise: nobody
/// writes to a file of a tree, it is replaced.
///
/// # Errors
/// What cannot be read or made.
pub(super) fn link_tree(from: &Path, to: &Path) -> Result<()> {
    below(from, to, PathBuf::new())
}

fn below(from: &Path, to: &Path, directory: PathBuf) -> Result<()> {
    let place = from.join(&directory);
    for entry in fs::read_dir(&place).map_err(failed("readdir", &place))? {
        let entry = entry.map_err(failed("readdir", &place))?;
        let path = directory.join(entry.file_name());
        let (source, target) = (entry.path(), to.join(&path));
        let kind = entry.file_type().map_err(failed("stat", &source))?;
        if kind.is_dir() {
            fs::create_dir(&target).map_err(failed("mkdir", &target))?;
            let mode = entry
                .metadata()
                .map_err(failed("stat", &source))?
                .permissions();
            fs::set_permissions(&target, mode).map_err(failed("chmod", &target))?;
            below(from, to, path)?;
        } else if kind.is_symlink() {
            copy_to(&source, &target)?;
        } else if kind.is_file() {
            match fs::hard_link(&source, &target) {
                // Another file system; too many links; a file of somebody else's.
                Err(e) if is_unshareable(&e) => copy_to(&source, &target)?,
                other => other.map_err(failed("link", &target))?,
            }
        }
    }
    Ok(())
}

fn is_unshareable(error: &io::Error) -> bool {
    let numbers = [libc::EXDEV, libc::EMLINK, libc::EPERM, libc::EACCES];
    error
        .raw_os_error()
        .is_some_and(|number| numbers.contains(&number))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn files_are_shared_and_links_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("usr/bin")).unwrap();
        fs::write(from.join("usr/bin/tool"), "x").unwrap();
        symlink("/nowhere", from.join("usr/link")).unwrap();
        fs::create_dir(&to).unwrap();
        link_tree(&from, &to).unwrap();
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        assert_eq!(
            inode(from.join("usr/bin/tool")),
            inode(to.join("usr/bin/tool"))
        );
        assert_eq!(
            fs::read_link(to.join("usr/link")).unwrap(),
            Path::new("/nowhere")
        );
    }
}
