//! Descriptors of a process.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::Pid;

/// Marks the descriptors `first..=last` close-on-exec (close_range(2),
/// Linux 5.11).
///
/// # Errors
/// The call's error number.
pub fn cloexec_range(first: RawFd, last: u32) -> Result<(), Errno> {
    let flags = libc::CLOSE_RANGE_CLOEXEC as usize;
    let args = [first as usize, last as usize, flags];
    // SAFETY: no pointers; marking a descriptor invalidates nothing.
    unsafe { crate::syscall(libc::SYS_close_range, args) }.map(drop)
}

/// Closes every descriptor of this process but `keep`.
///
/// # Safety
/// No value that owns a descriptor other than `keep` may be used or dropped
/// afterwards.
///
/// # Errors
/// The error number of close_range(2), Linux 5.9.
pub unsafe fn close_all_but(keep: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the caller's promise is the same.
    unsafe { close_from(0, &[keep]) }
}

/// Closes every descriptor from the number `first` on but those in `keep`.
///
/// # Safety
/// No value that owns one of these descriptors other than those in `keep` may be used
/// or dropped afterwards.
///
/// # Errors
/// The error number of close_range(2), Linux 5.9.
pub unsafe fn close_from(first: RawFd, keep: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut first = first as usize;
    let mut keep: Vec<usize> = keep.iter().map(|fd| fd.as_raw_fd() as usize).collect();
    keep.sort_unstable();
    let close = |first: usize, last: usize| {
        // SAFETY: the caller gave up all owners of these descriptors.
        unsafe { crate::syscall(libc::SYS_close_range, [first, last]) }.map(drop)
    };
    for kept in keep {
        if kept > first {
            close(first, kept - 1)?;
        }
        first = first.max(kept + 1);
    }
    close(first, u32::MAX as usize)
}

/// Closes descriptors, those with adjacent numbers by one call (close_range(2), Linux 5.9).
pub fn close_together(mut fds: Vec<OwnedFd>) {
    fds.sort_unstable_by_key(|fd| fd.as_raw_fd());
    let mut runs: Vec<(RawFd, RawFd)> = Vec::new();
    for fd in fds {
        let number = fd.into_raw_fd();
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    for (first, last) in runs {
        let range = [first as usize, last as usize];
        // SAFETY: the numbers of the range are exactly those of descriptors that this function
        // owned and gave up.
        if unsafe { crate::syscall(libc::SYS_close_range, range) }.is_err() {
            // SAFETY: likewise, and the call that failed has closed none.
            (first..=last).for_each(|number| drop(unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
}

/// `SO_PASSRIGHTS` of Linux 6.16, which libc does not have yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Sets whether a Unix socket takes descriptors from now on (unix(7), Linux 6.16).
///
/// # Errors
/// That of setsockopt(2); ENOPROTOOPT before Linux 6.16.
pub fn take_descriptors(socket: BorrowedFd<'_>, takes: bool) -> Result<(), Errno> {
    let takes = libc::c_int::from(takes);
    // SAFETY: `takes` is an int, like the option's value.
    Errno::result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const takes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// How many bytes can be read from a pipe without waiting (FIONREAD).
///
/// # Errors
/// That of ioctl(2).
pub fn readable(pipe: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut count: libc::c_int = 0;
    // SAFETY: the call stores an int, which `count` is.
    Errno::result(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Whether two descriptors of a process are one open file description, so that they share
/// an offset (kcmp(2)).
pub fn share_file(pid: Pid, one: RawFd, other: RawFd) -> bool {
    const KCMP_FILE: usize = 0;
    let pid = pid.as_raw() as usize;
    let args = [pid, pid, KCMP_FILE, one as usize, other as usize];
    // SAFETY: no pointers.
    unsafe { crate::syscall(libc::SYS_kcmp, args) == Ok(0) }
}

/// The standard streams that this process was started with, by number.
pub fn standard_streams() -> [BorrowedFd<'static>; 3] {
    // SAFETY: Rust's start-up opens those that are missing, and cellblock closes
    // none of them.
    [0, 1, 2].map(|number| unsafe { BorrowedFd::borrow_raw(number) })
}

/// Makes `number` a copy of `fd` that stays open over execve(2).
///
/// # Errors
/// The error number of dup2(2) or fcntl(2).
pub fn place(fd: &OwnedFd, number: RawFd) -> Result<(), Errno> {
    if fd.as_raw_fd() == number {
        // dup2 would do nothing, and leave close-on-exec set.
        // SAFETY: no pointers.
        return Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).map(drop);
    }
    // SAFETY: the caller is about to execute another program and gives this
    // number up.
    Errno::result(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(drop)
}

/// A close-on-exec copy of `fd` whose number is `lowest` or higher.
///
/// # Errors
/// The error number of fcntl(2).
pub fn duplicate_above(fd: impl AsFd, lowest: RawFd) -> Result<OwnedFd, Errno> {
    let fd = fd.as_fd().as_raw_fd() as usize;
    // musl's fcntl(3) would set close-on-exec once more.
    let args = [fd, libc::F_DUPFD_CLOEXEC as usize, lowest as usize];
    // SAFETY: no pointers, and the result is a new descriptor.
    unsafe { crate::syscall_fd(libc::SYS_fcntl, args) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, pipe};

    use super::*;

    #[test]
    fn descriptors_are_closed_together_wherever_they_are() {
        let mut pipes: Vec<_> = (0..4).map(|_| pipe().unwrap()).collect();
        let (mut kept, writer) = pipes.remove(1);
        let (mut readers, writers): (Vec<_>, Vec<OwnedFd>) = pipes
            .into_iter()
            .map(|(reader, writer)| (reader, OwnedFd::from(writer)))
            .unzip();
        close_together(writers);
        for reader in &mut readers {
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        }
        close_together(Vec::new());
        std::io::Write::write_all(&mut &writer, b"x").unwrap();
        assert_eq!(kept.read(&mut [0]).unwrap(), 1);
    }
}
