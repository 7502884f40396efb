//! How the interpreter of a context is started: in a blank cell that waits, forked from a
//! template, in the cell of another context, or in a cell that is made for it.

use std::borrow::Cow;

use super::Context;
use crate::run::{self, Ahead, From, Live, Stock};
use record::error::{Result, SetupError, Step};
use workspace::inputs::Staged;

/// The warning in the first record of an interpreter with a fixed layout.
const FIXED: &str = "the interpreter's memory is laid out without randomisation, so that the context can be forked: code in the cell can predict its addresses";

impl<'a> Context<'a> {
    /// Starts the interpreter, if none runs.
    ///
    /// # Errors
    /// The step that failed on this side.
    pub fn prepare(&mut self) -> Result<()> {
        self.note_end();
        if self.live.is_none() {
            self.live = Some(self.start()?);
        }
        Ok(())
    }

    pub(super) fn start(&mut self) -> Result<Live<'a>> {
        if !self.forks {
            return self.start_from(None);
        }
        self.start_forked().or_else(|error| {
            let mut live = self.start_from(None)?;
            live.warn(format!("the cell was started without a template: {error}"));
            Ok(live)
        })
    }

    pub(super) fn start_forked(&mut self) -> Result<Live<'a>> {
        let missing = || SetupError::new(Step::Fork, "the server has no template at the moment");
        let stock = self.stock.ok_or_else(missing)?;
        self.start_from(Some(stock))
    }

    pub(super) fn start_from(&mut self, stock: Option<&'a Stock>) -> Result<Live<'a>> {
        let mut spec = self.spec.clone();
        if self.workspace.is_some() {
            // The workspace that the last cell left has them.
            spec.files.clear();
            spec.files_from = None;
        }
        let mut resolved = match self.resolved.take() {
            Some(resolved) => resolved,
            None => run::resolve(&spec)?,
        };
        let is_fixed = self.fixed_layout && stock.is_none();
        resolved.plan.program.fixed_layout = is_fixed;
        let staged = match &self.workspace {
            Some(workspace) => Staged::carry(&resolved.plan, workspace)?,
            None => Staged::read(&resolved.plan)?,
        };
        self.id.clone_from(&resolved.plan.id);
        // Without a blank cell, or with one of another plan, the whole cell is made now. An init
        // that waits cannot be told of another memory layout.
        let is_usual = staged.is_empty() && !is_fixed;
        let ahead = self.ahead.take();
        let had_ahead = ahead.is_some();
        let fits = |ahead: &Ahead<'_>| is_usual && ahead.serves(&resolved.plan);
        let from = match (stock, ahead.filter(fits)) {
            (Some(stock), _) => From::Template {
                template: stock.template_for(&resolved.plan)?,
                is_awaited: self.is_awaited,
            },
            (None, Some(ahead)) => From::Ahead(Box::new(ahead)),
            (None, None) => {
                if had_ahead {
                    // The facts about the host were read when that cell was made.
                    resolved = run::resolve(&spec)?;
                    resolved.plan.id.clone_from(&self.id);
                    resolved.plan.program.fixed_layout = is_fixed;
                }
                From::Nothing
            }
        };
        let from = match self.shared {
            None => from,
            Some(shared) => {
                // The cell has its ids already.
                resolved.plan.ids = shared.plan.ids.clone();
                From::Shared(shared)
            }
        };
        let mut live = Live::start(Cow::Owned(spec), resolved, staged, self.cancel, from)?;
        self.template = stock.map(Stock::as_it_is);
        if let Some(template) = self.template {
            live.set_template(template);
        }
        if is_fixed {
            live.warn(FIXED.to_owned());
        }
        live.warn_of(std::mem::take(&mut self.unsaid));
        self.owner = live.facts.owner();
        Ok(live)
    }
}
