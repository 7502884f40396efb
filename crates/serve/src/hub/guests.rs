//! Contexts in the cell of another one: each has an interpreter and a supervisor of its own, and
//! shares all else.

use std::time::Duration;

use spec::PartialLimits;
use supervisor::Order;

use super::admission::opening;
use super::client::{Caller, json_of};
use super::contexts::Creation;
use super::requests::Request;
use super::session::{Kind, Phase, Session, Work};
use super::{Hub, LinkId, Party};
use crate::Shares;
use crate::protocol::{Code, Failure, Reason, Start};

/// The most interpreters in a cell besides its first one.
const MOST_GUESTS: usize = 16;
/// How many of them a server has room for, per cell that it may have in use. They are limited
/// because no other limit counts the memory of their supervisors. There is always room for those of
/// one cell.
const GUESTS_PER_CELL: usize = 4;
/// The time after which a call that was refused for lack of room may be tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Why such a context has ended.
const CELL_ENDED: &str = "the cell that it shared has ended";

impl Hub {
    /// The line with which a supervisor gets the connection of an [`super::Action::Admit`].
    pub fn admission() -> String {
        json_of(&Order::Admit)
    }

    /// The session whose cell a new context is to share. The context cannot have any of the
    /// parameters in `asked`.
    ///
    /// # Errors
    /// It cannot be shared; the context asks for what only a cell of its own has.
    pub(super) fn cell_for(
        &mut self,
        caller: &Caller,
        name: &str,
        asked: [(&str, bool); 3],
        request: &Request,
    ) -> Result<LinkId, Failure> {
        let wrong = |message: String| Err(Failure::new(Code::BadParams, message));
        if let Some((field, _)) = asked.iter().find(|(_, is_asked)| *is_asked) {
            return wrong(format!("{field}: a context with cell_of cannot have it"));
        }
        let parsed = &request.parsed;
        let given = [
            ("files", parsed.files.is_some()),
            ("limits", parsed.limits != PartialLimits::default()),
            ("network", parsed.network.is_some()),
        ];
        if let Some((field, _)) = given.iter().find(|(_, is_given)| *is_given) {
            let message = format!("request: with cell_of, `{field}` is that of the cell");
            return Err(Failure::new(Code::BadParams, message)
                .hint("the request of such a context has only language and env"));
        }
        if request.parsed.language.is_none() {
            return wrong("request: a context with cell_of wants a language".to_owned());
        }
        let context = self.find(caller, name)?;
        let (link, replays) = (context.link, context.replays);
        let own = self.sessions.get(&link);
        let link = own.and_then(|session| session.cell_of).unwrap_or(link);
        let refused = |why: &str| Failure::new(Code::Failed, format!("cell_of: {name} {why}"));
        match self.sessions.get(&link) {
            None => Err(Failure::new(Code::Lost, "the context's cell is gone")),
            Some(_) if replays => Err(refused("has replay, which wants a cell for itself")),
            Some(session) if session.phase != Phase::Active || session.ending => {
                Err(refused("is suspended").hint("context.resume gives it a cell again"))
            }
            Some(session) if session.guests.len() >= MOST_GUESTS => {
                let why = format!("has {MOST_GUESTS} other contexts in its cell already");
                Err(refused(&why).hint("delete one of them"))
            }
            Some(session) if session.is_carried() => {
                Err(refused("saves or restores its state").hint("wait for that call's answer"))
            }
            Some(_) => {
                let party = self.party_of(caller.client);
                self.refuse_too_many_guests(party).map(|()| link)
            }
        }
    }

    fn refuse_too_many_guests(&self, party: Party) -> Result<(), Failure> {
        let most = MOST_GUESTS.max(GUESTS_PER_CELL.saturating_mul(self.settings.max_cells));
        let mut all = Shares::new(most, self.settings.parties);
        let guests = self.sessions.values();
        let guests = guests.filter(|session| session.cell_of.is_some());
        let parties = guests.filter_map(|session| session.kind.party());
        parties.for_each(|party| all.take(party));
        match all.has_room_for(party) {
            true => Ok(()),
            false => {
                let message = format!(
                    "this client's party has {} contexts in cells of others, and there is no room for more",
                    all.held(party)
                );
                Err(Failure::new(Code::Busy, message)
                    .retry_after(RETRY)
                    .hint("delete some of them, or raise --max-cells"))
            }
        }
    }

    /// Makes a context in the cell of another one's session.
    ///
    /// # Errors
    /// The server is ending.
    pub(super) fn join(
        &mut self,
        caller: &Caller,
        cell_of: LinkId,
        request: &Request,
        creation: &Creation,
    ) -> Result<(), Failure> {
        self.refuse_while_draining()?;
        let kind = Kind::Context(self.key_of(caller, &creation.name));
        // The memory of the cell counts, in that session.
        let mut session = Session::new(kind, 0, opening(true, request, true));
        (session.cell_of, session.start) = (Some(cell_of), Start::Shared);
        session.push(Some(caller.clone()), Work::Greet);
        let link = self.begin(session);
        if let Some(session) = self.sessions.get_mut(&cell_of) {
            session.guests.push(link);
        }
        self.place(caller, link);
        self.note_context(link, caller.client, creation);
        self.pump(link);
        Ok(())
    }

    /// Ends the contexts whose interpreters are in the cell of this session, which has ended.
    pub(super) fn end_guests(&mut self, link: LinkId) {
        let session = self.sessions.get_mut(&link);
        let guests = session.map(|session| std::mem::take(&mut session.guests));
        for guest in guests.unwrap_or_default() {
            let session = self.sessions.get(&guest);
            let Some(Kind::Context(key)) = session.map(|session| session.kind.clone()) else {
                continue;
            };
            if let Some(owner) = self.contexts.get(&key).map(|context| context.owner) {
                self.end_context(&key, CELL_ENDED, None);
                self.tell_end(owner, &key.name, CELL_ENDED);
            }
        }
    }

    /// A session that was in the cell of another one is gone.
    pub(super) fn leave_cell(&mut self, link: LinkId, cell_of: Option<LinkId>) {
        if let Some(session) = cell_of.and_then(|link| self.sessions.get_mut(&link)) {
            session.guests.retain(|guest| *guest != link);
        }
    }

    /// Whether another interpreter in its cell has something to do.
    pub(super) fn has_busy_guests(&self, session: &Session) -> bool {
        let mut guests = session
            .guests
            .iter()
            .filter_map(|guest| self.sessions.get(guest));
        guests.any(|guest| !guest.is_idle())
    }

    /// The name of the context whose cell this session shares.
    pub(super) fn name_of_cell(&self, session: &Session) -> Option<String> {
        let shared = self.sessions.get(&session.cell_of?)?;
        shared.kind.context().map(str::to_owned)
    }

    /// Refuses what cannot be done to one of several interpreters in a cell.
    ///
    /// # Errors
    /// The context shares a cell.
    pub(super) fn refuse_if_shared(
        &self,
        what: &str,
        name: &str,
        link: LinkId,
    ) -> Result<(), Failure> {
        let session = self.sessions.get(&link);
        let is_shared =
            session.is_some_and(|session| session.cell_of.is_some() || !session.guests.is_empty());
        match is_shared {
            false => Ok(()),
            true => {
                let message =
                    format!("context {name} cannot be {what}: its cell has several interpreters");
                Err(Failure::new(Code::Failed, message)
                    .because(Reason::SharedCell)
                    .hint("delete the contexts that were created with cell_of"))
            }
        }
    }
}
