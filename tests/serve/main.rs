//! `cellblock serve` and `cellblock context`, as clients see them.

mod branches;
mod cells;
mod connections;
mod example;
mod forked;
mod harness;
mod leaks;
mod random;
mod shell;
mod signals;
