//! Cells with cellblock, and their records.

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::skip;

/// The executable under test: in a virtual machine it is not where it was built.
pub(crate) fn executable() -> OsString {
    let given = std::env::var_os("CELLBLOCK_BIN");
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_cellblock").into())
}

/// Long enough for a host that stalls, and less than a test has.
const WALL: &str = "200s";

/// A cell to start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    verb: &'static str,
    options: Vec<String>,
    operands: Vec<String>,
    stdin: String,
}

impl Cell {
    /// A program on the host's own root.
    pub(crate) fn exec(argv: &[&str]) -> Self {
        let words = ["--"].iter().chain(argv);
        Self {
            verb: "exec",
            options: ["--rootfs", "host", "--wall", WALL]
                .map(str::to_owned)
                .to_vec(),
            operands: words.map(|word| (*word).to_owned()).collect(),
            stdin: String::new(),
        }
    }

    /// Code on a prepared rootfs, or the end of this test.
    pub(crate) fn code(language: &str, rootfs: &str, code: &str) -> Self {
        if rootfs != "host" && !prepared(rootfs).exists() {
            skip(&format!("no prepared rootfs {rootfs}"));
        }
        Self {
            verb: "run",
            options: ["--rootfs", rootfs, "--wall", WALL, "--lang", language]
                .map(str::to_owned)
                .to_vec(),
            operands: vec!["-".to_owned()],
            stdin: code.to_owned(),
        }
    }

    /// Python on the host's own root.
    pub(crate) fn python(code: &str) -> Self {
        Self::code("python", "host", code)
    }

    #[must_use]
    pub(crate) fn option(mut self, words: &[&str]) -> Self {
        self.options
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Allows these hosts.
    #[must_use]
    pub(crate) fn allow(self, hosts: &[&str]) -> Self {
        let allow = |cell: Self, host: &&str| cell.option(&["--net", &format!("allow={host}")]);
        hosts.iter().fold(self, allow)
    }

    /// The host's network: no broker and none of its checks.
    #[must_use]
    pub(crate) fn on_the_hosts_network(self) -> Self {
        self.option(&["--net", "host"])
    }

    #[must_use]
    pub(crate) fn ro(self, source: &Path, target: &str) -> Self {
        self.option(&["--ro", &format!("{}:{target}", source.display())])
    }

    /// The command that starts it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(executable());
        command
            .args([self.verb, "--json"])
            .args(&self.options)
            .args(&self.operands)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Child {
        let mut child = self.command().spawn().expect("start cellblock");
        let mut stdin = child.stdin.take().expect("its input");
        stdin.write_all(self.stdin.as_bytes()).expect("its input");
        child
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> Ended {
        Ended::of(self.start())
    }
}

/// Where a prepared rootfs is.
fn prepared(name: &str) -> PathBuf {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".local/share");
    data.unwrap_or_else(home)
        .join("cellblock/rootfs")
        .join(name)
}

/// The record of a cell that has ended.
pub(crate) struct Ended(pub(crate) Value);

/// What matters here.
impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in [
            "outcome",
            "exit_code",
            "context",
            "stdout",
            "stderr",
            "network",
        ] {
            writeln!(f, "{name}: {:#}", self.0[name])?;
        }
        let error = &self.0["error"];
        writeln!(f, "error: {}: {}", error["name"], error["message"])
    }
}

impl Ended {
    /// Waits for its end.
    pub(crate) fn of(child: Child) -> Self {
        let output = child.wait_with_output().expect("wait for cellblock");
        let record = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            let told = String::from_utf8_lossy(&output.stderr);
            panic!("no record: {error}; {told}")
        });
        Self(record)
    }

    pub(crate) fn stdout(&self) -> &str {
        self.0["stdout"].as_str().unwrap_or_default()
    }

    pub(crate) fn context(&self) -> &str {
        self.0["context"].as_str().unwrap_or_default()
    }

    pub(crate) fn outcome(&self) -> &str {
        self.0["outcome"].as_str().unwrap_or_default()
    }

    /// That its program ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.outcome(), "ok", "{self:?}");
        self
    }

    /// Lines of its output that begin with this word.
    pub(crate) fn lines(&self, word: &str) -> Vec<&str> {
        let lines = self.stdout().lines();
        lines.filter(|line| line.starts_with(word)).collect()
    }

    fn list(&self, name: &str) -> &[Value] {
        self.0["network"][name]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    pub(crate) fn connections(&self) -> &[Value] {
        self.list("connections")
    }

    /// The refused hosts as `HOST:PORT REASON`.
    pub(crate) fn refused(&self) -> Vec<String> {
        let shown = |refused: &Value| {
            let host = refused["host"].as_str().unwrap_or_default();
            let port = refused["port"]
                .as_u64()
                .map_or(String::new(), |port| format!(":{port}"));
            format!(
                "{host}{port} {}",
                refused["reason"].as_str().unwrap_or_default()
            )
        };
        self.list("refused").iter().map(shown).collect()
    }

    /// That this was refused, as far as it begins so.
    #[track_caller]
    pub(crate) fn has_refused(&self, what: &str) {
        let refused = self.refused();
        let found = refused.iter().any(|refused| refused.starts_with(what));
        assert!(found, "{what} is not in {refused:?}: {self:?}");
    }
}
