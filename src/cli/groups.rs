//! The options that `run`, `exec` and `plan` have in common, by the headings of
//! their help. Defaults are those of the profile `default`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::format::Shaped;
use super::values::{
    FileFrom, NetworkChoice, OutputTo, PathPair, PortList, TmpfsAt, Variable, device, file_from,
    info_to, link_at, named, output_to, pass_fd, path_pair, tmpfs_at, variable,
};
use spec::quantity::Bound;
use spec::{Bytes, Device, Layer, OnOutput, PartialLimits, PassedFd, ProcChoice, limits, profiles};

/// Options under one heading.
pub(super) trait Group: Args + Default {
    /// Their long names; a test compares them with the declarations.
    const NAMES: &[&str];

    /// Whether it has an option with this long name.
    fn has(name: &str) -> bool {
        Self::NAMES.contains(&name)
    }
}

/// The documents that a call reads and writes.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Call {
    /// Read the request from a TOML or JSON file, or from standard input (-);
    /// flags win over it
    #[arg(long, value_name = "FILE|-", help_heading = "Request")]
    pub spec: Option<PathBuf>,
    /// Take what runs from a JSON request of an untrusted party, in a file or on standard
    /// input (-); all that it does not say stays as the options have it, and host
    /// paths, higher limits and weaker layers are refused (cellblock-request(5))
    #[arg(long, value_name = "FILE|-", help_heading = "Request")]
    pub request: Option<PathBuf>,
    /// Profile that the request builds on: the name of a built-in one (see
    /// `cellblock policy list`), or a path with a `/` or ending in .toml
    /// [default: for run, the one of its language; otherwise default]
    #[arg(long, value_name = "NAME|PATH", help_heading = "Request")]
    pub policy: Option<String>,
    /// Have a server make the cell, which listens on this socket (run only): code,
    /// arguments, environment, files and lower limits are sent to it, and everything else
    /// is as it was started (cellblock-serve(1))
    #[arg(long, value_name = "SOCKET", help_heading = "Request")]
    pub server: Option<PathBuf>,
    /// End the cell, as if cancelled, when the process that started cellblock
    /// ends
    #[arg(long, help_heading = "Request")]
    pub die_with_parent: bool,
    /// Let the program have the caller's descriptor N, as M or as N (exec only). Files,
    /// pipes and connected Unix sockets are passed; directories and what else leads out of
    /// the cell are refused (repeatable)
    #[arg(
        long, value_name = "N[=M]", help_heading = "Request", conflicts_with = "server",
        value_parser = pass_fd
    )]
    pub pass_fd: Vec<PassedFd>,
    /// Tell the program that this is its name: argv[0], which sh starts as a login shell for
    /// and busybox picks its applet by (exec only)
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Request",
        conflicts_with = "server",
        allow_hyphen_values = true
    )]
    pub argv0: Option<OsString>,
    /// Write no line of cellblock's own to standard error: errors and limits are in the
    /// record and in the exit status
    #[arg(long, help_heading = "Record")]
    pub quiet: bool,
    /// Give the program a terminal of the cell's own, which the caller's terminal on standard input
    /// shows (exec only): job control and Ctrl-C work inside, the size is kept equal, and TERM is
    /// the caller's. Its output is the record's stdout
    #[arg(long, help_heading = "Request", conflicts_with = "server")]
    pub tty: bool,
    /// Write what the cell is, when its program was started, as a line of JSON to an open
    /// descriptor or a file: child-pid (of its init, whose files in /proc root alone may
    /// open), the numbers of its namespaces and its cgroup; then a line with its exit-code
    #[arg(
        long, value_name = "N|FILE", help_heading = "Record", conflicts_with = "server",
        value_parser = OsStringValueParser::new().try_map(info_to)
    )]
    pub info_fd: Option<OutputTo>,
    /// Write the record to a file, an open descriptor or standard output (-,
    /// which is the same as --json)
    #[arg(
        long, value_name = "FILE|fd:N|-", help_heading = "Record",
        value_parser = OsStringValueParser::new().try_map(output_to)
    )]
    pub record: Option<OutputTo>,
    /// Print the record to standard output as JSON; it includes the program's
    /// output
    #[arg(long, help_heading = "Record")]
    pub json: bool,
    /// Write events as they happen, as JSON Lines, to a file, an open descriptor or
    /// standard output (-); the last event holds the record
    #[arg(
        long, value_name = "FILE|fd:N|-", help_heading = "Record",
        value_parser = OsStringValueParser::new().try_map(output_to)
    )]
    pub events: Option<OutputTo>,
    /// Write each result that is a picture, or a chart that can be drawn, to a file in this
    /// directory: result-1.png, by the result's number (run only)
    #[arg(long, value_name = "DIR", help_heading = "Record")]
    pub plots: Option<PathBuf>,
    #[command(flatten)]
    pub shaped: Shaped,
}

impl Group for Call {
    const NAMES: &[&str] = &[
        "spec",
        "request",
        "policy",
        "server",
        "die-with-parent",
        "pass-fd",
        "argv0",
        "quiet",
        "tty",
        "info-fd",
        "record",
        "json",
        "events",
        "plots",
        "format",
        "format-max",
        "tool-call-id",
    ];
}

/// What the cell sees of the file system.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
pub struct Files {
    /// Directory tree that the cell sees: host for the host's /usr and what it
    /// needs, the name of a prepared rootfs, a path with a `/`, or auto for the
    /// prepared rootfs of the code's language if there is one, otherwise host
    /// [default: auto]
    #[arg(long, value_name = "auto|host|NAME|PATH")]
    pub rootfs: Option<String>,
    /// Store of prepared rootfs [default: $CELLBLOCK_STORE, or
    /// cellblock/rootfs in $XDG_DATA_HOME or ~/.local/share, and behind it
    /// /var/lib/cellblock/rootfs]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Show a host path inside, read-only; DST is absolute and the same as SRC
    /// when left out (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub ro: Vec<PathPair>,
    /// Show a host path inside, writable (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub rw: Vec<PathPair>,
    /// Like --ro; skipped, and said so in the record, if SRC does not exist (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub ro_try: Vec<PathPair>,
    /// Like --rw; skipped, and said so in the record, if SRC does not exist (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub rw_try: Vec<PathPair>,
    /// Show a host directory inside, writable, while the host's stays as it is: what the
    /// program changes there ends with the cell, is listed with the files and copied by
    /// --out, and is bounded by --tmp-size (repeatable, at most 8)
    #[arg(
        long, value_name = "SRC[:DST]",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub overlay: Vec<PathPair>,
    /// Keep the program from changing or making a path in a directory of --rw; a relative
    /// PATH is one at the top of each of these but the home (HOME), and one that begins with
    /// .git/ holds for each repository there. What is missing gets an empty directory on the
    /// host until the cell ends (repeatable)
    #[arg(long, value_name = "PATH")]
    pub protect: Vec<PathBuf>,
    /// Let the program change a path that the profile or the spec file protects
    /// (repeatable)
    #[arg(long, value_name = "PATH")]
    pub unprotect: Vec<PathBuf>,
    /// Mount an empty writable tmpfs; its SIZE counts towards --memory as it fills
    /// [default: as large as --tmp-size] (repeatable, at most 8)
    #[arg(
        long, value_name = "DST[:SIZE]",
        value_parser = OsStringValueParser::new().try_map(tmpfs_at)
    )]
    pub tmpfs: Vec<TmpfsAt>,
    /// Make a directory, and those that lead to it. It is writable where a tmpfs is
    /// (repeatable)
    #[arg(long, value_name = "DST")]
    pub dir: Vec<PathBuf>,
    /// Make a symbolic link at DST, pointing to TARGET, in place of one of the rootfs
    /// (repeatable)
    #[arg(
        long, value_name = "TARGET:DST",
        value_parser = OsStringValueParser::new().try_map(link_at)
    )]
    pub symlink: Vec<(PathBuf, PathBuf)>,
    /// Show /workspace at this path, too, as code for other platforms expects it at
    /// /mnt/data, /home/user or /root (repeatable)
    #[arg(long, value_name = "PATH")]
    pub workspace_at: Vec<PathBuf>,
    /// Let the program have a character device of the host's, by its name below /dev,
    /// such as fuse, kvm or dri/renderD128; with :ro for reading only. The host's
    /// permissions apply; disks, memory and terminals are refused (repeatable)
    #[arg(
        long, value_name = "NAME[:ro]",
        value_parser = OsStringValueParser::new().try_map(device)
    )]
    pub dev: Vec<Device>,
    /// Copy a host file in, or what can be read from an open descriptor; DST is
    /// relative to /workspace and the name of SRC when left out. Elsewhere, DST is
    /// absolute, and the file cannot be written and has at most 16M (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]|fd:N:DST",
        value_parser = OsStringValueParser::new().try_map(file_from)
    )]
    pub file: Vec<FileFrom>,
    /// Copy the content of a directory or a tar archive into /workspace; the archive
    /// may be compressed with gzip or zstd, and - reads it from standard input,
    /// which the program then does not get
    #[arg(long, value_name = "DIR|FILE|-")]
    pub files_from: Option<PathBuf>,
    /// Copy the files that the run created or modified in /workspace to this
    /// directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Put the content of created and modified files into the record, in the
    /// order of their paths, as long as they fit into SIZE together, at most
    /// 1G [default when given without SIZE: 1M]
    #[arg(
        long, value_name = "SIZE", num_args = 0..=1, require_equals = true,
        default_missing_value = "1M"
    )]
    pub inline_files: Option<Bytes>,
    /// Keep /workspace in this directory: it starts with the directory's content,
    /// and its content is written back however the program ends. The directory is
    /// created if missing, and used by one run at a time
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Keep /tmp in this directory, as --workspace keeps /workspace
    #[arg(long, value_name = "DIR")]
    pub keep_tmp: Option<PathBuf>,
    /// Wait this long for a directory of --workspace or --keep-tmp that another
    /// run is using, or none for as long as it takes [default: no wait]
    #[arg(long, value_name = "DUR")]
    pub workspace_wait: Option<Bound<Duration>>,
    /// Working directory inside; a relative path starts at /workspace [default:
    /// /workspace]
    #[arg(long, value_name = "PATH")]
    pub cwd: Option<PathBuf>,
}

impl Group for Files {
    const NAMES: &[&str] = &[
        "rootfs",
        "store",
        "ro",
        "rw",
        "ro-try",
        "rw-try",
        "overlay",
        "protect",
        "unprotect",
        "tmpfs",
        "dir",
        "symlink",
        "workspace-at",
        "dev",
        "file",
        "files-from",
        "out",
        "inline-files",
        "workspace",
        "keep-tmp",
        "workspace-wait",
        "cwd",
    ];
}

/// The environment of the program.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Environment")]
pub struct Environment {
    /// Set an environment variable; a bare NAME passes the caller's value, and
    /// nothing else of the caller's environment is passed (repeatable)
    #[arg(
        long, value_name = "NAME[=VALUE]",
        value_parser = OsStringValueParser::new().try_map(variable)
    )]
    pub env: Vec<Variable>,
    /// Begin with an empty environment: leave out the variables of the profile and of
    /// the spec file, and cellblock's own for libraries, such as OMP_NUM_THREADS
    #[arg(long)]
    pub env_clear: bool,
    /// Leave out a variable of the profile, of the spec file or of cellblock's own
    /// (repeatable)
    #[arg(long, value_name = "NAME")]
    pub env_unset: Vec<String>,
    /// Host name inside [default: cell]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// What /proc and /sys show besides processes: machine for the cell's
    /// memory, CPUs and limits, processes for nothing [default: machine]
    #[arg(
        long, value_name = "machine|processes",
        value_parser = PossibleValuesParser::new(["machine", "processes"]).try_map(named::<ProcChoice>)
    )]
    pub proc: Option<ProcChoice>,
}

impl Group for Environment {
    const NAMES: &[&str] = &["env", "env-clear", "env-unset", "hostname", "proc"];
}

/// The network of the program.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Network")]
pub struct Networking {
    /// Network inside: none for loopback only; allow=HOST[:PORT] for a named host, on
    /// ports 80 and 443 unless one is given, where HOST can also be *.example.com for
    /// its subdomains, an address or a network; deny=HOST[:PORT] for an exception;
    /// preset:NAME for the hosts of pypi, npm, debian, crates, cran, maven or github;
    /// mirror:NAME for those that pip, npm or apt are configured with on this host; host
    /// for the host's own network (repeatable, except none and host) [default: none]
    #[arg(long, value_name = "none|allow=HOST[:PORT]|…|host")]
    pub net: Vec<NetworkChoice>,
    /// Do not compare the names in TLS handshakes and HTTP requests with the allowed
    /// host that was connected to. A host that shares its address with others then leads
    /// to all of them
    #[arg(long)]
    pub net_unchecked: bool,
    /// Header field that requests to one allowed host get outside of the cell, which never
    /// sees its value: HOST[:PORT]:NAME=env:VARIABLE or =file:PATH for requests by TLS on
    /// port 443, or http://HOST[:PORT]:NAME=… for plain ones on port 80. TLS to that host
    /// ends in the broker, with a certificate that this cell alone trusts (repeatable)
    #[arg(long, value_name = "HOST:NAME=env:VARIABLE")]
    pub secret_header: Vec<String>,
    /// TCP ports that may be connected to, by Landlock (Linux 6.7), or none;
    /// denies binding unless --tcp-bind allows it [default: any]
    #[arg(long, value_name = "PORT,…")]
    pub tcp_connect: Option<PortList>,
    /// TCP ports that may be bound, by Landlock (Linux 6.7), or none; denies
    /// connecting unless --tcp-connect allows it [default: any]
    #[arg(long, value_name = "PORT,…")]
    pub tcp_bind: Option<PortList>,
    /// UDP ports that may be sent to, by Landlock (Linux 7.2), or none. Binding
    /// is then denied unless --udp-bind allows it; answers arrive all the same [default: any]
    #[arg(long, value_name = "PORT,…")]
    pub udp_connect: Option<PortList>,
    /// UDP ports that may be bound, by Landlock (Linux 7.2), or none; denies
    /// sending unless --udp-connect allows it [default: any]
    #[arg(long, value_name = "PORT,…")]
    pub udp_bind: Option<PortList>,
}

impl Group for Networking {
    const NAMES: &[&str] = &[
        "net",
        "net-unchecked",
        "secret-header",
        "tcp-connect",
        "tcp-bind",
        "udp-connect",
        "udp-bind",
    ];
}

/// Bounds on resources. clap leaves a group without members where a field is flattened,
/// so each option names its group.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Those of the table of limits.
    #[command(flatten)]
    pub bounds: Bounds,
    /// What happens beyond --output: truncate keeps head and tail and counts
    /// the rest, kill ends the cell [default: truncate]
    #[arg(
        long, group = "Limits", value_name = "truncate|kill",
        value_parser = PossibleValuesParser::new(["truncate", "kill"]).try_map(named::<OnOutput>)
    )]
    pub on_output: Option<OnOutput>,
    /// Cgroup for the limits: auto for the first that works, none for fallbacks
    /// only, or the path of a delegated directory [default: auto]
    #[arg(long, group = "Limits", value_name = "auto|none|PATH")]
    pub cgroup: Option<String>,
    /// Refuse to run when a limit would need a fallback
    #[arg(long, group = "Limits")]
    pub strict: bool,
}

impl Group for Limits {
    const NAMES: &[&str] = &["on-output", "cgroup", "strict"];

    fn has(name: &str) -> bool {
        Self::NAMES.contains(&name) || limits::table().any(|limit| limit.flags.contains(&name))
    }
}

/// Adds the defaults of languages to the help of limits, for commands that run code.
pub(super) fn with_defaults_of_languages(mut command: Command) -> Command {
    let languages = profiles::limits_of_languages().unwrap_or_default();
    for limit in limits::table() {
        let Some(flag) = limit.flags.first() else {
            continue;
        };
        let mut others: Vec<(String, Vec<&str>)> = Vec::new();
        for (language, limits) in &languages {
            let Some(given) = limit.given(limits) else {
                continue;
            };
            match others.iter_mut().find(|(text, _)| *text == given.text) {
                Some((_, with)) => with.push(language),
                None => others.push((given.text, vec![language])),
            }
        }
        if !others.is_empty() {
            let others: Vec<String> = (others.into_iter())
                .map(|(text, languages)| format!("{text} for {}", languages.join(", ")))
                .collect();
            command = command.mut_arg(*flag, |arg| {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let help = help.trim_end_matches(']');
                arg.help(format!("{help}; {}]", others.join("; ")))
            });
        }
    }
    command
}

/// The options that [`limits::table`] declares.
#[derive(Clone, Debug, Default)]
pub struct Bounds(pub PartialLimits);

impl Args for Bounds {
    fn augment_args(command: Command) -> Command {
        let defaults = profiles::base_limits().unwrap_or_default();
        limits::table().fold(command, |command, limit| {
            let [flag, aliases @ ..] = limit.flags else {
                return command;
            };
            let default = limit.given(&defaults).map(|default| default.text);
            let read = |text: &str| {
                limit.read(text, &mut PartialLimits::default())?;
                Ok::<_, String>(text.to_owned())
            };
            command.arg(
                Arg::new(*flag)
                    .group("Limits")
                    .long(*flag)
                    .visible_aliases(aliases)
                    .value_name(limit.value_name)
                    .allow_negative_numbers(true)
                    .value_parser(read)
                    .help(match default {
                        Some(default) => format!("{} [default: {default}]", limit.help()),
                        None => limit.help(),
                    }),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Bounds {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut bounds = Self::default();
        bounds.update_from_arg_matches(matches)?;
        Ok(bounds)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for limit in limits::table() {
            let text = limit
                .flags
                .first()
                .map(|flag| matches.get_one::<String>(flag));
            if let Some(text) = text.flatten() {
                limit
                    .read(text, &mut self.0)
                    .map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, why))?;
            }
        }
        Ok(())
    }
}

/// Layers of the cell.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Security")]
pub struct Security {
    /// Give up a security layer: seccomp, landlock, userns-limit or proc
    /// (repeatable)
    #[arg(
        long, value_name = "LAYER",
        value_parser = PossibleValuesParser::new(Layer::ALL.map(Layer::name))
            .try_map(named::<Layer>)
    )]
    pub without: Vec<Layer>,
    /// System call policy: the name of a built-in one, or the path of a JSON
    /// file [default: default]
    #[arg(long, value_name = "NAME|PATH")]
    pub seccomp: Option<String>,
    /// Forbid executing anything below writable places, by Landlock, and what
    /// lives in memory only, by the system call policy strict (unless --seccomp
    /// names another)
    #[arg(long)]
    pub no_exec: bool,
    /// Uid and gid of the program inside; 0 for installers that insist on it. It has no
    /// capability either way, and is an unprivileged uid outside [default: 1000]
    #[arg(long, value_name = "N")]
    pub uid: Option<u32>,
    /// Use no newer Landlock ABI than this, for tests
    #[arg(long, value_name = "N", hide = true)]
    pub landlock_max_abi: Option<u32>,
    /// Host uid and gid of the program, when root starts cellblock [default:
    /// one that no other cell has]
    #[arg(long, value_name = "N")]
    pub outer_uid: Option<u32>,
}

impl Group for Security {
    const NAMES: &[&str] = &[
        "without",
        "seccomp",
        "no-exec",
        "uid",
        "landlock-max-abi",
        "outer-uid",
    ];
}
