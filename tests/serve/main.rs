//! `cellblock serve` and `cellblock context`, as clients see them.

mod authorisation;
mod bash;
mod branches;
mod carried_files;
mod cells;
mod clients;
mod connections;
#[path = "../support/dispositions.rs"]
mod dispositions;
mod doors;
mod e2b;
mod example;
mod exec;
mod forked;
mod harness;
mod http;
mod http_client;
mod leaks;
#[path = "../support/long.rs"]
mod long;
mod mcp;
mod memory;
mod pandas;
mod processes;
mod random;
mod randomness;
mod replay;
mod shared;
mod shell;
mod signals;
#[path = "../support/skip.rs"]
mod skip;
mod tenants;
mod tokens;
mod user_limits;
mod waiting;
mod written;
