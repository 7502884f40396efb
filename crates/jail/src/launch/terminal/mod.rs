//! The caller's terminal, which shows the cell's terminal.
//!
//! A process of its own, the *relay*, carries bytes between the two. It may wait for the caller's
//! terminal, which the supervisor must not do, and it restores that terminal's settings if the
//! supervisor is killed.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{getpgrp, write};

use super::process::fork_with;
use super::wait_for;
use crate::child::TerminalSetup;
use record::error::{Result, SetupError, Step};
use sys::process::{duplicate_above, pidfd_open, pidfd_send_signal, standard_streams};
use sys::terminal::{Settings, Size, foreground};

mod relay;

/// How long the relay may take for the program's last output.
pub const RELAY_DEADLINE: Duration = Duration::from_secs(2);

/// The terminal that is the caller's standard input.
#[derive(Debug)]
pub struct CallerTerminal {
    fd: OwnedFd,
    /// Its settings, which are restored at the end.
    before: Settings,
}

impl CallerTerminal {
    /// Takes standard input, which must be a terminal, and changes nothing.
    ///
    /// # Errors
    /// Standard input is not a terminal, or is not open for reading and writing.
    pub fn of_stdin() -> Result<Self> {
        let refused = |message: &str| {
            SetupError::new(Step::Spec, message)
                .on("--tty")
                .hint("start cellblock from a terminal, or leave --tty out: streams are passed through without it")
        };
        let failed = |call, errno| SetupError::os(Step::Stdio, call, errno).on("standard input");
        let [stdin, ..] = standard_streams();
        let before = match Settings::of(stdin) {
            Ok(settings) => settings,
            Err(Errno::ENOTTY | Errno::EBADF) => {
                return Err(refused("standard input is not a terminal"));
            }
            Err(errno) => return Err(failed("tcgetattr", errno)),
        };
        let flags = fcntl(stdin, FcntlArg::F_GETFL).map_err(|errno| failed("fcntl", errno))?;
        if OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE != OFlag::O_RDWR {
            let message = "standard input is a terminal that cannot be both read and written";
            return Err(refused(message));
        }
        let fd = duplicate_above(stdin, 3).map_err(|errno| failed("fcntl", errno))?;
        Ok(Self { fd, before })
    }

    /// The initial state for a terminal that resembles this one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn setup(&self) -> Result<TerminalSetup> {
        let size = Size::of(self.fd.as_fd())
            .map_err(|errno| SetupError::os(Step::Stdio, "ioctl", errno).on("standard input"))?;
        Ok(TerminalSetup {
            settings: Some(self.before),
            size,
        })
    }

    /// Restores the terminal's settings, unless a shell has given the terminal to another job: then
    /// the settings are that job's.
    fn restore(&self) {
        let in_front = foreground(self.fd.as_fd());
        if in_front.is_ok_and(|group| group != getpgrp()) {
            return;
        }
        // A terminal that is gone needs no settings.
        let _ = self.before.apply(self.fd.as_fd());
    }
}

/// A terminal of the caller's, and where a copy of all that it shows goes.
#[derive(Debug)]
pub struct Display {
    pub(super) terminal: CallerTerminal,
    pub(super) copy: OwnedFd,
}

impl Display {
    /// Makes the caller's terminal show the cell's, which has this `master`.
    ///
    /// # Errors
    /// The system refuses; then the caller's terminal is unchanged.
    pub fn show(self, master: OwnedFd) -> Result<Relay> {
        let failed = |call, errno| SetupError::os(Step::Supervise, call, errno).on("--tty");
        let Self { terminal, copy } = self;
        let (socket, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .map_err(|errno| failed("socketpair", errno))?;
        let kept = [terminal.fd.as_fd(), master.as_fd(), copy.as_fd()];
        let forked = fork_with(theirs, &kept, |socket| {
            relay::run(&relay::Ends {
                supervisor: socket.as_fd(),
                terminal: terminal.fd.as_fd(),
                master: master.as_fd(),
                copy: copy.as_fd(),
            });
            terminal.restore();
            0
        });
        let pidfd = pidfd_open(forked?).map_err(|errno| failed("pidfd_open", errno))?;
        let relay = Relay {
            pidfd,
            socket,
            terminal,
        };
        // Not before: the relay undoes it if this process is killed.
        let raw = relay.terminal.before.raw();
        raw.apply(relay.terminal.fd.as_fd())
            .map_err(|errno| failed("tcsetattr", errno))?;
        // If the relay has been killed meanwhile, its end hangs up the cell's terminal.
        let _ = write(&relay.socket, &[relay::BEGIN]);
        Ok(relay)
    }
}

/// The process between the two terminals. Dropping this ends it, and restores the settings of the
/// caller's terminal.
#[derive(Debug)]
pub struct Relay {
    pidfd: OwnedFd,
    /// The relay sees the supervisor's end when this is closed.
    socket: OwnedFd,
    terminal: CallerTerminal,
}

impl Relay {
    fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It may be waiting for a terminal whose output is stopped.
        if !wait_for(self.pidfd(), Instant::now()) {
            let _ = pidfd_send_signal(self.pidfd(), Signal::SIGKILL);
        }
        let _ = waitid(Id::PIDFd(self.pidfd()), WaitPidFlag::WEXITED);
        self.terminal.restore();
    }
}
