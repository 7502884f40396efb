//! `cellblock serve` and `cellblock context`, as clients see them.

mod branches;
mod cells;
mod connections;
mod example;
mod forked;
mod harness;
mod leaks;
mod shell;
mod signals;
