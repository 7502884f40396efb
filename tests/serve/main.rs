//! `cellblock serve` and `cellblock context`, as clients see them.

mod branches;
mod cells;
mod connections;
mod doors;
mod example;
mod forked;
mod harness;
mod http;
mod http_client;
mod leaks;
mod random;
mod shell;
mod signals;
