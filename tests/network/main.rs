//! Cells that reach named hosts, against a fake Internet: unmodified clients, and what
//! becomes of a cell when its broker, its supervisor or its peers misbehave.
//!
//! `cargo test --test network -- PART` runs those whose name has PART. With `--must`, one that
//! cannot run is a failure.

mod cell;
mod clients;
mod endings;
mod outside;
mod refusals;
mod secrets;
mod server;
mod ssh;

#[path = "../support/apart.rs"]
mod apart;
#[path = "../support/dispositions.rs"]
mod dispositions;
#[expect(dead_code, reason = "the servers' tests use the rest")]
#[path = "../serve/harness.rs"]
mod harness;
#[expect(dead_code, reason = "the servers' tests use the rest")]
#[path = "../serve/http_client.rs"]
mod http_client;
#[expect(dead_code, reason = "the broker's tests use the rest")]
#[path = "../support/internet.rs"]
mod internet;

use std::process::ExitCode;

use apart::{Test, skip};

fn main() -> ExitCode {
    let tests = [
        clients::TESTS,
        refusals::TESTS,
        endings::TESTS,
        secrets::TESTS,
        server::TESTS,
        ssh::TESTS,
    ];
    apart::main("tests of cells that reach named hosts", &tests.concat())
}
