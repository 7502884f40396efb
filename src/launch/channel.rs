//! The channel between a driver and the supervisor, in either form.

use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::pipe2;

use super::set_nonblocking;
use crate::error::{Result, SetupError, Step};
use crate::plan::ChannelForm;

/// The supervisor's end, non-blocking. A socket is both.
#[derive(Debug)]
pub struct ChannelEnd {
    /// Frames come from here.
    pub from: OwnedFd,
    /// Requests go there.
    pub to: OwnedFd,
}

/// Both ends; the program's is the descriptors that it gets, in their order.
pub(super) fn open(form: ChannelForm) -> Result<(ChannelEnd, Vec<OwnedFd>)> {
    match form {
        ChannelForm::Socket => socket(),
        ChannelForm::Pipes => pipes(),
    }
}

fn failed(call: &'static str) -> impl Fn(nix::Error) -> SetupError {
    move |errno| SetupError::os(Step::Clone, call, errno)
}

fn socket() -> Result<(ChannelEnd, Vec<OwnedFd>)> {
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(failed("socketpair"))?;
    set_nonblocking(&ours)?;
    let to = ours
        .try_clone()
        .map_err(|e| SetupError::io(Step::Clone, "fcntl", &e))?;
    Ok((ChannelEnd { from: ours, to }, vec![theirs]))
}

fn pipes() -> Result<(ChannelEnd, Vec<OwnedFd>)> {
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"));
    let (requests, to) = pipe()?;
    let (from, frames) = pipe()?;
    for ours in [&from, &to] {
        set_nonblocking(ours)?;
    }
    // The program opens them by name, which asks for permissions, and it may run
    // as another user than this process. Only who holds a pipe has such a name.
    for theirs in [&requests, &frames] {
        fchmod(theirs, Mode::from_bits_truncate(0o666)).map_err(failed("fchmod"))?;
    }
    Ok((ChannelEnd { from, to }, vec![requests, frames]))
}
