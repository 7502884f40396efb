//! `cellblock context`, by shells that know nothing of each other.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::{cellblock, directory, until};
use crate::skip::skip;

pub(crate) struct Shell(tempfile::TempDir);

impl Shell {
    pub(crate) fn new() -> Self {
        // A runtime directory with another mode is not used.
        Self(directory(0o700))
    }

    pub(crate) fn context(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = cellblock();
        self.aim(command.arg("context").args(words));
        command
    }

    /// Has a command use this shell's contexts.
    pub(crate) fn aim(&self, command: &mut Command) {
        command.env("XDG_RUNTIME_DIR", self.0.path());
    }

    /// A context of Python.
    pub(crate) fn create(&self) -> String {
        let created = self.json(&["create", "--lang", "python", "--rootfs", "host", "--json"]);
        created["context"].as_str().unwrap().to_owned()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.context(words);
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}: {said}"))
    }

    fn sockets(&self) -> usize {
        let entries = std::fs::read_dir(self.0.path().join("cellblock/contexts"));
        entries.map_or(0, Iterator::count)
    }
}

#[test]
fn a_context_goes_on_from_call_to_call() {
    let shell = Shell::new();
    let words = [
        "create", "--lang", "python", "--rootfs", "host", "--label", "mine", "--json",
    ];
    let created = shell.json(&words);
    let id = created["context"].as_str().unwrap();
    assert_eq!(shell.sockets(), 1);
    let first = shell.context(&["run", id, "-c", "x = 20"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let second = shell.json(&["run", id, "--json", "-c", "x + 1"]);
    assert_eq!(second["record"]["results"][0]["text"], "21", "{second}");
    let list = shell.json(&["list", "--json"]);
    assert_eq!(
        (&list[0]["context"], &list[0]["label"]),
        (&json!(id), &json!("mine"))
    );
    let restarted = shell.json(&["restart", id, "--json"]);
    assert_eq!(restarted["state"], "lost");
    let third = shell.context(&["run", id, "-c", "x"]);
    assert_eq!(third.status.code(), Some(1), "{third:?}");
    shell.json(&["describe", id]);
    let deleted = shell.context(&["delete", id]);
    assert_eq!(deleted.status.code(), Some(0));
    let gone = shell.context(&["run", id, "-c", "x"]);
    assert_eq!(gone.status.code(), Some(125));
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    // Its server takes a moment to end.
    assert!(said.contains("no such context"), "{said}");
    until("the server's end", || shell.sockets() == 0);
}

#[test]
fn a_context_that_cannot_be_made_leaves_no_server() {
    let shell = Shell::new();
    let output = shell.context(&["create", "--lang", "cobol"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(!output.stderr.is_empty());
    until("the server's end", || shell.sockets() == 0);
}

#[test]
fn an_idle_context_ends_with_its_server() {
    let shell = Shell::new();
    let words = [
        "create", "--lang", "python", "--rootfs", "host", "--idle", "1s",
    ];
    let output = shell.context(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    until("the server's end", || shell.sockets() == 0);
}

#[test]
fn a_context_is_forked_taken_back_and_suspended() {
    let shell = Shell::new();
    let words = [
        "create",
        "--lang",
        "python",
        "--rootfs",
        "host",
        "--branches",
        "--json",
    ];
    let created = shell.json(&words);
    let id = created["context"].as_str().unwrap();
    shell.context(&["run", id, "-c", "x = 1"]);
    let made = shell.context(&["checkpoint", id]);
    if made.status.code() != Some(0) {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        let skips = said.contains("to be traced") || said.contains("whose registers are known");
        assert!(skips, "{said}");
        shell.context(&["delete", id]);
        return skip(said);
    }
    let number = String::from_utf8(made.stdout).unwrap();
    assert!(number.trim().parse::<u64>().is_ok(), "{number}");
    shell.context(&["run", id, "-c", "x = 2"]);
    let forked = shell.context(&["fork", id, "-n", "2"]);
    assert_eq!(forked.status.code(), Some(0), "{forked:?}");
    let forked = String::from_utf8(forked.stdout).unwrap();
    let branches: Vec<&str> = forked.lines().collect();
    assert_eq!(branches.len(), 2, "{forked}");
    let back = shell.json(&["rewind", id, "--checkpoint", number.trim(), "--json"]);
    assert_eq!(back["state"], "restored", "{back}");
    let suspended = shell.json(&["suspend", id, "--json"]);
    assert_eq!(suspended["context"], id, "{suspended}");
    let list = shell.json(&["list", "--json"]);
    assert_eq!(list.as_array().map(Vec::len), Some(3), "{list}");
    let one = |id: &str| {
        let all = list.as_array().unwrap().iter();
        all.clone()
            .find(|info| info["context"] == id)
            .unwrap()
            .clone()
    };
    assert_eq!(one(id)["doing"], "suspended", "{list}");
    for (id, value) in [(id, "1"), (branches[0], "2"), (branches[1], "2")] {
        let look = shell.json(&["run", id, "--json", "-c", "x"]);
        assert_eq!(look["state"], "restored", "{look}");
        assert_eq!(look["record"]["results"][0]["text"], value, "{look}");
        let deleted = shell.context(&["delete", id]);
        assert_eq!(deleted.status.code(), Some(0), "{deleted:?}");
    }
    until("the server's end", || shell.sockets() == 0);
}
