//! Takes what a tool left in its output directory into the tree.
//!
//! A tool never writes to the tree itself: its files may be hard links to those
//! of another rootfs, and what it leaves can be refused as a whole. Existing
//! files are replaced by name, never written to.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use super::scratch::{failed, make_directory};
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;

/// Directories at the top of a Debian tree that are links into `usr`.
pub(super) const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Makes the links of a merged `/usr` in an empty tree.
pub(super) fn merged_usr(tree: &Path) -> Result<()> {
    for name in MERGED {
        let target = tree.join("usr").join(name);
        fs::create_dir_all(&target).map_err(failed("mkdir", &target))?;
        let link = tree.join(name);
        std::os::unix::fs::symlink(Path::new("usr").join(name), &link)
            .map_err(failed("symlink", &link))?;
    }
    Ok(())
}

/// Moves everything in `from` into `tree`. `from` must be written to by nobody
/// any more.
///
/// # Errors
/// Something that does not belong into a tree: a device node, or a directory
/// where the tree has a link or file.
pub(super) fn adopt(from: &Path, tree: &Path) -> Result<()> {
    adopt_below(from, tree, Path::new(""))
}

fn adopt_below(from: &Path, tree: &Path, below: &Path) -> Result<()> {
    let directory = from.join(below);
    // What a package ships is readable; what a tool makes need not be.
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&directory, mode).map_err(failed("chmod", &directory))?;
    for entry in fs::read_dir(&directory).map_err(failed("readdir", &directory))? {
        let entry = entry.map_err(failed("readdir", &directory))?;
        let path = below.join(entry.file_name());
        let source = entry.path();
        let kind = entry.file_type().map_err(failed("stat", &source))?;
        let target = tree.join(usr_merged(tree, &path));
        if kind.is_dir() {
            make_place(&target, &path)?;
            adopt_below(from, tree, &path)?;
        } else if kind.is_file() || kind.is_symlink() {
            if kind.is_symlink() && already_linked(&target, &source) {
                continue;
            }
            if target.symlink_metadata().is_ok_and(|there| there.is_dir()) {
                return Err(misfit("the tree has a directory there", &path));
            }
            if kind.is_file() {
                settle(&source)?;
            }
            move_to(&source, &target)?;
        } else {
            let what = if kind.is_fifo() || kind.is_socket() {
                "a FIFO or socket"
            } else {
                "a device node"
            };
            return Err(misfit(
                &format!("{what} does not belong into a rootfs"),
                &path,
            ));
        }
    }
    Ok(())
}

/// Puts a file of cellblock's own into the tree, by way of `scratch`.
pub(super) fn put(scratch: &Path, tree: &Path, path: &str, content: &str) -> Result<()> {
    let from = scratch.join("put");
    match fs::remove_dir_all(&from) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("rmdir", &from)(e)),
        _ => {}
    }
    let file = from.join(path);
    let folder = file.parent().unwrap_or(&from);
    make_directory(folder)?;
    fs::write(&file, content).map_err(failed("write", &file))?;
    adopt(&from, tree)
}

/// The text of a plain file of the tree; `None` when there is none. No link is
/// followed: a tree may come from elsewhere.
pub(super) fn read_beneath(tree: &Path, path: &str) -> Result<Option<String>> {
    let place = tree.join(path);
    let base = fs::File::open(tree).map_err(failed("open", tree))?;
    let mut file = match Beneath::new(&base).read(path) {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
        Err(errno) => return Err(failed("openat2", &place)(errno.into())),
    };
    if !file.metadata().map_err(failed("fstat", &place))?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .map_err(failed("read", &place))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// A directory at `target`: the one that is there, or a new one.
fn make_place(target: &Path, path: &Path) -> Result<()> {
    match target.symlink_metadata() {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => Err(misfit("the tree has a link or file there", path)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(target).map_err(failed("mkdir", target))?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(target, mode).map_err(failed("chmod", target))
        }
        Err(e) => Err(failed("stat", target)(e)),
    }
}

/// The place in the tree: where its top has links into `usr`, through these.
/// No other link is followed.
fn usr_merged(tree: &Path, path: &Path) -> PathBuf {
    let mut parts = path.components();
    let merged = parts.next().is_some_and(|first| {
        let Component::Normal(name) = first else {
            return false;
        };
        let linked = |to: PathBuf| to == Path::new("usr").join(name);
        MERGED.iter().any(|known| name == OsStr::new(known))
            && fs::read_link(tree.join(name)).is_ok_and(linked)
    });
    // The link itself stays what it is.
    if merged {
        Path::new("usr").join(path)
    } else {
        path.to_owned()
    }
}

/// Whether a package brings a link of the merged `/usr` that is there already.
fn already_linked(target: &Path, source: &Path) -> bool {
    let Ok(text) = fs::read_link(source) else {
        return false;
    };
    target.is_dir() && target.ends_with(&text)
}

/// One mode for programs and one for the rest: what a umask or a package makes
/// of it does not change the tree's digest, and no set-user-ID bit survives.
fn settle(file: &Path) -> Result<()> {
    let mode = fs::symlink_metadata(file)
        .map_err(failed("stat", file))?
        .permissions()
        .mode();
    let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).map_err(failed("chmod", file))
}

fn move_to(source: &Path, target: &Path) -> Result<()> {
    match fs::rename(source, target) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => copy_to(source, target),
        other => other.map_err(failed("rename", target)),
    }
}

/// The same across file systems. An existing file goes first: another rootfs may
/// share it.
pub(super) fn copy_to(source: &Path, target: &Path) -> Result<()> {
    match fs::remove_file(target) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("unlink", target)(e)),
        _ => {}
    }
    let kind = source.symlink_metadata().map_err(failed("stat", source))?;
    if kind.is_symlink() {
        let text = fs::read_link(source).map_err(failed("readlink", source))?;
        std::os::unix::fs::symlink(text, target).map_err(failed("symlink", target))
    } else {
        fs::copy(source, target)
            .map(drop)
            .map_err(failed("copy", target))
    }
}

fn misfit(why: &str, path: &Path) -> SetupError {
    SetupError::new(Step::Store, why)
        .on(path.display())
        .hint("leave the package out, or exclude the path by `prune` in the recipe")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
    fn what_a_package_has_below_a_merged_directory_goes_into_usr() {
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
    fn the_links_of_a_merged_usr_may_come_again() {
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
    fn nothing_is_put_behind_a_link() {
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
    fn fifos_stay_out() {
        let (_directory, from, tree) = place();
        nix::unistd::mkfifo(&from.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(adopt(&from, &tree).is_err());
    }
}
