//! Locks on files and directories (flock(2)).

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, Flockable};

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Locks a file until the result is dropped. A signal does not end the wait.
///
/// # Errors
/// The call's error number; EWOULDBLOCK when another process holds a lock and `how`
/// does not wait.
pub fn flock<T: Flockable>(mut file: T, how: FlockArg) -> nix::Result<Flock<T>> {
    loop {
        match Flock::lock(file, how) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EINTR)) => file = again,
            Err((_, errno)) => return Err(errno),
        }
    }
}

/// Locks a file against all others, and waits for that no longer than `wait`, or for
/// ever. flock(2) has no timeout, and a signal that ended the wait would be the
/// caller's, so the lock is tried again after a pause.
///
/// # Errors
/// The call's error number; EWOULDBLOCK when another process holds a lock for longer.
pub fn flock_within<T: Flockable>(mut file: T, wait: Option<Duration>) -> nix::Result<Flock<T>> {
    let began = Instant::now();
    let mut pause = SHORTEST_PAUSE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EWOULDBLOCK)) => file = again,
            Err((_, errno)) => return Err(errno),
        }
        let left = match wait {
            None => LONGEST_PAUSE,
            Some(wait) => wait.saturating_sub(began.elapsed()),
        };
        if left.is_zero() {
            return Err(Errno::EWOULDBLOCK);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
