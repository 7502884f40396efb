//! Which standard streams the caller had closed.
//!
//! Rust's runtime opens `/dev/null` in the place of a closed one before `main` begins, and what is
//! written there would seem to have arrived. So a look at them comes before the runtime's: libc calls
//! the functions of `.init_array` first.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each of them.
static CLOSED: AtomicU8 = AtomicU8::new(0);

#[used]
// SAFETY: the section holds addresses of functions that libc calls with three words, which the C
// calling convention lets a function ignore. `look` needs nothing that is set up later: it makes
// system calls and stores a number.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    });
    // SAFETY: the pointer and the number are those of `streams`, which the call fills.
    unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) };
    for stream in streams {
        if stream.revents & libc::POLLNVAL != 0 {
            CLOSED.fetch_or(1 << stream.fd, Ordering::Relaxed);
        }
    }
}

/// Whether the standard stream with this number (0, 1 or 2) was closed when the process began.
pub fn was_closed(stream: RawFd) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << stream) != 0
}
