//! Supervisors' reports about checkpoints, and their effects.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::value::RawValue;
use supervisor::Layout;

use super::{Complete, Fork, Forking, Origin, full, unlike};
use crate::hub::client::Caller;
use crate::hub::contexts::Creation;
use crate::hub::requests::Request;
use crate::hub::session::Doing;
use crate::hub::suspend::Suspension;
use crate::hub::{Hub, LinkId};
use crate::protocol::{
    Branch, Checkpointed, Code, Compared, Failure, Forked, Resumed, Rewound, State,
};

impl Hub {
    /// A checkpoint was made.
    pub(in crate::hub) fn checkpointed(
        &mut self,
        link: LinkId,
        number: u64,
        complete: Complete,
        left_out: BTreeMap<String, String>,
    ) {
        let Complete { bytes, layout } = complete;
        let by_itself = self.suspends_by_itself(link);
        let party = self.sessions.get(&link).and_then(|own| own.kind.party());
        let room = party.map_or(0, |party| self.room_for_checkpoint(party));
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let Some(context) = session.kind.context().map(str::to_owned) else {
            return;
        };
        let doing = session.current.as_ref().map(|current| current.doing);
        let (id, branches) = match doing {
            Some(Doing::Checkpoint { id, branches }) => (id, branches),
            Some(Doing::Suspend { id }) => (id, None),
            _ => return,
        };
        if id != number {
            return;
        }
        if bytes > room {
            let message =
                format!("it has {bytes} bytes, and another checkpoint can have {room} bytes");
            return self.not_checkpointed(link, number, full(&message));
        }
        let has_work = !session.waiting.is_empty();
        let suspends = matches!(doing, Some(Doing::Suspend { .. }));
        match branches {
            None if suspends && layout == Layout::Own => {
                self.not_checkpointed(link, number, unlike("suspended", &context));
            }
            // A call came while it was being suspended.
            None if by_itself && has_work => {
                self.not_checkpointed(link, number, unlike("suspended", &context));
            }
            None if suspends && session.processes.are_running() => {
                let failure = Failure::new(Code::Failed, "processes run in the context");
                let failure = failure.hint("end them first: a suspension would end them");
                self.not_checkpointed(link, number, failure);
            }
            None if suspends => self.suspended(link, Suspension { number, complete }),
            None => {
                session.checkpoints.insert(number, Some(complete));
                let checkpointed = Checkpointed {
                    context,
                    checkpoint: number,
                    bytes,
                    left_out,
                };
                self.answer_current(link, |hub, caller| hub.answer(caller, &checkpointed));
            }
            // Its interpreter was started anew, without the template.
            Some(_) if layout == Layout::Own => {
                self.not_checkpointed(link, number, unlike("forked", &context));
            }
            Some(count) => {
                // It is the fork's from now on, and outlives the context.
                session.checkpoints.remove(&number);
                let memory = session.memory;
                let caller = session.current.as_ref().and_then(|own| own.caller.clone());
                let template = session.template.filter(|_| layout == Layout::Template);
                let fork = Forking {
                    number,
                    complete,
                    count,
                    template,
                };
                self.begin_branches(caller, &context, fork, memory);
                self.done(link);
            }
        }
    }

    fn begin_branches(
        &mut self,
        caller: Option<Caller>,
        context: &str,
        forking: Forking,
        memory: u64,
    ) {
        let Forking {
            number,
            complete,
            count,
            template,
        } = forking;
        let is_there = |caller: &Caller| self.clients.contains_key(&caller.client);
        let Some(caller) = caller.filter(is_there) else {
            return self.remove_checkpoint(number);
        };
        let branches = self
            .refuse_while_draining()
            .and_then(|()| self.branches_of(&caller, context, forking));
        match branches {
            Ok(branches) => {
                let fork = Fork {
                    party: self.party_of(caller.client),
                    caller,
                    bytes: complete.bytes,
                    template,
                    branches: vec![None; count],
                };
                self.forks.insert(number, fork);
                self.enqueue_branches(branches, memory);
            }
            Err(failure) => {
                self.remove_checkpoint(number);
                self.fail(&caller, failure);
            }
        }
    }

    /// What is needed for each branch.
    fn branches_of(
        &self,
        caller: &Caller,
        context: &str,
        forking: Forking,
    ) -> Result<Vec<(Caller, Rc<Request>, Creation)>, Failure> {
        let number = forking.number;
        let gone = || Failure::new(Code::Lost, "the context is gone");
        let key = self.key_of(caller, context);
        let context = self.contexts.get(&key).ok_or_else(gone)?;
        let request = context.branching.as_ref().ok_or_else(gone)?;
        let branch = |index| {
            let caller = Caller {
                branch: Some((number, index)),
                ..caller.clone()
            };
            let creation = Creation {
                name: String::new(),
                label: context.label.clone(),
                idle: context.idle_limit,
                keep: context.keep,
                suspend_after: context.suspend_after,
                branches: context.branches,
                replays: context.replays,
                branching: Some(Rc::clone(request)),
                from: Some(Origin {
                    directory: self.directory(number)?,
                    layout: forking.complete.layout,
                    template: forking.template,
                }),
            };
            Ok((caller, Rc::clone(request), creation))
        };
        (0..forking.count).map(branch).collect()
    }

    /// A branch has begun, or could not be made. If several outcomes are reported, the first one
    /// counts.
    pub(in crate::hub) fn branch_over(&mut self, (number, index): (u64, usize), outcome: Branch) {
        let Some(fork) = self.forks.get_mut(&number) else {
            return;
        };
        if let Some(branch) = fork.branches.get_mut(index) {
            branch.get_or_insert(outcome);
        }
        if fork.branches.iter().any(Option::is_none) {
            return;
        }
        if let Some(Fork {
            caller, branches, ..
        }) = self.forks.remove(&number)
        {
            self.remove_checkpoint(number);
            let branches = branches.into_iter().flatten().collect();
            self.answer(&caller, &Forked { branches });
        }
    }

    /// A checkpoint could not be made; the context goes on.
    pub(in crate::hub) fn not_checkpointed(&mut self, link: LinkId, number: u64, failure: Failure) {
        if let Some(session) = self.sessions.get_mut(&link) {
            session.checkpoints.remove(&number);
        }
        self.remove_checkpoint(number);
        self.answer_current(link, |hub, caller| hub.fail(caller, failure));
    }

    /// A context has been restored or resumed, or its replay has failed.
    pub(in crate::hub) fn restored(
        &mut self,
        link: LinkId,
        number: u64,
        state: State,
        why: Option<String>,
    ) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        let Some(context) = session.kind.context().map(str::to_owned) else {
            return;
        };
        match session.current.as_ref().map(|current| current.doing) {
            // The next answer says what became of the state.
            Some(Doing::Wake { id }) if id == number => self.continued(link),
            Some(Doing::Resume { id }) if id == number => {
                let resumed = Resumed {
                    context,
                    state,
                    why,
                };
                self.answer_current(link, |hub, caller| hub.answer(caller, &resumed));
            }
            Some(Doing::Restore { id, checkpoint }) if id == number => match checkpoint {
                None if state == State::Lost => {
                    let why = why.unwrap_or_default();
                    let failure = Failure::new(Code::Failed, why.clone());
                    self.end_failed(link, &failure.with_state(state, why));
                }
                // The answer comes next.
                None => {
                    session.restored = why;
                    self.done(link);
                }
                Some(checkpoint) => {
                    let rewound = Rewound {
                        context,
                        checkpoint,
                        state,
                        why,
                    };
                    self.answer_current(link, |hub, caller| hub.answer(caller, &rewound));
                }
            },
            _ => {}
        }
    }

    /// A context did not get the state of a checkpoint. A branch ends.
    pub(in crate::hub) fn not_restored(&mut self, link: LinkId, failure: Failure) {
        let session = self.sessions.get(&link);
        let doing = session.and_then(|session| session.current.as_ref());
        match doing.map(|current| current.doing) {
            Some(Doing::Restore {
                checkpoint: None, ..
            }) => {
                let why = failure.message.clone();
                self.end_failed(link, &failure.with_state(State::Lost, why));
            }
            Some(Doing::Wake { .. }) => self.give_up_resuming(link, &failure),
            _ => self.answer_current(link, |hub, caller| hub.fail(caller, failure)),
        }
    }

    /// A workspace was compared with that of a checkpoint.
    pub(in crate::hub) fn compared(&mut self, link: LinkId, number: u64, files: Box<RawValue>) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        let doing = session.current.as_ref().map(|current| current.doing);
        if let (Some(context), Some(Doing::Compare { id, with })) = (session.kind.context(), doing)
            && id == number
        {
            let compared = Compared {
                context: context.to_owned(),
                with,
                files,
            };
            self.answer_current(link, |hub, caller| hub.answer(caller, &compared));
        }
    }
}
