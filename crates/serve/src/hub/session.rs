//! A cell as the front end sees it: what it serves, and the work that waits for it.

mod ends;
mod stops;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use supervisor::{Execute, FileOrder, Layout, Open, Order};
use wire::{CallId, Start};

use super::branches::{Carry, Complete};
use super::client::{Caller, json_of};
use super::contexts::ContextKey;
use super::processes::Processes;
use super::suspend::Suspension;
use super::{Action, ClientId, Hub, LinkId, Party};
use record::Template;

/// How long a supervisor may take to make a cell.
const OPENING: Duration = Duration::from_secs(120);
/// How long it may take for an order that executes nothing.
const ERRAND: Duration = Duration::from_secs(60);
/// How long it may take to carry state and workspace to or from the disk.
const CARRYING: Duration = Duration::from_secs(180);
/// How long a replay may take; it has a limit of its own, too.
const REPLAYING: Duration = Duration::from_secs(900);
/// How long it may take to end a cell.
pub(super) const ENDING: Duration = Duration::from_secs(15);

/// One cell and its supervisor.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) kind: Kind,
    /// Its memory limit in bytes; 0 when it has none.
    pub(super) memory: u64,
    pub(super) start: Start,
    /// The language and rootfs, once the cell exists.
    pub(super) opened: Option<(Option<String>, String)>,
    /// The deadline for its cell, where the supervisor executes code next, of itself.
    pub(super) opening: Option<Instant>,
    /// Whether its interpreter was forked from the server's template.
    pub(super) forked: bool,
    /// That template, as it was then.
    pub(super) forked_from: Option<Template>,
    /// Work to do, in order.
    pub(super) waiting: VecDeque<Job>,
    /// What the supervisor does now.
    pub(super) current: Option<Current>,
    /// The number of the last execution.
    pub(super) executions: u64,
    /// The number of the last order about files.
    pub(super) files: u64,
    /// The template that its supervisor can fork.
    pub(super) template: Option<u64>,
    /// Whether it has a supervisor.
    pub(super) phase: Phase,
    /// The state that it goes on from when it has something to do.
    pub(super) suspension: Option<Suspension>,
    /// The session whose cell its interpreter is in, if that is not its own.
    pub(super) cell_of: Option<LinkId>,
    /// The sessions of other interpreters in its cell.
    pub(super) guests: Vec<LinkId>,
    /// Whether its interpreter has ended, as its supervisor said last.
    pub(super) has_ended: bool,
    /// Why its state is that of the checkpoint from which it began.
    pub(super) restored: Option<String>,
    /// Its checkpoints; `None` until they are complete.
    pub(super) checkpoints: BTreeMap<u64, Option<Complete>>,
    pub(super) processes: Processes,
    /// Who gets the changes that a watch sees.
    pub(super) watches: BTreeMap<u64, (ClientId, CallId)>,
    /// Files of which clients have sent only parts.
    pub(super) uploads: BTreeSet<(ClientId, PathBuf)>,
    /// When the supervisor has taken too long.
    pub(super) deadline: Option<Instant>,
    /// Whether the cell is ending.
    pub(super) ending: bool,
    /// Why it ended, as the supervisor says.
    pub(super) why: Option<String>,
    /// For each order to interrupt that has no report yet, the call that waits for it.
    pub(super) interrupts: VecDeque<Option<Caller>>,
    /// Calls that are answered when it is gone, with the context's id.
    pub(super) deleted_by: Vec<(Caller, String)>,
}

/// Whether a session has a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has.
    Active,
    /// It is suspended, and its processes are ending.
    Leaving,
    /// It is suspended.
    Suspended,
    /// It waits for a cell to go on in.
    Waiting,
}

/// What a cell serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It waits in the pool with this index.
    Warm(usize),
    /// One call of this party.
    Run(Party),
    /// The context with this key.
    Context(ContextKey),
}

impl Kind {
    /// The name of the context, if it is one.
    pub(super) fn context(&self) -> Option<&str> {
        match self {
            Self::Context(key) => Some(&key.name),
            Self::Warm(_) | Self::Run(_) => None,
        }
    }

    /// The party that it serves.
    pub(super) const fn party(&self) -> Option<Party> {
        match self {
            Self::Context(key) => Some(key.party),
            Self::Run(party) => Some(*party),
            Self::Warm(_) => None,
        }
    }
}

/// A piece of work.
#[derive(Debug)]
pub(super) struct Job {
    /// Who gets the answer.
    pub(super) caller: Option<Caller>,
    pub(super) work: Work,
}

/// What to do.
#[derive(Debug)]
pub(super) enum Work {
    Open(Open),
    /// Nothing: the answer to the call that created the context.
    Greet,
    Execute(Execute),
    Restart,
    Describe,
    File {
        id: u64,
        what: FileOrder,
    },
    /// An order to start a process, which only waits for the cell.
    Process(String),
    Carry(Carry),
    /// Makes the supervisor note what is executed from now on.
    Remember,
    /// Drops the checkpoint with this number.
    Forget(u64),
}

/// The piece of work that the supervisor has been ordered to do.
#[derive(Debug)]
pub(super) struct Current {
    /// Who gets the answer.
    pub(super) caller: Option<Caller>,
    pub(super) doing: Doing,
}

/// What a supervisor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Open,
    Execute {
        execution: u64,
        events: bool,
    },
    Restart,
    Describe,
    File {
        id: u64,
        is_watch: bool,
    },
    /// For so many branches, or to be kept.
    Checkpoint {
        id: u64,
        branches: Option<usize>,
    },
    /// Goes back to this checkpoint of its own, or begins as a branch.
    Restore {
        id: u64,
        checkpoint: Option<u64>,
    },
    Compare {
        id: u64,
        with: u64,
    },
    /// Makes the checkpoint of a suspension.
    Suspend {
        id: u64,
    },
    /// Goes on from it.
    Wake {
        id: u64,
    },
    /// Queries the state, and restores a lost one by replay if possible.
    Resume {
        id: u64,
    },
}

impl Doing {
    /// Whether it needs a cell with one interpreter.
    const fn is_alone(self) -> bool {
        matches!(
            self,
            Self::Checkpoint { .. }
                | Self::Restore { .. }
                | Self::Suspend { .. }
                | Self::Wake { .. }
        )
    }
}

impl Session {
    pub(super) fn new(kind: Kind, memory: u64, open: Open) -> Self {
        Self {
            kind,
            memory,
            start: Start::Cold,
            opened: None,
            opening: None,
            forked: false,
            forked_from: None,
            waiting: VecDeque::from([Job {
                caller: None,
                work: Work::Open(open),
            }]),
            current: None,
            executions: 0,
            files: 0,
            template: None,
            phase: Phase::Active,
            suspension: None,
            cell_of: None,
            guests: Vec::new(),
            has_ended: false,
            restored: None,
            checkpoints: BTreeMap::new(),
            processes: Processes::default(),
            watches: BTreeMap::new(),
            uploads: BTreeSet::new(),
            deadline: None,
            ending: false,
            why: None,
            interrupts: VecDeque::new(),
            deleted_by: Vec::new(),
        }
    }

    pub(super) fn is_run(&self) -> bool {
        matches!(self.kind, Kind::Run(_))
    }

    /// Whether it has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        let is_busy = self.current.is_some() || !self.waiting.is_empty();
        !is_busy && !self.processes.are_listened_to()
    }

    /// Whether its state is being saved or restored, or is to be.
    pub(super) fn is_carried(&self) -> bool {
        let is_now = (self.current.as_ref()).is_some_and(|current| current.doing.is_alone());
        let is_alone = |job: &Job| matches!(&job.work, Work::Carry(carry) if carry.is_alone());
        is_now || self.waiting.iter().any(is_alone)
    }

    /// Whether it has a cell, or gets one now.
    pub(super) fn has_cell(&self) -> bool {
        matches!(self.phase, Phase::Active | Phase::Leaving)
    }

    pub(super) fn is_warm(&self) -> bool {
        matches!(self.kind, Kind::Warm(_))
    }

    /// Whether its interpreter is to be forked from the server's template.
    fn forks(&self) -> bool {
        let is_fork = |job: &Job| matches!(&job.work, Work::Open(open) if open.forked);
        self.waiting.iter().any(is_fork)
    }

    pub(super) fn push(&mut self, caller: Option<Caller>, work: Work) {
        self.waiting.push_back(Job { caller, work });
    }

    pub(super) fn next_file(&mut self) -> u64 {
        self.files += 1;
        self.files
    }

    /// Whether a call is among its work.
    pub(super) fn has(&self, target: &Caller) -> bool {
        let current = self.current.iter().filter_map(|job| job.caller.as_ref());
        let waiting = self.waiting.iter().filter_map(|job| job.caller.as_ref());
        current.chain(waiting).any(|caller| caller == target)
    }

    /// The number of the execution that goes on.
    pub(super) fn execution(&self) -> Option<u64> {
        match self.current.as_ref()?.doing {
            Doing::Execute { execution, .. } => Some(execution),
            _ => None,
        }
    }

    /// The number of the execution that goes on for this call.
    pub(super) fn executing(&self, target: &Caller) -> Option<u64> {
        let caller = self.current.as_ref()?.caller.as_ref();
        self.execution().filter(|_| caller == Some(target))
    }

    /// Drops all work; returns the calls that wait for it.
    pub(super) fn take_callers(&mut self) -> Vec<Caller> {
        let current = self.current.take().and_then(|current| current.caller);
        let waiting = self.waiting.drain(..).filter_map(|job| job.caller);
        let of_processes = self.processes.take_callers();
        let interrupts = self.interrupts.drain(..).flatten();
        (current.into_iter().chain(waiting))
            .chain(of_processes)
            .chain(interrupts)
            .collect()
    }
}

impl Hub {
    /// Makes a supervisor for a session.
    pub(super) fn begin(&mut self, session: Session) -> LinkId {
        self.next_link += 1;
        let link = self.next_link;
        self.actions
            .push_back(match (session.cell_of, session.forks()) {
                (Some(cell_of), _) => Action::Admit(link, cell_of),
                (None, true) => Action::SpawnForking(link, session.template),
                (None, false) => Action::Spawn(link),
            });
        self.sessions.insert(link, session);
        link
    }

    /// Has a session do its next piece of work, unless it is busy.
    pub(super) fn pump(&mut self, link: LinkId) {
        let mut opening = None;
        loop {
            let Some(session) = self.sessions.get_mut(&link) else {
                return;
            };
            if session.current.is_some() || session.ending {
                return;
            }
            if session.phase != Phase::Active {
                return self.line_up_if_needed(link);
            }
            let Some(Job { caller, work }) = session.waiting.pop_front() else {
                return self.rest(link);
            };
            let (order, doing, patience) = match work {
                Work::Greet => {
                    if let Some(caller) = caller {
                        self.greet(link, &caller);
                    }
                    continue;
                }
                Work::Open(open) => {
                    let order = Order::Open(open);
                    let next = session.waiting.front();
                    if next.is_some_and(|next| matches!(next.work, Work::Execute(_))) {
                        // The supervisor need not wait for that order.
                        opening = Some(self.now + OPENING);
                        self.actions.push_back(Action::Order(link, json_of(&order)));
                        continue;
                    }
                    (order, Doing::Open, Some(OPENING))
                }
                Work::Execute(mut execute) => {
                    session.executions += 1;
                    session.opening = opening;
                    execute.execution = session.executions;
                    let doing = Doing::Execute {
                        execution: execute.execution,
                        events: execute.events,
                    };
                    let patience = opening.map(|_| OPENING);
                    (Order::Execute(execute), doing, patience)
                }
                Work::Restart => (Order::Restart, Doing::Restart, Some(ERRAND)),
                Work::Describe => (Order::Describe, Doing::Describe, Some(ERRAND)),
                Work::File { id, what } => {
                    let is_watch = matches!(what, FileOrder::Watch { .. });
                    let doing = Doing::File { id, is_watch };
                    (Order::File { id, what }, doing, Some(ERRAND))
                }
                Work::Process(order) => {
                    self.actions.push_back(Action::Order(link, order));
                    continue;
                }
                Work::Carry(carry) => match self.carrying(link, carry) {
                    Ok((order, doing)) => {
                        let patience = patience_for(&order);
                        (order, doing, Some(patience))
                    }
                    Err(failure) => {
                        if let Some(caller) = caller {
                            self.fail(&caller, failure);
                        }
                        continue;
                    }
                },
                Work::Remember => {
                    let order = json_of(&Order::Remember);
                    self.actions.push_back(Action::Order(link, order));
                    continue;
                }
                Work::Forget(checkpoint) => {
                    self.forget_in(link, caller.as_ref(), checkpoint);
                    continue;
                }
            };
            let Some(session) = self.sessions.get_mut(&link) else {
                return;
            };
            session.deadline = patience.map(|patience| self.now + patience);
            let is_execution = matches!(doing, Doing::Execute { .. });
            let executed_for = caller.clone().filter(|_| is_execution);
            session.current = Some(Current { caller, doing });
            self.actions.push_back(Action::Order(link, json_of(&order)));
            // An execution can last; all else is answered soon.
            if let Some(caller) = executed_for {
                self.sent(&caller);
            }
            return;
        }
    }
}

fn patience_for(order: &Order) -> Duration {
    match order {
        Order::Restore {
            layout: Layout::Replay,
            ..
        }
        | Order::Resume { .. } => REPLAYING,
        _ => CARRYING,
    }
}
