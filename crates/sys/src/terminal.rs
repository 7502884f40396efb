//! Terminals: their settings and sizes, and new pseudo-terminals (ioctl_tty(2)).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;

/// A terminal's settings (termios(3)).
#[derive(Clone, Copy, Debug)]
pub struct Settings(libc::termios);

/// A terminal's size, in characters and in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Size(libc::winsize);

impl Settings {
    /// The settings of `terminal`.
    ///
    /// # Errors
    /// The error number of tcgetattr(3): ENOTTY for anything but a terminal.
    pub fn of(terminal: BorrowedFd<'_>) -> Result<Self, Errno> {
        // SAFETY: a struct of numbers, for which zeros are values.
        let mut settings = unsafe { std::mem::zeroed() };
        // SAFETY: `settings` is a termios, which the call fills.
        Errno::result(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) })?;
        Ok(Self(settings))
    }

    /// The same settings in raw mode: every byte passes unchanged (cfmakeraw(3)).
    pub fn raw(mut self) -> Self {
        // SAFETY: this is a termios, which the call changes.
        unsafe { libc::cfmakeraw(&raw mut self.0) };
        self
    }

    /// Applies them to `terminal` at once.
    ///
    /// # Errors
    /// The error number of tcsetattr(3).
    pub fn apply(&self, terminal: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: this is a termios, which the call reads.
        let set =
            unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &raw const self.0) };
        Errno::result(set).map(drop)
    }
}

impl Size {
    /// A size of this number of lines, and of characters in each.
    pub const fn new(rows: u16, columns: u16) -> Self {
        Self(libc::winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        })
    }

    /// Its lines.
    pub const fn rows(&self) -> u16 {
        self.0.ws_row
    }

    /// The characters of a line.
    pub const fn columns(&self) -> u16 {
        self.0.ws_col
    }

    /// The size of `terminal`.
    ///
    /// # Errors
    /// The error number of ioctl(2).
    pub fn of(terminal: BorrowedFd<'_>) -> Result<Self, Errno> {
        // SAFETY: a struct of numbers, for which zeros are values.
        let mut size = unsafe { std::mem::zeroed() };
        let fd = terminal.as_raw_fd();
        // SAFETY: `size` is a winsize, which the call fills.
        Errno::result(unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) })?;
        Ok(Self(size))
    }

    /// Applies it to `terminal`, whose foreground processes get SIGWINCH if it has changed.
    ///
    /// # Errors
    /// The error number of ioctl(2).
    pub fn apply(&self, terminal: BorrowedFd<'_>) -> Result<(), Errno> {
        let fd = terminal.as_raw_fd();
        // SAFETY: this is a winsize, which the call reads.
        Errno::result(unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, &raw const self.0) }).map(drop)
    }
}

/// Opens the other side of a new pseudo-terminal by its `master` and not by a name
/// (TIOCGPTPEER). It does not become a controlling terminal.
///
/// # Errors
/// The error number of ioctl(2).
pub fn open_peer(master: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let unlock: libc::c_int = 0;
    let fd = master.as_raw_fd();
    // SAFETY: `unlock` is an int, which the call reads.
    Errno::result(unsafe { libc::ioctl(fd, libc::TIOCSPTLCK, &raw const unlock) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: no pointers.
    let peer = Errno::result(unsafe { libc::ioctl(fd, libc::TIOCGPTPEER, flags) })?;
    // SAFETY: the kernel has just made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(peer) })
}

/// Makes `terminal` the controlling terminal of this process, which leads a session
/// that has none (TIOCSCTTY).
///
/// # Errors
/// The error number of ioctl(2).
pub fn control(terminal: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }).map(drop)
}

/// The process group in the foreground of `terminal`, which is this process's
/// controlling terminal.
///
/// # Errors
/// The error number of tcgetpgrp(3): ENOTTY for another terminal.
pub fn foreground(terminal: BorrowedFd<'_>) -> Result<Pid, Errno> {
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) }).map(Pid::from_raw)
}
