use std::fmt::Display;
use std::io::Write as _;

/// Prints which test, or which part of it, cannot run on this host, and why.
///
/// libtest drops the output of `println!` and `eprintln!` when a test passes, so a test that skips
/// itself would look like one that ran. It does not see what is written to standard error directly.
pub(crate) fn skip(why: impl Display) {
    // libtest names each thread after its test.
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    // In one write, since other tests print at the same time.
    let line = format!("skip: {name}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
