//! Checkpoints of a context, and contexts that go on from one.
//!
//! A checkpoint is a directory: `image` ([`carry`]), and copies of files ([`scratch`]). A
//! context goes back to its own (*rewind*); one that was opened by the same request goes
//! on from it (*fork*, *branch*, *resume*).

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::scratch::{self, Copies, WORKSPACE, no_workspace, open_tree, tree_of, workspace};
use super::{Context, State};
use crate::run::{Live, Stock};
use carry::{self, Base, Extent, Failure, Image, Refusal, Subject};
use record::FileChange;
use record::error::{Result, SetupError, Step};
use supervise::Control;
use workspace::copy;

/// How long an interpreter gets to wait for its next request: after an execution it
/// does so at once, after its start it imports its modules first.
const START: Duration = Duration::from_secs(20);
/// How often it is looked whether it waits.
const PACE: Duration = Duration::from_millis(1);

const IMAGE: &str = "image";

/// Why a state was restored.
const OF_CHECKPOINT: &str = "the state is that of a checkpoint";
/// What all contexts that go on from one image share.
const SHARED: &str = "all that go on from it share its hash seed, and the generators of random numbers that the code seeded itself, except that of the module random";

/// Which interpreters have their memory laid out like the one whose state was taken, and
/// so can go on from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// No other: it was laid out at random.
    #[default]
    Own,
    /// Those that are forked from the same template.
    Template,
    /// Those that are started without randomisation by the same request.
    Fixed,
    /// Any that is started by the same request: it executes the history again.
    Replay,
}

/// A checkpoint that was made.
#[derive(Debug)]
pub struct Checkpoint {
    /// Bytes of memory and files in it.
    pub bytes: u64,
    /// Which other interpreters can go on from it.
    pub layout: Layout,
    /// Files of the workspace that are not in it, each with the reason.
    pub left_out: BTreeMap<String, String>,
}

impl<'a> Context<'a> {
    /// Writes the state of the interpreter and the workspace to the new directory `to`.
    /// The context goes on as before. Nothing beyond `most` bytes is written.
    ///
    /// # Errors
    /// There is no state, or it holds something that cannot be carried, or it has more
    /// bytes; or writing failed.
    pub fn checkpoint(&mut self, to: &Path, most: Option<u64>) -> Result<Checkpoint> {
        self.note_end();
        let layout = self.layout();
        let has_interpreter = self.language().is_some();
        let Some(live) = self.live.as_mut().filter(|_| has_interpreter) else {
            return Err(failed("there is no interpreter whose state could be taken")
                .hint("execute something first"));
        };
        match &self.log {
            Some(log) => log.own.check()?,
            None if !live.facts.driver.is_some_and(|driver| driver.is_template) => {
                let language = self.spec.language().unwrap_or_default();
                return Err(failed("the memory of this interpreter cannot be carried")
                    .on(language)
                    .hint(carry::REPLAY));
            }
            None => {}
        }
        (DirBuilder::new().mode(0o700).create(to)).map_err(|e| on_disk("mkdir", &e, to))?;
        let base = base_of(self.stock, layout);
        let most = most.unwrap_or(u64::MAX);
        let written = match &self.log {
            Some(log) => super::replay::write(live, &log.own, to, most),
            None => write(live, layout, base, to, most),
        };
        if written.is_err() {
            // Nothing but what was just written is in it.
            let _ = fs::remove_dir_all(to);
        }
        written
    }

    /// How the memory of the interpreter is laid out; `Replay` if that does not matter.
    fn layout(&mut self) -> Layout {
        if self.log.is_some() {
            return Layout::Replay;
        }
        match (self.is_forked() && self.stock.is_some(), self.fixed_layout) {
            (true, _) => Layout::Template,
            (false, true) => Layout::Fixed,
            (false, false) => Layout::Own,
        }
    }

    /// Begins with a new interpreter that is laid out like another one.
    fn restart_like(&mut self, layout: Layout) -> Result<()> {
        if let Some(live) = self.live.take() {
            self.leave(live);
        }
        // Until the new one has the state.
        self.lost = Some("the interpreter was ended to put a state into a new one".to_owned());
        self.restored = None;
        let live = match layout {
            Layout::Template => self.start_forked(),
            Layout::Fixed | Layout::Own | Layout::Replay => self.start_from(None),
        };
        self.live = Some(live?);
        Ok(())
    }

    /// Replaces the interpreter's state and the workspace by those of the checkpoint
    /// `from`, which was taken of an interpreter with this layout. Returns what the next
    /// execution finds, and why.
    ///
    /// # Errors
    /// It is damaged, or does not fit: then nothing was changed. Or the change failed:
    /// then the interpreter is gone.
    pub fn restore(
        &mut self,
        from: &Path,
        layout: Layout,
        why: Option<String>,
        control: Option<&dyn Control>,
    ) -> Result<(State, Option<String>)> {
        match layout {
            Layout::Replay => {
                let why = why.as_deref().unwrap_or(OF_CHECKPOINT);
                self.replay_from(from, why, control)?;
            }
            Layout::Own | Layout::Template | Layout::Fixed => {
                self.put_from(from, layout, why)?;
            }
        }
        Ok(self.state())
    }

    fn put_from(&mut self, from: &Path, layout: Layout, why: Option<String>) -> Result<()> {
        let path = from.join(IMAGE);
        let file = File::open(&path).map_err(|e| on_disk("open", &e, &path))?;
        let image = Image::open(file).map_err(refused)?;
        let copies = Copies::open(from)?;
        self.prepare()?;
        let base = base_of(self.stock, layout);
        let is_unfit = |live: &mut Live<'_>| {
            let (init, program, own) = subject(live)?;
            let subject = Subject {
                pid: program,
                init: Some(init),
                own: &own,
            };
            carry::fits(&image, subject, base).map_err(refused)
        };
        if let Some(live) = &mut self.live
            && let Err(error) = is_unfit(live)
        {
            let has_like = match layout {
                Layout::Own | Layout::Replay => false,
                Layout::Template => self.stock.is_some(),
                Layout::Fixed => self.fixed_layout,
            };
            if !has_like || live.cell.is_cancelled() {
                return Err(error);
            }
            // What stands in the way goes with the interpreter; a new one is laid out
            // as the old one was.
            self.restart_like(layout)?;
            if let Some(live) = &mut self.live {
                is_unfit(live)?;
            }
        }
        let Some(mut live) = self.live.take() else {
            return Err(failed("there is no interpreter"));
        };
        match put(&mut live, &image, base, &copies) {
            Ok(()) => {
                live.is_restored = true;
                self.live = Some(live);
                self.lost = None;
                self.restored = Some(why.unwrap_or_else(|| format!("{OF_CHECKPOINT}; {SHARED}")));
                Ok(())
            }
            Err(error) => {
                self.leave(live);
                self.lost = Some("the interpreter ended when its state was replaced".to_owned());
                self.restored = None;
                Err(error)
            }
        }
    }

    /// Files of the workspace that differ from those of the checkpoint `with`: created,
    /// modified and deleted since.
    ///
    /// # Errors
    /// One of both cannot be read.
    pub fn compare(&mut self, with: &Path) -> Result<Vec<FileChange>> {
        let tree = open_tree(&with.join(WORKSPACE))?;
        self.prepare()?;
        let live = self
            .live
            .as_mut()
            .ok_or_else(|| failed("there is no cell"))?;
        live.cell.settle()?;
        let (place, caps) = workspace(live)?;
        let before = copy::content(tree_of(&tree), &caps)?;
        let frozen = live.cell.freeze()?;
        let dir = frozen.scratch().get(place).ok_or_else(no_workspace)?;
        copy::changes(tree_of(dir), &before, &caps)
    }
}

/// Whom the state is taken of or given to: init, the program, and the driver's pipes.
type Carried = (
    nix::unistd::Pid,
    nix::unistd::Pid,
    Vec<sys::identity::Identity>,
);

/// Waits until the interpreter waits for its next request.
fn subject(live: &mut Live<'_>) -> Result<Carried> {
    live.cell.settle()?;
    let is_copy = live.is_forked();
    let waits = |carried: &Carried| {
        carry::waits(carried.1, languages::CHANNEL_FD, is_copy).map_err(refused)
    };
    let until = Instant::now() + START;
    loop {
        let carried = live.cell.carried();
        match carried {
            Some(carried) if waits(&carried)? => return Ok(carried),
            _ if !live.cell.lives() || Instant::now() > until => {
                return Err(refused(Refusal::Busy));
            }
            // Reported system calls are answered meanwhile.
            _ => live.cell.watch_for(PACE)?,
        }
    }
}

/// The pages that the interpreters of a template have in common.
fn base_of(stock: Option<&Stock>, layout: Layout) -> Option<&Base> {
    stock
        .filter(|_| layout == Layout::Template)
        .and_then(Stock::base)
}

fn write(
    live: &mut Live<'_>,
    layout: Layout,
    base: Option<&Base>,
    to: &Path,
    most: u64,
) -> Result<Checkpoint> {
    let (init, program, own) = subject(live)?;
    if live.cell.has_made_ipc() {
        return Err(refused(Refusal::SystemV));
    }
    let subject = Subject {
        pid: program,
        init: Some(init),
        own: &own,
    };
    let extent = base.map_or(Extent::Whole, Extent::Since);
    let path = to.join(IMAGE);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600);
    let file = file.open(&path).map_err(|e| on_disk("open", &e, &path))?;
    let limit = live
        .facts
        .plan
        .limits
        .memory
        .map_or(u64::MAX, |limit| limit.0);
    let image =
        carry::take(subject, extent, limit.min(most), file).map_err(|refusal| match refusal {
            Refusal::TooMuch { most: held, .. } if held == most => no_room(most),
            refusal => refused(refusal),
        })?;
    let made = scratch::add(live, layout, to, image.size(), most)?;
    scratch::refuse_left_out(live, layout, &image, to)?;
    Ok(made)
}

/// Replaces workspace and state. The image fits; what fails now ends the interpreter.
fn put(live: &mut Live<'_>, image: &Image, base: Option<&Base>, copies: &Copies) -> Result<()> {
    let (init, program, own) = subject(live)?;
    copies.put(live)?;
    // It takes a moment until a process that was stopped waits again.
    subject(live)?;
    let subject = Subject {
        pid: program,
        init: Some(init),
        own: &own,
    };
    match carry::put(image, subject, base) {
        Ok(()) => {}
        Err(Failure::Refused(refusal) | Failure::Broken(refusal)) => return Err(refused(refusal)),
    }
    Ok(())
}

pub(super) fn no_room(most: u64) -> SetupError {
    failed(&format!(
        "the checkpoint would have more than the {most} bytes that are left for it"
    ))
    .hint("remove some with context.forget, or raise --checkpoint-space")
}

pub(super) fn failed(message: &str) -> SetupError {
    SetupError::new(Step::State, message)
}

pub(super) fn on_disk(call: &'static str, error: &std::io::Error, path: &Path) -> SetupError {
    SetupError::io(Step::Outputs, call, error).on(path.display())
}

/// A refusal as the front end gets it: its name is the operand.
pub(super) fn refused(refusal: Refusal) -> SetupError {
    failed(&refusal.to_string())
        .on(refusal.name())
        .hint(refusal.hint())
}
