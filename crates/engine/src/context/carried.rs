//! One execution in a cell that has the state of another one's interpreter, as a fork of a
//! context has, so that tests of cells can be made in such cells as well.

use std::fs;
use std::io::ErrorKind;
use std::time::Instant;

use super::{Context, Execution, Layout, State};
use crate::run::{self, Caller, CellStart};
use record::Record;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use spec::{FilesFrom, Spec};
use supervise::{BlockedSignals, Cancel};

/// Executes `spec` in the state of an interpreter that has executed something in another
/// cell, and returns the record. That gains nothing for one call. Where it fails, the cell is
/// started in one go, and the record says why.
#[inline(never)]
pub fn execute_carried(caller: Caller<'_>, spec: &Spec, began: Instant) -> Record {
    carried(caller, spec).unwrap_or_else(|error| {
        let start = CellStart::Cold;
        let mut record = run::execute_for(Caller { start, ..caller }, spec, began);
        let why = format!("the cell has the state of no other one: {error}");
        record.warnings.push(why);
        record
    })
}

fn carried(caller: Caller<'_>, spec: &Spec) -> Result<Record> {
    if matches!(spec.files_from, Some(FilesFrom::Stdin)) {
        let message = "standard input cannot be read for two cells";
        return Err(SetupError::new(Step::Inputs, message));
    }
    if !spec.descriptors.is_empty() {
        let message = "descriptors of the caller's cannot be passed to two cells";
        return Err(SetupError::new(Step::Inputs, message));
    }
    let signals = BlockedSignals::block()?;
    let cancel = Cancel {
        signals: Some(&signals),
        parent: caller.parent,
    };
    // The first cell does not read signals: one that arrives meanwhile cancels the second cell.
    let blind = Cancel {
        signals: None,
        ..cancel
    };
    let context = |cancel| -> Result<Context<'_>> {
        let mut context = Context::new(spec.clone(), cancel, None)?;
        context.require_lasting()?;
        context.fix_layout();
        Ok(context)
    };
    let mut first = context(blind)?;
    let answer = first.execute(&execution(1, Some(&RawText::default())), None, None);
    if answer.state != State::Kept {
        let why = || SetupError::new(Step::State, answer.why.unwrap_or_default());
        return Err(answer.record.setup_error.unwrap_or_else(why));
    }
    let name = format!("cellblock-carried-{}", std::process::id());
    let checkpoint = std::env::temp_dir().join(name);
    let mut second = context(cancel)?;
    let taken = first.checkpoint(&checkpoint, None);
    first.end();
    let restored = taken.and_then(|_| second.restore(&checkpoint, Layout::Fixed, None, None));
    // Also after a failed checkpoint: its remains are an image of the cell's memory.
    match fs::remove_dir_all(&checkpoint) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(SetupError::io(Step::Outputs, "rmdir", &error));
        }
        _ => {}
    }
    if restored.is_err() && second.is_cancelled() {
        return Ok(second.cancelled().record);
    }
    restored?;
    let answer = second.execute(&execution(2, None), caller.events, None);
    Ok(answer.record)
}

/// The execution of `code`, or of that of the spec, after which the cell ends.
fn execution(number: u64, code: Option<&RawText>) -> Execution<'_> {
    Execution {
        number,
        code: code.map(|code| (code, "first", &[][..])),
        wall: None,
        grace: None,
        is_last: code.is_none(),
    }
}
