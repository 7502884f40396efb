//! Contexts: cells whose interpreter stays.

use std::hash::BuildHasher as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use record::bytes::RawText;
use spec::Unread;
use spec::quantity::Bound;
use supervisor::Execute;
use wire::{
    Branch, Code, ContextCreate, ContextInfo, ContextInterrupt, ContextLabel, ContextList,
    ContextListing, ContextName, ContextRun, Created, Deleted, Done, Failure, Interrupted, Notice,
    Reason, Span, State,
};

use super::branches::Origin;
use super::client::{Caller, json_of};
use super::requests::{Request, millis};
use super::session::{Doing, Kind, Phase, Work};
use super::{ClientId, Hub, LinkId, Party};

/// The time that interrupted code gets when the client says nothing.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// The most that a client may say.
const LONGEST_GRACE: Duration = Duration::from_secs(60);
/// Longer labels are refused.
const LONGEST_LABEL: usize = 128;
/// The most calls that wait in one context.
const MOST_WAITING: usize = 64;

/// What identifies a context: each party has names of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ContextKey {
    pub(super) party: Party,
    pub(super) name: String,
}

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) link: LinkId,
    /// The client that created it.
    pub(super) owner: ClientId,
    pub(super) keep: bool,
    pub(super) label: Option<String>,
    pub(super) idle_limit: Duration,
    /// Whether it was created to be forked.
    pub(super) branches: bool,
    /// Whether its forks execute again what it has executed.
    pub(super) replays: bool,
    /// What contexts that branch from it are opened with, where its language can.
    pub(super) branching: Option<Rc<Request>>,
    created: Instant,
    /// When it last had something to do.
    pub(super) used: Instant,
    /// After how long without anything to do it is suspended.
    pub(super) suspend_after: Option<Duration>,
    /// When that is next.
    pub(super) suspend_at: Option<Instant>,
}

/// What a context is created with.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) name: String,
    pub(super) label: Option<String>,
    pub(super) idle: Duration,
    pub(super) keep: bool,
    pub(super) suspend_after: Option<Duration>,
    pub(super) branches: bool,
    pub(super) replays: bool,
    pub(super) branching: Option<Rc<Request>>,
    /// What it begins with; its name is then chosen when it begins.
    pub(super) from: Option<Origin>,
}

impl Hub {
    /// `context.create`
    pub(super) fn create(&mut self, caller: &Caller, params: ContextCreate) -> Result<(), Failure> {
        let request = Request::read(&params.request)?;
        let parsed = &request.parsed;
        let given = [
            ("code", parsed.code.is_some()),
            ("name", parsed.name.is_some()),
            ("args", parsed.args.is_some()),
            ("argv", parsed.argv.is_some()),
            ("stdin", parsed.stdin.is_some()),
        ];
        if let Some((field, _)) = given.iter().find(|(_, is_given)| *is_given) {
            let message = format!("request: `{field}` belongs to an execution, not to a context");
            return Err(Failure::new(Code::BadParams, message).hint("give it to context.run"));
        }
        if params.replay && parsed.language.is_none() {
            let message = "replay: a context without a language executes nothing";
            return Err(Failure::new(Code::BadParams, message).hint("name a language"));
        }
        if params.branches && params.replay {
            let message = "branches, replay: a context can have only one of them";
            let hint = "branches copies memory, and replay executes everything again";
            return Err(Failure::new(Code::BadParams, message).hint(hint));
        }
        let branching = match request.forkable() {
            Err(failure) if params.branches => return Err(failure),
            Err(_) if !params.replay => None,
            _ => Some(Rc::new(request.without_files())),
        };
        check_label("label", params.label.as_deref())?;
        let most = self.settings.idle;
        let idle = match params.idle {
            None => most,
            Some(Bound(Some(asked))) if asked <= most => asked,
            Some(_) => {
                let message = format!("idle: wants at most {}s", most.as_secs_f64());
                return Err(Failure::new(Code::BadParams, message));
            }
        };
        let name = match params.context {
            None => self.new_name(self.party_of(caller.client)),
            Some(name) => self.check_name(self.party_of(caller.client), name)?,
        };
        let asked = [
            ("branches", params.branches),
            ("replay", params.replay),
            ("suspend_after", params.suspend_after.is_some()),
        ];
        let cell_of = match &params.cell_of {
            None => None,
            Some(cell_of) => Some(self.cell_for(caller, cell_of, asked, &request)?),
        };
        let creation = Creation {
            name,
            label: params.label,
            idle,
            keep: params.keep,
            suspend_after: params.suspend_after.and_then(|Bound(span)| span),
            branches: params.branches,
            replays: params.replay,
            branching,
            from: None,
        };
        match cell_of {
            Some(cell_of) => self.join(caller, cell_of, &request, &creation),
            None => self.enqueue_context(caller, request, creation),
        }
    }

    /// The party of a client.
    pub(super) fn party_of(&self, client: ClientId) -> Party {
        let client = self.clients.get(&client);
        client.map_or(Party::User(self.uid), |client| client.party)
    }

    fn check_name(&self, party: Party, name: String) -> Result<String, Failure> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_plain) {
            let message = "context: wants 1 to 64 letters, digits, - and _";
            return Err(Failure::new(Code::BadParams, message));
        }
        let key = ContextKey { party, name };
        match self.contexts.contains_key(&key) {
            true => Err(exists(&key.name)),
            false => Ok(key.name),
        }
    }

    pub(super) fn new_name(&self, party: Party) -> String {
        let keys = (0u64..).map(|salt| {
            let hash = self.secret.hash_one((self.next_link, self.now, salt));
            let name = format!("{:010x}", hash & 0xff_ffff_ffff);
            ContextKey { party, name }
        });
        let mut free = keys.filter(|key| !self.contexts.contains_key(key));
        free.next().map(|key| key.name).unwrap_or_default()
    }

    /// A context gets its cell.
    pub(super) fn note_context(&mut self, link: LinkId, owner: ClientId, creation: &Creation) {
        let key = ContextKey {
            party: self.party_of(owner),
            name: creation.name.clone(),
        };
        let context = Context {
            link,
            owner,
            keep: creation.keep,
            branches: creation.branches,
            replays: creation.replays,
            branching: creation.branching.clone(),
            label: creation.label.clone(),
            idle_limit: creation.idle,
            created: self.now,
            used: self.now,
            suspend_after: creation.suspend_after,
            suspend_at: None,
        };
        self.contexts.insert(key, context);
    }

    /// Answers the call that created a context.
    pub(super) fn greet(&mut self, link: LinkId, caller: &Caller) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        let (Kind::Context(context), Some((language, rootfs))) = (&session.kind, &session.opened)
        else {
            return;
        };
        if let Some(branch) = caller.branch {
            let begun = Branch::restored(context.name.clone(), session.restored.clone());
            return self.branch_over(branch, begun);
        }
        let created = Created {
            context: context.name.clone(),
            language: language.clone(),
            rootfs: rootfs.clone(),
            start: session.start,
            template: session.forked_from,
        };
        self.answer(caller, &created);
    }

    /// The key of a context that a client names.
    pub(super) fn key_of(&self, caller: &Caller, name: &str) -> ContextKey {
        ContextKey {
            party: self.party_of(caller.client),
            name: name.to_owned(),
        }
    }

    /// The context with this name, if this client may know of it.
    pub(super) fn find(&mut self, caller: &Caller, name: &str) -> Result<&mut Context, Failure> {
        let key = self.key_of(caller, name);
        self.contexts.get_mut(&key).ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            let message = format!("there is no context {shown:?}: it never existed, was deleted, or exceeded its idle limit");
            Failure::new(Code::NotFound, message).hint("context.list shows those that exist")
        })
    }

    /// Adds work to a context.
    pub(super) fn assign(
        &mut self,
        caller: &Caller,
        name: &str,
        work: impl FnOnce(&mut super::Session) -> Work,
    ) -> Result<(), Failure> {
        let now = self.now;
        let context = self.find(caller, name)?;
        context.used = now;
        let link = context.link;
        self.refuse_while_draining()?;
        let Some(session) = self.sessions.get_mut(&link) else {
            return Err(Failure::new(Code::Lost, "the context's cell is gone"));
        };
        if session.waiting.len() >= MOST_WAITING {
            let message = format!("{MOST_WAITING} calls wait in this context");
            let failure = Failure::new(Code::Busy, message);
            return Err(failure.retry_after(Duration::from_millis(100)));
        }
        let work = work(session);
        session.push(Some(caller.clone()), work);
        self.place(caller, link);
        self.pump(link);
        Ok(())
    }

    /// `context.run`
    pub(super) fn run_in_context(
        &mut self,
        caller: &Caller,
        params: ContextRun<Unread<RawText>>,
    ) -> Result<(), Failure> {
        let execute = Execute {
            execution: 0,
            code: Some(params.code),
            name: params.name,
            args: params.args,
            wall_ms: params.wall.and_then(millis),
            grace_ms: params.grace.and_then(millis),
            events: params.events,
            last: false,
        };
        self.assign(caller, &params.context, |_| Work::Execute(execute))
    }

    /// `context.interrupt`
    pub(super) fn interrupt(
        &mut self,
        caller: &Caller,
        params: &ContextInterrupt,
    ) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        let grace = within_bounds(params.grace)?.unwrap_or(GRACE);
        let session = self.sessions.get(&link);
        let running = session.and_then(super::Session::execution);
        let wanted = running.filter(|running| params.execution.is_none_or(|own| own == *running));
        if let Some(execution) = wanted {
            if session.is_some_and(|session| session.interrupts.len() >= MOST_WAITING) {
                let message = format!("{MOST_WAITING} interrupts wait in this context");
                return Err(Failure::new(Code::Busy, message));
            }
            self.interrupt_execution(link, execution, grace, Some(caller.clone()));
            return Ok(());
        }
        let interrupted = Interrupted {
            interrupted: params.execution.is_none() && self.stop_replay(link, grace),
            execution: None,
        };
        self.answer(caller, &interrupted);
        Ok(())
    }

    /// `context.restart`: what goes on ends first, since it might never do so by itself.
    pub(super) fn restart(&mut self, caller: &Caller, params: &ContextName) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        let running = self.sessions.get(&link).and_then(super::Session::execution);
        self.assign(caller, &params.context, |_| Work::Restart)?;
        match running {
            Some(execution) => self.cancel_execution(link, execution),
            None => drop(self.stop_replay(link, Duration::ZERO)),
        }
        Ok(())
    }

    /// `context.describe`
    pub(super) fn describe(
        &mut self,
        caller: &Caller,
        params: &ContextName,
    ) -> Result<(), Failure> {
        self.assign(caller, &params.context, |_| Work::Describe)
    }

    /// `context.label`
    pub(super) fn label(&mut self, caller: &Caller, params: ContextLabel) -> Result<(), Failure> {
        check_label("label", params.label.as_deref())?;
        let now = self.now;
        let context = self.find(caller, &params.context)?;
        context.label = params.label;
        context.used = now;
        context.keep |= params.keep;
        self.answer(caller, &Done { done: true });
        Ok(())
    }

    /// `context.list`
    pub(super) fn list(&mut self, caller: &Caller, params: &ContextListing) -> Result<(), Failure> {
        let party = self.party_of(caller.client);
        let is_seen = |key: &ContextKey, context: &Context| {
            let own = context.owner == caller.client;
            let kept = context.keep && key.party == party;
            let labelled = params.label.is_none() || context.label == params.label;
            let named = (params.context.as_ref()).is_none_or(|name| *name == key.name);
            (own || kept) && labelled && named
        };
        let seen = self
            .contexts
            .iter()
            .filter(|(key, context)| is_seen(key, context));
        let contexts = seen
            .map(|(key, context)| self.info(&key.name, context))
            .collect();
        self.answer(caller, &ContextList { contexts });
        Ok(())
    }

    fn info(&self, name: &str, context: &Context) -> ContextInfo {
        let session = self.sessions.get(&context.link);
        let current = session.and_then(|session| session.current.as_ref());
        let doing = match current.map(|current| current.doing) {
            None if session.is_some_and(|session| session.phase == Phase::Waiting) => "starting",
            None if session.is_some_and(|session| session.phase != Phase::Active) => "suspended",
            Some(Doing::Open) => "starting",
            Some(_) => "busy",
            None => "idle",
        };
        let opened = session.and_then(|session| session.opened.as_ref());
        let since = |then: Instant| {
            let passed = self.now.saturating_duration_since(then);
            u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
        };
        ContextInfo {
            context: name.to_owned(),
            label: context.label.clone(),
            language: opened.and_then(|(language, _)| language.clone()),
            doing: doing.to_owned(),
            is_alive: session.is_some_and(|session| {
                session.phase == Phase::Active && session.opened.is_some() && !session.has_ended
            }),
            waiting: session.map_or(0, |session| session.waiting.len()),
            executions: session.map_or(0, |session| session.executions),
            age_ms: since(context.created),
            idle_ms: match current {
                Some(_) => 0,
                None => since(context.used),
            },
            idle_limit_ms: millis(Bound(Some(context.idle_limit))).unwrap_or(0),
            keep: context.keep,
            cell_of: session.and_then(|session| self.name_of_cell(session)),
            suspended_bytes: session
                .and_then(|session| session.suspension.as_ref())
                .map(|held| held.complete.bytes),
        }
    }

    /// `context.delete`: the answer comes when everything is gone.
    pub(super) fn delete(&mut self, caller: &Caller, params: &ContextName) -> Result<(), Failure> {
        self.find(caller, &params.context)?;
        let key = self.key_of(caller, &params.context);
        self.end_context(&key, "the context was deleted", Some(caller));
        Ok(())
    }

    /// Ends a context; what waits in it fails.
    pub(super) fn end_context(&mut self, key: &ContextKey, why: &str, deleted_by: Option<&Caller>) {
        let name = &key.name;
        let Some(context) = self.contexts.remove(key) else {
            return;
        };
        match (self.sessions.get_mut(&context.link), deleted_by) {
            (Some(session), Some(caller)) => {
                session.deleted_by.push((caller.clone(), name.to_owned()));
            }
            (None, Some(caller)) => {
                let deleted = name.to_owned();
                self.answer(caller, &Deleted { deleted });
            }
            _ => {}
        }
        self.end_whole(context.link, Code::Lost, why);
    }

    /// Contexts that exceeded their idle limit.
    pub(super) fn end_idle_contexts(&mut self) {
        let late: Vec<_> = self
            .contexts
            .iter()
            .filter(|(_, context)| self.idle_end(context).is_some_and(|end| end <= self.now))
            .map(|(key, context)| (key.clone(), context.owner))
            .collect();
        for (key, owner) in late {
            let why = "it exceeded its idle limit";
            self.end_context(&key, why, None);
            self.tell_end(owner, &key.name, why);
        }
    }

    /// When the first context will have had nothing to do for too long.
    pub(super) fn next_idle_end(&self) -> Option<Instant> {
        let ends = self
            .contexts
            .values()
            .filter_map(|context| self.idle_end(context));
        ends.min()
    }

    /// `None` while it has something to do.
    fn idle_end(&self, context: &Context) -> Option<Instant> {
        let session = self.sessions.get(&context.link)?;
        let is_idle = session.is_idle() && !self.has_busy_guests(session);
        is_idle.then(|| context.used + context.idle_limit)
    }

    /// Tells a client that its context is gone.
    pub(super) fn tell_end(&mut self, client: ClientId, context: &str, why: &str) {
        let notice = Notice::ContextEnded {
            context: context.to_owned(),
            why: why.to_owned(),
        };
        self.tell(client, None, &json_of(&notice));
    }

    /// Notes that the context of a session has nothing more to do for now.
    pub(super) fn touch_session(&mut self, link: LinkId) {
        let session = self.sessions.get(&link);
        let Some((Kind::Context(key), cell_of)) = session.map(|own| (&own.kind, own.cell_of))
        else {
            return;
        };
        if let Some(context) = self.contexts.get_mut(key) {
            context.used = self.now;
            context.suspend_at = context.suspend_after.map(|after| self.now + after);
        }
        if let Some(cell_of) = cell_of {
            self.touch_session(cell_of);
        }
    }
}

/// Checks the time that a client gives interrupted code.
pub(super) fn within_bounds(grace: Option<Span>) -> Result<Option<Duration>, Failure> {
    match grace {
        None => Ok(None),
        Some(Bound(Some(grace))) if grace <= LONGEST_GRACE => Ok(Some(grace)),
        Some(_) => Err(Failure::new(Code::BadParams, "grace: wants at most 60s")),
    }
}

/// Refuses a label in this parameter that is too long.
pub(super) fn check_label(parameter: &str, label: Option<&str>) -> Result<(), Failure> {
    match label.is_some_and(|label| label.len() > LONGEST_LABEL) {
        true => {
            let message = format!("{parameter}: wants at most {LONGEST_LABEL} bytes");
            Err(Failure::new(Code::BadParams, message))
        }
        false => Ok(()),
    }
}

/// A name that is in use.
pub(super) fn exists(name: &str) -> Failure {
    let message = format!("context: {name} exists already");
    Failure::new(Code::BadParams, message)
        .because(Reason::Exists)
        .hint("name another, or leave it out")
}

/// The state of a context after a restart.
pub(super) const RESTARTED: (State, &str) = (State::Lost, "the interpreter was restarted");
