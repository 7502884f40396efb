//! The options that `run`, `exec` and `plan` have in common.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser as _};

use super::values::{
    PathPair, PortList, RecordTo, Variable, layer, path_pair, record_to, variable,
};
use crate::bytes::RawText;
use crate::error::{Result, SetupError, Step};
use crate::spec::partial::{
    Partial, PartialBind, PartialFile, PartialLandlock, PartialLimits, PartialTmpfs,
};
use crate::spec::quantity::Bound;
use crate::spec::tcp::{PartialTcp, TcpPorts};
use crate::spec::units::{Bytes, Span};
use crate::spec::{Layer, Network, OnOutput};

/// The options that `run`, `exec` and `plan` have in common. Defaults are those
/// of the profile `default`.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Read the request from a TOML or JSON file; flags win over it
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub spec: Option<PathBuf>,
    /// Profile that the request builds on: the name of a built-in one (see
    /// `cellblock policy list`), or a path with a `/` or ending in .toml
    /// [default: for run, the one named like the language; otherwise default]
    #[arg(long, value_name = "NAME|PATH", help_heading = "Request")]
    pub policy: Option<String>,

    /// Directory tree that the cell sees: host for the host's /usr and what it
    /// needs, the name of a prepared rootfs, or a path with a `/` [default:
    /// host]
    #[arg(long, value_name = "host|NAME|PATH", help_heading = "Files")]
    pub rootfs: Option<String>,
    /// Show a host path inside, read-only; DST is absolute and the same as SRC
    /// when left out (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]", help_heading = "Files",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub ro: Vec<PathPair>,
    /// Show a host path inside, writable (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]", help_heading = "Files",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub rw: Vec<PathPair>,
    /// Copy a host file in; DST is relative to /workspace and the name of SRC
    /// when left out (repeatable)
    #[arg(
        long, value_name = "SRC[:DST]", help_heading = "Files",
        value_parser = OsStringValueParser::new().try_map(path_pair)
    )]
    pub file: Vec<PathPair>,
    /// Copy the files that the run created or modified in /workspace to this
    /// directory
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub out: Option<PathBuf>,
    /// Working directory inside [default: /workspace]
    #[arg(long, value_name = "PATH", help_heading = "Files")]
    pub cwd: Option<PathBuf>,

    /// Set an environment variable; a bare NAME passes the caller's value, and
    /// nothing else of the caller's environment is passed (repeatable)
    #[arg(
        long, value_name = "NAME[=VALUE]", help_heading = "Environment",
        value_parser = OsStringValueParser::new().try_map(variable)
    )]
    pub env: Vec<Variable>,
    /// Host name inside [default: cell]
    #[arg(long, value_name = "NAME", help_heading = "Environment")]
    pub hostname: Option<String>,

    /// Network inside: none for loopback only, host for the host's own
    /// [default: none]
    #[arg(
        long, value_name = "none|host", help_heading = "Network",
        value_parser = PossibleValuesParser::new(["none", "host"]).map(network)
    )]
    pub net: Option<Network>,
    /// TCP ports that may be connected to, by Landlock (Linux 6.7), or none;
    /// denies binding unless --tcp-bind allows it [default: any]
    #[arg(long, value_name = "PORT,…", help_heading = "Network")]
    pub tcp_connect: Option<PortList>,
    /// TCP ports that may be bound, by Landlock (Linux 6.7), or none; denies
    /// connecting unless --tcp-connect allows it [default: any]
    #[arg(long, value_name = "PORT,…", help_heading = "Network")]
    pub tcp_bind: Option<PortList>,

    /// Real time until the program is ended, such as 500ms, 2s or 1m 30s; a
    /// bare number is seconds; none for no limit [default: 30s]
    #[arg(
        long,
        visible_alias = "timeout",
        value_name = "DUR",
        help_heading = "Limits"
    )]
    pub wall: Option<Bound<Span>>,
    /// CPU time of all processes together, user and system, or none [default:
    /// 1m]
    #[arg(long, value_name = "DUR", help_heading = "Limits")]
    pub cpu_time: Option<Bound<Span>>,
    /// CPUs that may be busy at once, such as 1 or 0.5, or none [default: 1]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub cpus: Option<Bound<f64>>,
    /// Memory of all processes together in bytes, or with K, M, G or T (powers
    /// of 1024), at least 4M, or none [default: 512M]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub memory: Option<Bound<Bytes>>,
    /// Processes and threads alive at once, or none [default: 64]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub processes: Option<Bound<u64>>,
    /// Open descriptors of each process, at least 8, or none [default: 256]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub open_files: Option<Bound<u64>>,
    /// Size of any one file that is written, or none [default: 256M]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub file_size: Option<Bound<Bytes>>,
    /// Bytes kept of each of stdout and stderr, at most 1G [default: 1M]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub output: Option<Bytes>,
    /// What happens beyond --output: truncate keeps head and tail and counts
    /// the rest, kill ends the cell [default: truncate]
    #[arg(
        long, value_name = "truncate|kill", help_heading = "Limits",
        value_parser = PossibleValuesParser::new(["truncate", "kill"]).map(on_output)
    )]
    pub on_output: Option<OnOutput>,
    /// Size of the tmpfs on /tmp, at least 64K [default: 64M]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub tmp_size: Option<Bytes>,
    /// Size of the tmpfs on /workspace, at least 64K [default: 256M]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub workspace_size: Option<Bytes>,
    /// Size of the tmpfs on /dev/shm, at least 64K [default: 64M]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub shm_size: Option<Bytes>,
    /// Cgroup for the limits: auto for the first that works, none for fallbacks
    /// only, or the path of a delegated directory [default: auto]
    #[arg(long, value_name = "auto|none|PATH", help_heading = "Limits")]
    pub cgroup: Option<String>,
    /// Refuse to run when a limit would need a fallback
    #[arg(long, help_heading = "Limits")]
    pub strict: bool,

    /// Give up a security layer: seccomp, landlock, userns-limit or proc
    /// (repeatable)
    #[arg(
        long, value_name = "LAYER", help_heading = "Security",
        value_parser = PossibleValuesParser::new(Layer::ALL.map(Layer::name))
            .try_map(|name| layer(&name))
    )]
    pub without: Vec<Layer>,
    /// System call policy: the name of a built-in one, or the path of a JSON
    /// file [default: default]
    #[arg(long, value_name = "NAME|PATH", help_heading = "Security")]
    pub seccomp: Option<String>,
    /// Forbid executing anything below writable places, by Landlock, and what
    /// lives in memory only, by the system call policy strict (unless --seccomp
    /// names another)
    #[arg(long, help_heading = "Security")]
    pub no_exec: bool,
    /// Use no newer Landlock ABI than this, for tests
    #[arg(long, value_name = "N", hide = true)]
    pub landlock_max_abi: Option<u32>,
    /// Host uid and gid of the program, when root starts cellblock [default:
    /// one that no other cell has]
    #[arg(long, value_name = "N", help_heading = "Security")]
    pub outer_uid: Option<u32>,

    /// Write the record to a file, or to an open descriptor
    #[arg(
        long, value_name = "FILE|fd:N", help_heading = "Record",
        value_parser = OsStringValueParser::new().try_map(record_to)
    )]
    pub record: Option<RecordTo>,
    /// Print the record to standard output as JSON; the program's output is in
    /// it
    #[arg(long, help_heading = "Record")]
    pub json: bool,
}

impl Options {
    /// What these flags ask for. `environment` looks up the caller's variables.
    pub(super) fn partial(
        &self,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Partial> {
        let mut partial = Partial {
            extends: self.policy.clone(),
            rootfs: self.rootfs.clone(),
            hostname: self.hostname.clone(),
            cwd: self.cwd.clone(),
            network: self.net,
            cgroup: self.cgroup.clone(),
            strict: self.strict.then_some(true),
            seccomp: self.seccomp_policy(),
            without: self.without.iter().copied().collect(),
            outer_uid: self.outer_uid,
            out: self.out.clone(),
            limits: self.limits(),
            landlock: self.landlock(),
            binds: self.binds(),
            files: self.file.iter().map(input).collect(),
            ..Partial::default()
        };
        for variable in &self.env {
            let value = variable.value.clone();
            let value = value.or_else(|| environment(&variable.name));
            let value = value.ok_or_else(|| {
                let name = &variable.name;
                SetupError::new(Step::Spec, "is not in the caller's environment")
                    .on(format!("--env {name}"))
                    .hint(format!("export it, or give a value: --env {name}=…"))
            })?;
            let value = RawText::from(value);
            partial.env.insert(variable.name.clone(), value);
        }
        Ok(partial)
    }

    /// Landlock does not reach programs that live in memory only, so --no-exec
    /// brings a policy that does.
    fn seccomp_policy(&self) -> Option<String> {
        let implied = self.no_exec.then(|| "strict".to_owned());
        self.seccomp.clone().or(implied)
    }

    fn limits(&self) -> PartialLimits {
        let tmpfs = |size| PartialTmpfs { size, inodes: None };
        PartialLimits {
            wall: self.wall,
            cpu_time: self.cpu_time,
            cpus: self.cpus,
            memory: self.memory,
            processes: self.processes,
            open_files: self.open_files,
            file_size: self.file_size,
            output: self.output,
            on_output: self.on_output,
            tmp: tmpfs(self.tmp_size),
            workspace: tmpfs(self.workspace_size),
            shm: tmpfs(self.shm_size),
        }
    }

    fn landlock(&self) -> PartialLandlock {
        let ports = TcpPorts {
            connect: self.tcp_connect.as_ref().map(|ports| ports.0.clone()),
            bind: self.tcp_bind.as_ref().map(|ports| ports.0.clone()),
        };
        PartialLandlock {
            min_abi: None,
            max_abi: self.landlock_max_abi,
            exec_writable: self.no_exec.then_some(false),
            tcp: (ports != TcpPorts::default()).then_some(PartialTcp::Ports(ports)),
        }
    }

    fn binds(&self) -> Vec<PartialBind> {
        let bind = |writable| {
            move |pair: &PathPair| PartialBind {
                source: pair.source.clone(),
                target: pair.target.clone(),
                writable,
            }
        };
        let read_only = self.ro.iter().map(bind(false));
        read_only.chain(self.rw.iter().map(bind(true))).collect()
    }
}

fn input(pair: &PathPair) -> PartialFile {
    let name = pair.source.file_name().unwrap_or_default();
    PartialFile {
        path: pair.target.clone().unwrap_or_else(|| name.into()),
        text: None,
        base64: None,
        source: Some(pair.source.clone()),
    }
}

fn network(name: String) -> Network {
    match name.as_str() {
        "host" => Network::Host,
        _ => Network::None,
    }
}

fn on_output(name: String) -> OnOutput {
    match name.as_str() {
        "kill" => OnOutput::Kill,
        _ => OnOutput::Truncate,
    }
}
