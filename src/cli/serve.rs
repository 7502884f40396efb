//! `cellblock serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::groups::{Environment, Files, Limits, Networking, Security, with_defaults_of_languages};
use super::options::Options;
use record::error::Result;
use spec::quantity::Bound;
use spec::{Bytes, Partial};

/// Keep a server that runs code for its clients, in contexts and in single runs
///
/// Clients write one JSON object per line, and read one per line: on standard input and
/// output, or with --listen on a socket that only the server's own user and root may
/// use. docs/PROTOCOL.md describes the protocol; `cellblock run --server` and
/// `cellblock context` speak it. With --http, other clients make the same calls over HTTP. Requests can choose the code, its input and lower
/// limits; everything else is as the options say. All cells end with the server.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    /// Accept clients on a Unix socket, which is created with mode 0600, instead of
    /// standard input and output
    #[arg(
        long, value_name = "unix:PATH", help_heading = "Server",
        value_parser = OsStringValueParser::new().try_map(socket)
    )]
    pub listen: Option<PathBuf>,
    /// Accept clients of this user as well (repeatable)
    #[arg(long, value_name = "UID", help_heading = "Server")]
    pub allow_uid: Vec<u32>,
    /// Serve HTTP at this address, such as 127.0.0.1:8080 (repeatable): `/v1`, which
    /// docs/openapi.json describes, a page for people at `/`, the Model Context Protocol at
    /// `/mcp`, and the interfaces of E2B, SandboxFusion, NeMo-Skills and LibreChat. Without tokens
    /// it must be a loopback address, and all users of this host are clients
    #[arg(long, value_name = "ADDR", help_heading = "HTTP")]
    pub http: Vec<SocketAddr>,
    /// Serve only requests with one of the tokens in this file, one a line, or with that in
    /// $CELLBLOCK_HTTP_TOKEN. Each token has contexts of its own
    #[arg(long, value_name = "FILE", requires = "http", help_heading = "HTTP")]
    pub http_token: Option<PathBuf>,
    /// Serve requests without a token under this name of the host as well (repeatable)
    #[arg(long, value_name = "NAME", requires = "http", help_heading = "HTTP")]
    pub http_host: Vec<String>,
    /// HTTP connections at once. Each token has a share of them
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "HTTP")]
    pub http_connections: usize,
    /// Give sandboxes of this template of E2B's an interpreter of LANGUAGE (repeatable). `base`
    /// and `code-interpreter-v1` have python
    #[arg(
        long, value_name = "NAME=LANGUAGE", requires = "http", help_heading = "HTTP",
        value_parser = template
    )]
    pub e2b_template: Vec<(String, String)>,
    /// Create sandboxes so that E2B's clients can pause and fork them. Where no template of
    /// --preload is forked for one, its interpreter's memory is laid out without randomisation
    #[arg(long, requires = "http", help_heading = "HTTP")]
    pub e2b_pause: bool,
    /// Cells of runs and contexts at once
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Server")]
    pub max_cells: usize,
    /// Their memory limits together [default: not counted]
    #[arg(long, value_name = "SIZE", help_heading = "Server")]
    pub max_memory: Option<Bytes>,
    /// Calls that wait for a cell; more are answered with `busy`
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Server")]
    pub max_queue: usize,
    /// Clients at once, where each HTTP request is one. Each user and each token has a share of them
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Server")]
    pub max_clients: usize,
    /// Most bytes that wait for all clients together: unfinished lines and bodies, calls whose turn
    /// has not come, input that no cell has taken, and apart from these as many that clients have
    /// not read. A call beyond that is answered with `busy`
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256M",
        help_heading = "Server"
    )]
    pub max_waiting: Bytes,
    /// The same for each user and each token. A lower value of either is raised to what one call of
    /// 16M takes, which is 51M
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        help_heading = "Server"
    )]
    pub max_waiting_each: Bytes,
    /// How long a call waits for a cell before it is answered with `busy`
    #[arg(
        long,
        value_name = "DUR",
        default_value = "60s",
        help_heading = "Server"
    )]
    pub queue_wait: Bound<Duration>,
    /// How long a context may have nothing to do; a client can only ask for less
    #[arg(
        long,
        value_name = "DUR",
        default_value = "10m",
        help_heading = "Server"
    )]
    pub idle: Bound<Duration>,
    /// How long executions may go on after SIGTERM
    #[arg(
        long,
        value_name = "DUR",
        default_value = "10s",
        help_heading = "Server"
    )]
    pub drain: Bound<Duration>,
    /// End when there has been no client and no context for so long [default: never]
    #[arg(long, value_name = "DUR", help_heading = "Server")]
    pub idle_exit: Option<Bound<Duration>>,
    /// Keep N cells in which the interpreter of a language waits, for calls that name
    /// this language and ask for nothing but code, arguments, files and less time; or N
    /// blank cells, for any program (`argv`) without limits of its own (repeatable)
    #[arg(
        long, value_name = "LANG:N|blank:N", help_heading = "Server",
        value_parser = OsStringValueParser::new().try_map(warm)
    )]
    pub warm: Vec<Warm>,
    /// Fork the interpreters of `--warm python:N` from a template that has loaded these
    /// modules, so that their import takes no time. They share its hash seed and address
    /// layout until there is a new template. Modules that start threads cannot be loaded
    #[arg(
        long, value_name = "MODULE,...", help_heading = "Server",
        value_delimiter = ',', value_parser = module
    )]
    pub preload: Vec<String>,
    /// Make a new template when one has had new cells for so long
    #[arg(
        long,
        value_name = "DUR",
        default_value = "1h",
        help_heading = "Server"
    )]
    pub template_life: Bound<Duration>,
    /// Make a new template when one has had so many cells
    #[arg(long, value_name = "N", default_value = "500", help_heading = "Server")]
    pub template_copies: NonZeroU64,
    /// The memory limits of these cells and the memory of templates, together. Fewer cells
    /// wait where it is not enough [default: not counted]
    #[arg(long, value_name = "SIZE", help_heading = "Server")]
    pub warm_memory: Option<Bytes>,
    /// Checkpoints of all contexts at once; a fork needs one while it is made
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Server")]
    pub max_checkpoints: usize,
    /// Disk space of all checkpoints and suspended contexts together, below $TMPDIR or /tmp
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "4G",
        help_heading = "Server"
    )]
    pub checkpoint_space: Bytes,
    /// Write counters to this file in Prometheus's text format, every ten seconds
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub metrics: Option<PathBuf>,
    /// Begin a session of its own, away from the terminal
    #[arg(long, hide = true)]
    pub detach: bool,
    /// Read settings of all cells from a TOML or JSON file; flags win over it
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub spec: Option<PathBuf>,
    /// Profile that all requests build on: the name of a built-in one (see
    /// `cellblock policy list`), or a path with a `/` or ending in .toml
    /// [default: the one of each request's language, otherwise default]
    #[arg(long, value_name = "NAME|PATH", help_heading = "Request")]
    pub policy: Option<String>,
}

/// `LANG:N` or `blank:N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warm {
    /// The language's own name; `None` for blank cells.
    pub language: Option<&'static str>,
    /// How many cells wait.
    pub count: usize,
}

/// One call of `cellblock serve`.
#[derive(Clone, Debug)]
pub struct Server {
    /// How it serves.
    pub serve: Serve,
    /// How its cells are.
    pub options: Options,
}

impl Server {
    pub(super) fn declare(command: Command) -> Command {
        let command = Serve::augment_args(command);
        Options::declare_cell(command)
    }

    /// The same for `cellblock mcp`, whose only client is on standard input and output.
    pub(super) fn declare_mcp(command: Command) -> Command {
        Self::declare(command)
            .about("Offer code execution to a model, by the Model Context Protocol")
            .long_about(MCP)
            .mut_args(
                |arg: Arg| match OF_SOCKETS.contains(&arg.get_id().as_str()) {
                    true => arg.hide(true),
                    false => arg,
                },
            )
    }

    pub(super) fn read(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let serve = Serve::from_arg_matches_mut(matches)?;
        let mut options = Options::read_cell(matches)?;
        options.policy.clone_from(&serve.policy);
        options.spec.clone_from(&serve.spec);
        Ok(Self { serve, options })
    }

    /// The options of its cells as a layer of a spec.
    ///
    /// # Errors
    /// `--env NAME` of a variable that the caller does not have.
    pub fn partial(&self, environment: impl Fn(&str) -> Option<OsString>) -> Result<Partial> {
        self.options.partial(Partial::default(), environment)
    }
}

const MCP: &str = "Offer code execution to a model, by the Model Context Protocol

Speaks the protocol on standard input and output, in the revisions 2026-07-28, 2025-11-25, \
2025-06-18, 2025-03-26 and 2024-11-05. The tools are run_code, run_command, create_context, \
list_contexts, fork_context, restart_context, close_context, read_file, write_file and \
list_files. Code runs in cells of a server that only this client has; they end with it. What \
a cell may do is decided by the options, as for cellblock serve. docs/MCP.md shows how to \
configure clients.";

/// Options of a server that has other clients than one on standard input and output.
const OF_SOCKETS: &[&str] = &[
    "listen",
    "http",
    "http_token",
    "http_host",
    "http_connections",
    "e2b_template",
    "e2b_pause",
    "allow_uid",
    "max_clients",
    "idle_exit",
    "detach",
];

/// Options of a cell that belong to one run: a server has no use for them.
pub(super) const OF_ONE_RUN: &[&str] = &[
    "files_from",
    "out",
    "workspace",
    "keep_tmp",
    "workspace_wait",
];

/// Declares the groups of a cell's options, without those of one run.
pub(super) fn declare_groups(command: Command) -> Command {
    let mut command = command;
    for augment in [
        Files::augment_args as fn(Command) -> Command,
        Environment::augment_args,
        Networking::augment_args,
        Limits::augment_args,
        Security::augment_args,
    ] {
        command = augment(command);
    }
    let command = with_defaults_of_languages(command);
    command.mut_args(
        |arg: Arg| match OF_ONE_RUN.contains(&arg.get_id().as_str()) {
            true => arg.hide(true),
            false => arg,
        },
    )
}

/// `unix:PATH`
pub(super) fn socket(text: OsString) -> Result<PathBuf, String> {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    match text.as_bytes().strip_prefix(b"unix:") {
        Some(path) if !path.is_empty() => Ok(OsString::from_vec(path.to_vec()).into()),
        _ => Err("wants unix:PATH".to_owned()),
    }
}

fn warm(text: OsString) -> Result<Warm, String> {
    let wanted = || "wants LANG:N, such as python:2".to_owned();
    let text = text.to_str().ok_or_else(wanted)?;
    let (language, count) = text.split_once(':').ok_or_else(wanted)?;
    let driver = languages::find(language);
    if driver.is_none() && language != "blank" {
        return Err(format!(
            "{language:?} is not a language, but wants blank or one of {}",
            languages()
        ));
    }
    let count = count
        .parse()
        .ok()
        .filter(|count| (1..=1024).contains(count));
    Ok(Warm {
        language: driver.map(|driver| driver.name),
        count: count.ok_or_else(|| "wants 1 to 1024 cells".to_owned())?,
    })
}

/// The languages that exist.
fn languages() -> String {
    let names = languages::TABLE.iter().map(|driver| driver.name);
    names.collect::<Vec<_>>().join(", ")
}

/// `NAME=LANGUAGE`.
fn template(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, language) = split.ok_or("wants NAME=LANGUAGE, such as base=python")?;
    let driver = languages::find(language);
    let driver = driver.ok_or_else(|| {
        format!(
            "{language:?} is not a language, but wants one of {}",
            languages()
        )
    })?;
    Ok((name.to_owned(), driver.name.to_owned()))
}

fn module(text: &str) -> Result<String, String> {
    let is_name = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
            && chars.all(|c| c == '_' || c.is_alphanumeric())
    };
    match text.split('.').all(is_name) {
        true => Ok(text.to_owned()),
        false => Err("wants names of Python modules, such as numpy,pandas".to_owned()),
    }
}
