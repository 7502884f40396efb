//! What signals do to the programs that a test starts.

use nix::sys::signal::{SigHandler, Signal, signal};

/// Has these signals end the programs that are started from here on, as they do by default. A
/// shell without job control starts what goes on in the background with SIGINT and SIGQUIT
/// ignored, nohup(1) adds SIGHUP, and all of that is inherited.
pub(crate) fn restore() {
    for number in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
        // SAFETY: no handler is installed.
        let restored = unsafe { signal(number, SigHandler::SigDfl) };
        restored.expect("the signal can be handled");
    }
}
