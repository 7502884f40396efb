//! What a cell sends to its driver: code, and the request to list variables.

use std::path::Path;
use std::time::Duration;

use super::Live;
use languages::frames::{self, Request as DriverRequest};
use record::Variables;
use record::bytes::RawText;
use record::error::Result;
use spec::{Command, Spec};
use supervise::capture::Capture;
use supervise::{Control, Request};

/// How long an interpreter may take to list its variables.
const DESCRIBE_DEADLINE: Duration = Duration::from_secs(5);
/// How long it may then take to stop: long, so that an overloaded host does not cost a context its
/// state.
const DESCRIBE_GRACE: Duration = Duration::from_secs(10);

/// Code, its name in tracebacks, and its arguments.
pub(crate) type Code<'w> = (&'w RawText, &'w str, &'w [RawText]);

/// The code of a spec.
pub(crate) fn code_of(spec: &Spec) -> Option<Code<'_>> {
    match &spec.command {
        Command::Run {
            code, name, args, ..
        } => Some((code, name, args)),
        Command::Exec { .. } => None,
    }
}

impl Live<'_> {
    /// What is sent to the driver; empty where the program itself is the work.
    ///
    /// # Errors
    /// The code is too long.
    pub(crate) fn message(
        &self,
        execution: u64,
        code: Option<Code<'_>>,
        is_last: bool,
    ) -> Result<Vec<u8>> {
        match (code, self.facts.driver) {
            (Some((code, name, args)), Some(driver)) if driver.has_channel() => {
                let code = frames::Code {
                    code,
                    name,
                    directory: Path::new(spec::WORKSPACE),
                    has_file: self.facts.workspace().is_some(),
                    args,
                    memory: self.facts.spec.limits.memory.map(|limit| limit.0),
                    is_last,
                };
                self.request(execution, frames::Work::Execute(code))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// A request, with what the driver must know about the time before.
    fn request(&self, execution: u64, work: frames::Work<'_>) -> Result<Vec<u8>> {
        DriverRequest {
            execution,
            follows_interrupt: self.cell.was_interrupted(),
            is_restored: self.is_restored,
            work,
        }
        .encode()
    }

    /// Lists the variables, as the execution of this number; `None` where the interpreter
    /// does not. It may take as long as an interrupt with its grace: then the cell is
    /// over.
    ///
    /// # Errors
    /// Watching is impossible.
    pub(crate) fn variables(
        &mut self,
        execution: u64,
        control: &dyn Control,
    ) -> Result<Option<Variables>> {
        if self.facts.driver.is_none() {
            return Ok(None);
        }
        let execution = self.cell.execute(Request {
            execution,
            message: self.request(execution, frames::Work::Describe)?,
            wall: Some(DESCRIBE_DEADLINE),
            grace: Some(DESCRIBE_GRACE),
            control: Some(control),
            ..Request::default()
        })?;
        self.is_restored = false;
        self.between.add(execution.between);
        self.between.add_denials(execution.denials);
        let written = execution.output.iter();
        for (sum, written) in self.between.written.iter_mut().zip(written) {
            *sum += written.as_ref().map_or(0, Capture::total);
        }
        if let Some(log) = execution.network {
            self.between.add_network(log);
        }
        Ok(execution.report.variables)
    }
}
