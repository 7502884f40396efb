//! The `cellblock` command.

fn main() {}
