//! Reading from clients and supervisors.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::unistd::read;
use supervisor::Report;
use wire::{Code, Connections, Failure, Party, TooLong};

use super::Server;
use super::peer::Peer;
use crate::{ClientId, LinkId};

/// The most that is read from one descriptor before others get their turn.
pub(super) const TURN: usize = 64 << 10;
/// The most lines of one client before others get their turn.
const LINES: usize = 64;
/// The most clients that connect before others get their turn.
const CONNECTIONS: usize = 16;
/// How long no client is accepted when there is no descriptor for it.
const BREATH: Duration = Duration::from_millis(100);

impl Server<'_> {
    /// Takes whole lines that have arrived; says whether there are more.
    pub(super) fn take_lines(&mut self, now: Instant) -> bool {
        let mut more = false;
        let ids: Vec<_> = self.peers.keys().copied().collect();
        for id in ids {
            for _ in 0..LINES {
                let Some(peer) = self.peers.get_mut(&id) else {
                    break;
                };
                if peer.closing || peer.is_full() {
                    break;
                }
                let line = peer.lines.next_line();
                peer.note_taken();
                match line {
                    Ok(Some(line)) => self.hub.line(id, &line),
                    Ok(None) => break,
                    Err(TooLong) => self.hub.too_long(id),
                }
                self.act(now);
            }
            let peer = self.peers.get_mut(&id);
            more |=
                peer.is_some_and(|peer| !peer.closing && !peer.is_full() && peer.lines.has_next());
        }
        let ids: Vec<_> = self.links.keys().copied().collect();
        for id in ids {
            more |= self.take_reports(id, now);
        }
        more
    }

    /// Takes whole reports that have arrived, while their client can take more.
    fn take_reports(&mut self, id: LinkId, now: Instant) -> bool {
        for _ in 0..LINES {
            if self.is_paused(id) {
                return false;
            }
            let Some(link) = self.links.get_mut(&id) else {
                return false;
            };
            let report = match link.lines.next_line() {
                Ok(Some(line)) => record::json::from_slice::<Report>(&line).ok(),
                Ok(None) => return false,
                Err(TooLong) => None,
            };
            match report {
                Some(report) => self.hub.report(id, report),
                None => {
                    self.links.remove(&id);
                    self.hub
                        .link_gone(id, "its supervisor sent what is not a report");
                }
            }
            self.act(now);
        }
        true
    }

    pub(super) fn read_peer(&mut self, id: ClientId, found: PollFlags, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let Some(input) = &peer.input else {
            return;
        };
        match read(input, &mut self.room) {
            Ok(0) if found.contains(PollFlags::POLLHUP) && peer.is_socket => self.lose(id, now),
            Ok(0) => {
                peer.input = None;
                while let Some(peer) = self.peers.get_mut(&id)
                    && !peer.closing
                    && let Ok(Some(line)) = peer.lines.next_line()
                {
                    peer.note_taken();
                    self.hub.line(id, &line);
                    self.act(now);
                }
                self.hub.input_over(id);
                self.act(now);
            }
            Ok(count) => {
                if let Err((beginning, failure)) = peer.take(&self.room[..count]) {
                    self.hub.no_room(id, &beginning, failure);
                    self.act(now);
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.lose(id, now),
        }
    }

    /// Notices a client that reads no more.
    pub(super) fn check_peer(&mut self, id: ClientId, found: PollFlags, now: Instant) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let is_gone = found.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
        // What it said before it went is read first.
        let speaks = peer.is_heard() && !found.contains(PollFlags::POLLERR);
        if is_gone && !speaks {
            self.lose(id, now);
        }
    }

    pub(super) fn read_link(&mut self, id: LinkId) {
        if self.is_paused(id) {
            return;
        }
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let why = match read(&link.socket, &mut self.room) {
            Ok(count) if count > 0 => return link.lines.push(&self.room[..count]),
            Err(Errno::EAGAIN | Errno::EINTR) => return,
            Ok(_) => "its supervisor ended".to_owned(),
            Err(errno) => format!("its supervisor is gone: {errno}"),
        };
        let now = Instant::now();
        while self
            .links
            .get_mut(&id)
            .is_some_and(|link| link.lines.has_next())
        {
            if self.is_paused(id) {
                // It comes back: the end of the connection stays.
                return;
            }
            self.take_reports(id, now);
        }
        self.links.remove(&id);
        self.hub.link_gone(id, &why);
        self.act(now);
    }

    pub(super) fn accept(&mut self, index: usize, now: Instant) {
        for _ in 0..CONNECTIONS {
            let Some(listener) = self.doors.listeners.get(index) else {
                return;
            };
            let (socket, uid) = match listener.accept() {
                Ok(Some(client)) => client,
                Ok(None) => return,
                Err(_) => {
                    self.accepting_after = Some(now + BREATH);
                    return;
                }
            };
            let is_allowed = uid == self.uid || uid == 0 || self.doors.allowed.contains(&uid);
            match is_allowed {
                true => self.welcome(socket, Party::User(uid), now),
                false => {
                    let message = format!("uid {uid} may not connect");
                    let refusal = Failure::new(Code::NotAllowed, message);
                    turn_away(
                        socket,
                        &refusal.hint("start the server with --allow-uid"),
                        now,
                    );
                }
            }
        }
    }

    /// Accepts clients inside of this process.
    pub(super) fn accept_inside(&mut self, now: Instant) {
        if let Some(inside) = &self.doors.inside {
            inside.reset();
        }
        while let Some((socket, party)) = self.doors.inside.as_ref().and_then(Connections::accept) {
            self.welcome(socket, party, now);
        }
    }

    fn welcome(&mut self, socket: UnixStream, party: Party, now: Instant) {
        if !self.hub.has_room_for_client(party) {
            let message =
                "there are too many clients, or too many of this party, or the server is ending";
            let refusal = Failure::new(Code::Busy, message).retry_after(Duration::from_secs(1));
            turn_away(socket, &refusal, now);
        } else if let Ok(peer) = Peer::socket(socket, now) {
            self.admit(peer, party, false);
        }
    }
}

/// Says why a client is not accepted, and closes its connection.
fn turn_away(socket: UnixStream, refusal: &Failure, now: Instant) {
    let (Ok(mut peer), Ok(error)) = (Peer::socket(socket, now), serde_json::to_string(refusal))
    else {
        return;
    };
    // A connection that was just made has room for a line.
    let line = format!("{{\"id\":null,\"error\":{error}}}");
    peer.say(&line, now);
    let _ = peer.flush(now);
}
