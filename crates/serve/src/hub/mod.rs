//! Decides what happens: which call gets a cell, what a supervisor is ordered to do, and
//! who gets an answer. It does no input or output and reads no clock.

mod admission;
mod branches;
mod client;
mod clock;
mod contexts;
mod files;
mod guests;
mod metrics;
mod pool;
mod processes;
mod reports;
mod requests;
mod session;
mod status;
mod suspend;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use supervisor::TemplateInUse;

use crate::protocol::{self, Call, Code, Failure, Refused};
use crate::{Budget, Settings, Share, Shares};

use branches::Fork;
use client::{Caller, Client};
use contexts::{Context, ContextKey};
pub use metrics::Metrics;
use pool::Pool;
use session::Session;
use turns::Turns;

/// The number of a client's connection.
pub type ClientId = u64;
/// The number of the connection to a supervisor.
pub type LinkId = u64;

/// The party that a client belongs to. It has contexts of its own, with names of its own, which
/// other parties cannot see. Parties take turns at cells, however many clients each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Party {
    /// A user of this host, by the credentials of its socket.
    User(u32),
    /// A party of a door inside of this process, by a number that the door chose.
    Door(u32),
}

/// What the loop around a [`Hub`] does next.
#[derive(Debug)]
pub enum Action {
    /// Write a line to a client.
    Say(ClientId, String),
    /// Close a client's connection once all has been written.
    HangUp(ClientId),
    /// Have a supervisor made.
    Spawn(LinkId),
    /// Have a supervisor made that can fork a template: that with this number, or the
    /// newest.
    SpawnForking(LinkId, Option<u64>),
    /// Have the first supervisor made, for another interpreter in the cell of the second one. The
    /// second one gets [`Hub::admission`] with one end of the connection.
    Admit(LinkId, LinkId),
    /// Write a line to a supervisor.
    Order(LinkId, String),
    /// Keep this until all orders so far have been written to a supervisor.
    Hold(LinkId, Share),
    /// Tell a supervisor that no order follows. Its cell ends, then its connection.
    End(LinkId),
    /// Close the connection to a supervisor that does not end by itself.
    Forget(LinkId),
    /// Remove a checkpoint's directory, if it exists.
    Remove(PathBuf),
    /// End the server.
    Exit,
}

/// The state of a server.
#[derive(Debug)]
pub struct Hub {
    settings: Settings,
    /// The uid of the server itself.
    uid: u32,
    began: Instant,
    now: Instant,
    clients: BTreeMap<ClientId, Client>,
    /// How many clients each party has.
    shares: Shares,
    /// The bytes of clients that wait.
    budget: Budget,
    /// The bytes that clients have not read.
    unread: Budget,
    /// The clients whose calls wait for a cell, by turn.
    turns: Turns,
    sessions: BTreeMap<LinkId, Session>,
    contexts: BTreeMap<ContextKey, Context>,
    /// Forks that have not been answered, by the number of their checkpoint.
    forks: BTreeMap<u64, Fork>,
    /// Processes with events that are held, the one whose turn is next first.
    held: VecDeque<(LinkId, u32)>,
    /// The number of the last checkpoint, or of the last order about one.
    checkpoints: u64,
    pools: Vec<Pool>,
    templates: Vec<TemplateInUse>,
    metrics: Metrics,
    next_link: LinkId,
    /// When executions may go on no longer, once the server is ending.
    draining: Option<Instant>,
    /// Since when there has been neither client nor context.
    unused_since: Option<Instant>,
    /// Makes ids of contexts hard to guess.
    secret: std::hash::RandomState,
    actions: VecDeque<Action>,
}

impl Hub {
    /// A server without clients, whose own uid is `uid`.
    pub fn new(settings: Settings, uid: u32, now: Instant) -> Self {
        let pools = settings.warm.iter().map(Pool::new).collect();
        let shares = Shares::new(settings.max_clients, settings.parties);
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let budget = || {
            Budget::new(
                bytes(settings.max_waiting),
                bytes(settings.max_waiting_each),
                settings.parties,
            )
        };
        let (budget, unread) = (budget(), budget());
        Self {
            settings,
            uid,
            began: now,
            now,
            clients: BTreeMap::new(),
            shares,
            budget,
            unread,
            turns: Turns::default(),
            sessions: BTreeMap::new(),
            contexts: BTreeMap::new(),
            forks: BTreeMap::new(),
            held: VecDeque::new(),
            checkpoints: 0,
            pools,
            templates: Vec::new(),
            metrics: Metrics::default(),
            next_link: 0,
            draining: None,
            unused_since: Some(now),
            secret: std::hash::RandomState::new(),
            actions: VecDeque::new(),
        }
    }

    /// What to do next, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A client connected. The server ends with its `owner`, which it has on standard
    /// input and output.
    pub fn connect(&mut self, id: ClientId, party: Party, owner: bool) {
        self.clients.insert(id, Client::new(party, owner));
        self.shares.take(party);
        self.unused_since = None;
    }

    /// Whether another client of this party may connect.
    pub fn has_room_for_client(&self, party: Party) -> bool {
        self.shares.has_room_for(party) && self.draining.is_none()
    }

    /// A client's line.
    pub fn line(&mut self, client: ClientId, line: &[u8]) {
        if !self
            .clients
            .get(&client)
            .is_some_and(|client| client.reads())
        {
            return;
        }
        let parsed = match std::str::from_utf8(line) {
            Ok(text) if text.trim().is_empty() => return,
            Ok(text) => protocol::parse(text),
            Err(_) => Err(Refused {
                id: None,
                failure: Failure::new(Code::BadRequest, "the line is not UTF-8 text"),
            }),
        };
        match parsed {
            Ok((id, call)) => {
                let caller = Caller::new(client, id);
                match self.register(&caller, call.method(), line.len()) {
                    Ok(()) => self.call(caller, call),
                    Err(failure) => self.refuse(client, Some(caller.id), failure),
                }
            }
            Err(Refused { id, failure }) => self.refuse(client, id, failure),
        }
    }

    /// A client's line is too long: its connection ends.
    pub fn too_long(&mut self, client: ClientId) {
        let message = format!(
            "a line has more than {} bytes, and the connection ends",
            protocol::LONGEST_LINE
        );
        self.refuse(client, None, Failure::new(Code::TooLong, message));
        self.hang_up(client);
    }

    /// The bytes of clients that wait.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The bytes that clients have not read, those of doors included.
    pub fn unread(&self) -> &Budget {
        &self.unread
    }

    /// Whether the clients of this one's party have read enough to get more.
    pub fn has_room_for_answers(&self, client: ClientId) -> bool {
        self.unread.has_room_for(self.party_of(client))
    }

    /// The bytes that a client has not read.
    pub fn unread_of(&self, client: ClientId) -> Share {
        self.unread.share(self.party_of(client))
    }

    /// The bytes that a client is sending.
    pub fn share_of(&self, client: ClientId) -> Share {
        self.budget.share(self.party_of(client))
    }

    /// There is no room for a client's line, which begins with this. The rest of it is dropped.
    pub fn no_room(&mut self, client: ClientId, beginning: &[u8], failure: Failure) {
        let id = protocol::id_of_beginning(beginning);
        self.refuse(client, id, failure);
    }

    fn call(&mut self, caller: Caller, call: Call) {
        let done = match call {
            Call::Run(params) => self.run(&caller, params),
            Call::ContextCreate(params) => self.create(&caller, params),
            Call::ContextRun(params) => self.run_in_context(&caller, params),
            Call::ContextInterrupt(params) => self.interrupt(&caller, &params),
            Call::ContextRestart(params) => self.restart(&caller, &params),
            Call::ContextDescribe(params) => self.describe(&caller, &params),
            Call::ContextList(params) => self.list(&caller, &params),
            Call::ContextLabel(params) => self.label(&caller, params),
            Call::ContextFork(params) => self.fork(&caller, &params),
            Call::ContextCheckpoint(params) => self.checkpoint(&caller, &params),
            Call::ContextRewind(params) => self.rewind(&caller, &params),
            Call::ContextSuspend(params) => self.suspend(&caller, &params),
            Call::ContextResume(params) => self.resume(&caller, &params),
            Call::ContextDiff(params) => self.diff(&caller, &params),
            Call::ContextForget(params) => self.forget(&caller, &params),
            Call::ContextDelete(params) => self.delete(&caller, &params),
            Call::FileWrite(params) => self.write_file(&caller, params),
            Call::FileRead(params) => self.read_file(&caller, params),
            Call::FileList(params) => self.list_files(&caller, params),
            Call::FileStat(params) => self.stat_file(&caller, params),
            Call::FileMakeDirectory(params) => self.make_directory(&caller, params),
            Call::FileMove(params) => self.move_file(&caller, params),
            Call::FileRemove(params) => self.remove_file(&caller, params),
            Call::FileWatch(params) => self.watch_files(&caller, params),
            Call::FileUnwatch(params) => self.unwatch_files(&caller, &params),
            Call::ProcessStart(params) => self.start_process(&caller, params),
            Call::ProcessInput(params) => self.give_input(&caller, params),
            Call::ProcessCloseInput(params) => self.close_input(&caller, &params),
            Call::ProcessSignal(params) => self.signal_process(&caller, &params),
            Call::ProcessResize(params) => self.resize_terminal(&caller, &params),
            Call::ProcessConnect(params) => self.connect_to_process(&caller, &params),
            Call::ProcessList(params) => self.list_processes(&caller, &params),
            Call::Cancel(params) => self.cancel(&caller, &params),
            Call::Status(_) => self.status(&caller),
            Call::Metrics(_) => self.show_metrics(&caller),
            Call::Shutdown(params) => self.shut_down(&caller, &params),
        };
        if let Err(failure) = done {
            self.fail(&caller, failure);
        }
    }

    /// The client that what this supervisor says next is for, if its turn to be read
    /// depends on a client.
    pub fn listener(&self, link: LinkId) -> Option<ClientId> {
        let current = self.sessions.get(&link)?.current.as_ref()?;
        current.caller.as_ref().map(|caller| caller.client)
    }
}
