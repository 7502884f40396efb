//! The loop between a client of MCP on two descriptors and the server on a socket.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use wire::{LONGEST_ANSWER, LONGEST_LINE, Lines, Outbox};

use super::door::{Door, Line};
use super::instructions::About;

/// Read at once.
const PIECE: usize = 64 << 10;

/// Speaks MCP with the client on `input` and `output` until either side ends. Then the
/// server sees the end of `server`, and ends everything that the client had.
pub fn speak(about: About, input: OwnedFd, output: OwnedFd, server: UnixStream) {
    let mut speaker = Speaker {
        door: Door::new(about),
        input: File::from(input),
        output: File::from(output),
        from_client: Lines::new(LONGEST_LINE),
        from_server: Lines::new(LONGEST_ANSWER),
        to_server: Outbox::new(Instant::now()),
        server,
    };
    while speaker.turn().is_some() {}
}

struct Speaker {
    door: Door,
    input: File,
    output: File,
    from_client: Lines,
    from_server: Lines,
    to_server: Outbox,
    server: UnixStream,
}

impl Speaker {
    /// Waits for something to read, and passes on what it leads to. `None` at the end.
    fn turn(&mut self) -> Option<()> {
        let mut wanted = PollFlags::POLLIN;
        if self.to_server.len() > 0 {
            wanted |= PollFlags::POLLOUT;
        }
        let mut fds = [
            PollFd::new(self.input.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.server.as_fd(), wanted),
            // For its end alone.
            PollFd::new(self.output.as_fd(), PollFlags::empty()),
        ];
        let left = self
            .door
            .next_tick()
            .map(|next| next.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
        let [client, server, output] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if output.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL) {
            return None;
        }
        let readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        if server.intersects(readable) {
            self.read_server()?;
        }
        if client.intersects(readable) {
            self.read_client()?;
        }
        self.door.tick(Instant::now());
        self.write()
    }

    fn read_client(&mut self) -> Option<()> {
        read(&mut self.input, &mut self.from_client)?;
        while let Some(line) = self.from_client.next_line().ok()? {
            if !line.trim_ascii().is_empty() {
                self.door.take_from_client(&line, Instant::now());
            }
        }
        Some(())
    }

    fn read_server(&mut self) -> Option<()> {
        read(&mut self.server, &mut self.from_server)?;
        while let Some(line) = self.from_server.next_line().ok()? {
            self.door.take_from_server(&line, Instant::now());
        }
        Some(())
    }

    /// Writes what there is. The server must be able to write while it is not reading, so
    /// only the client is waited for.
    fn write(&mut self) -> Option<()> {
        let now = Instant::now();
        while let Some(line) = self.door.next_line() {
            match line {
                Line::Server(line) => self.to_server.push_line(&line, now),
                Line::Client(mut line) => {
                    line.push('\n');
                    self.output.write_all(line.as_bytes()).ok()?;
                }
            }
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let raw = std::os::fd::AsRawFd::as_raw_fd(&self.server);
        let sent = self.to_server.flush(now, |bytes| send(raw, bytes, flags));
        sent.ok()
    }
}

/// Reads a piece. `None` at the end.
fn read(from: &mut impl std::io::Read, lines: &mut Lines) -> Option<()> {
    let mut piece = [0; PIECE];
    match from.read(&mut piece) {
        Ok(0) => None,
        Ok(count) => {
            lines.push(&piece[..count]);
            Some(())
        }
        Err(error) => match error.kind() {
            std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock => Some(()),
            _ => None,
        },
    }
}
