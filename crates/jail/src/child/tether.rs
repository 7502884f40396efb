//! Init does not outlive its supervisor.

use nix::errno::Errno;
use nix::sys::socket::MsgFlags;

use super::command::{Command, Received};
use super::fail::{At, Call, Fail};
use super::report::Reporter;
use plan::{Namespace, Plan};
use record::error::Step;

/// Asks the kernel to kill this process when the supervisor dies. A change of
/// credentials forgets the request (prctl(2)), so it is made again after one;
/// a supervisor that died before it shows as a hang-up of the socket, here or in
/// [`wait_for_id_maps`].
pub(super) fn die_with_supervisor(report: &Reporter<'_>) -> Result<(), Fail> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let site = report.enter(Step::Tether);
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).at(site, Call::Prctl)?;
    let mut socket = [PollFd::new(report.socket(), PollFlags::empty())];
    let gone = poll(&mut socket, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    if gone {
        Err(site.failed(Call::Recv, Errno::EPIPE))
    } else {
        Ok(())
    }
}

/// Waits until the supervisor has written the id maps.
pub(super) fn wait_for_id_maps(plan: &Plan, report: &Reporter<'_>) -> Result<(), Fail> {
    if !plan.has(Namespace::User) {
        return Ok(());
    }
    let site = report.enter(Step::IdMap);
    loop {
        match Received::next(report.socket(), MsgFlags::empty()) {
            Ok(Some(Received::Command(Command::Go))) => return Ok(()),
            Ok(_) => return Err(site.failed(Call::Recv, Errno::EPIPE)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(site.failed(Call::Recv, errno)),
        }
    }
}
