//! The mount API of Linux 5.2 and later.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

/// Mount attributes (mount_setattr(2)).
pub mod attr {
    /// Read-only.
    pub const RDONLY: u64 = 0x1;
    /// set-user-ID bits and file capabilities have no effect.
    pub const NOSUID: u64 = 0x2;
    /// Device nodes cannot be opened.
    pub const NODEV: u64 = 0x4;
    /// Nothing can be executed.
    pub const NOEXEC: u64 = 0x8;
}

/// `MOUNT_ATTR_IDMAP`.
const IDMAP: u64 = 0x0010_0000;
const AT_RECURSIVE: usize = 0x8000;
const OPEN_TREE_CLONE: usize = 1;
const MOVE_MOUNT_F_EMPTY_PATH: usize = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: usize = 0x40;
const FSCONFIG_SET_FLAG: usize = 0;
const FSCONFIG_SET_STRING: usize = 1;
const FSCONFIG_CMD_CREATE: usize = 6;

/// The empty path, for calls that take a descriptor instead.
const EMPTY: &CStr = c"";

fn raw(fd: BorrowedFd<'_>) -> usize {
    fd.as_raw_fd() as usize
}

/// A file system being configured (fsopen(2), Linux 5.2).
#[derive(Debug)]
pub struct FsContext(OwnedFd);

impl FsContext {
    /// Starts configuring a file system of type `name`.
    ///
    /// # Errors
    /// The error number of fsopen(2).
    pub fn open(name: &CStr) -> Result<Self, Errno> {
        // SAFETY: `name` is a C string; 1 is FSOPEN_CLOEXEC.
        unsafe { super::syscall_fd(libc::SYS_fsopen, [name.as_ptr() as usize, 1]) }.map(Self)
    }

    fn config(
        &self,
        command: usize,
        key: Option<&CStr>,
        value: Option<&CStr>,
    ) -> Result<(), Errno> {
        let pointer = |s: Option<&CStr>| s.map_or(0, |s| s.as_ptr() as usize);
        let args = [raw(self.0.as_fd()), command, pointer(key), pointer(value)];
        // SAFETY: key and value are C strings or null, as each command wants.
        unsafe { super::syscall(libc::SYS_fsconfig, args) }.map(drop)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The error number of fsconfig(2).
    pub fn set(&self, key: &CStr, value: &CStr) -> Result<(), Errno> {
        self.config(FSCONFIG_SET_STRING, Some(key), Some(value))
    }

    /// Sets a parameter that has no value.
    ///
    /// # Errors
    /// The error number of fsconfig(2).
    pub fn set_flag(&self, key: &CStr) -> Result<(), Errno> {
        self.config(FSCONFIG_SET_FLAG, Some(key), None)
    }

    /// Creates the file system and a detached mount of it with `attributes`.
    ///
    /// # Errors
    /// The error number of fsconfig(2) or fsmount(2).
    pub fn mount(&self, attributes: u64) -> Result<OwnedFd, Errno> {
        self.config(FSCONFIG_CMD_CREATE, None, None)?;
        let fs = raw(self.0.as_fd());
        // SAFETY: no pointers; 1 is FSMOUNT_CLOEXEC.
        unsafe { super::syscall_fd(libc::SYS_fsmount, [fs, 1, attributes as usize]) }
    }
}

impl From<FsContext> for OwnedFd {
    fn from(context: FsContext) -> Self {
        context.0
    }
}

/// open_tree_attr(2), which libc does not have yet; its number is the same on all machines.
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

/// Whether open_tree_attr(2) was found missing.
static NO_OPEN_TREE_ATTR: AtomicBool = AtomicBool::new(false);

/// Whether a filter is around this process.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// Notes that a filter is around this process. One that does not know a call may kill for it, so
/// from here on no call is made that another set of calls can stand for.
pub fn note_filter() {
    FILTERED.store(true, Ordering::Relaxed);
}

/// Whether a filter was noted.
pub fn has_noted_filter() -> bool {
    FILTERED.load(Ordering::Relaxed)
}

/// Which half of [`open_tree`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenTreeError {
    /// open_tree(2)
    Open(Errno),
    /// mount_setattr(2)
    Attributes(Errno),
}

/// [`clone_tree`] and then [`set_attributes`], on the mount and all beneath it: by one call where
/// the kernel has it (open_tree_attr(2), Linux 6.15).
///
/// # Errors
/// Those of the two.
pub fn open_tree(dir: RawFd, path: &CStr, attributes: u64) -> Result<OwnedFd, OpenTreeError> {
    if !has_noted_filter() && !NO_OPEN_TREE_ATTR.load(Ordering::Relaxed) {
        let attr = private(attributes);
        let args = [
            dir as usize,
            path.as_ptr() as usize,
            clone_flags(path),
            &raw const attr as usize,
            size_of::<MountAttr>(),
        ];
        // SAFETY: `path` is a C string, and `attr` a mount_attr of the stated size; both outlive
        // the call.
        match unsafe { super::syscall_fd(SYS_OPEN_TREE_ATTR, args) } {
            Ok(tree) => return Ok(tree),
            Err(Errno::ENOSYS) => NO_OPEN_TREE_ATTR.store(true, Ordering::Relaxed),
            // The two calls say which of them fails.
            Err(_) => {}
        }
    }
    let tree = clone_tree(dir, path).map_err(OpenTreeError::Open)?;
    set_attributes(tree.as_fd(), attributes, true).map_err(OpenTreeError::Attributes)?;
    Ok(tree)
}

/// A detached copy of the mount at `path` below `dir`, with everything mounted
/// beneath it (open_tree(2), Linux 5.2). What was opened counts, whatever the
/// path names later.
///
/// # Errors
/// The error number of open_tree(2).
pub fn clone_tree(dir: RawFd, path: &CStr) -> Result<OwnedFd, Errno> {
    let args = [dir as usize, path.as_ptr() as usize, clone_flags(path)];
    // SAFETY: `path` is a C string.
    unsafe { super::syscall_fd(libc::SYS_open_tree, args) }
}

fn clone_flags(path: &CStr) -> usize {
    let flags = OPEN_TREE_CLONE | AT_RECURSIVE | libc::O_CLOEXEC as usize;
    match path.is_empty() {
        true => flags | libc::AT_EMPTY_PATH as usize,
        false => flags,
    }
}

/// Sets `attributes` on `mount` and, if `recursive`, on all beneath it, and cuts it off from
/// what happens in other namespaces (mount_setattr(2), Linux 5.12).
///
/// # Errors
/// The error number of mount_setattr(2).
pub fn set_attributes(
    mount: BorrowedFd<'_>,
    attributes: u64,
    recursive: bool,
) -> Result<(), Errno> {
    setattr(raw(mount), EMPTY, private(attributes), recursive)
}

/// Sets `attributes` on the detached `mount` and all beneath it, cuts it off likewise, and
/// has it show the ids of files as the user namespace `userns` maps them
/// (mount_setattr(2), Linux 5.12).
///
/// # Errors
/// The error number of mount_setattr(2): EINVAL where a file system does not support
/// it, EPERM without CAP_SYS_ADMIN over the file system.
pub fn set_idmap(
    mount: BorrowedFd<'_>,
    userns: BorrowedFd<'_>,
    attributes: u64,
) -> Result<(), Errno> {
    let attr = MountAttr {
        userns_fd: raw(userns) as u64,
        ..private(attributes | IDMAP)
    };
    setattr(raw(mount), EMPTY, attr, true)
}

/// Cuts every mount of this namespace off from what happens in others.
///
/// # Errors
/// The error number of mount_setattr(2).
pub fn make_all_private() -> Result<(), Errno> {
    setattr(libc::AT_FDCWD as usize, c"/", private(0), true)
}

/// `struct mount_attr`.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// `attributes`, cut off from what happens in other namespaces.
fn private(attributes: u64) -> MountAttr {
    MountAttr {
        set: attributes,
        propagation: libc::MS_PRIVATE,
        ..MountAttr::default()
    }
}

fn setattr(dir: usize, path: &CStr, attr: MountAttr, recursive: bool) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH as usize | if recursive { AT_RECURSIVE } else { 0 };
    let args = [
        dir,
        path.as_ptr() as usize,
        flags,
        &raw const attr as usize,
        size_of::<MountAttr>(),
    ];
    // SAFETY: `attr` is a mount_attr of the stated size and outlives the call.
    unsafe { super::syscall(libc::SYS_mount_setattr, args) }.map(drop)
}

/// Attaches the detached `mount` at the directory or file that `target` is open
/// on (move_mount(2), Linux 5.2).
///
/// # Errors
/// The error number of move_mount(2).
pub fn attach(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    move_mount(mount, target, EMPTY, MOVE_MOUNT_T_EMPTY_PATH)
}

/// Attaches the detached `mount` at `name` in `directory`; a symbolic link there
/// is not followed (move_mount(2), Linux 5.2).
///
/// # Errors
/// The error number of move_mount(2).
pub fn attach_at(
    mount: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &CStr,
) -> Result<(), Errno> {
    move_mount(mount, directory, name, 0)
}

fn move_mount(
    mount: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: usize,
) -> Result<(), Errno> {
    let args = [
        raw(mount),
        EMPTY.as_ptr() as usize,
        raw(directory),
        path.as_ptr() as usize,
        MOVE_MOUNT_F_EMPTY_PATH | flags,
    ];
    // SAFETY: both paths are C strings.
    unsafe { super::syscall(libc::SYS_move_mount, args) }.map(drop)
}

/// Makes the current directory, which must be a mount's root, the root
/// directory, and detaches the old one with everything below it.
///
/// # Errors
/// The error number of pivot_root(2) or umount2(2).
pub fn pivot_to_cwd() -> Result<(), Errno> {
    let here = c".";
    // SAFETY: both paths are C strings. pivot_root(".", ".") stacks the old root
    // on top of the new one (pivot_root(2), NOTES), where umount2 finds it.
    unsafe { super::syscall(libc::SYS_pivot_root, [here.as_ptr() as usize; 2]) }?;
    // SAFETY: the path is a C string.
    Errno::result(unsafe { libc::umount2(here.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Detaches what is mounted at `name` in the current directory (umount2(2)).
///
/// # Errors
/// The error number of umount2(2).
pub fn detach_in_cwd(name: &CStr) -> Result<(), Errno> {
    let flags = libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW;
    // SAFETY: the name is a C string.
    Errno::result(unsafe { libc::umount2(name.as_ptr(), flags) }).map(drop)
}

/// Who owns a mount's root, and its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Type and permissions, as in `st_mode` (inode(7)).
    pub mode: u32,
}

/// The owner of `root` as the kernel last knew it (statx(2), Linux 4.11): a file
/// system that does not answer is not asked.
///
/// # Errors
/// The error number of statx(2).
pub fn known_owner(root: BorrowedFd<'_>) -> Result<Owner, Errno> {
    let mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_UID | libc::STATX_GID;
    let found = known(root, mask)?;
    Ok(Owner {
        uid: found.stx_uid,
        gid: found.stx_gid,
        mode: u32::from(found.stx_mode),
    })
}

/// The number by which proc_pid_mountinfo(5) lists the mount that `file` is on
/// (statx(2), Linux 5.8). The file system is not asked.
///
/// # Errors
/// The error number of statx(2).
pub fn mount_id(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    known(file, libc::STATX_MNT_ID).map(|found| found.stx_mnt_id)
}

fn known(file: BorrowedFd<'_>, mask: u32) -> Result<libc::statx, Errno> {
    // SAFETY: statx is plain data for which all zeroes is valid.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let args = [
        raw(file),
        EMPTY.as_ptr() as usize,
        flags as usize,
        mask as usize,
        &raw mut found as usize,
    ];
    // SAFETY: the path is a C string, and the kernel writes one struct statx to
    // `found`, which lives through the call.
    unsafe { super::syscall(libc::SYS_statx, args) }?;
    Ok(found)
}
