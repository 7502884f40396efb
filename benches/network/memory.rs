//! The broker's memory.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::Result;
use crate::outside::Outside;

/// A program that holds connections which have carried bytes, until its input ends.
const HOLD: &str = "
import socket, sys
count = int(sys.argv[1])
open_ = []
for _ in range(count):
    s = socket.create_connection(('bench.example', 7000))
    s.sendall(b'\\x01x')
    open_.append(s)
for s in open_:
    assert s.recv(2)
print('open', flush=True)
sys.stdin.read()
";

/// The broker's private memory in bytes, with each of these numbers of open connections.
pub(crate) fn of_connections(outside: &Outside, counts: &[usize]) -> Result<Vec<(usize, u64)>> {
    counts
        .iter()
        .map(|count| Ok((*count, with_connections(outside, *count)?)))
        .collect()
}

fn with_connections(outside: &Outside, count: usize) -> Result<u64> {
    let mut child = Command::new(&outside.cellblock)
        .args([
            "exec",
            "--rootfs",
            "host",
            "--net",
            "allow=bench.example:7000",
        ])
        .args([
            "--connections",
            "1100",
            "--connection-rate",
            "none",
            "--open-files",
            "1100",
            "--wall",
            "60s",
        ])
        .args(["--", "python3", "-I", "-c", HOLD, &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    let memory = match line.as_str() {
        "open\n" => broker_memory(child.id()),
        _ => Err("the program in the cell did not open its connections".into()),
    };
    drop(child.stdin.take());
    child.wait()?;
    memory
}

/// Of the supervisor's children, the broker is the one with the most descriptors.
fn broker_memory(supervisor: u32) -> Result<u64> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))?;
    let descriptors =
        |pid: &&str| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let broker = children.split_whitespace().max_by_key(descriptors);
    let broker = broker.ok_or("the supervisor has no children")?;
    let sums = fs::read_to_string(format!("/proc/{broker}/smaps_rollup"))?;
    let kib = sums
        .lines()
        .filter_map(|line| line.strip_prefix("Private_"));
    let kib = kib.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kib.sum::<u64>() * 1024)
}
