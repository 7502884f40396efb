//! Copies a workspace, and replaces its content by a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, fchmod};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid, symlinkat};

use super::walk::{Found, Walk, What};
use super::{Baseline, Caps, Tree, collect};
use record::FileChange;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use sys::beneath::{Beneath, names};
use sys::tree::{erase, set_mode, set_mtime};

/// What a file system allocates at once, and more than an entry takes by itself.
const BLOCK: u64 = 4096;

/// What a copy has.
#[derive(Debug)]
pub struct Copied {
    /// Bytes that it takes on a disk, and no less than that: of contents in whole blocks, and of each entry.
    pub bytes: u64,
    /// What it has not, and why: things that are neither files, directories nor links.
    pub left_out: Vec<(RawText, String)>,
}

/// Copies `from` into the empty directory `to`, where all belongs to `owner`. The kernel copies the content of files
/// by itself, and shares it where the file system can.
///
/// # Errors
/// Reading or writing failed, or the tree is larger than `caps` allow.
pub fn copy(from: Tree<'_>, to: &OwnedFd, caps: &Caps, owner: (u32, u32)) -> Result<Copied> {
    let failed = |call, errno, path: &RawText| {
        SetupError::os(Step::Outputs, call, errno).on(format!("workspace/{path}"))
    };
    let walk = Walk::new(from, caps).map_err(|errno| failed("openat2", errno, &".".into()))?;
    let mut left_out = Vec::new();
    let mut modes = Vec::new();
    let mut room = caps.total_bytes.0;
    let mut bytes = 0_u64;
    for Found { path, what } in walk {
        match what {
            What::Directory(mode) => {
                bytes = bytes.saturating_add(BLOCK);
                as_owner(owner, || make_directory(to, path.as_path()))
                    .map_err(|e| failed("mkdirat", e, &path))?;
                modes.push((path, mode));
            }
            What::Link(text) => {
                bytes = bytes.saturating_add(BLOCK);
                let text =
                    CString::new(text).map_err(|_| failed("symlinkat", Errno::EINVAL, &path))?;
                as_owner(owner, || link(to, &path, &text))
                    .map_err(|e| failed("symlinkat", e, &path))?;
            }
            What::File(file, stat) => {
                let size = stat.st_size.cast_unsigned();
                // Sparse files and hard links are larger as copies than they were.
                let is_large =
                    || SetupError::new(Step::Outputs, "the workspace is too large to copy");
                room = room.checked_sub(size).ok_or_else(is_large)?;
                bytes = bytes.saturating_add(size.next_multiple_of(BLOCK) + BLOCK);
                copy_file(file, &stat, to, &path, owner).map_err(|error| {
                    SetupError::io(Step::Outputs, "copy_file_range", &error)
                        .on(format!("workspace/{path}"))
                })?;
            }
            What::Skipped(reason) => left_out.push((path, reason)),
        }
    }
    set_modes(to, &modes)?;
    Ok(Copied { bytes, left_out })
}

/// Sets the modes of directories. Last, since nothing can be put into one that its owner may
/// not write to.
fn set_modes(top: &OwnedFd, modes: &[(RawText, u32)]) -> Result<()> {
    for (path, mode) in modes.iter().rev() {
        let directory = Beneath::new(top).directory(path.as_path());
        directory
            .and_then(|directory| set_mode(&directory, Mode::from_bits_truncate(*mode)))
            .map_err(|errno| {
                SetupError::os(Step::Outputs, "fchmodat", errno).on(format!("workspace/{path}"))
            })?;
    }
    Ok(())
}

/// Acts with the ids that the cell's program has outside: a tmpfs of the cell takes only
/// files whose owner exists in the cell.
pub fn as_owner<T>((uid, gid): (u32, u32), act: impl FnOnce() -> T) -> T {
    if !Uid::effective().is_root() {
        return act();
    }
    let before = (setfsuid(Uid::from_raw(uid)), setfsgid(Gid::from_raw(gid)));
    let done = act();
    setfsuid(before.0);
    setfsgid(before.1);
    done
}

/// Removes all content of a directory that no process changes meanwhile, and whose files
/// belong to `owner`. Directories are moved on the way ([`erase`]), which a tmpfs of the cell
/// refuses to ids that do not exist in the cell.
///
/// # Errors
/// The error number of the call that failed; EBUSY for a mount point.
pub fn clear(directory: &OwnedFd, owner: (u32, u32)) -> nix::Result<()> {
    as_owner(owner, || {
        for name in names(&mut Beneath::new(directory).list("")?)? {
            erase(directory.as_fd(), &name)?;
        }
        Ok(())
    })
}

/// What an entry is, apart from the content of files.
enum Shape {
    /// Its permission bits.
    Directory(u32),
    /// Its text.
    Link(Vec<u8>),
    File,
    Other,
}

impl Shape {
    fn of(what: What) -> Self {
        match what {
            What::Directory(mode) => Self::Directory(mode),
            What::Link(text) => Self::Link(text),
            What::File(..) => Self::File,
            What::Skipped(_) => Self::Other,
        }
    }

    /// Whether an entry of this shape can stay where the other is wanted.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Link(one), Self::Link(other)) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

/// Makes the content of `to` that of `from`. A file that is the same stays as it is, because
/// the program may have it open.
///
/// # Errors
/// As for [`copy`].
pub fn renew(from: Tree<'_>, to: &OwnedFd, caps: &Caps, owner: (u32, u32)) -> Result<()> {
    let failed = |call, errno, path: &RawText| {
        SetupError::os(Step::Outputs, call, errno).on(format!("workspace/{path}"))
    };
    let walk = |tree| Walk::new(tree, caps).map_err(|errno| failed("openat2", errno, &".".into()));
    let own = Tree {
        dir: to.as_fd(),
        ..from
    };
    let all = &Caps {
        listed: usize::MAX,
        ..*caps
    };
    // First, since reading a directory can change its mode.
    let wanted: BTreeMap<RawText, Shape> = walk(from)?
        .map(|Found { path, what }| (path, Shape::of(what)))
        .collect();
    let changed = changes(own, &content(from, caps)?, all)?;
    let changed: BTreeSet<RawText> = changed.into_iter().map(|file| file.path).collect();
    for Found { path, what } in walk(own)? {
        let own = Shape::of(what);
        let is_wanted = wanted.get(&path).is_some_and(|shape| shape.is_like(&own));
        if changed.contains(&path) || !is_wanted {
            let erased = place(to, &path)
                .and_then(|(parent, name)| as_owner(owner, || erase(parent.as_fd(), &name)));
            match erased {
                // It was removed with its directory.
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(failed("unlinkat", errno, &path)),
            }
        }
    }
    let mut modes = Vec::new();
    for Found { path, what } in walk(from)? {
        match what {
            What::Directory(_) => {
                if Beneath::new(to).directory(path.as_path()).is_err() {
                    as_owner(owner, || make_directory(to, path.as_path()))
                        .map_err(|e| failed("mkdirat", e, &path))?;
                    if let Some(Shape::Directory(mode)) = wanted.get(&path) {
                        modes.push((path, *mode));
                    }
                }
            }
            What::Link(text) => {
                let text =
                    CString::new(text).map_err(|_| failed("symlinkat", Errno::EINVAL, &path))?;
                match as_owner(owner, || link(to, &path, &text)) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(failed("symlinkat", errno, &path)),
                }
            }
            What::File(file, stat) if changed.contains(&path) => {
                copy_file(file, &stat, to, &path, owner).map_err(|error| {
                    SetupError::io(Step::Outputs, "copy_file_range", &error)
                        .on(format!("workspace/{path}"))
                })?;
            }
            What::File(..) | What::Skipped(_) => {}
        }
    }
    set_modes(to, &modes)
}

/// What a tree contains, for comparing another with it.
pub fn content(tree: Tree<'_>, caps: &Caps) -> Result<Baseline> {
    let mut baseline = Baseline::new();
    // What is not listed is not part of a baseline.
    let caps = &Caps {
        listed: usize::MAX,
        ..*caps
    };
    let outputs = collect(tree, &mut baseline, None, caps, &|_| {});
    match outputs.error {
        Some(error) => Err(error),
        None => Ok(baseline),
    }
}

/// Files that differ in `tree` from `before`, sorted by path.
pub fn changes(tree: Tree<'_>, before: &Baseline, caps: &Caps) -> Result<Vec<FileChange>> {
    let mut before = before.clone();
    let outputs = collect(tree, &mut before, None, caps, &|_| {});
    match outputs.error {
        Some(error) => Err(error),
        None => Ok(outputs.files),
    }
}

fn make_directory(top: &OwnedFd, path: &Path) -> nix::Result<()> {
    (Beneath::new(top).make_directories(path, Mode::S_IRWXU)).map(drop)
}

/// The open directory that `path` is in, and its name there.
fn place(top: &OwnedFd, path: &RawText) -> nix::Result<(OwnedFd, CString)> {
    let path = path.as_path();
    let name = path.file_name().ok_or(Errno::EINVAL)?;
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let parent = path.parent().unwrap_or(Path::new(""));
    Ok((Beneath::new(top).directory(parent)?, name))
}

fn link(top: &OwnedFd, path: &RawText, text: &CString) -> nix::Result<()> {
    let (parent, name) = place(top, path)?;
    symlinkat(text.as_c_str(), &parent, name.as_c_str())
}

fn copy_file(
    from: std::fs::File,
    stat: &FileStat,
    top: &OwnedFd,
    path: &RawText,
    owner: (u32, u32),
) -> io::Result<()> {
    let (parent, name) = place(top, path)?;
    let usual = Mode::S_IRUSR | Mode::S_IWUSR;
    let mut to = as_owner(owner, || {
        Beneath::new(&parent).create(name.as_c_str(), usual)
    })?;
    // A program that has itself continued may make it longer meanwhile.
    io::copy(&mut from.take(stat.st_size.cast_unsigned()), &mut to)?;
    fchmod(&to, Mode::from_bits_truncate(stat.st_mode & 0o777))?;
    Ok(set_mtime(&to, stat.st_mtime)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use nix::unistd::mkfifo;

    use super::*;
    use spec::{Bytes, TmpfsLimit};

    fn caps() -> Caps {
        Caps::of(TmpfsLimit {
            size: Bytes(1 << 20),
            inodes: 1000,
        })
    }

    fn tree(dir: &OwnedFd) -> Tree<'_> {
        Tree {
            dir: dir.as_fd(),
            covered: &[],
            code_file: None,
            keeps_links: true,
            prefix: b"",
            taken: &[],
            is_upper: false,
        }
    }

    fn own() -> (u32, u32) {
        (Uid::effective().as_raw(), Gid::effective().as_raw())
    }

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn a_file_that_grows_is_copied_to_the_end_that_was_found() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("file");
        fs::write(&path, "content").unwrap();
        let file = File::open(&path).unwrap();
        let stat = nix::sys::stat::fstat(&file).unwrap();
        let grown = File::options().write(true).open(&path).unwrap();
        grown.set_len(1 << 20).unwrap();
        let top = open(base.path());
        copy_file(file, &stat, &top, &"copy".into(), own()).unwrap();
        assert_eq!(
            fs::read_to_string(base.path().join("copy")).unwrap(),
            "content"
        );
    }

    #[test]
    fn a_copy_is_the_same_and_apart() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("from/a/b")).unwrap();
        fs::create_dir(at("to")).unwrap();
        fs::write(at("from/a/b/file"), "content").unwrap();
        fs::write(at("from/tool"), "#!").unwrap();
        fs::set_permissions(at("from/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("/etc/passwd", at("from/a/link")).unwrap();
        mkfifo(&at("from/pipe"), Mode::S_IRWXU).unwrap();
        fs::set_permissions(at("from/a"), fs::Permissions::from_mode(0o555)).unwrap();

        let (from, to) = (open(&at("from")), open(&at("to")));
        let copied = copy(tree(&from), &to, &caps(), own()).unwrap();
        // Five entries, and the contents of two of them.
        assert_eq!(copied.bytes, (5 + 2) * BLOCK);
        assert_eq!(
            copied.left_out,
            [("pipe".into(), "it is a named pipe".to_owned())]
        );
        assert_eq!(fs::read_to_string(at("to/a/b/file")).unwrap(), "content");
        assert_eq!(
            fs::read_link(at("to/a/link")).unwrap(),
            Path::new("/etc/passwd")
        );
        let mode = |name| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("to/tool"), mode("to/a")), (0o755, 0o555));
        let before = content(tree(&from), &caps()).unwrap();
        assert_eq!(changes(tree(&to), &before, &caps()).unwrap(), []);

        fs::write(at("to/tool"), "changed").unwrap();
        fs::remove_file(at("to/a/b/file")).unwrap();
        fs::write(at("to/new"), "").unwrap();
        let changed: Vec<String> = changes(tree(&to), &before, &caps())
            .unwrap()
            .iter()
            .map(|change| format!("{} {:?}", change.path, change.change))
            .collect();
        assert_eq!(
            changed,
            ["a/b/file Deleted", "new Created", "tool Modified"]
        );
        assert_eq!(fs::read_to_string(at("from/tool")).unwrap(), "#!");

        clear(&to, own()).unwrap();
        assert_eq!(fs::read_dir(at("to")).unwrap().count(), 0);
        assert!(!fs::read_to_string("/etc/passwd").unwrap().is_empty());
    }

    #[test]
    fn only_what_differs_is_renewed() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for top in ["from", "to"] {
            fs::create_dir_all(at(top).join("a")).unwrap();
            fs::write(at(top).join("a/same"), "same").unwrap();
            fs::write(at(top).join("a/other"), top).unwrap();
            symlink(top, at(top).join("link-of-".to_owned() + top)).unwrap();
        }
        fs::create_dir_all(at("from/new/deep")).unwrap();
        fs::write(at("from/new/deep/file"), "new").unwrap();
        fs::set_permissions(at("from/new"), fs::Permissions::from_mode(0o555)).unwrap();
        fs::create_dir_all(at("to/gone/deep")).unwrap();
        fs::write(at("to/gone/deep/file"), "gone").unwrap();
        let link = |text: &str, path: &str| symlink(text, at(path)).unwrap();
        link("text", "from/a/same-link");
        link("text", "to/a/same-link");
        link("text", "from/a/other-link");
        link("other text", "to/a/other-link");
        link("a", "from/a/link-of-directory");
        fs::create_dir_all(at("to/a/link-of-directory/deep")).unwrap();
        fs::create_dir_all(at("from/a/directory-of-link/deep")).unwrap();
        link("/", "to/a/directory-of-link");
        link("a", "from/a/link-of-file");
        fs::write(at("to/a/link-of-file"), "").unwrap();
        fs::write(at("from/a/file-of-directory"), "file").unwrap();
        fs::create_dir(at("to/a/file-of-directory")).unwrap();
        let inode = |path| fs::symlink_metadata(at(path)).unwrap().ino();
        let of_link = inode("to/a/same-link");

        let mut same = File::open(at("to/a/same")).unwrap();
        let (from, to) = (open(&at("from")), open(&at("to")));
        renew(tree(&from), &to, &caps(), own()).unwrap();
        let read = |name| fs::read_to_string(at(name)).unwrap();
        assert_eq!(
            (read("to/a/other"), read("to/new/deep/file")),
            ("from".into(), "new".into())
        );
        let mut names: Vec<_> = fs::read_dir(at("to"))
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "link-of-from", "new"]);
        let text = |top: &str, path: &str| fs::read_link(at(top).join("a").join(path)).unwrap();
        for path in ["other-link", "link-of-directory", "link-of-file"] {
            assert_eq!(text("to", path), text("from", path));
        }
        assert!(at("to/a/directory-of-link/deep").is_dir());
        assert!(!at("to/a/directory-of-link").is_symlink());
        assert_eq!(read("to/a/file-of-directory"), "file");
        assert_eq!(inode("to/a/same-link"), of_link);
        assert_eq!(
            fs::metadata(at("to/new")).unwrap().permissions().mode() & 0o777,
            0o555
        );
        // The file that was open is still the one with this name.
        fs::write(at("to/a/same"), "written").unwrap();
        assert_eq!(io::read_to_string(&mut same).unwrap(), "written");
        fs::set_permissions(at("from/new"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(at("to/new"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_copy_is_no_larger_than_the_original_can_be() {
        let base = tempfile::tempdir().unwrap();
        let (from, to) = (base.path().join("from"), base.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        let sparse = File::create(from.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let error = copy(tree(&open(&from)), &open(&to), &caps(), own()).unwrap_err();
        assert_eq!(error.message, "the workspace is too large to copy");
    }
}
