//! Copies of this process that go on in this crate: a server's spawner and its
//! supervisors.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    CmsgIterator, ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg,
};
use nix::unistd::{ForkResult, Pid, fork};

use super::require_one_thread;
use record::error::{Result, SetupError, Step};
use sys::process;

/// Forks a process that calls `life` with `socket`, and ends when that returns. It
/// has no other descriptor but standard error and `kept`: what else is open here belongs
/// to others, and `life` must own none of it.
///
/// # Errors
/// This process has several threads, or fork(2) fails.
pub fn fork_with(
    socket: OwnedFd,
    kept: &[BorrowedFd<'_>],
    life: impl FnOnce(OwnedFd) -> i32,
) -> Result<Pid> {
    require_one_thread()?;
    // SAFETY: this process has one thread, as just checked, so no lock is held.
    match unsafe { fork() } {
        Err(errno) => Err(SetupError::os(Step::Clone, "fork", errno)),
        Ok(ForkResult::Parent { child }) => Ok(child),
        Ok(ForkResult::Child) => {
            let status = match leave_all_but(&socket, kept) {
                Ok(()) => life(socket),
                Err(_) => 1,
            };
            // No owner of a descriptor that was closed is dropped.
            process::exit_now(status)
        }
    }
}

/// Closes what the parent has open. Standard input and output may carry the
/// parent's own protocol, and their peers must see its end with the parent's.
fn leave_all_but(socket: &OwnedFd, kept: &[BorrowedFd<'_>]) -> nix::Result<()> {
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|_| Errno::ENOENT)?
        .into();
    for number in [0, 1] {
        process::place(&null, number)?;
    }
    let keep: Vec<_> = kept.iter().copied().chain([socket.as_fd()]).collect();
    // SAFETY: the copy goes on with these alone and ends by `_exit`, so that no owner of
    // the other descriptors is used or dropped, `null` included.
    unsafe { process::close_from(3, &keep) }?;
    std::mem::forget(null);
    Ok(())
}

/// Sends a copy of `fd` and what it is for over a Unix socket.
///
/// # Errors
/// The error number of sendmsg(2).
pub fn send_descriptor(socket: BorrowedFd<'_>, purpose: u8, fd: BorrowedFd<'_>) -> nix::Result<()> {
    let rights = [fd.as_raw_fd()];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(&[purpose])],
        &[ControlMessage::ScmRights(&rights)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map(drop)
}

/// Receives bytes without waiting. Descriptors that come with them are added to `fds`.
///
/// # Errors
/// The error number of recvmsg(2).
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut impl Extend<OwnedFd>,
) -> nix::Result<usize> {
    let mut space = nix::cmsg_space!(libc::c_int);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    fds.extend(owned(received.cmsgs()?));
    Ok(received.bytes)
}

fn owned(messages: CmsgIterator<'_>) -> Vec<OwnedFd> {
    let rights = messages.filter_map(|message| match message {
        ControlMessageOwned::ScmRights(raw) => Some(raw),
        _ => None,
    });
    // SAFETY: the kernel has just made these descriptors for us.
    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    rights.flatten().map(own).collect()
}

/// The next descriptor that comes over a Unix socket, and what it is for; `None` at its
/// end.
///
/// # Errors
/// The error number of recvmsg(2), or EBADMSG for anything but one descriptor.
pub fn receive_descriptor(socket: BorrowedFd<'_>) -> nix::Result<Option<(u8, OwnedFd)>> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!(libc::c_int);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let length = received.bytes;
    let mut fds = owned(received.cmsgs()?);
    match (length, fds.pop(), fds.is_empty()) {
        (0, None, _) => Ok(None),
        (1, Some(fd), true) => Ok(Some((byte[0], fd))),
        _ => Err(Errno::EBADMSG),
    }
}
