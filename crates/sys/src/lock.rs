//! Locks on files and directories (flock(2)).

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Locks a file until the result is dropped. A signal does not end the wait.
///
/// # Errors
/// The call's error number; EWOULDBLOCK when another process holds a lock and `how`
/// does not wait.
pub fn flock(mut file: File, how: FlockArg) -> nix::Result<Flock<File>> {
    loop {
        match Flock::lock(file, how) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EINTR)) => file = again,
            Err((_, errno)) => return Err(errno),
        }
    }
}
