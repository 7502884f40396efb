//! Bytes from the driver's channel.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

use crate::supervise::Channel;
use crate::supervise::turn::Turn;

pub(super) enum ChannelState {
    Open,
    Closed,
    Broken,
}

/// Reads what is there within a turn, while it `goes_on`.
pub(super) fn read_channel(
    fd: &OwnedFd,
    channel: &mut dyn Channel,
    turn: &mut Turn,
    mut goes_on: impl FnMut() -> bool,
) -> ChannelState {
    let mut buffer = [0; 64 * 1024];
    loop {
        match nix::unistd::read(fd, &mut buffer) {
            Ok(0) => return ChannelState::Closed,
            Ok(count) if !channel.receive(&buffer[..count]) => return ChannelState::Broken,
            Ok(count) if !goes_on() || !turn.goes_on(count) => return ChannelState::Open,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return ChannelState::Open,
            Err(_) => return ChannelState::Closed,
        }
    }
}
