//! The `cellblock` command.

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let began = Instant::now();
    ExitCode::from(cellblock::commands::dispatch(std::env::args_os(), began))
}
