//! Layers to one valid [`Spec`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::language;
use super::network::PartialNetwork;
use super::partial::{CodeFrom, GivenContent, Partial, PartialBind, PartialFile, is_stdin};
use super::request::{Trust, overreach};
use super::validate::{Fault, clashes, faults};
use super::{
    Bind, CgroupChoice, Command, FileSource, FilesFrom, InputFile, LandlockSpec, Overlay, PortRule,
    ReadOnlyFile, RootfsRef, Spec, Stdin, Stdio, UserLimits,
};
use languages::Driver;
use record::bytes::decode_base64;
use record::error::{Result, SetupError, Step};

/// What the caller's command brings along, next to files and flags.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Which command it is.
    pub mode: Mode,
    /// Where relative host paths start: the caller's working directory.
    pub cwd: &'a Path,
    /// What happens to the program's standard streams, unless the spec file gives it a
    /// terminal.
    pub stdio: Stdio,
    /// Whether the program can have a terminal and descriptors of the caller's.
    pub lends: bool,
}

/// The command that a spec is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `cellblock run`: code for an interpreter.
    Run,
    /// `cellblock exec`: a program.
    Exec,
}

/// Where a layer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A built-in profile.
    BuiltIn(String),
    /// A profile or spec file.
    File(PathBuf),
    /// A spec file on standard input.
    Stdin,
    /// The command line.
    Flags,
    /// A request from an untrusted party.
    Request,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("standard input"),
            Self::Flags => f.write_str("flags"),
            Self::Request => f.write_str("request"),
        }
    }
}

impl Origin {
    /// How far its author is trusted.
    pub const fn trust(&self) -> Trust {
        match self {
            Self::BuiltIn(_) | Self::File(_) | Self::Stdin | Self::Flags => Trust::Caller,
            Self::Request => Trust::Remote,
        }
    }

    /// The operand of an error about a field of this layer.
    pub fn field(&self, field: &str) -> String {
        match self {
            Self::Flags => flag_of(field),
            _ => format!("{self}:{field}"),
        }
    }

    /// Where relative paths in `extends` start.
    pub(super) fn folder<'a>(&'a self, cwd: &'a Path) -> &'a Path {
        match self {
            Self::File(path) => path.parent().unwrap_or(cwd),
            _ => cwd,
        }
    }

    /// The error for the profile that this layer's `extends` names.
    pub fn extends_error(&self, mut error: SetupError) -> SetupError {
        error.operand.get_or_insert_with(|| self.field("extends"));
        error
    }

    pub(crate) fn fault(&self, fault: Fault) -> SetupError {
        SetupError::new(Step::Spec, fault.message).on(self.field(&fault.field))
    }
}

/// A part of the request and where it comes from.
#[derive(Clone, Debug)]
pub struct SpecLayer {
    /// Where it comes from.
    pub origin: Origin,
    /// Its fields.
    pub partial: Partial,
}

impl SpecLayer {
    /// Every value of this layer that is not allowed. Host paths are absolute
    /// by now ([`Partial::root_at`]).
    pub fn faults(&self) -> Vec<SetupError> {
        let faults = faults(&self.partial).into_iter();
        faults.map(|fault| self.origin.fault(fault)).collect()
    }
}

/// Merges the layers, the later over the earlier, into a complete and valid
/// request. `profile` is the name to record for them.
///
/// # Errors
/// The first value that is not allowed, with its layer and field.
pub fn resolve(layers: Vec<SpecLayer>, profile: String, ask: &Ask<'_>) -> Result<Spec> {
    let mut merged = Partial::default();
    for layer in layers {
        if let Some(error) = layer.faults().into_iter().next() {
            return Err(error);
        }
        if layer.origin.trust() == Trust::Remote
            && let Some(fault) = overreach(&layer.partial, &merged)
        {
            return Err(layer.origin.fault(fault));
        }
        let mut layer = layer;
        if layer.origin.trust() == Trust::Remote {
            narrow_network(&mut layer, merged.network.as_ref())?;
        }
        merged = merged.merge(layer.partial);
    }
    if let Some(fault) = clashes(&merged).into_iter().next() {
        return Err(SetupError::new(Step::Spec, fault.message)
            .on(fault.field)
            .hint("the profile, the spec file and the flags put two things there"));
    }
    let command = command(&mut merged, ask)?;
    check_lent(&merged, ask)?;
    let spec = complete(merged, profile, command, ask)?;
    check_terminal(&spec, ask)?;
    Ok(spec)
}

/// Refuses descriptors and a terminal where the caller lends nothing, and for code.
fn check_lent(merged: &Partial, ask: &Ask<'_>) -> Result<()> {
    let (fd, tty) = (!merged.pass_fd.is_empty(), merged.tty == Some(true));
    let option = match (fd, tty) {
        (false, false) => return Ok(()),
        (true, _) => "--pass-fd",
        (false, true) => "--tty",
    };
    let refused =
        |message: &str, hint: &str| Err(SetupError::new(Step::Spec, message).on(option).hint(hint));
    match (ask.lends, ask.mode, fd) {
        (false, ..) => refused(
            "a server's programs get nothing of a caller's process",
            "leave `pass_fd` and `tty` out of the server's spec file",
        ),
        (true, Mode::Run, true) => refused(
            "code gets no descriptors: its interpreter has some of its own",
            "start the interpreter with `cellblock exec`",
        ),
        (true, Mode::Run, false) => refused(
            "code gets no terminal: its interpreter reads it from cellblock",
            "start the interpreter with `cellblock exec --tty`",
        ),
        (true, Mode::Exec, _) => Ok(()),
    }
}

/// Refuses a terminal where the standard streams are something else.
fn check_terminal(spec: &Spec, ask: &Ask<'_>) -> Result<()> {
    let refused = |message: &str, hint: &str| {
        Err(SetupError::new(Step::Spec, message).on("--tty").hint(hint))
    };
    match (spec.stdio, ask.mode, &spec.stdin) {
        (Stdio::Terminal, Mode::Exec, Stdin::Null | Stdin::Inline(_)) => refused(
            "standard input is given, or was read for the spec, the request or the files",
            "give these as files, and leave standard input to the terminal",
        ),
        _ => Ok(()),
    }
}

/// Has an untrusted party's network end where the caller's does.
fn narrow_network(layer: &mut SpecLayer, caller: Option<&PartialNetwork>) -> Result<()> {
    if let Some(wanted) = layer.partial.network.take() {
        let narrowed = wanted.within(caller).map_err(|message| {
            let field = "network".to_owned();
            layer.origin.fault(Fault { field, message })
        })?;
        layer.partial.network = Some(narrowed);
    }
    Ok(())
}

/// What runs, from the command and the layers.
fn command(merged: &mut Partial, ask: &Ask<'_>) -> Result<Command> {
    match ask.mode {
        Mode::Exec => {
            let argv = merged.argv.take().ok_or_else(|| {
                let hint = match merged.names_command() {
                    true => "the request holds code, which `cellblock run` runs",
                    false => "put it behind `--`, or into the spec file as `argv`",
                };
                SetupError::new(Step::Spec, "there is no program to run").hint(hint)
            })?;
            let argv0 = merged.argv0.take();
            Ok(Command::Exec { argv, argv0 })
        }
        Mode::Run if merged.argv0.is_some() => {
            let message = "is for a program, and an interpreter has its own name";
            Err(SetupError::new(Step::Spec, message)
                .on("--argv0")
                .hint("leave it out, or start the interpreter with `cellblock exec`"))
        }
        Mode::Run => {
            if merged.code.is_none() {
                let hint = match merged.argv {
                    Some(_) => "the request holds `argv`, which `cellblock exec` runs",
                    None => "give FILE, -c CODE, - for standard input, or a spec file with `code`",
                };
                return Err(SetupError::new(Step::Spec, "there is no code to run").hint(hint));
            }
            let language = language::choose(merged.language.as_deref(), merged)?;
            Ok(Command::Run {
                language: language.name.to_owned(),
                name: code_name(merged.code_path(), language),
                code: merged.code.take().unwrap_or_default(),
                args: merged.args.take().unwrap_or_default(),
            })
        }
    }
}

/// What the code is called in tracebacks.
fn code_name(file: Option<&Path>, language: &Driver) -> String {
    match file.and_then(Path::file_name) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => match language.extensions.first() {
            Some(extension) => format!("main.{extension}"),
            None => "main".to_owned(),
        },
    }
}

/// Every field of the spec; one that no layer sets is an error.
fn complete(merged: Partial, profile: String, command: Command, ask: &Ask<'_>) -> Result<Spec> {
    let landlock = merged.landlock;
    let tcp = PortRule::from(need(landlock.tcp, "landlock.tcp")?);
    let udp = PortRule::from(need(landlock.udp, "landlock.udp")?);
    let min_abi = need(landlock.min_abi, "landlock.min_abi")?;
    let files_from = merged.files_from.map(|path| match is_stdin(&path) {
        true => FilesFrom::Stdin,
        false => FilesFrom::Path(path),
    });
    let limits = merged.limits.complete()?;
    let (elsewhere, files): (Vec<_>, Vec<_>) =
        (merged.files.into_iter()).partition(|file| file.path.is_absolute());
    Ok(Spec {
        command,
        lasting: false,
        user_limits: UserLimits::OF_A_CELL,
        profile,
        rootfs: rootfs(&need(merged.rootfs, "rootfs")?, ask.cwd),
        store: merged.store,
        hostname: need(merged.hostname, "hostname")?,
        cwd: need(merged.cwd, "cwd")?,
        proc: need(merged.proc, "proc")?,
        env_clear: merged.env_clear == Some(true),
        env_unset: merged.env_unset,
        env: merged.env,
        binds: merged.binds.into_iter().map(bind).collect(),
        overlays: (merged.overlays.into_iter())
            .map(|overlay| Overlay {
                target: overlay.target.unwrap_or_else(|| overlay.source.clone()),
                source: overlay.source,
                limit: limits.tmp,
            })
            .collect(),
        absent: Vec::new(),
        protect: merged.protect.into_iter().collect(),
        places: (merged.places.into_iter())
            .map(|place| place.complete(limits.tmp))
            .collect(),
        devices: merged.devices,
        pass_fd: merged.pass_fd,
        descriptors: Vec::new(),
        files: files.into_iter().map(input).collect::<Result<_>>()?,
        read_only_files: (elsewhere.into_iter())
            .map(read_only)
            .collect::<Result<_>>()?,
        out: merged.out,
        workspace: merged.workspace,
        keep_tmp: merged.keep_tmp,
        workspace_wait: (merged.workspace_wait).map_or(Some(Duration::ZERO), |bound| bound.0),
        inline_files: merged.inline_files,
        network: (need(merged.network, "network")?.complete())
            .map_err(|error| SetupError::new(Step::Spec, error.to_string()).on("network"))?,
        limits,
        cgroup: cgroup(&need(merged.cgroup, "cgroup")?, ask.cwd),
        strict: need(merged.strict, "strict")?,
        landlock: LandlockSpec {
            min_abi,
            max_abi: landlock.max_abi,
            exec_writable: need(landlock.exec_writable, "landlock.exec_writable")?,
            tcp,
            udp,
        },
        stdin: match (merged.stdin, merged.code_from, &files_from) {
            (Some(text), ..) => Stdin::Inline(text),
            (_, Some(CodeFrom::Stdin), _) | (.., Some(FilesFrom::Stdin)) => Stdin::Null,
            _ => Stdin::Inherit,
        },
        files_from,
        without: merged.without,
        seccomp: need(merged.seccomp, "seccomp")?,
        uid: need(merged.uid, "uid")?,
        outer_uid: merged.outer_uid,
        stdio: ask.stdio,
    })
}

pub(super) fn need<T>(value: Option<T>, field: &str) -> Result<T> {
    value.ok_or_else(|| SetupError::new(Step::Spec, "no profile sets this field").on(field))
}

fn rootfs(text: &str, cwd: &Path) -> RootfsRef {
    match text {
        "auto" => RootfsRef::Auto,
        "host" => RootfsRef::Host,
        path if path.contains('/') => RootfsRef::Dir(cwd.join(path)),
        name => RootfsRef::Named(name.to_owned()),
    }
}

fn cgroup(text: &str, cwd: &Path) -> CgroupChoice {
    match text {
        "auto" => CgroupChoice::Auto,
        "none" => CgroupChoice::None,
        path => CgroupChoice::Path(cwd.join(path)),
    }
}

/// Its paths are absolute by now, and its target filled in.
fn bind(partial: PartialBind) -> Bind {
    Bind {
        target: partial.target.unwrap_or_else(|| partial.source.clone()),
        source: partial.source,
        writable: partial.writable,
        optional: partial.optional,
    }
}

fn input(file: PartialFile) -> Result<InputFile> {
    let source = match (file.given, file.source, file.base64) {
        (Some(GivenContent::Read(content)), ..) => FileSource::Inline(content),
        (Some(GivenContent::Descriptor(number)), ..) => {
            // Whoever can read descriptors has done so by now.
            let message = "descriptors are read by run, exec and plan only";
            return Err(SetupError::new(Step::Spec, message).on(format!("--file fd:{number}")));
        }
        (None, Some(path), _) => FileSource::Host(path),
        (None, None, Some(text)) => {
            let bytes = decode_base64(&text);
            let bytes = bytes.map_err(|why| SetupError::new(Step::Spec, why).on("files"))?;
            FileSource::Inline(bytes.into())
        }
        (None, None, None) => FileSource::Inline(file.text.unwrap_or_default().into()),
    };
    Ok(InputFile {
        source,
        target: file.path,
        executable: file.executable,
    })
}

/// A file outside of `/workspace`, which the loader has read.
fn read_only(file: PartialFile) -> Result<ReadOnlyFile> {
    let InputFile {
        source,
        target,
        executable,
    } = input(file)?;
    match source {
        FileSource::Inline(content) => Ok(ReadOnlyFile {
            path: target,
            content,
            executable,
        }),
        FileSource::Host(path) => {
            Err(SetupError::new(Step::Spec, "was not read").on(path.display()))
        }
    }
}

/// The flag that sets a field, for messages.
fn flag_of(field: &str) -> String {
    const NAMED: [(&str, &str); 17] = [
        ("argv", "PROG"),
        ("args", "ARGS"),
        ("code_file", "FILE"),
        ("code", "-c"),
        ("language", "--lang"),
        ("extends", "--policy"),
        ("network", "--net"),
        ("binds", "--ro or --rw"),
        ("places", "--tmpfs, --dir, --symlink or --workspace-at"),
        ("overlays", "--overlay"),
        ("devices", "--dev"),
        ("protect", "--protect"),
        ("unprotect", "--unprotect"),
        ("files", "--file"),
        ("env_unset", "--env-unset"),
        ("env", "--env"),
        ("landlock.exec_writable", "--no-exec"),
    ];
    let whole = field.split('[').next().unwrap_or(field);
    let named = NAMED.iter().find(|(name, _)| {
        whole == *name
            || whole
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('.'))
    });
    match named {
        Some((_, flag)) => (*flag).to_owned(),
        None => {
            let name = whole
                .trim_start_matches("limits.")
                .trim_start_matches("landlock.");
            format!("--{}", name.replace(['.', '_'], "-"))
        }
    }
}
