//! The channel between a driver and the supervisor: a pair of pipes.
//!
//! Pipes and no socket, because a socket carries descriptors (SCM_RIGHTS), which
//! their receiver has to close: closing a socket with SO_LINGER and unsent data
//! sleeps for as long as its sender chose.

use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;

use super::set_nonblocking;
use super::stdio::open_by_name;
use record::error::{Result, SetupError, Step};

/// The supervisor's end, non-blocking.
#[derive(Debug)]
pub struct ChannelEnd {
    /// Frames come from here; `None` once a driver that waits is to end by itself.
    pub from: Option<OwnedFd>,
    /// Requests go there; `None` once the driver is to see their end.
    pub to: Option<OwnedFd>,
}

/// A template's: a socket, since a request for a copy carries descriptors. What reads
/// from it is trusted, and never runs a caller's code.
pub(super) fn open_control() -> Result<(OwnedFd, Vec<OwnedFd>)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
        .map_err(|errno| SetupError::os(Step::Clone, "socketpair", errno))?;
    Ok((ours, vec![theirs]))
}

/// Both ends; the program's is the descriptors that it gets, in their order.
pub(super) fn open() -> Result<(ChannelEnd, Vec<OwnedFd>)> {
    let failed = |call| move |errno| SetupError::os(Step::Clone, call, errno);
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"));
    let (requests, to) = pipe()?;
    let (from, frames) = pipe()?;
    for ours in [&from, &to] {
        set_nonblocking(ours)?;
    }
    for theirs in [&requests, &frames] {
        open_by_name(theirs)?;
    }
    let end = ChannelEnd {
        from: Some(from),
        to: Some(to),
    };
    Ok((end, vec![requests, frames]))
}
