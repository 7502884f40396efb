//! Guests of a cell.

use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use super::{plan, request, start, start_with, stdout};
use crate::run::ahead::Frame;
use jail::launch::SharedCell;
use plan::{Fallback, Plan};
use spec::Bytes;
use supervise::{Cancel, Cell, Denials};
use sys::alone::alone;

/// A guest of this cell.
fn guest(shared: &SharedCell, plan: &Rc<Plan>) -> Result<Box<Cell<'static>>, Box<dyn Error>> {
    let cancel = Cancel::default();
    Ok(Cell::start_in(
        shared,
        Rc::clone(plan),
        &[],
        Denials::default(),
        cancel,
    )?)
}

#[test]
fn a_guest_that_init_does_not_end_ends_the_cell() {
    alone(|| {
        let plan = plan()?;
        let mut cell = start(&plan)?;
        cell.execute(request(1, "pass", false)?)?;
        let shared = cell.share()?;
        let mut one = guest(&shared, &plan)?;
        one.execute(request(1, "pass", false)?)?;
        one.end()?;
        assert!(!shared.is_gone(), "a guest ends without the cell");
        let mut other = guest(&shared, &plan)?;
        other.execute(request(1, "pass", false)?)?;
        // As while it waits for a program that was stopped before it was executed.
        kill(cell.parts().0.init.pid, Signal::SIGSTOP)?;
        other.end()?;
        assert!(shared.is_gone(), "the guest's code still runs");
        Ok(())
    });
}

#[test]
fn nothing_is_started_while_a_cell_is_frozen() {
    alone(|| {
        let plan = plan()?;
        let mut cell = start(&plan)?;
        cell.execute(request(1, "pass", false)?)?;
        let shared = cell.share()?;
        let frozen = cell.freeze()?;
        let mut other = guest(&shared, &plan)?;
        for _ in 0..20 {
            other.watch_for(Duration::from_millis(10))?;
        }
        assert!(!other.lives(), "it runs in a frozen cell");
        drop(frozen);
        let ran = other.execute(request(1, "print(1)", false)?)?;
        assert_eq!(stdout(ran), "1\n");
        Ok(())
    });
}

#[test]
fn records_of_a_guest_say_which_limits_have_no_cgroup() {
    alone(|| {
        let plan = plan()?;
        let mut cell = start_with(
            &plan,
            Fallback {
                memory: Some(Bytes(1 << 30)),
                why: Some("delegated: EACCES".to_owned()),
                ..Fallback::default()
            },
        )?;
        cell.execute(request(1, "pass", false)?)?;
        let frame = Frame::in_shared(Plan::clone(&plan), None, &cell.share()?)?;
        let [warning] = &frame.warnings[..] else {
            return Err(format!("{:?}", frame.warnings).into());
        };
        assert!(warning.starts_with("no cgroup limits memory"), "{warning}");
        assert!(warning.contains("delegated: EACCES"), "{warning}");
        Ok(())
    });
}
