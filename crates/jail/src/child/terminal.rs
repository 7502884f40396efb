//! A terminal of the cell's own: a pseudo-terminal of the cell's devpts, so its name refers to
//! nothing else, inside or outside. Only the supervisor gets the master; no process of the cell
//! ever has it.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::fail::{At, Call, Fail};
use super::program::RESERVED;
use super::report::Reporter;
use record::error::Step;
use sys::terminal::{Settings, Size, open_peer};

/// The initial state of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalSetup {
    /// The settings of the caller's terminal; `None` keeps those of a new one.
    pub(crate) settings: Option<Settings>,
    pub(crate) size: Size,
}

/// Both sides of the cell's terminal.
pub(super) struct Terminal {
    /// The supervisor's side.
    pub(super) master: OwnedFd,
    /// The program's side.
    pub(super) line: OwnedFd,
}

impl Terminal {
    /// Makes a pseudo-terminal in the cell's devpts.
    ///
    /// # Errors
    /// The devpts has no pseudo-terminal left, or the kernel refuses.
    pub(super) fn open(setup: &TerminalSetup, report: &Reporter<'_>) -> Result<Self, Fail> {
        let site = report.enter(Step::Stdio);
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let master = open("/dev/pts/ptmx", flags, Mode::empty()).at(site, Call::Open)?;
        let line = open_peer(master.as_fd()).at(site, Call::Ioctl)?;
        let set = (setup.settings).map_or(Ok(()), |settings| settings.apply(line.as_fd()));
        set.and_then(|()| setup.size.apply(line.as_fd()))
            .at(site, Call::Ioctl)?;
        // Above the numbers that are replaced for a program: init shares the table.
        let above = |fd: OwnedFd| sys::process::duplicate_above(&fd, RESERVED).at(site, Call::Dup);
        Ok(Self {
            master: above(master)?,
            line: above(line)?,
        })
    }
}
