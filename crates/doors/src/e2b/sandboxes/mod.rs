//! The sandboxes that exist, and what clients said about them.
//!
//! The hub has the cells; only what E2B's clients need besides is here. It is lost with the server,
//! like the cells.

mod cells;
mod keys;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::task::AbortHandle;
use tokio::time::Instant;
use wire::{Code, Failure, Party};

use super::HOME;
use super::control::{Closed, Network};
use super::envd::Watchers;
use crate::random;
pub(super) use cells::delete;
use keys::Keys;

/// The most contexts of a sandbox.
const MOST_CONTEXTS: usize = 32;
/// The random bytes of a sandbox's id.
const ID_BYTES: usize = 10;

/// The id that the SDKs use with `E2B_DEBUG`: then they create no sandbox.
pub(super) const DEBUG_SANDBOX: &str = "debug_sandbox_id";

/// All sandboxes, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Sandboxes {
    all: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// Keys of requests that create them.
    pub(super) keys: Keys,
}

/// What a sandbox is created with.
#[derive(Clone, Debug)]
pub(super) struct Creation {
    pub(super) template: String,
    pub(super) language: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) envs: BTreeMap<String, String>,
    /// The network of its requests to the hub, unless it is the server's.
    pub(super) network: Option<Closed>,
    /// The client's own description of the network, which is shown to clients again.
    pub(super) given_network: Network,
    pub(super) internet: Option<bool>,
    /// Whether its state can be carried, so that it can be paused and forked.
    pub(super) branches: bool,
    pub(super) pauses_at_end: bool,
    pub(super) resumes_by_itself: bool,
    /// Whether the workspace is at [`HOME`] in its cells.
    pub(super) has_home: bool,
}

/// A sandbox.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) party: Party,
    pub(super) creation: Creation,
    /// The context of the hub with its files.
    pub(super) main: String,
    /// The token for requests to envd.
    pub(super) access_token: String,
    /// The token for requests to other ports.
    pub(super) traffic_token: String,
    pub(super) watchers: Watchers,
    began: (Instant, SystemTime),
    inside: Mutex<Inside>,
}

/// The part of a sandbox that changes.
#[derive(Debug)]
struct Inside {
    ends: Instant,
    is_paused: bool,
    is_gone: bool,
    contexts: Vec<CodeContext>,
    /// The task that ends or pauses it in time.
    clock: Option<AbortHandle>,
}

/// A context for code, as clients see it. Its id is that of a context of the hub.
#[derive(Clone, Debug)]
pub(super) struct CodeContext {
    pub(super) id: String,
    pub(super) language: String,
    pub(super) cwd: String,
    /// Whether code without a context is executed in it.
    pub(super) is_default: bool,
    /// The number of executions that no client asked for.
    pub(super) hidden: u64,
    /// Held during an execution, including what is executed before and after it for its client.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl CodeContext {
    /// The default context for code of its language.
    fn default_for(id: String, language: &str) -> Self {
        Self {
            id,
            language: language.to_owned(),
            cwd: HOME.to_owned(),
            is_default: true,
            hidden: 0,
            turn: Arc::default(),
        }
    }
}

impl Sandboxes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Sandbox>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.all().get(id).cloned()
    }

    /// The sandboxes of a party.
    pub(super) fn of(&self, party: Party) -> Vec<Arc<Sandbox>> {
        let all = self.all();
        let own = all.values().filter(|sandbox| sandbox.party == party);
        own.cloned().collect()
    }

    /// The first sandbox that satisfies the condition.
    pub(super) fn first(&self, is_it: impl Fn(&Sandbox) -> bool) -> Option<Arc<Sandbox>> {
        self.all().values().find(|sandbox| is_it(sandbox)).cloned()
    }

    pub(super) fn add(&self, sandbox: Arc<Sandbox>) {
        self.all().insert(sandbox.id.clone(), sandbox);
    }

    /// Removes a sandbox from the list; returns whether it was there.
    pub(super) fn remove(&self, sandbox: &Sandbox) -> bool {
        let mut inside = sandbox.inside();
        inside.is_gone = true;
        if let Some(clock) = inside.clock.take() {
            clock.abort();
        }
        drop(inside);
        sandbox.watchers.end();
        self.all().remove(&sandbox.id).is_some()
    }
}

impl Sandbox {
    /// A sandbox with this id, or with a new one that cannot be guessed.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub(super) fn new(
        id: Option<String>,
        party: Party,
        creation: Creation,
        life: Duration,
    ) -> Result<Self, Failure> {
        let id = match id {
            Some(id) => id,
            None => secret(ID_BYTES)?,
        };
        let main = format!("{id}-1");
        Self::with(id, main, party, creation, life)
    }

    /// A sandbox that goes on from another's state, in this context of the hub.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub(super) fn of_fork(from: &Self, main: String, life: Duration) -> Result<Self, Failure> {
        let creation = from.creation.clone();
        Self::with(secret(ID_BYTES)?, main, from.party, creation, life)
    }

    fn with(
        id: String,
        main: String,
        party: Party,
        creation: Creation,
        life: Duration,
    ) -> Result<Self, Failure> {
        let now = Instant::now();
        let own = CodeContext::default_for(main.clone(), &creation.language);
        let sandbox = Self {
            party,
            access_token: secret(24)?,
            traffic_token: secret(24)?,
            watchers: Watchers::default(),
            began: (now, SystemTime::now()),
            inside: Mutex::new(Inside {
                ends: now + life,
                is_paused: false,
                is_gone: false,
                contexts: vec![own],
                clock: None,
            }),
            id,
            main,
            creation,
        };
        // E2B's image has both from the start; their cells are made when they are used.
        for language in ["python", "javascript"] {
            if sandbox.creation.language != language {
                sandbox.add_context(language, HOME, true)?;
            }
        }
        Ok(sandbox)
    }

    /// Whether its cells are made only when they are used, because no client creates it.
    pub(super) fn is_made_when_used(&self) -> bool {
        self.id == DEBUG_SANDBOX
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn began(&self) -> SystemTime {
        self.began.1
    }

    /// When it ends or is paused by itself.
    pub(super) fn ends(&self) -> Instant {
        self.inside().ends
    }

    /// The wall-clock time at which it ends or is paused by itself.
    pub(super) fn end_time(&self) -> SystemTime {
        self.began.1 + self.ends().saturating_duration_since(self.began.0)
    }

    pub(super) fn end_after(&self, life: Duration) {
        self.inside().ends = Instant::now() + life;
    }

    pub(super) fn is_paused(&self) -> bool {
        self.inside().is_paused
    }

    /// As clients see it.
    pub(super) fn state(&self) -> &'static str {
        match self.is_paused() {
            true => "paused",
            false => "running",
        }
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.inside().is_gone
    }

    pub(super) fn set_paused(&self, is_paused: bool) {
        self.inside().is_paused = is_paused;
    }

    pub(super) fn set_clock(&self, clock: Option<AbortHandle>) {
        if let Some(before) = std::mem::replace(&mut self.inside().clock, clock) {
            before.abort();
        }
    }

    pub(super) fn contexts(&self) -> Vec<CodeContext> {
        self.inside().contexts.clone()
    }

    pub(super) fn context(&self, is_it: impl Fn(&CodeContext) -> bool) -> Option<CodeContext> {
        self.inside().contexts.iter().find(|it| is_it(it)).cloned()
    }

    /// Adds a context, whose cell is made when it is used.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn add_context(
        &self,
        language: &str,
        cwd: &str,
        is_default: bool,
    ) -> Result<CodeContext, Failure> {
        // The ids of contexts cannot be guessed from the sandbox's id.
        let id = format!("{}-{}", self.id, secret(8)?);
        let mut inside = self.inside();
        if inside.contexts.len() >= MOST_CONTEXTS {
            let message = format!("a sandbox has at most {MOST_CONTEXTS} contexts");
            return Err(Failure::new(Code::Failed, message));
        }
        let context = CodeContext {
            cwd: cwd.to_owned(),
            is_default,
            ..CodeContext::default_for(id, language)
        };
        inside.contexts.push(context.clone());
        Ok(context)
    }

    pub(super) fn remove_context(&self, id: &str) {
        self.inside().contexts.retain(|context| context.id != id);
    }
}

/// Whether this has the form of a sandbox's id.
pub(super) fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == 2 * ID_BYTES && text.bytes().all(is_digit)
}

/// This number of random bytes, as hexadecimal digits.
pub(super) fn secret(bytes: usize) -> Result<String, Failure> {
    Ok(record::bytes::hex(&random::bytes(bytes)?))
}
