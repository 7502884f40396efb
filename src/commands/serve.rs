//! `cellblock serve`.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::mcp;
use crate::cli::{self, Server};
use doors::{Listening, Most, e2b};
use languages::find;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, getpid, setsid};
use record::error::{Result, SetupError, Step};
use serve::net::{Doors, Listener};
use serve::{Hub, Settings, Store, Warm};
use spec::quantity::Bound;
use spec::{self, Ask, Bytes, Mode, Network, Partial, Placed, Spec, Stdio, UserLimits};
use supervisor::{Base, Renewal, Spawner, Templates};
use sys::inherited::Inherited;

/// The variable with a token for clients of HTTP.
const TOKEN: &str = "CELLBLOCK_HTTP_TOKEN";
/// The first descriptor that a service manager passes (sd_listen_fds(3)).
const FIRST_PASSED: RawFd = 3;
/// More are a mistake.
const MOST_PASSED: RawFd = 64;

/// The numbers of the sockets that a service manager passed to `cellblock serve`.
pub(super) fn activation(
    words: &[OsString],
    environment: impl Fn(&str) -> Option<OsString>,
) -> Vec<RawFd> {
    let number = |name: &str| environment(name)?.to_str()?.parse::<i32>().ok();
    let is_server = words.get(1).is_some_and(|word| word == "serve");
    if !is_server || number("LISTEN_PID") != Some(getpid().as_raw()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MOST_PASSED);
    (FIRST_PASSED..FIRST_PASSED + count).collect()
}

/// Bytes of files that answers to a client of MCP hold.
const MCP_FILES: Bytes = Bytes::mib(4);

/// What a client on standard input and output speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// The server's own, JSON Lines.
    Own,
    /// The Model Context Protocol.
    Mcp,
}

/// Serves until the server is ended.
///
/// # Errors
/// What it was started with is wrong, or the kernel refuses something.
#[inline(never)]
pub(super) fn serve(
    server: &Server,
    protocol: Protocol,
    flags: Result<Partial>,
    passed: Vec<RawFd>,
    inherited: &mut Inherited,
) -> Result<u8> {
    let wanted = &server.serve;
    if wanted.detach {
        // Fails for the leader of a session, which is away from the terminal's already.
        let _ = setsid();
    }
    let mut flags = flags?;
    refuse_what_is_of_one_run(&flags)?;
    if !wanted.preload.is_empty() && !wanted.warm.iter().any(|warm| forks(wanted, warm)) {
        let message = "has no effect without --warm python:N";
        return Err(SetupError::new(Step::Spec, message)
            .on("--preload")
            .hint("add --warm python:N"));
    }
    refuse_other_interpreters(wanted)?;
    let cwd = std::env::current_dir().map_err(|e| SetupError::io(Step::Spec, "getcwd", &e))?;
    let usual = usual(server, &flags, &cwd)?;
    let of_language = {
        let (flags, cwd) = (flags.clone(), cwd.clone());
        move |language: &str| with_code(server, &flags, &cwd, language)
    };
    // Cells of single runs are gone when a client reads what they left.
    if protocol == Protocol::Mcp && usual.inline_files.is_none() {
        flags.inline_files = Some(MCP_FILES);
    }
    let mut settings = settings(wanted, &usual);
    let drain = settings.drain;
    // Each supervisor's memory is a copy of this one's.
    jail::launch::secrets::hide(&usual.network)?;
    allow_many_descriptors();
    // Before anything is opened that a supervisor need not have.
    let spawner = Spawner::fork(Base {
        spec: server.options.spec.clone(),
        flags,
        cwd,
        preload: wanted.preload.clone(),
        share: Some(share(wanted.max_cells, &usual)),
    })?;
    // What cannot be loaded is to be known now.
    let templates = match wanted.preload.is_empty() {
        true => None,
        false => {
            let renewal = Renewal {
                copies: wanted.template_copies.get(),
                life: wanted.template_life.0.unwrap_or(Duration::MAX),
            };
            Some(Templates::make(&spawner, renewal)?)
        }
    };
    let supervisor = || spawner.supervisor().map(|(socket, _)| socket);
    let mut listeners = Vec::new();
    for number in passed {
        let socket = inherited.take(number).map_err(|errno| {
            SetupError::os(Step::Inputs, "fcntl", errno).on(format!("LISTEN_FDS: {number}"))
        })?;
        listeners.push(Listener::inherited(socket.into())?);
    }
    if let Some(path) = &wanted.listen {
        listeners.push(Listener::bind(path)?);
    }
    let http = match wanted.http.is_empty() {
        true => None,
        false => Some(listen_http(wanted, &usual, &of_language, settings.idle)?),
    };
    let users = match listeners.is_empty() {
        true => 0,
        false => 1 + wanted.allow_uid.len(),
    };
    settings.parties = users + http.as_ref().map_or(0, Listening::parties);
    let is_alone = listeners.is_empty() && http.is_none();
    let stdio = match (protocol, is_alone) {
        (Protocol::Own, false) => None,
        (Protocol::Own, true) => Some(standard_streams()?),
        (Protocol::Mcp, _) => Some(mcp::between(
            mcp::about(&usual, &of_language)?,
            standard_streams()?,
        )?),
    };
    let uid = Uid::effective().as_raw();
    // Without it there are no checkpoints; calls for one say so.
    let store = Store::create(&std::env::temp_dir()).ok();
    settings.checkpoints = store.as_ref().map(|store| store.path().to_owned());
    // The thread of HTTP begins last: what is above may count on being alone.
    let hub = Hub::new(settings, uid, Instant::now());
    let (connector, inside) = wire::connections(hub.budget().clone(), hub.unread().clone())?;
    let front = http.map(|http| http.start(connector)).transpose()?;
    let doors = Doors {
        stdio,
        listeners,
        inside: front.as_ref().map(|_| inside),
        allowed: wanted.allow_uid.clone(),
        supervisor: &supervisor,
        templates,
        store,
        metrics: wanted.metrics.clone(),
        drain,
    };
    let served = serve::net::serve(hub, doors, uid);
    if let Some(front) = front {
        front.end();
    }
    served.map(|()| 0)
}

/// Listens for HTTP, and says where: a caller can leave the port to the kernel.
fn listen_http(
    wanted: &cli::Serve,
    usual: &Spec,
    of: impl Fn(&str) -> Result<Spec>,
    idle: Duration,
) -> Result<Listening> {
    let limits = &usual.limits;
    let listening = Listening::bind(doors::Settings {
        addresses: wanted.http.clone(),
        tokens: tokens(wanted)?,
        hosts: wanted.http_host.clone(),
        connections: wanted.http_connections,
        most: Most {
            wall: limits.wall,
            memory: limits.memory.map(|bytes| bytes.0),
        },
        e2b: sandboxes(wanted, usual, idle),
        about: mcp::about(usual, of)?,
    })?;
    for address in listening.addresses()? {
        eprintln!("cellblock: serving http://{address}");
    }
    Ok(listening)
}

/// How sandboxes of E2B's clients are made.
fn sandboxes(wanted: &cli::Serve, usual: &Spec, idle: Duration) -> e2b::Settings {
    let mut settings = e2b::Settings {
        languages: mcp::languages(),
        pause: wanted.e2b_pause,
        longest: idle,
        has_home: usual.places.iter().any(|place| {
            matches!(place.what, Placed::Workspace) && place.path == Path::new(e2b::HOME)
        }),
        size: e2b::Size {
            cpus: usual.limits.cpus.map(|cpus| cpus.ceil() as u64),
            memory: usual.limits.memory.map(|bytes| bytes.0),
            disk: Some(usual.limits.workspace.size.0),
        },
        ..e2b::Settings::default()
    };
    settings
        .templates
        .extend(wanted.e2b_template.iter().cloned());
    settings
}

/// The tokens that clients of HTTP must have.
fn tokens(wanted: &cli::Serve) -> Result<Vec<String>> {
    let variable = std::env::var_os(TOKEN).map(|token| token.to_string_lossy().into_owned());
    let file = match &wanted.http_token {
        None => String::new(),
        Some(path) => fs::read_to_string(path).map_err(|error| {
            SetupError::io(Step::Inputs, "read", &error)
                .on(format!("--http-token {}", path.display()))
        })?,
    };
    let lines = file.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<String> = lines.map(str::to_owned).chain(variable).collect();
    match (&wanted.http_token, tokens.is_empty()) {
        (Some(path), true) => Err(SetupError::new(Step::Inputs, "has no token")
            .on(format!("--http-token {}", path.display()))
            .hint("write one a line")),
        _ => Ok(tokens),
    }
}

fn refuse_what_is_of_one_run(flags: &Partial) -> Result<()> {
    let given = [
        ("--files-from", flags.files_from.is_some()),
        ("--out", flags.out.is_some()),
        ("--workspace", flags.workspace.is_some()),
        ("--keep-tmp", flags.keep_tmp.is_some()),
        ("--workspace-wait", flags.workspace_wait.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            let message = "belongs to one run, and a server has many";
            Err(SetupError::new(Step::Spec, message)
                .on(option)
                .hint("leave it out; clients move files with file.write and file.read"))
        }
        None => Ok(()),
    }
}

/// An interpreter that waits serves contexts and runs: only where code by itself is executed
/// in the same way.
fn refuse_other_interpreters(wanted: &cli::Serve) -> Result<()> {
    let mut languages = wanted.warm.iter().filter_map(|warm| warm.language);
    let is_other = |language: &&str| find(language).is_some_and(|driver| !driver.has_channel());
    match languages.find(is_other) {
        None => Ok(()),
        Some(language) => {
            let message = "runs and contexts in this language have different interpreters";
            Err(SetupError::new(Step::Spec, message)
                .on(format!("--warm {language}"))
                .hint("use --warm blank:N"))
        }
    }
}

/// Whether cells that wait are forked from the template.
fn forks(wanted: &cli::Serve, warm: &cli::Warm) -> bool {
    !wanted.preload.is_empty() && warm.language == Some("python")
}

/// What a cell is like when a request asks for nothing: shows early what is wrong with
/// the options.
fn usual(server: &Server, flags: &Partial, cwd: &std::path::Path) -> Result<Spec> {
    let ask = Ask {
        mode: Mode::Exec,
        cwd,
        stdio: Stdio::Capture,
        lends: false,
    };
    let flags = Partial {
        argv: Some(vec!["true".into()]),
        ..flags.clone()
    };
    spec::load(&ask, server.options.spec.as_deref(), None, flags)
}

/// The same with code of a language, whose profile may have other limits.
fn with_code(
    server: &Server,
    flags: &Partial,
    cwd: &std::path::Path,
    language: &str,
) -> Result<Spec> {
    let ask = Ask {
        mode: Mode::Run,
        cwd,
        stdio: Stdio::Capture,
        lends: false,
    };
    let flags = Partial {
        language: Some(language.to_owned()),
        code: Some("".into()),
        ..flags.clone()
    };
    spec::load(&ask, server.options.spec.as_deref(), None, flags)
}

fn settings(wanted: &cli::Serve, usual: &Spec) -> Settings {
    let long = |Bound(span): Bound<Duration>| span.unwrap_or(Duration::from_secs(365 * 86400));
    let warm = |warm: &cli::Warm| Warm {
        language: warm.language.map(str::to_owned),
        count: warm.count,
        forked: forks(wanted, warm),
    };
    Settings {
        max_cells: wanted.max_cells.max(1),
        max_memory: wanted.max_memory.map(|bytes| bytes.0),
        max_queue: wanted.max_queue,
        queue_wait: long(wanted.queue_wait),
        cell_memory: usual.limits.memory.map(|bytes| bytes.0),
        named_hosts: matches!(usual.network, Network::Hosts(_)),
        idle: long(wanted.idle),
        drain: long(wanted.drain),
        idle_exit: wanted.idle_exit.map(long),
        max_clients: wanted.max_clients.max(1),
        parties: 1,
        max_waiting: wanted.max_waiting.0,
        max_waiting_each: wanted.max_waiting_each.0,
        warm: wanted.warm.iter().map(warm).collect(),
        warm_memory: wanted.warm_memory.map(|bytes| bytes.0),
        checkpoints: None,
        max_checkpoints: wanted.max_checkpoints,
        checkpoint_bytes: wanted.checkpoint_space.0,
    }
}

/// The share that each cell has of what the kernel counts per user. Warns where that is nothing,
/// and of processes, of which a cell has as many as its limit allows.
fn share(cells: usize, usual: &Spec) -> UserLimits {
    let share = plan::probe::user_limits().divided(cells);
    if share.inotify_instances == 0 {
        let needed = 2 * cells;
        eprintln!(
            "cellblock: {cells} cells get no inotify instances: lower --max-cells, or raise fs.inotify.max_user_instances to {needed}"
        );
    }
    let (most, _) = getrlimit(Resource::RLIMIT_NPROC).unwrap_or((u64::MAX, u64::MAX));
    let wanted = (usual.limits.processes.unwrap_or(0)).saturating_mul(cells as u64);
    if wanted > most && !Uid::effective().is_root() {
        eprintln!(
            "cellblock: {cells} cells can together have {wanted} processes, and this user {most}: lower --max-cells or --processes, or raise RLIMIT_NPROC"
        );
    }
    share
}

fn standard_streams() -> Result<(OwnedFd, OwnedFd)> {
    let [input, output, _] = sys::process::standard_streams();
    let copy = |fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned()
            .map_err(|error| SetupError::io(Step::Inputs, "dup", &error))
    };
    Ok((copy(input)?, copy(output)?))
}

/// Each client and each cell has one. Supervisors and inits need the limit, too: the kernel refuses
/// to pass descriptors while all processes of the user together have more in flight than that.
fn allow_many_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
