//! Checkpoints of contexts, and contexts that go on from one.
//!
//! A fork is a checkpoint, and for each branch a new context that begins with it. Each
//! branch waits for its cell like any other call, as a part of the call: its outcome is
//! kept until all have one.

use std::path::PathBuf;

use supervisor::{Layout, Order};
use wire::{
    Branch, Code, ContextDiff, ContextForget, ContextFork, ContextName, ContextRewind, Done,
    Failure, Reason, Shares,
};

mod reports;

use super::client::Caller;
use super::session::{Doing, Work};
use super::{Action, Hub, LinkId, Party};
use crate::Settings;

/// The most contexts that one call makes.
const MOST_BRANCHES: usize = 32;

/// What to do with state and workspace.
#[derive(Debug)]
pub(super) enum Carry {
    /// Makes a checkpoint, for so many branches or to be kept.
    Checkpoint { branches: Option<usize> },
    /// Begins with a checkpoint.
    Begin(Origin),
    /// Goes back to a checkpoint of its own, or to the last one.
    Rewind(Option<u64>),
    /// Compares with a checkpoint of its own.
    Compare(u64),
    /// Makes a checkpoint, after which the processes end.
    Suspend,
    /// Goes on from that.
    Wake(Origin),
    /// Makes a lost state again.
    Resume,
}

/// What a context begins with: a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) directory: PathBuf,
    pub(super) layout: Layout,
    /// The template that the interpreter was forked from.
    pub(super) template: Option<u64>,
}

/// A checkpoint that is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complete {
    /// Bytes of memory and files.
    pub(super) bytes: u64,
    pub(super) layout: Layout,
}

/// A fork whose branches have not all begun.
#[derive(Debug)]
pub(super) struct Fork {
    caller: Caller,
    party: Party,
    /// Bytes of its checkpoint.
    bytes: u64,
    /// The template that its branches are forked from.
    template: Option<u64>,
    branches: Vec<Option<Branch>>,
}

/// What a fork is made of.
#[derive(Clone, Copy, Debug)]
struct Forking {
    /// Of the checkpoint.
    number: u64,
    complete: Complete,
    count: usize,
    template: Option<u64>,
}

impl Carry {
    /// Whether it needs a cell with one interpreter.
    pub(super) const fn is_alone(&self) -> bool {
        !matches!(self, Self::Compare(_) | Self::Resume)
    }
}

impl Complete {
    pub(super) fn new(bytes: u64, layout: Layout) -> Self {
        Self { bytes, layout }
    }
}

impl Hub {
    /// Whether contexts have the layout of this template, and others may begin with it.
    pub fn uses_template(&self, number: u64) -> bool {
        let mut sessions = self.sessions.values().map(|session| session.template);
        let mut forks = self.forks.values().map(|fork| fork.template);
        sessions.any(|template| template == Some(number))
            || forks.any(|template| template == Some(number))
    }

    /// A supervisor was made that can fork the template with this number.
    pub fn can_fork(&mut self, link: LinkId, template: u64) {
        if let Some(session) = self.sessions.get_mut(&link) {
            session.template = Some(template);
        }
    }

    /// `context.fork`
    pub(super) fn fork(&mut self, caller: &Caller, params: &ContextFork) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        self.refuse_if_shared("forked", &params.context, link)?;
        if !self.has_like(link) {
            return Err(unlike("forked", &params.context));
        }
        let count = params.n;
        if !(1..=MOST_BRANCHES).contains(&count) {
            let message = format!("n: is {count}, but wants 1 to {MOST_BRANCHES}");
            return Err(Failure::new(Code::BadParams, message));
        }
        let branches = Some(count);
        let carry = Carry::Checkpoint { branches };
        self.assign(caller, &params.context, |_| Work::Carry(carry))
    }

    /// `context.checkpoint`
    pub(super) fn checkpoint(
        &mut self,
        caller: &Caller,
        params: &ContextName,
    ) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        self.refuse_if_shared("carried", &params.context, link)?;
        let carry = Carry::Checkpoint { branches: None };
        self.assign(caller, &params.context, |_| Work::Carry(carry))
    }

    /// `context.rewind`
    pub(super) fn rewind(
        &mut self,
        caller: &Caller,
        params: &ContextRewind,
    ) -> Result<(), Failure> {
        let link = self.find(caller, &params.context)?.link;
        self.refuse_if_shared("rewound", &params.context, link)?;
        let carry = Carry::Rewind(params.checkpoint);
        self.assign(caller, &params.context, |_| Work::Carry(carry))
    }

    /// `context.diff`
    pub(super) fn diff(&mut self, caller: &Caller, params: &ContextDiff) -> Result<(), Failure> {
        let carry = Carry::Compare(params.with);
        self.assign(caller, &params.context, |_| Work::Carry(carry))
    }

    /// `context.forget`
    pub(super) fn forget(
        &mut self,
        caller: &Caller,
        params: &ContextForget,
    ) -> Result<(), Failure> {
        let checkpoint = params.checkpoint;
        self.assign(caller, &params.context, |_| Work::Forget(checkpoint))
    }

    /// The order for a piece of work whose turn it is.
    pub(super) fn carrying(
        &mut self,
        link: LinkId,
        carry: Carry,
    ) -> Result<(Order, Doing), Failure> {
        if carry.is_alone() {
            let name = self.sessions.get(&link);
            let name = name.and_then(|session| session.kind.context());
            self.refuse_if_shared("carried", name.unwrap_or_default(), link)?;
        }
        let session = self.sessions.get(&link);
        let party = session.and_then(|session| session.kind.party());
        let party = party.unwrap_or(Party::User(self.uid));
        match carry {
            Carry::Checkpoint { .. } => self.refuse_when_full(party, true)?,
            // Suspensions do not count: a context has at most one.
            Carry::Suspend => self.refuse_when_full(party, false)?,
            _ => {}
        }
        let id = self.checkpoints + 1;
        let most = Some(self.room_for_checkpoint(party));
        let restore = |from, layout, why| Order::Restore {
            id,
            from,
            layout,
            why,
        };
        let done = match carry {
            Carry::Checkpoint { branches } => {
                let to = self.directory(id)?;
                if let Some(session) = self.sessions.get_mut(&link) {
                    session.checkpoints.insert(id, None);
                }
                (
                    Order::Checkpoint { id, to, most },
                    Doing::Checkpoint { id, branches },
                )
            }
            Carry::Suspend => {
                let to = self.directory(id)?;
                if let Some(session) = self.sessions.get_mut(&link) {
                    session.checkpoints.insert(id, None);
                }
                (Order::Checkpoint { id, to, most }, Doing::Suspend { id })
            }
            Carry::Wake(origin) => {
                let why = Some(super::suspend::CONTINUED.to_owned());
                let order = restore(origin.directory, origin.layout, why);
                (order, Doing::Wake { id })
            }
            Carry::Resume => (Order::Resume { id }, Doing::Resume { id }),
            Carry::Begin(origin) => {
                let checkpoint = None;
                let order = restore(origin.directory, origin.layout, None);
                (order, Doing::Restore { id, checkpoint })
            }
            Carry::Rewind(wanted) => {
                let (number, layout) = self.own(link, wanted)?;
                let order = restore(self.directory(number)?, layout, None);
                let checkpoint = Some(number);
                (order, Doing::Restore { id, checkpoint })
            }
            Carry::Compare(wanted) => {
                let (number, _) = self.own(link, Some(wanted))?;
                let with = self.directory(number)?;
                (
                    Order::Compare { id, with },
                    Doing::Compare { id, with: number },
                )
            }
        };
        self.checkpoints = id;
        Ok(done)
    }

    /// The directory of the checkpoint with this number.
    pub(super) fn directory(&self, number: u64) -> Result<PathBuf, Failure> {
        let base = self.settings.checkpoints.as_ref();
        let directory = base.map(|base| base.join(number.to_string()));
        directory.ok_or_else(|| {
            let message = "the server has no directory for checkpoints";
            Failure::new(Code::Failed, message)
                .hint("start it with TMPDIR set to a directory that it can write to")
        })
    }

    /// A complete checkpoint of a context: this one, or the last.
    fn own(&self, link: LinkId, wanted: Option<u64>) -> Result<(u64, Layout), Failure> {
        let session = self.sessions.get(&link);
        let all = session.into_iter().flat_map(|session| &session.checkpoints);
        let mut complete = all.filter_map(|(number, held)| Some((*number, (*held)?.layout)));
        let found = match wanted {
            Some(wanted) => complete.find(|(number, _)| *number == wanted),
            None => complete.next_back(),
        };
        found.ok_or_else(|| {
            let message = match wanted {
                Some(wanted) => format!("the context has no checkpoint {wanted}"),
                None => "the context has no checkpoint".to_owned(),
            };
            Failure::new(Code::NotFound, message).hint("context.checkpoint makes one")
        })
    }

    /// The checkpoints that each party has, and their bytes together with those of suspended
    /// contexts.
    pub(super) fn held(&self) -> (Shares, Shares) {
        let Settings {
            max_checkpoints,
            checkpoint_bytes,
            parties,
            ..
        } = self.settings;
        let mut count = Shares::new(max_checkpoints, parties);
        let mut bytes = Shares::new(in_memory(checkpoint_bytes), parties);
        for session in self.sessions.values() {
            let Some(party) = session.kind.party() else {
                continue;
            };
            let suspended = session.suspension.iter().map(|held| held.complete.bytes);
            suspended.for_each(|own| bytes.add(party, in_memory(own)));
            for held in session.checkpoints.values() {
                count.take(party);
                bytes.add(party, in_memory(held.map_or(0, |held| held.bytes)));
            }
        }
        for fork in self.forks.values() {
            count.take(fork.party);
            bytes.add(fork.party, in_memory(fork.bytes));
        }
        (count, bytes)
    }

    /// The bytes that another checkpoint of a party can have.
    pub(super) fn room_for_checkpoint(&self, party: Party) -> u64 {
        self.held().1.room(party) as u64
    }

    fn refuse_when_full(&self, party: Party, counts: bool) -> Result<(), Failure> {
        let (count, bytes) = self.held();
        if (count.has_room_for(party) || !counts) && bytes.has_room_for(party) {
            return Ok(());
        }
        Err(full(&format!(
            "this client's party has {} checkpoints of {} bytes, and there is no room for another",
            count.held(party),
            bytes.held(party)
        )))
    }

    /// Removes a checkpoint of a context.
    pub(super) fn forget_in(&mut self, link: LinkId, caller: Option<&Caller>, checkpoint: u64) {
        let found = self.own(link, Some(checkpoint));
        if found.is_ok() {
            if let Some(session) = self.sessions.get_mut(&link) {
                session.checkpoints.remove(&checkpoint);
            }
            self.remove_checkpoint(checkpoint);
        }
        match (caller, found) {
            (Some(caller), Ok(_)) => self.answer(caller, &Done { done: true }),
            (Some(caller), Err(failure)) => self.fail(caller, failure),
            (None, _) => {}
        }
    }

    /// Has a checkpoint's directory removed.
    pub(super) fn remove_checkpoint(&mut self, number: u64) {
        if let Ok(directory) = self.directory(number) {
            self.actions.push_back(Action::Remove(directory));
        }
    }
}

/// A number of bytes, as amounts that are shared are counted.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A context whose state fits no other.
pub(super) fn unlike(what: &str, context: &str) -> Failure {
    let message = format!(
        "context {context} cannot be {what}: it was created without --branches, so its interpreter's memory is laid out at random, and no template has this layout"
    );
    Failure::new(Code::Failed, message).because(Reason::RandomLayout).hint(
        "create the context with --branches (\"branches\": true), or use a pool of --warm python:N with --preload; in every language, --replay (\"replay\": true) executes again what was executed",
    )
}

fn full(message: &str) -> Failure {
    Failure::new(Code::Failed, message)
        .hint("remove some with context.forget, or raise --max-checkpoints and --checkpoint-space")
}
