//! The `cellblock` command.

use std::process::ExitCode;
use std::time::Instant;

/// A launch makes a few thousand small allocations and ends. The C library's
/// allocator returns memory to the kernel all the while; this one does not.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    // Tests unwind, and so do builds that share their dependencies. A process that was forked
    // must not unwind into the code of its parent, so every build ends as a release does.
    #[cfg(panic = "unwind")]
    abort_on_panic();
    let began = Instant::now();
    ExitCode::from(cellblock::commands::dispatch(std::env::args_os(), began))
}

#[cfg(panic = "unwind")]
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}
