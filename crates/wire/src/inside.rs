//! Clients inside of this process: doors that speak other protocols.
//!
//! A door has threads of its own, and the loop has none. Each client of a door is one end
//! of a pair of sockets, so that it waits, is waited for, and goes as any other client does.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::eventfd::{EfdFlags, EventFd};
use record::error::{Result, SetupError, Step};

use crate::{Budget, Party};

/// Makes clients of the loop.
#[derive(Clone, Debug)]
pub struct Connector {
    sender: Sender<(UnixStream, Party)>,
    wake: Arc<EventFd>,
    budget: Budget,
    unread: Budget,
}

/// Clients that the loop has not accepted yet.
#[derive(Debug)]
pub struct Connections {
    receiver: Receiver<(UnixStream, Party)>,
    wake: Arc<EventFd>,
}

/// Both ends of a way into a loop: `budget` counts the bytes that wait for it, `unread` those that
/// its clients have not read.
///
/// # Errors
/// The kernel refuses an eventfd(2).
pub fn connections(budget: Budget, unread: Budget) -> Result<(Connector, Connections)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = EventFd::from_flags(flags)
        .map_err(|errno| SetupError::os(Step::Inputs, "eventfd2", errno))?;
    let wake = Arc::new(wake);
    let (sender, receiver) = channel();
    let connector = Connector {
        sender,
        wake: Arc::clone(&wake),
        budget,
        unread,
    };
    Ok((connector, Connections { receiver, wake }))
}

impl Connector {
    /// The bytes that wait for this loop.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The bytes that the doors' clients have not read.
    pub fn unread(&self) -> &Budget {
        &self.unread
    }

    /// Has the loop look whether there is room for more.
    pub fn wake(&self) {
        // A counter that is full wakes the loop as well.
        let _ = self.wake.write(1);
    }

    /// A socket to the loop, as a client of this party: see docs/PROTOCOL.md.
    ///
    /// # Errors
    /// There is no descriptor left, or the loop has ended.
    pub fn connect(&self, party: Party) -> std::io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let ended = |_| std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        self.sender.send((theirs, party)).map_err(ended)?;
        self.wake();
        Ok(ours)
    }
}

impl Connections {
    /// The next client.
    pub fn accept(&self) -> Option<(UnixStream, Party)> {
        self.receiver.try_recv().ok()
    }

    /// Waits again until there is a new one.
    pub fn reset(&self) {
        let _ = self.wake.read();
    }
}

impl AsFd for Connections {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
