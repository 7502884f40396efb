//! What tests of launches need.

use std::error::Error;
use std::io;
use std::panic;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork, write};

/// Runs `test` in a copy of this process that has one thread, as a launch needs it.
pub(crate) fn alone(test: fn() -> Result<(), Box<dyn Error>>) {
    // SAFETY: fork(3) of the C library leaves the heap usable in the copy, which
    // needs no lock of this process's other threads, and ends by `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            alarm::set(60);
            let complain = |message: &str| {
                let _ = write(io::stderr(), message.as_bytes());
            };
            panic::set_hook(Box::new(move |info| complain(&format!("{info}\n"))));
            let outcome = panic::catch_unwind(test);
            if let Ok(Err(error)) = &outcome {
                complain(&format!("{error}\n"));
            }
            sys::process::exit_now(i32::from(!matches!(outcome, Ok(Ok(())))))
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
}
