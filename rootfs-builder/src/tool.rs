//! Programs in cells: every program of the host or of a tree that the builder
//! uses runs in a cell of its own.
//!
//! apt, dpkg, pip and npm never have the caller's privileges. They see the
//! host's `/usr` or the tree under construction, read-only, and write to one
//! directory; their output is checked before it is used (`build/adopt.rs`,
//! `packages/cache.rs`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::errors::{NO_SPACE, store_error};
use crate::job::interrupted;
use engine::run;
use record::error::{Result, SetupError};
use record::stream::Text;
use record::{Outcome, Record};
use spec::mirrors;
use spec::network::{PartialEgress, PartialNetwork};
use spec::partial::{PartialBind, PartialLimits, PartialTmpfs};
use spec::quantity::{AutoBound, Bound};
use spec::units::Bytes;
use spec::{self, Ask, Mode, Partial, RootfsRef, Spec, Stdin, Stdio};

/// The directory inside that a tool may write to.
pub(crate) const OUT: &str = "/out";

/// The directory inside that has the recipe's files.
pub(crate) const RECIPE: &str = "/recipe";

/// The variables that name the caller's proxies.
const PROXIES: [&str; 5] = [
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "PIP_PROXY",
];

/// Those that say what is reached without them.
const NO_PROXY: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// One call of a program.
#[derive(Debug)]
pub(crate) struct Tool {
    /// For messages: `apt-get update`.
    name: String,
    partial: Partial,
    tree: Option<PathBuf>,
}

impl Tool {
    /// A tool that packages or compiles, on the host's `/usr` and with large limits.
    pub(crate) fn new<'a>(name: &str, argv: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tool = Self::confined(name, argv, None);
        tool.partial.rootfs = Some("host".to_owned());
        // A delegated cgroup costs a round trip to systemd, and a build calls
        // dpkg-deb some hundred times.
        tool.partial.cgroup = Some("none".to_owned());
        tool.partial.limits = PartialLimits {
            wall: Some(Bound(Some(Duration::from_secs(3600)))),
            cpu_time: Some(Bound(None)),
            cpus: Some(Bound(None)),
            memory: Some(Bound(None)),
            processes: Some(Bound(Some(512))),
            open_files: Some(AutoBound::Given(Some(1024))),
            file_size: Some(Bound(None)),
            output: Some(Bytes::mib(64)),
            tmp: PartialTmpfs {
                size: Some(Bytes::mib(4096)),
                inodes: Some(1 << 20),
            },
            ..PartialLimits::default()
        };
        // Fixed values, so that a tool writes the same bytes each time.
        tool.cwd("/tmp")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C.UTF-8")
            .env("PYTHONHASHSEED", "0")
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
            .env("SOURCE_DATE_EPOCH", "0")
            .env("TZ", "UTC")
    }

    /// A program that is as confined as any caller's, by the policy profile
    /// `profile` or the default one.
    pub(crate) fn confined<'a>(
        name: &str,
        argv: impl IntoIterator<Item = &'a str>,
        profile: Option<&str>,
    ) -> Self {
        let limits = PartialLimits {
            // Programs and modules may come from a cold disk.
            wall: Some(Bound(Some(Duration::from_secs(120)))),
            // Without a cgroup, reserved address space counts, of which V8 takes
            // much.
            memory: Some(Bound(Some(Bytes::mib(2048)))),
            ..PartialLimits::default()
        };
        Self {
            name: name.to_owned(),
            partial: Partial {
                argv: Some(argv.into_iter().map(Into::into).collect()),
                extends: profile.map(str::to_owned),
                limits,
                ..Partial::default()
            },
            tree: None,
        }
    }

    /// Uses this tree as the root.
    pub(crate) fn tree(mut self, tree: &Path) -> Self {
        self.tree = Some(tree.to_owned());
        self
    }

    pub(crate) fn timeout(mut self, wall: Duration) -> Self {
        self.partial.limits.wall = Some(Bound(Some(wall)));
        self
    }

    /// Lets it reach the hosts of these registries, and the caller's proxies; only
    /// downloads need that. Each is a URL, several with spaces between them, or
    /// `preset:NAME`.
    pub(crate) fn online<'a>(mut self, registries: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut allow, mut urls) = (Vec::new(), Vec::new());
        for registry in registries.into_iter().flat_map(str::split_whitespace) {
            match registry.starts_with("preset:") {
                true => allow.push(registry.to_owned()),
                false => urls.push(registry.to_owned()),
            }
        }
        let proxies = PROXIES.iter().filter_map(|name| std::env::var(name).ok());
        let proxies: Vec<String> = proxies.filter(|proxy| !proxy.is_empty()).collect();
        urls.extend(proxies.iter().map(|proxy| match proxy.contains("://") {
            true => proxy.clone(),
            false => format!("http://{proxy}"),
        }));
        allow.extend(mirrors::of_urls(urls.iter().map(String::as_str)));
        self.partial.network = Some(PartialNetwork::Hosts(PartialEgress {
            allow,
            // A proxy gets requests for other hosts.
            check_names: (!proxies.is_empty()).then_some(false),
            ..PartialEgress::default()
        }));
        self.pass(&PROXIES).pass(&NO_PROXY)
    }

    pub(crate) fn ro(self, source: &Path, target: &str) -> Self {
        self.bind(source, target, false)
    }

    pub(crate) fn rw(self, source: &Path, target: &str) -> Self {
        self.bind(source, target, true)
    }

    /// Binds the directory for output at [`OUT`].
    pub(crate) fn out(self, directory: &Path) -> Self {
        self.rw(directory, OUT)
    }

    fn bind(mut self, source: &Path, target: &str, writable: bool) -> Self {
        self.partial.binds.push(PartialBind {
            source: source.to_owned(),
            target: Some(PathBuf::from(target)),
            writable,
            optional: false,
        });
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.partial.env.insert(name.to_owned(), value.into());
        self
    }

    /// Passes the caller's values of those variables that are set.
    pub(crate) fn pass(self, names: &[&str]) -> Self {
        names
            .iter()
            .fold(self, |tool, name| match std::env::var(name) {
                Ok(value) => tool.env(name, &value),
                Err(_) => tool,
            })
    }

    pub(crate) fn cwd(mut self, path: &str) -> Self {
        self.partial.cwd = Some(PathBuf::from(path));
        self
    }

    fn spec(self) -> Result<Spec> {
        let ask = Ask {
            mode: Mode::Exec,
            cwd: Path::new("/"),
            stdio: Stdio::Capture,
            lends: false,
        };
        let mut spec = spec::load(&ask, None, None, self.partial)?;
        if let Some(tree) = self.tree {
            spec.rootfs = RootfsRef::Dir(tree);
        }
        spec.stdin = Stdin::Null;
        Ok(spec)
    }

    /// Runs it and returns its standard output.
    ///
    /// # Errors
    /// It could not be started, or did not end with status 0.
    pub(crate) fn run(self) -> Result<String, Failure> {
        self.output().map(|(stdout, _)| stdout)
    }

    /// The same, with its standard error.
    pub(crate) fn output(self) -> Result<(String, String), Failure> {
        let name = self.name.clone();
        let record = run::execute(&self.spec()?, Instant::now());
        output(name, record)
    }
}

/// The uid outside that programs in cells have.
pub(crate) fn cell_uid() -> Result<u32> {
    let spec = Tool::new("true", ["true"]).spec()?;
    Ok(run::resolve(&spec)?.plan.outer_uid())
}

/// Messages of tools about a full disk.
const DISK: [&str; 3] = ["No space left on device", "ENOSPC", "not enough free space"];

/// What begins the message about a host that a tool may not reach.
const REFUSED: &str = "refused to connect to";

/// Messages of tools about the network.
const NETWORK: [&str; 12] = [
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

/// What pip says of a package of which it may install nothing: it looks at wheels only.
const NO_WHEEL: &str = "(from versions: none)";

/// Why a tool did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It did not run to its end: there was no cell, or the caller interrupted it.
    Setup(SetupError),
    /// It failed.
    Program {
        name: String,
        /// How it ended, and the last lines that it printed.
        message: String,
        /// Everything that it printed.
        output: String,
    },
}

impl Failure {
    /// Whether the server no longer has the file.
    pub(crate) fn is_gone(&self) -> bool {
        self.mentions(&["404  Not Found", "404 Not Found"])
    }

    fn mentions(&self, signs: &[&str]) -> bool {
        match self {
            Self::Setup(_) => false,
            Self::Program { output, .. } => signs.iter().any(|sign| output.contains(sign)),
        }
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

impl From<Failure> for SetupError {
    fn from(failure: Failure) -> Self {
        let is_disk = failure.mentions(&DISK);
        let is_network = failure.mentions(&NETWORK);
        let has_no_wheel = failure.mentions(&[NO_WHEEL]);
        let error = match failure {
            Failure::Setup(error) => return error,
            Failure::Program { name, message, .. } => store_error(message).on(name),
        };
        match () {
            () if error.message.contains(REFUSED) => error.hint(
                "a build reaches the registries that it is configured with and no other host: \
                 name another one with http_proxy, PIP_EXTRA_INDEX_URL, npm_config_registry, or \
                 the recipe's `debian.mirror`",
            ),
            () if is_disk => error.hint(NO_SPACE),
            () if has_no_wheel => error.hint(
                "wheels only: the index has no wheel of this package for the rootfs's Python and \
                 processor, or no such package; sources are not built here: build a wheel with \
                 `pip wheel` and name its page in PIP_FIND_LINKS, or let the code that needs the \
                 package install it, with --net preset:pypi",
            ),
            () if is_network => error.hint(
                "check that the registry can be reached (http_proxy and PIP_INDEX_URL are used); \
                 fetched files are kept, and the same command continues from there",
            ),
            () => error,
        }
    }
}

fn output(name: String, record: Record) -> Result<(String, String), Failure> {
    if let Some(error) = record.setup_error {
        return Err(Failure::Setup(error));
    }
    let refused = record.network.map(|network| network.refused);
    let mut refused: Vec<String> = (refused.unwrap_or_default().iter())
        .map(|refused| format!("; {REFUSED} {}: {}", refused.shown(), refused.reason))
        .collect();
    refused.truncate(3);
    let text = |text: Option<Text>| text.map_or_else(String::new, |text| text.to_string());
    let (stdout, stderr) = (text(record.stdout), text(record.stderr));
    let how = match (record.outcome, record.signal) {
        (Outcome::Ok, _) => return Ok((stdout, stderr)),
        (Outcome::Cancelled, _) => return Err(Failure::Setup(interrupted(None))),
        (Outcome::Exit, _) => format!("exit status {}", record.exit_code),
        (Outcome::Signal, Some(signal)) => format!("ended by {signal}"),
        (outcome, _) => record.context.unwrap_or_else(|| format!("{outcome:?}")),
    };
    let printed = if stderr.trim().is_empty() {
        &stdout
    } else {
        &stderr
    };
    let separator = if printed.trim().is_empty() { "" } else { ": " };
    Err(Failure::Program {
        name,
        message: format!(
            "{how}{separator}{}{}",
            last_lines(printed),
            refused.concat()
        ),
        output: format!("{stdout}\n{stderr}"),
    })
}

/// The lines that state an error, or else the last ones.
fn last_lines(text: &str) -> String {
    const SIGNS: [&str; 4] = ["E: ", "ERROR: ", "npm error ", "error: "];
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let is_error = |line: &&str| SIGNS.iter().any(|sign| line.starts_with(sign));
    let mut chosen: Vec<&str> = lines.iter().copied().filter(is_error).take(3).collect();
    if chosen.is_empty() {
        chosen = lines[lines.len().saturating_sub(3)..].to_vec();
    }
    let mut text = chosen.join("; ");
    if let Some((cut, _)) = text.char_indices().nth(600) {
        text.truncate(cut);
        text.push('…');
    }
    // Terminals must not obey it.
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_a_tools_output_are_kept() {
        let text = "Get:1 x\nE: Failed to fetch y\nE: Some index files failed\nW: late\n";
        assert_eq!(
            last_lines(text),
            "E: Failed to fetch y; E: Some index files failed"
        );
        assert_eq!(
            last_lines("one\n\ntwo\n\x1b[31mthree\nfour"),
            "two; [31mthree; four"
        );
        assert!(last_lines(&"x".repeat(5000)).chars().count() <= 601);
    }

    #[test]
    fn a_lost_network_a_full_disk_and_missing_wheels_have_hints() {
        let failure = |output: &str| Failure::Program {
            name: "apt-get update".to_owned(),
            message: "exit status 100".to_owned(),
            output: output.to_owned(),
        };
        let hint = |output| SetupError::from(failure(output)).hint.unwrap_or_default();
        assert!(hint("Temporary failure resolving 'deb.debian.org'").contains("registry"));
        assert!(hint("write error (28: No space left on device)").contains("room"));
        let sources = "ERROR: Could not find a version that satisfies the requirement docopt \
                       (from versions: none)";
        assert!(hint(sources).starts_with("wheels only"));
        let other = "ERROR: Could not find a version that satisfies the requirement numpy==99 \
                     (from versions: 2.3.0, 2.3.1)";
        assert_eq!(hint(other), "");
        assert_eq!(hint("E: Unable to locate package x"), "");
    }
}
