//! The broker of a cell: a process of its own that carries connections to allowed hosts.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use broker::{Config, Identity, Sockets, send_secret};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::pipe2;

use super::authority::Signed;
use super::process::fork_with;
use super::{secrets, set_nonblocking, wait_for};
use plan::Ids;
use record::error::{Result, SetupError, Step};
use spec::SecretHeader;
use sys::process::{pidfd_open, pidfd_send_signal};

/// How long a broker that was killed may take to be gone.
const END_DEADLINE: Duration = Duration::from_secs(2);

/// A broker. Dropping it kills it, and its connections end.
#[derive(Debug)]
pub struct BrokerProcess {
    pidfd: OwnedFd,
    /// Closing it tells the broker to end; `None` once closed.
    control: Option<OwnedFd>,
    /// Where its reports come from, non-blocking.
    reports: OwnedFd,
}

impl BrokerProcess {
    /// Forks a broker that waits for its configuration. It has no descriptor but these
    /// sockets, the control socket, the pipe for reports and standard error, and neither
    /// the caller's environment nor, where root started cellblock, its ids.
    ///
    /// # Errors
    /// This process has several threads, or a system call fails.
    pub fn start(sockets: Sockets, ids: &Ids) -> Result<Self> {
        let failed = |call: &'static str| move |errno| SetupError::os(Step::Egress, call, errno);
        let flags = SockFlag::SOCK_CLOEXEC;
        let (control, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)
            .map_err(failed("socketpair"))?;
        let (reports, to) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
        set_nonblocking(&reports)?;
        let identity = ids.privileged.then_some(Identity {
            uid: ids.outer_uid,
            gid: ids.outer_gid,
        });
        let kept: Vec<_> = (sockets.tcp.iter().map(|(_, socket)| socket))
            .chain(&sockets.dns_udp)
            .chain(&sockets.dns_tcp)
            .chain(&sockets.proxy)
            .chain(&sockets.socks)
            .chain([&to])
            // SAFETY: the closure below owns them, and is dropped or called after
            // `fork_with` has used these.
            .map(|fd| unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) })
            .collect();
        let pid = fork_with(theirs, &kept, move |control| {
            // SAFETY: this process has one thread, and nothing here reads a variable
            // that it still holds.
            unsafe { sys::environment::wipe() };
            broker::serve(sockets, control, to, identity)
        })?;
        let pidfd = pidfd_open(pid).map_err(|errno| {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
            failed("pidfd_open")(errno)
        })?;
        Ok(Self {
            pidfd,
            control: Some(control),
            reports,
        })
    }

    /// Sends it what it decides by, once.
    ///
    /// # Errors
    /// It has ended, or does not read.
    pub fn configure(
        &self,
        config: &Config,
        secrets: &[SecretHeader],
        signed: Option<&Signed>,
    ) -> Result<()> {
        let failed = |e| SetupError::io(Step::Egress, "write", &e).on("the broker's socket");
        let Some(control) = &self.control else {
            return Err(failed(Errno::EPIPE.into()));
        };
        // One write, which the socket's buffer takes as a whole: the number of rules is
        // bounded.
        set_nonblocking(control)?;
        let socket = control.try_clone().map_err(failed)?;
        let socket = File::from(socket);
        config.send_open(&socket).map_err(failed)?;
        for secret in secrets {
            let on = |e: io::Error| failed(e).on(format!("the source {}", secret.source));
            secrets::send(&socket, &secret.source).map_err(on)?;
        }
        match signed {
            Some(signed) => {
                let key = signed.key().map_err(failed)?;
                send_secret(&socket, &key).map_err(failed)
            }
            None => Ok(()),
        }
    }

    /// Asks for a mark, which comes after the reports of all that has happened by now.
    /// Returns whether it will come, unless the broker ends.
    pub fn ask_mark(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let asked = |control: &OwnedFd| send(control.as_raw_fd(), &[0], flags).is_ok();
        self.control.as_ref().is_some_and(asked)
    }

    /// Tells it to send its last report and end.
    pub fn finish(&mut self) {
        self.control = None;
    }
}

/// Readable when there are reports, or when it has ended.
impl AsFd for BrokerProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        // It can only be gone already.
        let _ = pidfd_send_signal(self.pidfd.as_fd(), Signal::SIGKILL);
        let _ = wait_for(self.pidfd.as_fd(), Instant::now() + END_DEADLINE);
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let _ = waitid(Id::PIDFd(self.pidfd.as_fd()), flags);
    }
}
