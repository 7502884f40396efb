//! The loop that reads and writes, for clients and supervisors alike. No call in it
//! blocks but `poll`.

mod input;
mod inside;
mod lines;
mod link;
mod listen;
mod outbox;
mod peer;
mod replaced;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use record::error::{Result, SetupError, Step};
use supervisor::Templates;

use crate::{Action, ClientId, Hub, LinkId, Party, Store};
pub use inside::{Connections, Connector, connections};
pub(crate) use lines::Lines;
use link::Link;
pub use listen::Listener;
pub(crate) use outbox::Outbox;
use peer::Peer;

/// How clients reach a server, and how it reaches its cells.
pub struct Doors<'a> {
    /// Standard input and output, when a client is there.
    pub stdio: Option<(OwnedFd, OwnedFd)>,
    /// Sockets that clients connect to.
    pub listeners: Vec<Listener>,
    /// Clients inside of this process, if it has a door for them.
    pub inside: Option<Connections>,
    /// Users that may connect besides root and the server's own.
    pub allowed: Vec<u32>,
    /// Has a supervisor made; returns a socket to it that does not block.
    pub supervisor: &'a dyn Fn() -> Result<OwnedFd>,
    /// What interpreters are forked from, if the server has that.
    pub templates: Option<Templates<'a>>,
    /// Where checkpoints are.
    pub store: Option<Store>,
    /// Where counters are written now and then.
    pub metrics: Option<PathBuf>,
    /// How long executions may go on after SIGTERM.
    pub drain: Duration,
}

/// How often counters are written.
const METRICS_EVERY: Duration = Duration::from_secs(10);
/// How long clients may take for their last lines.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves until the server is ended.
///
/// # Errors
/// The kernel refuses what the loop needs.
pub fn serve(hub: Hub, doors: Doors<'_>, uid: u32) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block().map_err(failed("rt_sigprocmask"))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&signals, flags).map_err(failed("signalfd4"))?;
    let mut server = Server {
        hub,
        doors,
        uid,
        signals,
        peers: BTreeMap::new(),
        links: BTreeMap::new(),
        room: vec![0; input::TURN],
        next_client: 0,
        accepting_after: None,
        next_metrics: Instant::now(),
        is_over: false,
    };
    if let Some(store) = &server.doors.store {
        store.sweep();
    }
    if let Some(templates) = &server.doors.templates {
        server.hub.set_templates(templates.in_use());
    }
    server.run()
}

struct Server<'a> {
    hub: Hub,
    doors: Doors<'a>,
    uid: u32,
    signals: SignalFd,
    peers: BTreeMap<ClientId, Peer>,
    links: BTreeMap<LinkId, Link>,
    /// The buffer for reads.
    room: Vec<u8>,
    next_client: ClientId,
    /// When there may be descriptors for clients again.
    accepting_after: Option<Instant>,
    next_metrics: Instant,
    is_over: bool,
}

/// What a descriptor in the poll set is.
#[derive(Clone, Copy, Debug)]
enum Waited {
    Signals,
    Listener(usize),
    Inside,
    Input(ClientId),
    Output(ClientId),
    Link(LinkId),
}

impl Server<'_> {
    fn run(&mut self) -> Result<()> {
        let now = Instant::now();
        if let Some((input, output)) = self.doors.stdio.take() {
            let peer = Peer::stdio(input, output, now)?;
            self.admit(peer, Party::User(self.uid), true);
        }
        while !self.is_over {
            let now = Instant::now();
            self.hub.tick(now);
            self.act(now);
            let more = self.take_lines(now);
            self.flush(now);
            self.write_metrics(now);
            if !self.is_over {
                self.wait(now, more)?;
            }
        }
        self.farewell();
        self.next_metrics = Instant::now();
        self.write_metrics(self.next_metrics);
        Ok(())
    }

    /// Waits for something to happen, and reads it.
    fn wait(&mut self, now: Instant, more: bool) -> Result<()> {
        self.accepting_after = self.accepting_after.filter(|after| *after > now);
        let mut what = vec![Waited::Signals];
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let mut add = |waited, fd, flags| {
            what.push(waited);
            fds.push(PollFd::new(fd, flags));
        };
        if self.accepting_after.is_none() {
            for (index, listener) in self.doors.listeners.iter().enumerate() {
                add(
                    Waited::Listener(index),
                    listener.socket.as_fd(),
                    PollFlags::POLLIN,
                );
            }
        }
        if let Some(inside) = &self.doors.inside {
            add(Waited::Inside, inside.as_fd(), PollFlags::POLLIN);
        }
        for (id, peer) in &self.peers {
            if let (true, Some(input)) = (peer.is_read(), &peer.input) {
                add(Waited::Input(*id), input.as_fd(), PollFlags::POLLIN);
            }
            add(
                Waited::Output(*id),
                peer.output.as_fd(),
                writable(peer.outbox.len()),
            );
        }
        for (id, link) in &self.links {
            let mut flags = writable(link.outbox.len());
            if !self.is_paused(*id) {
                flags |= PollFlags::POLLIN;
            }
            if !flags.is_empty() {
                add(Waited::Link(*id), link.socket.as_fd(), flags);
            }
        }
        let timeout = match more {
            true => PollTimeout::ZERO,
            false => self.timeout(now),
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(failed("poll")(errno)),
        }
        let found = fds
            .iter()
            .map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        let ready: Vec<_> = what
            .into_iter()
            .zip(found)
            .filter(|(_, found)| !found.is_empty())
            .collect();
        let now = Instant::now();
        self.hub.tick(now);
        for (waited, found) in ready {
            match waited {
                Waited::Signals => self.take_signals(),
                Waited::Listener(index) => self.accept(index, now),
                Waited::Inside => self.accept_inside(now),
                Waited::Input(id) => self.read_peer(id, found, now),
                Waited::Output(id) => self.check_peer(id, found, now),
                Waited::Link(id) => self.read_link(id),
            }
        }
        Ok(())
    }

    fn timeout(&self, now: Instant) -> PollTimeout {
        let patience = self.peers.values().filter_map(Peer::patience).min();
        let metrics = self.doors.metrics.as_ref().map(|_| self.next_metrics);
        let next = [
            self.hub.next_tick(),
            patience,
            self.accepting_after,
            metrics,
        ];
        let Some(next) = next.into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        // Rounded up: else the loop would turn until it is time.
        let left = next.saturating_duration_since(now) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    /// Whether a supervisor's client has too much to read already, or all of its party together.
    fn is_paused(&self, link: LinkId) -> bool {
        self.hub.listener(link).is_some_and(|client| {
            let is_full = self.peers.get(&client).is_some_and(Peer::is_full);
            is_full || !self.hub.has_room_for_answers(client)
        })
    }

    fn take_signals(&mut self) {
        let mut within = self.doors.drain;
        while let Ok(Some(_)) = self.signals.read_signal() {
            self.hub.drain(within);
            // The second one does not wait.
            self.doors.drain = Duration::ZERO;
            within = Duration::ZERO;
        }
    }

    /// Goes on with a new supervisor, if there is one.
    fn link(&mut self, id: LinkId, made: Result<OwnedFd>, now: Instant) {
        match made {
            Ok(socket) => drop(self.links.insert(id, Link::new(socket, now))),
            Err(error) => self.hub.link_gone(id, &error.without_paths().to_string()),
        }
    }

    /// The same for the supervisor of another interpreter in the cell of `host`, whose supervisor
    /// forks it.
    fn admit_to(&mut self, id: LinkId, host: LinkId, now: Instant) {
        let Some(link) = self.links.get_mut(&host) else {
            return self
                .hub
                .link_gone(id, "the cell that it was to share has ended");
        };
        let pair = UnixStream::pair().and_then(|(ours, theirs)| {
            ours.set_nonblocking(true)?;
            Ok((OwnedFd::from(ours), OwnedFd::from(theirs)))
        });
        let made = pair.map_err(|e| SetupError::io(Step::Clone, "socketpair", &e));
        let made = made.map(|(ours, theirs)| {
            link.push_with(&Hub::admission(), theirs, now);
            ours
        });
        self.link(id, made, now);
    }

    /// The same for a supervisor that can fork this template, or the newest.
    fn link_forking(&mut self, id: LinkId, template: Option<u64>, now: Instant) {
        let made = match (&self.doors.templates, template) {
            (None, _) => (self.doors.supervisor)().map(|socket| (socket, None)),
            (Some(templates), None) => templates.supervisor(),
            (Some(templates), Some(number)) => templates
                .supervisor_of(number)
                .map(|socket| (socket, Some(number))),
        };
        if let Ok((_, Some(template))) = made {
            self.hub.can_fork(id, template);
        }
        self.link(id, made.map(|(socket, _)| socket), now);
        if let Some(templates) = &self.doors.templates {
            self.hub.set_templates(templates.in_use());
        }
    }

    /// Does what the hub decided.
    fn act(&mut self, now: Instant) {
        while let Some(action) = self.hub.next_action() {
            match action {
                Action::Say(client, line) => {
                    if let Some(peer) = self.peers.get_mut(&client) {
                        peer.say(&line, now);
                        self.hub.note_full(client, peer.is_full());
                    }
                }
                Action::HangUp(client) => {
                    if let Some(peer) = self.peers.get_mut(&client) {
                        peer.closing = true;
                    }
                }
                Action::Spawn(link) => self.link(link, (self.doors.supervisor)(), now),
                Action::SpawnForking(link, template) => self.link_forking(link, template, now),
                Action::Admit(link, host) => self.admit_to(link, host, now),
                Action::Order(link, order) => {
                    if let Some(link) = self.links.get_mut(&link) {
                        link.outbox.push_line(&order, now);
                    }
                }
                Action::Hold(link, share) => {
                    if let Some(link) = self.links.get_mut(&link) {
                        link.hold(share);
                    }
                }
                Action::End(link) => {
                    if let Some(link) = self.links.get_mut(&link) {
                        link.ending = true;
                    }
                }
                Action::Forget(link) => drop(self.links.remove(&link)),
                Action::Remove(directory) => {
                    if let Some(store) = &mut self.doors.store {
                        store.remove(directory);
                    }
                }
                Action::Exit => self.is_over = true,
            }
        }
        // The last session of an old template may have ended.
        if let Some(templates) = &self.doors.templates
            && templates.keep(|number| self.hub.uses_template(number))
        {
            self.hub.set_templates(templates.in_use());
        }
    }

    /// Writes what can be written; closes what is done.
    fn flush(&mut self, now: Instant) {
        let mut gone = Vec::new();
        for (id, peer) in &mut self.peers {
            let is_broken = peer.flush(now).is_err();
            self.hub.note_full(*id, peer.is_full());
            let is_late = peer.patience().is_some_and(|end| end <= now);
            let is_done = peer.closing && peer.outbox.len() == 0;
            if is_broken || is_late || is_done {
                gone.push(*id);
            }
        }
        for id in gone {
            self.lose(id, now);
        }
        self.act(now);
        // Clients that have room again get output that was held for them.
        while self.hub.pass_on() {
            self.act(now);
        }
        for link in self.links.values_mut() {
            link.flush(now);
        }
    }

    /// A client is gone.
    fn lose(&mut self, id: ClientId, now: Instant) {
        self.peers.remove(&id);
        self.hub.gone(id);
        self.act(now);
    }

    fn admit(&mut self, mut peer: Peer, party: Party, owner: bool) {
        self.next_client += 1;
        self.hub.connect(self.next_client, party, owner);
        peer.share = Some(self.hub.share_of(self.next_client));
        peer.unread = Some(self.hub.unread_of(self.next_client));
        self.peers.insert(self.next_client, peer);
    }

    /// Gives clients their last lines.
    fn farewell(&mut self) {
        let end = Instant::now() + FAREWELL;
        loop {
            let now = Instant::now();
            self.peers
                .retain(|_, peer| peer.flush(now).is_ok() && peer.outbox.len() > 0);
            if self.peers.is_empty() || now >= end {
                return;
            }
            let outputs = self.peers.values().map(|peer| peer.output.as_fd());
            let mut fds: Vec<_> = outputs
                .map(|fd| PollFd::new(fd, PollFlags::POLLOUT))
                .collect();
            let left = PollTimeout::try_from(end - now).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut fds, left);
        }
    }

    fn write_metrics(&mut self, now: Instant) {
        let Some(path) = self
            .doors
            .metrics
            .as_ref()
            .filter(|_| self.next_metrics <= now)
        else {
            return;
        };
        self.next_metrics = now + METRICS_EVERY;
        // A reader finds the old file or the new one. It is for observers only: a
        // failure does not end the server.
        let _ = replaced::replace(path, &self.hub.metrics_text(None));
    }
}

fn writable(waiting: usize) -> PollFlags {
    match waiting {
        0 => PollFlags::empty(),
        _ => PollFlags::POLLOUT,
    }
}

fn failed(call: &'static str) -> impl Fn(Errno) -> SetupError {
    move |errno| SetupError::os(Step::Serve, call, errno)
}
