//! Moves a tool's output into the tree.
//!
//! A tool never writes to the tree itself: files of the tree may be hard links to
//! those of another rootfs, and output that does not fit is refused as a whole.
//! Existing files are replaced, never written to.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use nix::sys::stat::SFlag;

use crate::errors::{failed, store_error};
use crate::files::{copy, make_directory, set_mode, walk};
use record::error::{Result, SetupError};

/// Directories at the top of a Debian tree that are links into `usr`.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Makes the links of a merged `/usr` in an empty tree.
pub(super) fn merged_usr(tree: &Path) -> Result<()> {
    for name in MERGED {
        make_directory(&tree.join("usr").join(name))?;
        let link = tree.join(name);
        std::os::unix::fs::symlink(Path::new("usr").join(name), &link)
            .map_err(failed("symlink", &link))?;
    }
    Ok(())
}

/// Makes everything of the tree `from` again in the empty directory `to`. Files are
/// hard links where the file system allows that, and copies elsewhere.
///
/// # Errors
/// Something cannot be read or made.
pub(super) fn link_tree(from: &Path, to: &Path) -> Result<()> {
    walk(from, &mut |path, kind| {
        let (source, target) = (from.join(path), to.join(path));
        match kind {
            SFlag::S_IFDIR => {
                make_directory(&target)?;
                let metadata = source.metadata().map_err(failed("stat", &source))?;
                set_mode(&target, metadata.permissions().mode())
            }
            SFlag::S_IFLNK => copy(&source, &target),
            SFlag::S_IFREG => match fs::hard_link(&source, &target) {
                Err(e) if cannot_link(&e) => copy(&source, &target),
                other => other.map_err(failed("link", &target)),
            },
            _ => Ok(()),
        }
    })
}

/// Another file system; too many links; another user's file.
fn cannot_link(error: &io::Error) -> bool {
    let numbers = [libc::EXDEV, libc::EMLINK, libc::EPERM, libc::EACCES];
    error
        .raw_os_error()
        .is_some_and(|number| numbers.contains(&number))
}

/// Moves everything in `from` into `tree`. No process may write to `from` any more.
///
/// # Errors
/// The output has a device node, FIFO or socket, or a directory where the tree has
/// a link or file.
pub(crate) fn adopt(from: &Path, tree: &Path) -> Result<()> {
    // Tools may leave directories that their owner cannot read.
    set_mode(from, 0o755)?;
    walk(from, &mut |path, kind| {
        let (source, target) = (from.join(path), tree.join(usr_merged(tree, path)));
        match kind {
            SFlag::S_IFDIR => {
                set_mode(&source, 0o755)?;
                ensure_directory(&target, path)
            }
            SFlag::S_IFLNK if is_merged_link(&target, &source) => Ok(()),
            SFlag::S_IFREG | SFlag::S_IFLNK => {
                if target.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                    return Err(refused("the tree has a directory there", path));
                }
                if kind == SFlag::S_IFREG {
                    normalise_mode(&source)?;
                }
                move_to(&source, &target)
            }
            _ => Err(refused(
                "a rootfs has no device nodes, FIFOs and sockets",
                path,
            )),
        }
    })
}

/// Makes a directory unless there is one; `path` is its path in the tree.
fn ensure_directory(target: &Path, path: &Path) -> Result<()> {
    match target.symlink_metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(refused("the tree has a link or file there", path)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(target).map_err(failed("mkdir", target))?;
            set_mode(target, 0o755)
        }
        Err(e) => Err(failed("stat", target)(e)),
    }
}

/// The path in a tree whose top has links into `usr`: through these links, and no
/// others.
fn usr_merged(tree: &Path, path: &Path) -> PathBuf {
    let is_merged = |name: &OsStr| {
        MERGED.iter().any(|known| name == OsStr::new(known))
            && fs::read_link(tree.join(name)).is_ok_and(|to| to == Path::new("usr").join(name))
    };
    match path.components().next() {
        Some(Component::Normal(name)) if is_merged(name) => Path::new("usr").join(path),
        _ => path.to_owned(),
    }
}

/// Whether a package brings a link of the merged `/usr` that the tree has.
fn is_merged_link(target: &Path, source: &Path) -> bool {
    fs::read_link(source).is_ok_and(|text| target.is_dir() && target.ends_with(text))
}

/// Programs get one mode and other files another, so that umasks and packages do
/// not change the tree's digest, and no set-user-ID bit survives.
fn normalise_mode(file: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(file).map_err(failed("stat", file))?;
    let is_program = metadata.permissions().mode() & 0o111 != 0;
    set_mode(file, if is_program { 0o755 } else { 0o644 })
}

fn move_to(source: &Path, target: &Path) -> Result<()> {
    match fs::rename(source, target) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => copy(source, target),
        other => other.map_err(failed("rename", target)),
    }
}

fn refused(why: &str, path: &Path) -> SetupError {
    store_error(why)
        .on(path.display())
        .hint("leave the package out, or exclude the path with `prune` in the recipe")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (from, tree) = (directory.path().join("from"), directory.path().join("tree"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&tree).unwrap();
        merged_usr(&tree).unwrap();
        (directory, from, tree)
    }

    #[test]
    fn files_below_a_merged_directory_go_into_usr() {
        let (_directory, from, tree) = place();
        write(&from, "bin/sh", "shell");
        fs::set_permissions(from.join("bin/sh"), fs::Permissions::from_mode(0o4711)).unwrap();
        adopt(&from, &tree).unwrap();
        assert_eq!(
            fs::read_to_string(tree.join("usr/bin/sh")).unwrap(),
            "shell"
        );
        let mode = fs::metadata(tree.join("usr/bin/sh")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o755);
    }

    #[test]
    fn the_links_of_a_merged_usr_may_come_with_a_package() {
        let (_directory, from, tree) = place();
        symlink("usr/bin", from.join("bin")).unwrap();
        adopt(&from, &tree).unwrap();
        assert_eq!(
            fs::read_link(tree.join("bin")).unwrap(),
            Path::new("usr/bin")
        );
    }

    #[test]
    fn a_file_that_another_rootfs_shares_is_replaced_and_not_written() {
        let (directory, from, tree) = place();
        let shared = directory.path().join("shared");
        fs::write(&shared, "old").unwrap();
        fs::hard_link(&shared, tree.join("usr/bin/tool")).unwrap();
        write(&from, "usr/bin/tool", "new");
        adopt(&from, &tree).unwrap();
        assert_eq!(fs::read_to_string(&shared).unwrap(), "old");
        assert_eq!(
            fs::read_to_string(tree.join("usr/bin/tool")).unwrap(),
            "new"
        );
    }

    #[test]
    fn no_link_is_followed() {
        let (directory, from, tree) = place();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        symlink(&outside, tree.join("etc")).unwrap();
        write(&from, "etc/passwd", "x");
        let error = adopt(&from, &tree).unwrap_err();
        assert_eq!(error.operand.as_deref(), Some("etc"));
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn fifos_are_refused() {
        let (_directory, from, tree) = place();
        nix::unistd::mkfifo(&from.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(adopt(&from, &tree).is_err());
    }

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
