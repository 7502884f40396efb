//! What a process does with its signals.

use super::calls::{Caller, answered, bytes, words};
use super::image::SIGNALS;
use super::refusal::Refusal;

/// For some signals, `struct sigaction` as the kernel has it: handler, flags, restorer and
/// mask.
pub(super) type Actions = Vec<(u8, [u64; 4])>;

/// The size of a set of signals, which rt_sigaction(2) wants to know.
const SET: u64 = 8;

/// Asks for the actions of these signals, a bit for each.
pub(super) fn actions(caller: &mut Caller<'_>, signals: u64) -> Result<Actions, Refusal> {
    let is_asked = |signal: &u8| signals & 1 << (signal - 1) != 0;
    (1..=SIGNALS)
        .filter(is_asked)
        .map(|signal| {
            let action =
                caller.ask::<32>(libc::SYS_rt_sigaction, |at| vec![signal.into(), 0, at, SET]);
            Ok((signal, words(&answered("rt_sigaction", action)?)))
        })
        .collect()
}

/// Changes the actions from `now` to `wanted`; a signal without one gets its default.
pub(super) fn set(caller: &mut Caller<'_>, now: &Actions, wanted: &Actions) -> Result<(), Refusal> {
    let find = |actions: &Actions, signal: u8| {
        let found = actions.iter().find(|(one, _)| *one == signal);
        found.map_or([0; 4], |(_, action)| *action)
    };
    for signal in 1..=SIGNALS {
        let action = find(wanted, signal);
        if find(now, signal) != action {
            let set = caller.with(libc::SYS_rt_sigaction, &bytes(&action), |at, _| {
                vec![signal.into(), at, 0, SET]
            });
            answered("rt_sigaction", set)?;
        }
    }
    Ok(())
}
