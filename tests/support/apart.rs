//! A harness of tests that are a process each, since only a process with one thread can make
//! namespaces. As many run at once as there are processors.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::panic;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A test's name and what it does.
pub(crate) type Test = (&'static str, fn());

/// How long a test may take on the slowest machine.
const LONGEST: Duration = Duration::from_secs(240);

/// The exit status of a test that cannot run here.
const SKIPPED: u8 = 77;

/// What unwinds a test that cannot run here, so that it leaves no files.
struct Skipped;

/// Ends a test that cannot run here.
pub(crate) fn skip(why: &str) -> ! {
    println!("skip: {why}");
    panic::resume_unwind(Box::new(Skipped));
}

/// Runs one test in this process.
fn run_here(test: fn()) -> ExitCode {
    match panic::catch_unwind(test) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) if why.is::<Skipped>() => ExitCode::from(SKIPPED),
        Err(why) => panic::resume_unwind(why),
    }
}

/// Runs the tests whose names have one of the words of the command line. With `--must`, one
/// that cannot run is a failure.
pub(crate) fn main(what: &str, tests: &[Test]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--test") => {
            let found = tests.iter().find(|(name, _)| *name == arguments[1]);
            return run_here(found.expect("a test").1);
        }
        Some("--list") => {
            for (name, _) in tests {
                println!("{name}: test");
            }
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let (options, parts): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|word| word.starts_with('-'));
    let must = options.iter().any(|option| *option == "--must");
    let chosen: Vec<&'static str> = tests
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str())))
        .collect();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    println!("\nrunning {what}");
    for_each_at_once(&chosen, |name, ended| {
        print!("{}", ended.output);
        let result = match ended.status {
            Some(0) => {
                passed += 1;
                "ok"
            }
            Some(status) if status == i32::from(SKIPPED) && !must => {
                skipped += 1;
                "ignored"
            }
            status => {
                failed += 1;
                println!("{name} ended with {status:?}");
                "FAILED"
            }
        };
        println!("test {name} ... {result}");
    });
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let left_out = tests.len() - chosen.len();
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; {left_out} filtered out"
    );
    ExitCode::from(u8::from(failed > 0))
}

/// How a test ended, and what it wrote.
struct Ended {
    status: Option<i32>,
    output: String,
}

/// Runs the tests of these names, as many at a time as there are processors.
fn for_each_at_once(names: &[&'static str], mut then: impl FnMut(&'static str, Ended)) {
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for sender in vec![sender; at_once] {
            let next = &next;
            scope.spawn(move || {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    sender.send((*name, run(name))).expect("a receiver");
                }
            });
        }
        for (name, ended) in receiver {
            then(name, ended);
        }
    });
}

fn run(name: &str) -> Ended {
    let own = std::env::current_exe().expect("this executable");
    // A file, not a pipe: what a test leaves running would keep a pipe open.
    let mut output = tempfile::tempfile().expect("a file");
    let copy = || Stdio::from(output.try_clone().expect("a descriptor"));
    let mut child = Command::new(own)
        .args(["--test", name])
        .stdin(Stdio::null())
        .stdout(copy())
        .stderr(copy())
        .spawn()
        .expect("start a test");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for a test") {
            break status.code();
        }
        if begun.elapsed() > LONGEST {
            child.kill().expect("end a test");
            child.wait().expect("wait for a test");
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    Ended {
        status,
        output: read(&mut output),
    }
}

fn read(output: &mut File) -> String {
    let mut bytes = Vec::new();
    output.rewind().expect("the beginning");
    output.read_to_end(&mut bytes).expect("what a test wrote");
    String::from_utf8_lossy(&bytes).into_owned()
}
