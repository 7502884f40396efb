//! The `cellblock` command.

use std::process::ExitCode;
use std::time::Instant;

/// A launch makes a few thousand small allocations and ends. The C library's
/// allocator returns memory to the kernel all the while; this one does not.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let began = Instant::now();
    ExitCode::from(cellblock::commands::dispatch(std::env::args_os(), began))
}
