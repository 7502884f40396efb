//! Cells that reach named hosts, against a fake Internet: unmodified clients, and what
//! becomes of a cell when its broker, its supervisor or its peers misbehave.
//!
//! Each test is a process of its own, since only a process with one thread can make the
//! namespaces. `cargo test --test network -- PART` runs those whose name has PART. With
//! `--must`, one that cannot run is a failure.

mod cell;
mod clients;
mod endings;
mod outside;
mod refusals;
mod secrets;
mod server;
mod ssh;

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

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A test's name and what it does.
type Test = (&'static str, fn());

/// How long a test may take on the slowest machine.
const LONGEST: Duration = Duration::from_secs(240);

/// The exit status of a test that cannot run here.
const SKIPPED: i32 = 77;

/// Ends a test that cannot run here.
fn skip(why: &str) -> ! {
    println!("skip: {why}");
    std::process::exit(SKIPPED);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tests: Vec<Test> = [
        clients::TESTS,
        refusals::TESTS,
        endings::TESTS,
        secrets::TESTS,
        server::TESTS,
        ssh::TESTS,
    ]
    .concat();
    match arguments.first().map(String::as_str) {
        Some("--test") => {
            let found = tests.iter().find(|(name, _)| *name == arguments[1]);
            found.expect("a test").1();
            return ExitCode::SUCCESS;
        }
        Some("--list") => {
            for (name, _) in tests {
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
    let must = arguments.iter().any(|word| word == "--must");
    let (mut passed, mut failed, mut skipped, mut left_out) = (0, 0, 0, 0);
    println!("\nrunning tests of cells that reach named hosts");
    for (name, _) in tests {
        if !parts.is_empty() && !parts.iter().any(|part| name.contains(*part)) {
            left_out += 1;
            continue;
        }
        let result = match run(name) {
            Some(0) => {
                passed += 1;
                "ok".to_owned()
            }
            Some(SKIPPED) if !must => {
                skipped += 1;
                "ignored".to_owned()
            }
            status => {
                failed += 1;
                println!("{name} ended with {status:?}");
                "FAILED".to_owned()
            }
        };
        println!("test {name} ... {result}");
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; {left_out} filtered out"
    );
    ExitCode::from(u8::from(failed > 0))
}

fn run(name: &str) -> Option<i32> {
    let own = std::env::current_exe().expect("this executable");
    let mut command = Command::new(own);
    command.args(["--test", name]).stdin(Stdio::null());
    let mut child = command.spawn().expect("start a test");
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait for a test") {
            return status.code();
        }
        if begun.elapsed() > LONGEST {
            child.kill().expect("end a test");
            child.wait().expect("wait for a test");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
