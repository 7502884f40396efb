//! What a context holds and uses.

use std::time::Duration;

use serde::Serialize;

use super::{Context, State};
use record::Variables;
use record::error::Result;
use supervise::Control;

/// A context, described.
#[derive(Debug, Serialize)]
pub struct Description {
    /// The id of its cell.
    pub(crate) id: String,
    /// Its language.
    pub(crate) language: Option<String>,
    /// What became of its state since the last execution.
    pub(crate) state: State,
    /// Why, unless it was kept.
    pub(crate) why: Option<String>,
    /// Whether its interpreter runs.
    pub(crate) is_alive: bool,
    /// Executions so far, with those that were refused.
    pub(crate) executions: u64,
    /// Milliseconds since it was made.
    pub(crate) age_ms: u64,
    /// What its cell uses.
    pub(crate) usage: Use,
    /// Its variables; null when no interpreter runs, or it does not answer.
    #[serde(flatten)]
    pub(crate) variables: Option<Variables>,
}

/// What a cell uses, as measured from outside.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Use {
    /// Bytes of memory in use.
    pub(crate) memory_bytes: Option<u64>,
    /// CPU time of its life, in milliseconds.
    pub(crate) cpu_ms: Option<u64>,
    /// Processes and threads, without its init.
    pub(crate) processes: Option<u64>,
}

impl Context<'_> {
    /// Describes the context. An interpreter that does not stop listing is ended.
    ///
    /// # Errors
    /// Watching is impossible.
    pub fn describe(&mut self, control: &dyn Control) -> Result<Description> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.note_end();
        self.descriptions += 1;
        // Executions are counted from below.
        let number = u64::MAX - self.descriptions;
        let variables = match &mut self.live {
            Some(live) => live.variables(number, control)?,
            None => None,
        };
        self.note_end();
        let usage = self.live.as_mut().map(|live| live.cell.in_use());
        let (state, why) = self.state();
        Ok(Description {
            variables,
            state,
            why,
            id: self.id.clone(),
            language: self.language().map(str::to_owned),
            is_alive: self.is_alive(),
            executions: self.executions,
            age_ms: millis(self.began.elapsed()),
            usage: usage.map_or_else(Use::default, |usage| Use {
                memory_bytes: usage.memory,
                cpu_ms: Some(millis(usage.cpu.total())),
                processes: Some(usage.processes),
            }),
        })
    }
}
