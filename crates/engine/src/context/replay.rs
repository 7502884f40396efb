//! State that is made again: a new interpreter executes what was executed before.
//!
//! This serves states that cannot be carried ([`super::carry`]), in every language and without
//! tracing. A checkpoint has a `history` instead of an image, the workspace at the history's
//! beginning (`start`) unless that is the spec's own, and the `workspace`.
//!
//! What the code does outside of its cell happens again, and times and random values differ, so a
//! state that is made again only resembles the earlier one. Each execution must end as it did the
//! first time. If one does not, the state is lost.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::carry::{self, failed, on_disk};
use super::history::{Ended, Executed, History, Log, Step, output_of};
use super::scratch::{self, WORKSPACE};
use super::{Answer, Checkpoint, Context, Execution, Layout, State};
use crate::run::Live;
use record::Outcome;
use record::error::Result;
use supervise::Control;
use workspace::copy;

/// How long a replay may take.
const MOST_TIME: Duration = Duration::from_secs(600);
/// The maximum number of executions that a reason names.
const MOST_NAMED: usize = 10;

const HISTORY: &str = "history";
const START: &str = "start";

/// The hint where the state is lost and can be made again.
pub(super) const RESUME_HINT: &str = "context.resume executes again what was executed before";

/// Why a state was restored, when the client asked for it.
const ENDED: &str = "the interpreter had ended";
/// What a replay does not reproduce.
const CAVEAT: &str = "their effects outside of the cell happened again, and times and random values are not those of the first time";

/// Why a replay stopped early.
type Stopped = String;

impl Context<'_> {
    /// Notes from now on what is executed, so that a new interpreter can execute it again.
    pub fn keep_history(&mut self) {
        self.log.get_or_insert_default();
    }

    /// The state that the next execution finds, and why unless it was kept. A lost state is made
    /// again if its history is known.
    ///
    /// # Errors
    /// The history is no longer complete, or no cell could be made.
    pub fn resume(&mut self, control: Option<&dyn Control>) -> Result<(State, Option<String>)> {
        self.note_end();
        let past = self.log.as_mut().and_then(|log| log.past.take());
        if let Some(history) = past {
            if let Err(error) = history.check() {
                self.log.get_or_insert_default().past = Some(history);
                return Err(error);
            }
            if let Some(live) = self.live.take() {
                self.leave(live);
            }
            let workspace = self.workspace.clone().ok_or_else(scratch::no_workspace)?;
            self.replay(history, &workspace, ENDED, control)?;
        }
        Ok(self.next_state())
    }

    /// Makes the state and the workspace of a checkpoint again.
    ///
    /// # Errors
    /// The checkpoint is damaged, and nothing was changed; or no cell could be made.
    pub(super) fn replay_from(
        &mut self,
        from: &Path,
        why: &str,
        control: Option<&dyn Control>,
    ) -> Result<()> {
        let path = from.join(HISTORY);
        let text = std::fs::read(&path).map_err(|e| on_disk("read", &e, &path))?;
        let start = from.join(START);
        let start = start
            .exists()
            .then(|| scratch::open_tree(&start))
            .transpose()?;
        let mut history = History::from_json(&text, None)
            .map_err(|_| failed("the history is damaged").hint("take the checkpoint again"))?;
        drop(text);
        let workspace = scratch::open_tree(&from.join(WORKSPACE))?;
        self.keep_history();
        if let Some(start) = start {
            history.start = Some(self.outlasting(start)?);
        }
        self.replay(history, &workspace, why, control)
    }

    /// Copies a tree so that the copy outlasts its checkpoint: into the workspace of a cell that is
    /// made for it and then ended.
    fn outlasting(&mut self, tree: OwnedFd) -> Result<Rc<OwnedFd>> {
        self.begin_with(Some(Rc::new(tree)))?;
        if let Some(mut live) = self.live.take() {
            live.cell.settle()?;
            self.leave(live);
        }
        self.workspace.clone().ok_or_else(scratch::no_workspace)
    }

    /// Ends the interpreter, and starts another in this workspace; `None` for that of the spec.
    fn begin_with(&mut self, workspace: Option<Rc<OwnedFd>>) -> Result<()> {
        if let Some(live) = self.live.take() {
            self.leave(live);
        }
        let own = std::mem::replace(&mut self.workspace, workspace);
        self.live = Some(self.start().inspect_err(|_| {
            self.workspace = own;
            self.lost = Some("no interpreter could be started".to_owned());
            self.restored = None;
        })?);
        Ok(())
    }

    /// Executes a history in a new interpreter, and makes the workspace like `workspace`.
    /// [`Context::state`] has the outcome.
    fn replay(
        &mut self,
        history: History,
        workspace: &OwnedFd,
        why: &str,
        control: Option<&dyn Control>,
    ) -> Result<()> {
        let is_new = |log: &Log| log.own.is_empty() && log.own.start.is_none();
        let fits = self.live.is_some()
            && self.executions == 0
            && history.start.is_none()
            && self.log.as_ref().is_none_or(is_new);
        if !fits && let Err(error) = self.begin_with(history.start.clone()) {
            self.log.get_or_insert_default().past = Some(history);
            return Err(error);
        }
        let caps = match &self.live {
            Some(live) => scratch::workspace(live)?.1,
            None => return Err(failed("there is no interpreter")),
        };
        self.lost = None;
        let repeated = self.repeat(&history, control).and_then(|differing| {
            let renewed = self.renew_workspace(workspace);
            renewed.map_err(|error| error.to_string())?;
            Ok(differing)
        });
        match repeated {
            Ok(differing) => {
                let executed = history.executions();
                self.restored = Some(words(why, executed, history.left_out, &differing));
                self.log = Some(Log {
                    own: history,
                    past: None,
                });
                Ok(())
            }
            Err(stopped) => {
                if let Some(live) = self.live.take() {
                    self.leave(live);
                }
                let is_start = |own: &Rc<OwnedFd>| {
                    (history.start.as_ref()).is_some_and(|start| Rc::ptr_eq(own, start))
                };
                let left = self.workspace.clone().filter(|own| !is_start(own));
                self.lost = Some(format!("{why}, but could not be made again: {stopped}"));
                self.restored = None;
                let log = self.log.get_or_insert_default();
                log.end(self.workspace.clone());
                log.past = Some(history);
                let renewed = left
                    .map(|left| copy::renew(scratch::tree_of(workspace), &left, &caps, self.owner));
                renewed.unwrap_or(Ok(()))
            }
        }
    }

    /// Repeats the steps of a history; returns which executions had another output.
    fn repeat(
        &mut self,
        history: &History,
        control: Option<&dyn Control>,
    ) -> Result<Vec<u64>, Stopped> {
        let until = Instant::now() + MOST_TIME;
        let mut differing = Vec::new();
        for step in &history.steps {
            // An order that came between two executions has not been read yet.
            if control.is_some_and(|control| control.take().is_some()) {
                return Err(interrupted());
            }
            match step {
                Step::Execute(executed) => {
                    if self.execute_again(executed, until, control)? != executed.output {
                        differing.push(executed.number);
                    }
                }
                Step::Edit(edit) => {
                    self.apply(edit).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(differing)
    }

    /// Executes something again, which must end as it did; returns a digest of its output.
    fn execute_again(
        &mut self,
        executed: &Executed,
        until: Instant,
        control: Option<&dyn Control>,
    ) -> Result<u64, Stopped> {
        let number = executed.number;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!(
                "execution {number} was not reached within {}s",
                MOST_TIME.as_secs()
            ));
        }
        let execution = Execution {
            number,
            code: Some((&executed.code, &executed.name, &executed.args)),
            wall: Some(executed.wall.map_or(left, |wall| wall.min(left))),
            grace: executed.grace,
            is_last: false,
        };
        let Answer { record, state, .. } = self.execute_once(&execution, None, control);
        if record.outcome == Outcome::Cancelled {
            return Err(interrupted());
        }
        let ended = Ended::of(&record);
        match ended == executed.ended && self.live.is_some() {
            true if state == State::Lost => {
                Err(format!("the interpreter ended before execution {number}"))
            }
            true => Ok(output_of(&record)),
            false => Err(format!(
                "execution {number} ended with {}, and not with {} as the first time",
                ended.words(),
                executed.ended.words()
            )),
        }
    }

    /// Makes the workspace of the cell equal to a tree.
    fn renew_workspace(&mut self, tree: &OwnedFd) -> Result<()> {
        let Some(live) = &mut self.live else {
            return Err(failed("the interpreter ended"));
        };
        live.cell.settle()?;
        let (place, caps) = scratch::workspace(live)?;
        let owner = live.facts.owner();
        let frozen = live.cell.freeze()?;
        let dir = frozen
            .scratch()
            .get(place)
            .ok_or_else(scratch::no_workspace)?;
        copy::renew(scratch::tree_of(tree), dir, &caps, owner)?;
        let baseline = copy::content(scratch::tree_of(dir), &caps)?;
        drop(frozen);
        live.set_baseline(baseline);
        Ok(())
    }
}

/// Why a replay was stopped by its client. Executions that were interrupted the first time are not
/// executed again, so that none ends like this by itself.
fn interrupted() -> Stopped {
    format!("the replay was interrupted; {RESUME_HINT}")
}

/// Writes what was executed, and the workspace. Nothing beyond `most` bytes is written.
pub(super) fn write(
    live: &mut Live<'_>,
    history: &History,
    to: &Path,
    most: u64,
) -> Result<Checkpoint> {
    live.cell.settle()?;
    let text = history
        .to_json()
        .map_err(|error| failed(&error.to_string()))?;
    let mut bytes = text.len() as u64;
    if bytes > most {
        return Err(carry::no_room(most));
    }
    let path = to.join(HISTORY);
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    file.and_then(|mut file| file.write_all(&text))
        .map_err(|e| on_disk("write", &e, &path))?;
    if let Some(start) = &history.start {
        let (_, caps) = scratch::workspace(live)?;
        bytes += scratch::keep(start, &to.join(START), caps, bytes, most)?.bytes;
    }
    scratch::add(live, Layout::Replay, to, bytes, most)
}

/// Why a state was restored, and what a replay does not reproduce.
fn words(why: &str, executed: usize, left_out: u64, differing: &[u64]) -> String {
    let executions = match executed {
        1 => "1 execution".to_owned(),
        executed => format!("{executed} executions"),
    };
    let mut words = format!("{why}: a new interpreter ran {executions} again");
    if executed > 0 {
        words.push_str("; ");
        words.push_str(CAVEAT);
    }
    if left_out > 0 {
        words.push_str(&format!(
            "; {left_out} that were interrupted or cancelled are left out"
        ));
    }
    if !differing.is_empty() {
        let named = differing.iter().take(MOST_NAMED).map(u64::to_string);
        let named: Vec<String> = named.collect();
        let more = match differing.len() > MOST_NAMED {
            true => " and more",
            false => "",
        };
        words.push_str(&format!(
            "; the output of {}{more} differs",
            named.join(", ")
        ));
    }
    words
}
