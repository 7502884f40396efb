//! Init's tie to the supervisor: neither outlives what the other needs.

use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use super::attempt;
use super::fail::{Call, Fail, Verb};
use super::report::Reporter;
use record::error::Step;

/// Asks the kernel to kill this process when the supervisor dies. A change of
/// credentials forgets the request (prctl(2)), so it is made again after one;
/// a supervisor that died before is seen as end of file by
/// [`wait_for_id_maps`], or its socket as hung up here.
pub(super) fn die_with_supervisor(report: &Reporter<'_>) -> Result<(), Fail> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    report.enter(Step::Tether);
    attempt(Verb::new(Step::Tether, Call::Prctl), || {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
    })?;
    let mut socket = [PollFd::new(report.socket(), PollFlags::empty())];
    let gone = poll(&mut socket, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    if gone {
        Err(Verb::new(Step::Tether, Call::Recv).failed(Errno::EPIPE))
    } else {
        Ok(())
    }
}

/// Waits until the supervisor has written the id maps.
pub(super) fn wait_for_id_maps(report: &Reporter<'_>) -> Result<(), Fail> {
    report.enter(Step::IdMap);
    let verb = Verb::new(Step::IdMap, Call::Recv);
    let mut go = [0; 1];
    loop {
        match recv(report.socket().as_raw_fd(), &mut go, MsgFlags::empty()) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(verb.failed(Errno::EPIPE)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(verb.failed(errno)),
        }
    }
}
