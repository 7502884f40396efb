//! What error numbers say, for the code's author.

use nix::errno::Errno;

/// What an error number says about a file; Node has them below zero.
pub(super) fn of_a_file(errno: Option<i32>) -> &'static str {
    match errno.map(|number| Errno::from_raw(number.saturating_abs())) {
        Some(Errno::EEXIST) => {
            "there is a file of that name already; choose another name, or remove it first"
        }
        Some(Errno::ENOTEMPTY) => "the directory is not empty; remove what is in it first",
        Some(Errno::EXDEV) => {
            "a file cannot be renamed or linked into another file system; copy it, and remove the original"
        }
        Some(Errno::ENAMETOOLONG) => {
            "the name is too long; one name has at most 255 bytes, and a path 4095"
        }
        Some(Errno::ELOOP) => "too many symbolic links follow each other; one leads to itself",
        Some(Errno::EBUSY) => {
            "the file or directory is in use, as a place where something is mounted is; use another"
        }
        Some(Errno::EISDIR) => "it is a directory, and not a file",
        Some(Errno::ENOTDIR) => "a part of the path is a file, and not a directory",
        Some(Errno::EBADF) => "the descriptor is not open, or not for that",
        _ => {
            "a file is missing or not of the right kind; relative paths start in the working directory, and only files that were passed in exist"
        }
    }
}
