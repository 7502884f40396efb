//! Which call gets a cell: clients take turns, and a call waits or is refused when all
//! cells are in use.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use supervisor::{Execute, Layout, MOST_HISTORY, Open};

use super::branches::Carry;
use super::client::Caller;
use super::contexts::Creation;
use super::requests::Request;
use super::session::{Kind, Session, Work};
use super::status::is_of;
use super::{ClientId, Hub, LinkId, Party};
use crate::Shares;
use crate::protocol::{Code, Failure, Run, Start};

/// A call that waits for a cell.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) caller: Caller,
    pub(super) since: Instant,
    memory: u64,
    request: Rc<Request>,
    pub(super) what: What,
}

/// What a cell is needed for.
#[derive(Debug)]
pub(super) enum What {
    Run {
        events: bool,
    },
    Context(Creation),
    /// The session of a suspended context.
    Resume(LinkId),
}

impl Hub {
    /// `run`
    pub(super) fn run(&mut self, caller: &Caller, params: Run) -> Result<(), Failure> {
        let request = Request::read(&params.request)?;
        let events = params.events;
        self.enqueue(caller, request, What::Run { events })
    }

    /// The second half of `context.create`.
    pub(super) fn enqueue_context(
        &mut self,
        caller: &Caller,
        request: Request,
        creation: Creation,
    ) -> Result<(), Failure> {
        self.enqueue(caller, request, What::Context(creation))
    }

    fn enqueue(&mut self, caller: &Caller, request: Request, what: What) -> Result<(), Failure> {
        self.refuse_while_draining()?;
        let mut memory = request.memory(self.settings.cell_memory);
        if matches!(&what, What::Context(creation) if creation.replays) {
            memory = memory.saturating_add(MOST_HISTORY);
        }
        let most = self.memory().limit() as u64;
        if self.settings.max_memory.is_some() && memory > most {
            let message = format!(
                "the memory limit of {memory} bytes is more than the {most} that this client's party can have"
            );
            return Err(Failure::new(Code::BadParams, message).hint("set limits.memory"));
        }
        self.line_up(caller, Rc::new(request), memory, what);
        self.admit();
        self.shorten_queue();
        Ok(())
    }

    /// Has a call, or a part of it, wait for a cell.
    pub(super) fn line_up(
        &mut self,
        caller: &Caller,
        request: Rc<Request>,
        memory: u64,
        what: What,
    ) {
        let pending = Pending {
            caller: caller.clone(),
            since: self.now,
            memory,
            request,
            what,
        };
        if let Some(client) = self.clients.get_mut(&caller.client) {
            client.waiting.push_back(pending);
            self.turns.join(client.party, caller.client);
        }
    }

    /// Has the branches of a fork wait for their cells.
    pub(super) fn enqueue_branches(
        &mut self,
        branches: Vec<(Caller, Rc<Request>, Creation)>,
        memory: u64,
    ) {
        for (caller, request, creation) in branches {
            self.line_up(&caller, request, memory, What::Context(creation));
        }
        self.admit();
        self.shorten_queue();
    }

    pub(super) fn refuse_while_draining(&self) -> Result<(), Failure> {
        match self.draining {
            Some(_) => Err(Failure::new(Code::ShuttingDown, "the server is ending")),
            None => Ok(()),
        }
    }

    /// Calls that wait for a cell, of all parties or of one.
    pub(super) fn queued(&self, of: Option<Party>) -> usize {
        let clients = self.clients.values();
        let clients = clients.filter(|client| is_of(of, Some(client.party)));
        clients.map(|client| client.waiting.len()).sum()
    }

    /// The sessions that use a cell of their own.
    fn with_cells(&self) -> impl Iterator<Item = &Session> {
        let has_own = |session: &Session| session.has_cell() && session.cell_of.is_none();
        let sessions = self.sessions.values();
        sessions.filter(move |session| !session.is_warm() && has_own(session))
    }

    /// Cells that are in use, and their memory limits, of all parties or of one.
    pub(super) fn used(&self, of: Option<Party>) -> (usize, u64) {
        let used = self.with_cells();
        let used = used.filter(|session| is_of(of, session.kind.party()));
        used.fold((0, 0), |(cells, memory), session| {
            (cells + 1, memory.saturating_add(session.memory))
        })
    }

    /// The cells that each party uses.
    pub(super) fn cells(&self) -> Shares {
        let mut cells = Shares::new(self.settings.max_cells, self.settings.parties);
        let parties = self.with_cells().filter_map(|session| session.kind.party());
        parties.for_each(|party| cells.take(party));
        cells
    }

    /// The memory limits of the cells that each party uses, in bytes.
    pub(super) fn memory(&self) -> Shares {
        let most = self.settings.max_memory.map_or(usize::MAX, saturated);
        let mut memory = Shares::new(most, self.settings.parties);
        for session in self.with_cells() {
            if let Some(party) = session.kind.party() {
                memory.add(party, saturated(session.memory));
            }
        }
        memory
    }

    /// Assigns free cells to queued calls.
    pub(super) fn admit(&mut self) {
        while let Some((party, client)) = self.next_turn() {
            let waiting = self.clients.get_mut(&client);
            let pending = waiting.and_then(|client| client.waiting.pop_front());
            match pending {
                Some(pending) => {
                    self.turns.pass(party);
                    self.start(pending);
                }
                None => self.turns.leave(party, client),
            }
        }
    }

    /// The client whose call gets a cell now. A call that waits for memory is overtaken only by
    /// calls of other parties that need no more than the part of their party alone: else small ones
    /// could starve it.
    fn next_turn(&self) -> Option<(Party, ClientId)> {
        let (cells, memory) = (self.cells(), self.memory());
        let mut is_overtaken = false;
        self.turns.next(|party, client| {
            let waiting = self.clients.get(&client).map(|client| &client.waiting);
            let first = waiting.and_then(|waiting| waiting.front());
            let needed = first.map_or(0, |pending| saturated(pending.memory));
            if !cells.has_room_for(party) {
                return false;
            }
            let room = match is_overtaken {
                true => memory.room_alone(party),
                false => memory.room(party),
            };
            is_overtaken |= needed > room;
            needed <= room
        })
    }

    /// Refuses calls beyond the queue's bound. Of the party with the most waiting calls, the client
    /// with the most loses its last one, so a flood of calls from one party does not keep others
    /// out.
    pub(super) fn shorten_queue(&mut self) {
        while self.queued(None) > self.settings.max_queue {
            let mut of_parties = BTreeMap::new();
            for client in self.clients.values() {
                *of_parties.entry(client.party).or_insert(0) += client.waiting.len();
            }
            let most = of_parties.into_iter().max_by_key(|(_, waiting)| *waiting);
            let longest = (self.clients.iter_mut())
                .filter(|(_, client)| most.is_some_and(|(party, _)| party == client.party))
                .max_by_key(|(_, client)| client.waiting.len());
            let last = longest.and_then(|(_, client)| client.waiting.pop_back());
            let Some(pending) = last else { return };
            let failure = self.busy(&pending);
            self.refuse_pending(&pending, &failure);
        }
    }

    /// Answers a call that gets no cell, and with it others that wait for the same one.
    pub(super) fn refuse_pending(&mut self, pending: &Pending, failure: &Failure) {
        match pending.what {
            What::Resume(link) => self.not_lined_up(link, failure),
            _ => self.fail(&pending.caller, failure.clone()),
        }
    }

    /// Refuses what has waited for too long.
    pub(super) fn expire_queue(&mut self) {
        let (now, most) = (self.now, self.settings.queue_wait);
        let is_late = |pending: &Pending| now.saturating_duration_since(pending.since) >= most;
        let mut late = Vec::new();
        for client in self.clients.values_mut() {
            while client.waiting.front().is_some_and(is_late) {
                late.extend(client.waiting.pop_front());
            }
        }
        for pending in late {
            let failure = self.busy(&pending);
            self.refuse_pending(&pending, &failure);
        }
    }

    /// When the oldest waiting call has waited for too long.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let oldest = self
            .clients
            .values()
            .filter_map(|client| client.waiting.front());
        oldest
            .map(|pending| pending.since + self.settings.queue_wait)
            .min()
    }

    fn busy(&self, pending: &Pending) -> Failure {
        // Not those of others.
        let own = Some(self.party_of(pending.caller.client));
        let ((cells, _), waiting) = (self.used(own), self.queued(own));
        let message = format!(
            "no cell is free: {cells} are this client's party's, and {waiting} of its other calls wait"
        );
        let waiting = self.queued(None);
        // As long as the calls before it would take, by the average of those so far.
        let each = self
            .metrics
            .average("run")
            .unwrap_or(Duration::from_millis(100));
        let before =
            u32::try_from(waiting / self.settings.max_cells.max(1) + 1).unwrap_or(u32::MAX);
        let wait = each.saturating_mul(before);
        let wait = wait.clamp(Duration::from_millis(50), Duration::from_secs(10));
        Failure::new(Code::Busy, message).retry_after(wait)
    }

    /// A cell for a context that begins with a checkpoint, or is to be forked: its
    /// interpreter is laid out like others.
    fn cell_to_fork(
        &mut self,
        request: &Request,
        kind: &Kind,
        memory: u64,
        creation: &Creation,
        party: Party,
    ) -> (LinkId, Start) {
        let (forked, template) = match &creation.from {
            Some(origin) => (origin.layout == Layout::Template, origin.template),
            None => (self.forks(request), None),
        };
        if forked && let Some(link) = self.take_forked(request, template, party) {
            return (link, Start::Forked);
        }
        let open = Open {
            forked,
            awaited: true,
            fixed_layout: creation.branches,
            ..opening(true, request, !creation.replays)
        };
        let mut session = Session::new(kind.clone(), memory, open);
        session.template = template;
        (self.begin(session), Start::Cold)
    }

    /// Serves a call by a cell of the pool, or by a new one.
    fn start(&mut self, pending: Pending) {
        let Pending {
            caller,
            memory,
            request,
            mut what,
            ..
        } = pending;
        let party = self.party_of(caller.client);
        if let What::Resume(link) = what {
            return self.restart_suspended(link, &request);
        }
        if let What::Context(creation) = &mut what
            && creation.from.is_some()
        {
            creation.name = self.new_name(party);
        }
        let kind = match &what {
            What::Run { .. } | What::Resume(_) => Kind::Run(party),
            What::Context(creation) => {
                let key = self.key_of(&caller, &creation.name);
                if self.contexts.contains_key(&key) {
                    return self.fail(&caller, super::contexts::exists(&key.name));
                }
                Kind::Context(key)
            }
        };
        let lasts = matches!(kind, Kind::Context(_));
        // The files of a context with replay are part of what is noted.
        let replays = matches!(&what, What::Context(creation) if creation.replays);
        let (link, start) = match &what {
            What::Context(own) if own.branches || (own.from.is_some() && !own.replays) => {
                self.cell_to_fork(&request, &kind, memory, own, party)
            }
            _ => {
                let has_code = lasts || request.parsed.code.is_some();
                self.take_warm(&request, has_code, party)
                    .unwrap_or_else(|| {
                        let (open, start) = match self.forking(&request, has_code) {
                            Some(open) => (open, Start::Forked),
                            None => (opening(lasts, &request, !replays), Start::Cold),
                        };
                        let session = Session::new(kind.clone(), memory, open);
                        (self.begin(session), start)
                    })
            }
        };
        self.place(&caller, link);
        if let What::Context(creation) = &what {
            self.note_context(link, caller.client, creation);
        }
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        (session.kind, session.start, session.memory) = (kind, start, memory);
        if start == Start::Blank {
            let open = opening(lasts, &request, true);
            session.push(None, Work::Open(open));
        }
        if replays {
            session.push(None, Work::Remember);
        }
        if (replays || matches!(start, Start::Ready | Start::Forked))
            && let Some(what) = request.file_order()
        {
            let id = session.next_file();
            session.push(None, Work::File { id, what });
        }
        let work = match what {
            What::Run { events } => {
                let request = Rc::unwrap_or_clone(request);
                Work::Execute(execution(request, start, events))
            }
            What::Context(creation) => {
                if let Some(from) = creation.from {
                    session.push(Some(caller.clone()), Work::Carry(Carry::Begin(from)));
                }
                Work::Greet
            }
            What::Resume(_) => return,
        };
        session.push(Some(caller), work);
        self.pump(link);
    }
}

fn saturated(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

pub(super) fn opening(lasts: bool, request: &Request, with_files: bool) -> Open {
    Open {
        request: request.text(with_files),
        lasting: lasts,
        ready: lasts,
        ..Open::default()
    }
}

/// The execution of `run`. A cell that was made for it has its code and arguments.
fn execution(request: Request, start: Start, events: bool) -> Execute {
    let (wall_ms, grace_ms) = match start {
        Start::Cold | Start::Blank | Start::Shared => (None, None),
        Start::Ready | Start::Forked => request.times(),
    };
    let own = request.parsed;
    let (code, name, args) = match start {
        Start::Cold | Start::Blank | Start::Shared => (None, None, Vec::new()),
        Start::Ready | Start::Forked => (own.code, own.name, own.args.unwrap_or_default()),
    };
    Execute {
        execution: 0,
        code,
        name,
        args,
        wall_ms,
        grace_ms,
        events,
        last: true,
    }
}
