//! Part of a request: a policy profile, a spec file or the flags of one call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::descriptors::PassedFd;
use super::devices::Device;
pub use super::limits::{PartialLimits, PartialTmpfs};
use super::network::PartialNetwork;
pub use super::places::{PartialPlace, PlaceKind};
use super::ports::PartialPorts;
use super::quantity::Bound;
use super::units::Bytes;
use super::{Layer, ProcChoice, WORKSPACE};
use record::bytes::RawText;

/// The fields of a profile, a spec file or the flags. A field without a value keeps
/// that of the layer below.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Partial {
    /// What the profile is for, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The profile that this file builds on: a name, or a path (with a `/`, or
    /// ending in `.toml`) relative to this file. In a spec file it may be
    /// called `policy`, after the flag.
    #[serde(alias = "policy", skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,

    /// The program and its arguments, for `exec`. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<RawText>>,
    /// What the program gets as its name, in place of the one that it is found by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv0: Option<RawText>,
    /// The language of the code, for `run`. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The code itself, for `run`. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<RawText>,
    /// The file that holds the code, for `run`; `-` is standard input. A
    /// relative path starts at the caller's working directory. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_file: Option<PathBuf>,
    /// Where `code` was read from: set by the loader.
    #[serde(skip)]
    pub code_from: Option<CodeFrom>,
    /// Standard input: set by the loader, from a request.
    #[serde(skip)]
    pub stdin: Option<RawText>,
    /// Arguments that the code sees, for `run`. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<RawText>>,

    /// The directory tree that the cell sees: `host`, the name of a prepared
    /// rootfs, a path (with a `/`), or `auto` for the prepared rootfs of the
    /// code's language where there is one, else `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
    /// The store of prepared rootfs; without it, what `$CELLBLOCK_STORE` names,
    /// or the usual places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// The host name inside: 1 to 64 letters, digits, `-` or `.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// What `/proc` and `/sys` show besides processes: `machine` for the cell's memory,
    /// CPUs and limits where programs look for a machine's, or `processes` for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proc: Option<ProcChoice>,
    /// The working directory inside; a relative path starts at `/workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// `"none"` for a network namespace with loopback only, a table for named hosts
    /// (`{allow = ["api.example.com"]}`), or `"host"` for the host's own network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<PartialNetwork>,
    /// Where limits on resources come from: `auto` for the first cgroup that
    /// works, `none` for fallbacks only, or the path of a cgroup directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Whether to refuse to run when a limit would need a fallback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// The system call policy: a name, or the path of a JSON file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<String>,
    /// Security layers to give up: `seccomp`, `landlock`, `userns-limit`,
    /// `proc`. Layers of several files add up.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without: BTreeSet<Layer>,
    /// The uid and gid of the program inside, such as 0 for installers that insist on
    /// it, and not 65534. None has a capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The unprivileged host uid and gid of the program, when root starts
    /// cellblock; without it, one that no other cell has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer_uid: Option<u32>,
    /// Host directory that gets the files which the run created or modified.
    /// Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<PathBuf>,

    /// What `/workspace` begins with: a directory, or a tar archive, plain or in
    /// gzip or zstd; `-` is an archive on standard input. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_from: Option<PathBuf>,
    /// Host directory that keeps `/workspace` from one run to the next. Spec
    /// files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// Host directory that keeps `/tmp` from one run to the next. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_tmp: Option<PathBuf>,
    /// How long to wait for a kept directory that another run is using; without
    /// it, such a call is refused at once. `none` waits for as long as it takes.
    /// Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_wait: Option<Bound<Duration>>,
    /// Bytes of created and modified files that the record holds itself: at most
    /// 1G. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_files: Option<Bytes>,

    /// Bounds on resources.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: PartialLimits,
    /// Landlock settings.
    #[serde(skip_serializing_if = "is_default")]
    pub landlock: PartialLandlock,
    /// Whether the environment begins empty: variables of the layers below, and those
    /// that cellblock sets for libraries (`OMP_NUM_THREADS` and its like), are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_clear: Option<bool>,
    /// Variables of the layers below, and of cellblock's own, to leave out.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub env_unset: BTreeSet<String>,
    /// The program's environment; nothing of the caller's is added. Variables
    /// of several files add up, the later value of a name wins.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, RawText>,
    /// Host paths to show inside. Those of several files add up, the later one
    /// of a target wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<PartialBind>,
    /// Writable views of host directories: what the program changes there is its own, ends
    /// with the cell, and is listed with the files. Those of several files add up, the
    /// later one of a target wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<PartialOverlay>,
    /// Paths that the program can neither change nor make: an absolute one in the writable bind that
    /// has it, a relative one at the top of each writable bind but the home's (the variable `HOME`).
    /// One that begins with `.git/` holds for each repository in the bind. Those of several files
    /// add up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<PathBuf>,
    /// Paths of the layers below that the program may change after all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotect: Vec<PathBuf>,
    /// What else is put into the cell's file system: writable file systems in
    /// memory, directories and symbolic links. Those of several files add up, the
    /// later one of a path wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PartialPlace>,
    /// Character devices of the host's that the cell has besides its own `/dev`. Those of
    /// several files add up, the later one of a name wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Descriptors of the caller's that the program gets, for `exec`; those of several
    /// layers add up. Spec files only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass_fd: Vec<PassedFd>,
    /// Whether the program gets a terminal of the cell's own, which the caller's terminal on
    /// standard input shows, for `exec`. Spec files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<bool>,
    /// Files copied in before the start. Those of several files add up, the later
    /// one of a path wins. Spec files only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PartialFile>,
}

/// Where code was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeFrom {
    /// The caller's standard input, which the program then does not get.
    Stdin,
    /// A file, which names the code and by its ending the language.
    File(PathBuf),
}

/// Landlock settings (landlock(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PartialLandlock {
    /// The lowest Landlock ABI that will do, from 1; the best that the kernel
    /// has is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_abi: Option<u32>,
    /// No newer ABI than this is used: set by a flag for tests.
    #[serde(skip)]
    pub max_abi: Option<u32>,
    /// Whether files below writable places may be executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec_writable: Option<bool>,
    /// TCP ports that the program may use: `"any"`, or a table with the lists
    /// `connect` and `bind`, of which an empty one denies all. A table needs
    /// Landlock ABI 4 (Linux 6.7).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<PartialPorts>,
    /// UDP ports that the program may use, as for `tcp`. A table needs Landlock ABI 10
    /// (Linux 7.2). A program that may send gets answers, at ports that the kernel chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<PartialPorts>,
}

/// A host path to show inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartialBind {
    /// The path on the host; a relative one starts at the caller's working
    /// directory.
    pub source: PathBuf,
    /// The absolute path inside; without it, the same as `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PathBuf>,
    /// Whether the program may write there; false by default.
    #[serde(default)]
    pub writable: bool,
    /// Whether the cell does without where the host has no such path; false by
    /// default.
    #[serde(default)]
    pub optional: bool,
}

/// A writable view of a host directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartialOverlay {
    /// The directory on the host; a relative path starts at the caller's working
    /// directory.
    pub source: PathBuf,
    /// The absolute path inside; without it, the same as `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PathBuf>,
}

/// A file copied in before the start. Exactly one of `text`, `base64` and
/// `source` says what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartialFile {
    /// Where it goes, relative to `/workspace`. At an absolute path elsewhere it can
    /// be read and not written, and has at most 16M.
    pub path: PathBuf,
    /// Its content as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its content in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The host's file that holds its content; a relative path starts at the
    /// caller's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PathBuf>,
    /// Whether it can be executed. A file of the host's can be if it can be there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// Content of which only the command line knows.
    #[serde(skip)]
    pub given: Option<GivenContent>,
}

/// Content that a file gets from the caller's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenContent {
    /// What can be read from this descriptor of the caller's.
    Descriptor(i32),
    /// What was read.
    Read(RawText),
}

/// `later.field.or(earlier.field)` for each field named.
macro_rules! later_wins {
    ($earlier:ident, $later:ident: $($field:ident),+ $(,)?) => {
        $( $earlier.$field = $later.$field.or($earlier.$field.take()); )+
    };
}

impl Partial {
    /// This layer with a later one on top: the later value of a field wins;
    /// `env`, `binds`, `overlays`, `protect`, `places`, `devices`, `files` and `without` add up by key.
    #[must_use]
    pub fn merge(mut self, mut later: Self) -> Self {
        if later.names_command() {
            self.argv = None;
            self.code = None;
            self.code_file = None;
            self.code_from = None;
            self.args = None;
        }
        later_wins!(
            self, later: description, extends, argv, argv0, language, code, code_file, code_from,
            stdin, args, rootfs, store, hostname, proc, cwd, network, cgroup, strict, seccomp, uid, outer_uid, out,
            tty, files_from, workspace, keep_tmp, workspace_wait, inline_files,
        );
        self.without.append(&mut later.without);
        self.limits = self.limits.merge(later.limits);
        self.landlock = self.landlock.merge(later.landlock);
        if later.env_clear == Some(true) {
            self.env.clear();
        }
        self.env_clear = match self.env_clear {
            Some(true) => self.env_clear,
            earlier => later.env_clear.or(earlier),
        };
        self.env.retain(|name, _| !later.env_unset.contains(name));
        self.env_unset.append(&mut later.env_unset);
        self.env.append(&mut later.env);
        self.binds
            .retain(|bind| later.binds.iter().all(|new| new.target != bind.target));
        self.binds.append(&mut later.binds);
        self.overlays.retain(|overlay| {
            later
                .overlays
                .iter()
                .all(|new| new.target != overlay.target)
        });
        self.overlays.append(&mut later.overlays);
        let is_unprotected = |path: &Path| later.unprotect.iter().any(|other| other == path);
        (self.protect).retain(|path| {
            !is_unprotected(path) && !is_unprotected(&Path::new(WORKSPACE).join(path))
        });
        self.protect.append(&mut later.protect);
        self.unprotect.append(&mut later.unprotect);
        self.places
            .retain(|place| later.places.iter().all(|new| new.path != place.path));
        self.places.append(&mut later.places);
        self.devices
            .retain(|device| later.devices.iter().all(|new| new.name != device.name));
        self.devices.append(&mut later.devices);
        self.pass_fd.append(&mut later.pass_fd);
        self.files
            .retain(|file| later.files.iter().all(|new| new.path != file.path));
        self.files.append(&mut later.files);
        self
    }

    /// Makes host paths absolute: relative ones start at `cwd`. A bind without
    /// a target gets its source's path; a file's path loses each `.`, and
    /// [`WORKSPACE`] where it begins with it.
    pub fn root_at(&mut self, cwd: &Path) {
        for bind in &mut self.binds {
            root(&mut bind.source, cwd);
            bind.target.get_or_insert_with(|| bind.source.clone());
        }
        for overlay in &mut self.overlays {
            root(&mut overlay.source, cwd);
            overlay.target.get_or_insert_with(|| overlay.source.clone());
        }
        for file in &mut self.files {
            let named = |part: &Component<'_>| *part != Component::CurDir;
            file.path = file.path.components().filter(named).collect();
            if let Ok(below) = file.path.strip_prefix(WORKSPACE) {
                file.path = below.to_owned();
            }
            if let Some(source) = &mut file.source {
                root(source, cwd);
            }
        }
        for path in self.protect.iter_mut().chain(&mut self.unprotect) {
            let named = |part: &Component<'_>| *part != Component::CurDir;
            *path = path.components().filter(named).collect();
        }
        if let Some(inner) = &mut self.cwd {
            root(inner, Path::new(WORKSPACE));
        }
        let paths = [
            &mut self.out,
            &mut self.store,
            &mut self.workspace,
            &mut self.keep_tmp,
        ];
        for path in paths.into_iter().flatten() {
            root(path, cwd);
        }
        if let Some(path) = self.files_from.as_mut().filter(|path| !is_stdin(path)) {
            root(path, cwd);
        }
    }

    /// Whether it names code or a program to run.
    pub fn names_command(&self) -> bool {
        self.argv.is_some() || self.code.is_some() || self.code_file.is_some()
    }

    /// The file that `code` was read from.
    pub fn code_path(&self) -> Option<&Path> {
        match &self.code_from {
            Some(CodeFrom::File(path)) => Some(path),
            _ => None,
        }
    }

    /// The fields that belong to one call and not into a profile.
    pub fn call_fields(&self) -> impl Iterator<Item = &'static str> {
        let fields = [
            ("argv", self.argv.is_some()),
            ("argv0", self.argv0.is_some()),
            ("language", self.language.is_some()),
            ("code", self.code.is_some()),
            ("code_file", self.code_file.is_some()),
            ("args", self.args.is_some()),
            ("out", self.out.is_some()),
            ("pass_fd", !self.pass_fd.is_empty()),
            ("tty", self.tty.is_some()),
            ("files_from", self.files_from.is_some()),
            ("workspace", self.workspace.is_some()),
            ("keep_tmp", self.keep_tmp.is_some()),
            ("workspace_wait", self.workspace_wait.is_some()),
            ("inline_files", self.inline_files.is_some()),
            ("files", !self.files.is_empty()),
        ];
        let given = fields.into_iter().filter(|(_, given)| *given);
        given.map(|(name, _)| name)
    }
}

impl PartialLandlock {
    fn merge(mut self, later: Self) -> Self {
        later_wins!(self, later: min_abi, max_abi, exec_writable);
        self.tcp = PartialPorts::merge(self.tcp, later.tcp);
        self.udp = PartialPorts::merge(self.udp, later.udp);
        self
    }
}

/// Whether a table of a file would be empty.
pub(super) fn is_default<T: Default + PartialEq>(table: &T) -> bool {
    *table == T::default()
}

/// Whether the path means the caller's standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Makes a path absolute. An empty one stays: it is refused later, and must not
/// mean the whole of `cwd`.
fn root(path: &mut PathBuf, cwd: &Path) {
    if !path.as_os_str().is_empty() {
        *path = cwd.join(&*path);
    }
}
