//! Contexts that have loaded the data stack, whose memory is mostly their template's.

use serde_json::{Value, json};

use crate::harness::{Client, Server, cellblock, until};
use crate::skip::skip;

const ROOTFS: &str = "python-data";
const OPTIONS: &[&str] = &[
    "--warm",
    "python:2",
    "--preload",
    "numpy,pandas,pyarrow,matplotlib.pyplot",
];

/// Arrays of each library, 10 MB that are like nothing in the template, and a page of the
/// template's that is changed.
const STATE: &str = "
import os, numpy, pandas, pyarrow
noise = numpy.frombuffer(os.urandom(10 << 20), dtype='uint8')
frame = pandas.DataFrame({'a': range(1000), 'b': noise[:1000]})
table = pyarrow.table({'c': list(range(100))})
pandas.options.display.max_rows = 7
groups = iter(frame.groupby(frame.a % 3)); next(groups)
sums = int(noise.sum(dtype='uint64')), int(frame.b.sum())
";

const LOOK: &str = "
assert sums == (int(noise.sum(dtype='uint64')), int(frame.b.sum())), sums
assert pyarrow.table(table).num_rows == 100 and pandas.options.display.max_rows == 7
print(int(frame.a.sum()), next(groups)[0])
";

fn stdout(executed: &Value) -> &str {
    assert_eq!(executed["record"]["outcome"], "ok", "{executed}");
    executed["record"]["stdout"].as_str().unwrap_or_default()
}

fn missing() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("states are carried on x86_64 only");
    }
    let found = cellblock().args(["rootfs", "show", ROOTFS]).output();
    let is_there = found.is_ok_and(|found| found.status.success());
    (!is_there).then_some("the store has no python-data")
}

fn bytes(client: &mut Client, name: &str) -> u64 {
    let made = client.ask("context.checkpoint", json!({"context": name}));
    made["bytes"].as_u64().unwrap_or_else(|| panic!("{made}"))
}

#[test]
fn contexts_with_pandas_are_forked_rewound_and_suspended() {
    if let Some(reason) = missing() {
        return skip(reason);
    }
    let server = Server::start_on(ROOTFS, OPTIONS);
    let mut client = server.connect();
    until("waiting cells", || {
        client.status()["pools"][0]["ready"] == 2
    });
    assert_eq!(client.create("a")["start"], "forked");
    stdout(&client.run_in("a", STATE));
    // The template's objects are immortal, and the program's are not.
    let counts = "import sys; none = sys.getrefcount(None)\n\
        print([sys.getrefcount(one) == none for one in (pandas.concat, pandas.DataFrame, frame)])";
    assert_eq!(stdout(&client.run_in("a", counts)), "[True, True, False]\n");
    // Of some 100 MB, what is not the template's.
    let taken = bytes(&mut client, "a");
    assert!((10 << 20..32 << 20).contains(&taken), "{taken}");
    assert_eq!(stdout(&client.run_in("a", LOOK)), "499500 1\n");
    stdout(&client.run_in(
        "a",
        "frame.a += 1; noise = None; pandas.options.display.max_rows = 8",
    ));
    client.ask("context.rewind", json!({"context": "a"}));
    let look = client.run_in("a", LOOK);
    assert_eq!(
        (stdout(&look), &look["state"]),
        ("499500 1\n", &json!("restored"))
    );

    client.ask("context.rewind", json!({"context": "a"}));
    let forked = client.ask("context.fork", json!({"context": "a", "n": 3}));
    let ids: Vec<&str> = (forked["branches"].as_array().unwrap().iter())
        .map(|branch| {
            branch["context"]
                .as_str()
                .unwrap_or_else(|| panic!("{branch}"))
        })
        .collect();
    for (number, id) in ids.iter().enumerate() {
        let look = client.run_in(id, LOOK);
        assert_eq!(stdout(&look), "499500 1\n", "{look}");
        assert_eq!(look["record"]["start"], "forked", "{look}");
        stdout(&client.run_in(id, &format!("frame.a = {number}")));
    }
    for (number, id) in ids.iter().enumerate() {
        let sum = client.run_in(id, "print(int(frame.a.sum()), next(groups)[0])");
        assert_eq!(stdout(&sum), format!("{} 2\n", number * 1000), "{sum}");
    }
    let look = client.run_in("a", LOOK);
    assert_eq!(stdout(&look), "499500 1\n", "{look}");

    client.ask("context.suspend", json!({"context": "a"}));
    let sum = client.run_in(
        "a",
        "print(int(frame.describe().a['count']), next(groups)[0])",
    );
    assert_eq!(
        (stdout(&sum), &sum["state"]),
        ("1000 2\n", &json!("restored"))
    );
}
