//! What tests of launches need, in other crates too.

use std::any::Any;
use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::panic;

use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork, pipe2, write};

/// What a panic says: a literal, or text that was put together.
fn message(panic: &(dyn Any + Send)) -> String {
    let literal = || panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(literal)
        .unwrap_or_else(|| "a panic".to_owned())
}

/// Runs `test` in a copy of this process that has one thread, as a launch needs it.
#[allow(clippy::unwrap_used)] // A test may.
pub fn alone(test: fn() -> Result<(), Box<dyn Error>>) {
    // Neither end blocks: the copy does not wait for room for a long text, and what it started
    // may hold the pipe open after its end.
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    // SAFETY: fork(3) of the C library leaves the heap usable in the copy, which
    // needs no lock of this process's other threads, and ends by `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // No test takes so long, even on a host that stalls.
            alarm::set(300);
            // No hook for panics is set here: another test that panics right now holds
            // its lock, and this copy would wait for it for ever.
            let problem = match panic::catch_unwind(test) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(panic) => Some(message(&*panic)),
            };
            if let Some(problem) = &problem {
                let _ = write(writer, problem.as_bytes());
            }
            crate::process::exit_now(i32::from(problem.is_some()))
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None);
            let mut said = Vec::new();
            let _ = File::from(reader).read_to_end(&mut said);
            let said = String::from_utf8_lossy(&said);
            assert_eq!(status, Ok(WaitStatus::Exited(child, 0)), "{said}");
        }
    }
}
