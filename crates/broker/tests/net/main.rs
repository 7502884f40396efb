//! Brokers as processes, between a cell's network namespace and a fake Internet.
//!
//! `cargo test -p broker --test net -- PART` runs the scenarios whose name has PART.

mod attacks;
mod carries;
mod figures;
mod fronting;
mod limits;
mod rig;
mod secrets;

#[path = "../../../../tests/support/apart.rs"]
mod apart;
#[path = "../../../../tests/support/internet.rs"]
mod internet;

use std::process::ExitCode;

use apart::Test as Scenario;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--broker", rest)) = arguments.split_first().map(|(a, b)| (a.as_str(), b)) {
        rig::broker(rest)
    }
    let scenarios = [
        carries::SCENARIOS,
        attacks::SCENARIOS,
        fronting::SCENARIOS,
        limits::SCENARIOS,
        secrets::SCENARIOS,
        figures::SCENARIOS,
    ];
    apart::main("scenarios of the broker", &scenarios.concat())
}
