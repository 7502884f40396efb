//! What the kernel counts per user: all cells together leave half of it to the server and to the
//! user's other programs.

use serde_json::{Value, json};

use crate::harness::{Client, Server, descendants};

/// What the user has, in tests.
const INSTANCES: u64 = 16;
const SIGNALS: u64 = 64;
const CELLS: u64 = 4;

/// Takes all that there is, and keeps it.
const TAKE: &str = "\
import ctypes, os, signal
libc = ctypes.CDLL(None)
taken = []
while len(taken) < 200 and (fd := libc.inotify_init()) >= 0: taken.append(fd)
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
queued = 0
while queued < 1000 and libc.sigqueue(os.getpid(), 40, None) == 0: queued += 1
(len(taken), queued)";

/// How many instances and signals a cell took, and its record.
fn take(client: &mut Client, context: &str) -> (u64, u64, Value) {
    client.create(context);
    let record = client.run_in(context, TAKE)["record"].take();
    let text = record["results"][0]["text"].as_str().unwrap_or_default();
    let numbers: Vec<u64> = text
        .trim_matches(['(', ')'])
        .split(", ")
        .map(|number| number.parse().unwrap_or_else(|_| panic!("{record}")))
        .collect();
    (numbers[0], numbers[1], record)
}

fn watch(client: &mut Client, context: &str) -> Value {
    client.call("file.watch", json!({"context": context, "path": ""}))
}

fn start(options: &[&str]) -> Server {
    let cells = ["--max-cells", &CELLS.to_string()];
    Server::start_with_user_limits(INSTANCES, SIGNALS, &[&cells, options].concat())
}

#[test]
fn cells_that_take_all_they_get_leave_the_server_its_watches() {
    let server = start(&["--without", "userns-limit"]);
    let mut client = server.connect();
    client.create("honest");
    assert_eq!(take(&mut client, "greedy").0, INSTANCES);
    let refused = watch(&mut client, "honest");
    assert!(
        refused["error"].to_string().contains("inotify"),
        "{refused}"
    );
    drop(server);

    let (instances, signals) = (INSTANCES / 2 / CELLS, SIGNALS / 2 / CELLS);
    for start_of_cells in [
        &[][..],
        &["--warm", "blank:1"],
        &["--warm", "python:1", "--preload", "json"],
    ] {
        let server = start(start_of_cells);
        let mut client = server.connect();
        client.create("honest");
        for context in 1..CELLS {
            let (taken, queued, record) = take(&mut client, &format!("greedy-{context}"));
            assert_eq!((taken, queued), (instances, signals), "{start_of_cells:?}");
            let isolation = &record["isolation"];
            assert_eq!(isolation["inotify_instances"], instances, "{isolation}");
        }
        let watched = watch(&mut client, "honest");
        assert!(watched["result"]["watch"].is_u64(), "{watched}");
    }
}

/// The kernel compares the descriptors in flight of all processes of the user with this limit of
/// the one that passes some: a program in a cell, whose limit is lower, stops no other cell.
#[test]
fn processes_outside_of_programs_may_have_many_descriptors_in_flight() {
    let server = start(&[]);
    let mut client = server.connect();
    client.create("a");
    client.run_in("a", "1");
    let all: Vec<(u64, u64)> = (descendants(server.child.id()).into_iter())
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok())
        .filter_map(|limits| {
            let line = limits
                .lines()
                .find(|line| line.starts_with("Max open files"))?;
            let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
            Some((numbers.next()?, numbers.next()?))
        })
        .collect();
    let (programs, others): (Vec<_>, Vec<_>) = all.iter().partition(|(soft, _)| *soft == 256);
    assert_eq!(programs.len(), 1, "{all:?}");
    // The spawner, a supervisor and an init.
    assert!(others.len() >= 3, "{all:?}");
    assert!(others.iter().all(|(soft, hard)| soft == hard), "{all:?}");
}
