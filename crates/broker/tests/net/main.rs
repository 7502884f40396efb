//! Brokers as processes, between a cell's network namespace and a fake Internet.
//!
//! Each scenario is a process of its own, since only a process with one thread can make the
//! namespaces. `cargo test -p broker --test net -- PART` runs those whose name has PART.

mod attacks;
mod carries;
mod figures;
mod fronting;
mod limits;
mod rig;
mod secrets;

#[path = "../../../../tests/support/internet.rs"]
mod internet;

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A scenario's name and what it does.
type Scenario = (&'static str, fn());

/// How long a scenario may take on the slowest machine.
const LONGEST: Duration = Duration::from_secs(240);

/// The exit status of a scenario that cannot run here.
const SKIPPED: i32 = 77;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scenarios: Vec<Scenario> = [
        carries::SCENARIOS,
        attacks::SCENARIOS,
        fronting::SCENARIOS,
        limits::SCENARIOS,
        secrets::SCENARIOS,
        figures::SCENARIOS,
    ]
    .concat();
    match arguments.first().map(String::as_str) {
        Some("--broker") => rig::broker(&arguments[1..]),
        Some("--scenario") => {
            let found = scenarios.iter().find(|(name, _)| *name == arguments[1]);
            found.expect("a scenario").1();
            return ExitCode::SUCCESS;
        }
        Some("--list") => {
            for (name, _) in scenarios {
                println!("{name}: test");
            }
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let parts: Vec<&String> = arguments
        .iter()
        .filter(|word| !word.starts_with('-'))
        .collect();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    println!("\nrunning scenarios of the broker");
    for (name, _) in scenarios {
        if !parts.is_empty() && !parts.iter().any(|part| name.contains(*part)) {
            continue;
        }
        match run(name) {
            Some(0) => passed += 1,
            Some(SKIPPED) => {
                skipped += 1;
                println!("test {name} ... ignored");
                continue;
            }
            status => {
                failed += 1;
                println!("{name} ended with {status:?}");
                println!("test {name} ... FAILED");
                continue;
            }
        }
        println!("test {name} ... ok");
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out"
    );
    ExitCode::from(u8::from(failed > 0))
}

fn run(name: &str) -> Option<i32> {
    let own = std::env::current_exe().expect("this executable");
    let mut command = Command::new(own);
    command.args(["--scenario", name]).stdin(Stdio::null());
    let mut child = command.spawn().expect("start a scenario");
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait for a scenario") {
            return status.code();
        }
        if begun.elapsed() > LONGEST {
            child.kill().expect("end a scenario");
            child.wait().expect("wait for a scenario");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
