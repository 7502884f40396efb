//! Outside tools: each runs in a cell of its own.
//!
//! Nothing of what apt, dpkg, pip or npm do happens with the caller's privileges.
//! A tool sees the host's `/usr` or the tree under construction, read-only, and
//! can write to one directory: what it leaves there is looked at before it is
//! used (`adopt.rs`, `cache.rs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cell::run;
use cell::spec::partial::{PartialBind, PartialLimits};
use cell::spec::quantity::Bound;
use cell::spec::units::{Bytes, Span};
use cell::spec::{self, Ask, Mode, Network, Partial, Spec, Stdin, Stdio};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use record::{Outcome, Record};

/// Where a tool finds the directory that it may write to.
pub(super) const OUT: &str = "/out";

/// One call of a tool.
#[derive(Debug)]
pub(super) struct Tool {
    /// What it does, for messages: `apt-get update`.
    doing: String,
    partial: Partial,
}

impl Tool {
    pub(super) fn new<'a>(doing: &str, argv: impl IntoIterator<Item = &'a str>) -> Self {
        let limits = PartialLimits {
            wall: Some(Bound(Some(Span(Duration::from_secs(3600))))),
            cpu_time: Some(Bound(None)),
            cpus: Some(Bound(None)),
            memory: Some(Bound(None)),
            processes: Some(Bound(Some(512))),
            open_files: Some(Bound(Some(1024))),
            file_size: Some(Bound(None)),
            output: Some(Bytes::mib(64)),
            tmp: tmpfs(4096, 1 << 20),
            ..PartialLimits::default()
        };
        let env = [
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("LC_ALL", "C.UTF-8"),
            // What a tool writes is to be the same each time.
            ("PYTHONHASHSEED", "0"),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"),
            ("SOURCE_DATE_EPOCH", "0"),
            ("TZ", "UTC"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), RawText::from(value)));
        let partial = Partial {
            argv: Some(argv.into_iter().map(RawText::from).collect()),
            rootfs: Some("host".to_owned()),
            // A delegated cgroup is worth a round trip to systemd for code that
            // nobody trusts; not for each of some hundred calls of dpkg-deb.
            cgroup: Some("none".to_owned()),
            cwd: Some(PathBuf::from("/tmp")),
            env: BTreeMap::from(env),
            limits,
            ..Partial::default()
        };
        Self {
            doing: doing.to_owned(),
            partial,
        }
    }

    /// With this tree as its root, and not the host's `/usr`.
    pub(super) fn tree(mut self, tree: &Path) -> Self {
        self.partial.rootfs = Some(tree.display().to_string());
        self
    }

    /// With the host's network: only what fetches has it.
    pub(super) fn online(mut self) -> Self {
        self.partial.network = Some(Network::Host);
        self = self.ro(Path::new("/etc/resolv.conf"), "/etc/resolv.conf");
        for name in PROXIES {
            self = self.pass(name);
        }
        self
    }

    pub(super) fn ro(self, source: &Path, target: &str) -> Self {
        self.bind(source, target, false)
    }

    /// The directory that it may write to, at [`OUT`].
    pub(super) fn out(self, directory: &Path) -> Self {
        self.bind(directory, OUT, true)
    }

    pub(super) fn rw(self, source: &Path, target: &str) -> Self {
        self.bind(source, target, true)
    }

    fn bind(mut self, source: &Path, target: &str, writable: bool) -> Self {
        self.partial.binds.push(PartialBind {
            source: source.to_owned(),
            target: Some(PathBuf::from(target)),
            writable,
        });
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.partial.env.insert(name.to_owned(), value.into());
        self
    }

    /// The caller's own value of a variable, if there is one.
    pub(super) fn pass(self, name: &str) -> Self {
        match std::env::var(name) {
            Ok(value) => self.env(name, &value),
            Err(_) => self,
        }
    }

    pub(super) fn cwd(mut self, path: &str) -> Self {
        self.partial.cwd = Some(PathBuf::from(path));
        self
    }

    /// The request, resolved.
    pub(super) fn spec(self) -> Result<Spec> {
        let ask = Ask {
            mode: Mode::Exec,
            cwd: Path::new("/"),
            stdio: Stdio::Capture,
        };
        let mut spec = spec::load(&ask, None, self.partial)?;
        spec.stdin = Stdin::Null;
        Ok(spec)
    }

    /// Runs it; what it printed to standard output.
    ///
    /// # Errors
    /// It could not be started, or did not end with status 0: [`Failure`].
    pub(super) fn run(self) -> Result<String, Failure> {
        let doing = self.doing.clone();
        let spec = self.spec().map_err(Failure::of)?;
        let record = run::execute(&spec, Instant::now());
        read(&doing, record)
    }
}

/// Proxies that the caller's tools use.
const PROXIES: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

fn tmpfs(mib: u64, inodes: u64) -> spec::partial::PartialTmpfs {
    spec::partial::PartialTmpfs {
        size: Some(Bytes::mib(mib)),
        inodes: Some(inodes),
    }
}

/// Why a tool did not do what it should.
#[derive(Debug)]
pub(super) struct Failure {
    /// For the caller.
    pub(super) error: SetupError,
    /// What the tool said.
    said: String,
}

impl Failure {
    pub(super) fn of(error: SetupError) -> Self {
        Self {
            error,
            said: String::new(),
        }
    }

    /// Whether the tool complains of the network.
    pub(super) fn is_network(&self) -> bool {
        const SIGNS: [&str; 12] = [
            "Temporary failure resolving",
            "Could not resolve",
            "Could not connect",
            "Failed to establish a new connection",
            "NewConnectionError",
            "NameResolutionError",
            "Connection timed out",
            "Connection failed",
            "Network is unreachable",
            "ReadTimeoutError",
            "ENOTFOUND",
            "EAI_AGAIN",
        ];
        SIGNS.iter().any(|sign| self.said.contains(sign))
    }

    /// Whether it complains of a full disk.
    fn is_disk(&self) -> bool {
        ["No space left on device", "ENOSPC", "not enough free space"]
            .iter()
            .any(|sign| self.said.contains(sign))
    }

    /// Whether the server has no such file any more.
    pub(super) fn is_gone(&self) -> bool {
        self.said.contains("404  Not Found") || self.said.contains("404 Not Found")
    }
}

impl From<Failure> for SetupError {
    fn from(failure: Failure) -> Self {
        let disk = failure.is_disk();
        let network = failure.is_network();
        match failure.error {
            error if disk => error.hint(
                "free some space, or choose other places with --store and XDG_CACHE_HOME; what was fetched is kept, and the same command goes on from there",
            ),
            error if network => error.hint(
                "see that the registry can be reached (http_proxy and PIP_INDEX_URL are heard); what was fetched is kept, and the same command goes on from there",
            ),
            error => error,
        }
    }
}

fn read(doing: &str, record: Record) -> Result<String, Failure> {
    if let Some(error) = record.setup_error {
        return Err(Failure::of(error));
    }
    let stdout = record.stdout.map(|text| text.to_string());
    let stdout = stdout.unwrap_or_default();
    if record.outcome == Outcome::Ok {
        return Ok(stdout);
    }
    if record.outcome == Outcome::Cancelled {
        return Err(Failure::of(super::cancelled()));
    }
    let stderr = record.stderr.map(|text| text.to_string());
    let stderr = stderr.unwrap_or_default();
    let said = format!("{stdout}\n{stderr}");
    let how = match record.signal {
        Some(signal) => format!("ended by {signal}"),
        None => format!("exit status {}", record.exit_code),
    };
    let last = last_words(if stderr.trim().is_empty() {
        &stdout
    } else {
        &stderr
    });
    let message = if last.is_empty() {
        how
    } else {
        format!("{how}: {last}")
    };
    Err(Failure {
        error: SetupError::new(Step::Store, message).on(doing),
        said,
    })
}

/// The end of what a tool said: its last lines, of which the errors count most.
pub(super) fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let errors = ["E: ", "ERROR: ", "npm error ", "error: "];
    let is_error = |line: &&&str| errors.iter().any(|sign| line.starts_with(sign));
    let chosen: Vec<&str> = match lines.iter().any(|line| is_error(&line)) {
        true => lines.iter().filter(is_error).take(3).copied().collect(),
        false => lines[lines.len().saturating_sub(3)..].to_vec(),
    };
    let mut words = chosen.join("; ");
    if let Some((cut, _)) = words.char_indices().nth(600) {
        words.truncate(cut);
        words.push('…');
    }
    // It is hostile as far as the terminal is concerned.
    words.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_among_what_a_tool_said_are_kept() {
        let said = "Get:1 x\nE: Failed to fetch y\nE: Some index files failed\nW: late\n";
        assert_eq!(
            last_words(said),
            "E: Failed to fetch y; E: Some index files failed"
        );
        assert_eq!(
            last_words("one\n\ntwo\n\x1b[31mthree\nfour"),
            "two; [31mthree; four"
        );
        assert!(last_words(&"x".repeat(5000)).chars().count() <= 601);
    }

    #[test]
    fn a_lost_network_and_a_full_disk_have_hints() {
        let failure = |said: &str| Failure {
            error: SetupError::new(Step::Store, "exit status 100").on("apt-get update"),
            said: said.to_owned(),
        };
        let hint = |said| SetupError::from(failure(said)).hint.unwrap_or_default();
        assert!(hint("Temporary failure resolving 'deb.debian.org'").contains("registry"));
        assert!(hint("write error (28: No space left on device)").contains("space"));
        assert_eq!(hint("E: Unable to locate package x"), "");
    }
}
