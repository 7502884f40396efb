//! All options that `run`, `exec` and `plan` have in common, and the part of a
//! request that they are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::groups::{Call, Environment, Files, Group, Limits, Networking, Security};
use super::outputs::Outputs;
use super::values::{FileFrom, NetworkChoice, OutputTo, PathPair, PortList};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use spec::network::{PartialEgress, PartialNetwork};
use spec::partial::{
    GivenContent, Partial, PartialBind, PartialFile, PartialLandlock, PartialLimits,
    PartialOverlay, PartialPlace, PlaceKind,
};
use spec::ports::{PartialPorts, PortLists};
use spec::{Bytes, Mode, PassedFd};

/// The options that `run`, `exec` and `plan` have in common.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The spec file.
    pub spec: Option<PathBuf>,
    /// The request of an untrusted party.
    pub request: Option<PathBuf>,
    /// The profile to build on.
    pub policy: Option<String>,
    /// The socket of the server that makes the cell.
    pub server: Option<PathBuf>,
    /// Where record and events go.
    pub outputs: Outputs,
    /// Whether the cell ends when the process that started this one does.
    pub die_with_parent: bool,
    /// Descriptors that the program gets.
    pub pass_fd: Vec<PassedFd>,
    /// The program's name for itself.
    pub argv0: Option<RawText>,
    /// Whether the program gets a terminal of the cell's own.
    pub tty: bool,
    /// Where what the cell is goes.
    pub info_fd: Option<OutputTo>,
    /// What the cell sees of the file system.
    pub files: Files,
    /// What the program finds around itself.
    pub environment: Environment,
    /// What the program reaches.
    pub network: Networking,
    /// Bounds on resources.
    pub limits: Limits,
    /// Layers of the cell.
    pub security: Security,
}

/// Which groups of options a command line needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needed {
    files: bool,
    environment: bool,
    network: bool,
    limits: bool,
    security: bool,
}

impl Needed {
    pub(super) const ALL: Self = Self {
        files: true,
        environment: true,
        network: true,
        limits: true,
        security: true,
    };

    /// Notes the group of the option with this long name; false when no group has it.
    pub(super) fn note(&mut self, name: &str) -> bool {
        for (has, needed) in [
            (Files::has as fn(&str) -> bool, &mut self.files),
            (Environment::has, &mut self.environment),
            (Networking::has, &mut self.network),
            (Limits::has, &mut self.limits),
            (Security::has, &mut self.security),
        ] {
            if has(name) {
                *needed = true;
                return true;
            }
        }
        Call::has(name)
    }
}

impl Options {
    /// Declares the options of a cell, for commands that start many.
    pub(super) fn declare_cell(command: Command) -> Command {
        let about = command.get_about().cloned();
        let long_about = command.get_long_about().cloned();
        super::serve::declare_groups(command)
            .next_help_heading(None)
            .about(Resettable::from(about))
            .long_about(Resettable::from(long_about))
    }

    /// Reads the options that [`Options::declare_cell`] declared.
    pub(super) fn read_cell(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            files: given(matches, "Files")?,
            environment: given(matches, "Environment")?,
            network: given(matches, "Networking")?,
            limits: given(matches, "Limits")?,
            security: given(matches, "Security")?,
            ..Self::default()
        })
    }

    /// Declares the options of the groups that are needed.
    pub(super) fn declare(command: Command, needed: Needed) -> Command {
        // The groups bring descriptions along, which are not the command's.
        let about = command.get_about().cloned();
        let long_about = command.get_long_about().cloned();
        let mut command = Call::augment_args(command);
        for (needed, augment) in [
            (needed.files, Files::augment_args as fn(Command) -> Command),
            (needed.environment, Environment::augment_args),
            (needed.network, Networking::augment_args),
            (needed.limits, Limits::augment_args),
            (needed.security, Security::augment_args),
        ] {
            if needed {
                command = augment(command);
            }
        }
        command
            .next_help_heading(None)
            .about(Resettable::from(about))
            .long_about(Resettable::from(long_about))
    }

    /// Reads the options that were declared; the others are not given.
    pub(super) fn read(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let Call {
            spec,
            request,
            policy,
            server,
            record,
            json,
            events,
            plots,
            shaped,
            die_with_parent,
            pass_fd,
            argv0,
            // The prescan has noted it: lines can come before this.
            quiet: _,
            tty,
            info_fd,
        } = Call::from_arg_matches_mut(matches)?;
        let mut outputs = Outputs::new(json, shaped.format()?, record, events)?;
        if tty {
            outputs.refuse_on_terminal()?;
        }
        outputs.plots = plots;
        Ok(Self {
            spec,
            request,
            policy,
            server,
            outputs,
            die_with_parent,
            pass_fd,
            argv0: argv0.map(RawText::from),
            tty,
            info_fd,
            files: given(matches, "Files")?,
            environment: given(matches, "Environment")?,
            network: given(matches, "Networking")?,
            limits: given(matches, "Limits")?,
            security: given(matches, "Security")?,
        })
    }

    /// Refuses what would have no effect on this call, or not the one that was meant.
    ///
    /// # Errors
    /// Pictures of a program, which has no results; a size behind `--inline-files` as the `file` of the
    /// code.
    pub(super) fn refuse_without_effect(
        &self,
        mode: Mode,
        file: Option<&Path>,
    ) -> Result<(), clap::Error> {
        let refused = |message: String| Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
        if mode == Mode::Exec && self.outputs.plots.is_some() {
            return refused("--plots is for `run`: a program has no results\n".to_owned());
        }
        let size = file
            .and_then(Path::to_str)
            .filter(|text| text.parse::<Bytes>().is_ok());
        match size {
            Some(size) if self.files.inline_files.is_some() => refused(format!(
                "`{size}` would be the file with the code: write --inline-files={size}, or ./{size} for the file\n"
            )),
            _ => Ok(()),
        }
    }

    /// These flags and the `command` as a layer of a spec. `environment` looks up the caller's variables.
    pub(super) fn partial(
        &self,
        command: Partial,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Partial> {
        let mut partial = Partial {
            extends: self.policy.clone(),
            rootfs: self.files.rootfs.clone(),
            store: self.files.store.clone(),
            hostname: self.environment.hostname.clone(),
            proc: self.environment.proc,
            cwd: self.files.cwd.clone(),
            network: self.network.partial()?,
            cgroup: self.limits.cgroup.clone(),
            strict: self.limits.strict.then_some(true),
            seccomp: self.seccomp_policy(),
            without: self.security.without.iter().copied().collect(),
            uid: self.security.uid,
            outer_uid: self.security.outer_uid,
            out: self.files.out.clone(),
            files_from: self.files.files_from.clone(),
            workspace: self.files.workspace.clone(),
            keep_tmp: self.files.keep_tmp.clone(),
            workspace_wait: self.files.workspace_wait,
            inline_files: self.files.inline_files,
            limits: self.limits(),
            landlock: self.landlock(),
            binds: self.binds(),
            overlays: (self.files.overlay.iter())
                .map(|pair| PartialOverlay {
                    source: pair.source.clone(),
                    target: pair.target.clone(),
                })
                .collect(),
            protect: self.files.protect.clone(),
            unprotect: self.files.unprotect.clone(),
            places: self.places(),
            devices: self.files.dev.clone(),
            pass_fd: self.pass_fd.clone(),
            argv0: self.argv0.clone(),
            tty: self.tty.then_some(true),
            env_clear: self.environment.env_clear.then_some(true),
            env_unset: self.environment.env_unset.iter().cloned().collect(),
            files: self.files.file.iter().map(input).collect(),
            ..command
        };
        for variable in &self.environment.env {
            let value = variable.value(&environment)?;
            partial.env.insert(variable.name.clone(), value);
        }
        Ok(partial)
    }

    /// Landlock does not reach programs that live in memory only, so --no-exec
    /// brings a policy that does.
    fn seccomp_policy(&self) -> Option<String> {
        let implied = self.security.no_exec.then(|| "strict".to_owned());
        self.security.seccomp.clone().or(implied)
    }

    fn limits(&self) -> PartialLimits {
        let bounds = self.limits.bounds.0.clone();
        PartialLimits {
            on_output: self.limits.on_output,
            ..bounds
        }
    }

    fn landlock(&self) -> PartialLandlock {
        let rule = |connect: &Option<PortList>, bind: &Option<PortList>| {
            let list = |ports: &Option<PortList>| ports.as_ref().map(|ports| ports.0.clone());
            let (connect, bind) = (list(connect), list(bind));
            let is_given = connect.is_some() || bind.is_some();
            is_given.then_some(PartialPorts::Ports(PortLists { connect, bind }))
        };
        let network = &self.network;
        PartialLandlock {
            min_abi: None,
            max_abi: self.security.landlock_max_abi,
            exec_writable: self.security.no_exec.then_some(false),
            tcp: rule(&network.tcp_connect, &network.tcp_bind),
            udp: rule(&network.udp_connect, &network.udp_bind),
        }
    }

    fn binds(&self) -> Vec<PartialBind> {
        let Files {
            ro,
            rw,
            ro_try,
            rw_try,
            ..
        } = &self.files;
        let all = [
            (ro, false, false),
            (rw, true, false),
            (ro_try, false, true),
            (rw_try, true, true),
        ];
        let binds = all.into_iter().flat_map(|(pairs, writable, optional)| {
            pairs.iter().map(move |pair| PartialBind {
                source: pair.source.clone(),
                target: pair.target.clone(),
                writable,
                optional,
            })
        });
        binds.collect()
    }

    fn places(&self) -> Vec<PartialPlace> {
        let place = |path: &Path, kind, size, to| PartialPlace {
            path: path.to_owned(),
            kind,
            size,
            to,
        };
        let Files {
            tmpfs,
            dir,
            symlink,
            workspace_at,
            ..
        } = &self.files;
        let tmpfs = (tmpfs.iter()).map(|at| place(&at.path, PlaceKind::Tmpfs, at.size, None));
        let dirs = (dir.iter()).map(|path| place(path, PlaceKind::Directory, None, None));
        let links = (symlink.iter())
            .map(|(to, path)| place(path, PlaceKind::Symlink, None, Some(to.clone())));
        let workspaces =
            (workspace_at.iter()).map(|path| place(path, PlaceKind::Workspace, None, None));
        tmpfs.chain(dirs).chain(links).chain(workspaces).collect()
    }
}

impl Networking {
    /// The network, if an option says something of it.
    fn partial(&self) -> Result<Option<PartialNetwork>> {
        let error = |message: &str| Err(SetupError::new(Step::Spec, message).on("--net"));
        let mut egress = PartialEgress::default();
        let is_for_hosts = self.net_unchecked || !self.secret_header.is_empty();
        egress.secret_headers.clone_from(&self.secret_header);
        let mut whole = None;
        for choice in &self.net {
            match choice {
                NetworkChoice::None => whole = Some(PartialNetwork::None),
                NetworkChoice::Host => whole = Some(PartialNetwork::Host),
                NetworkChoice::Allow(host) => egress.allow.push(host.clone()),
                NetworkChoice::Deny(host) => egress.deny.push(host.clone()),
            }
        }
        match (whole, self.net.len()) {
            (Some(whole), 1) if !is_for_hosts => Ok(Some(whole)),
            (Some(_), 1) => {
                error("`--net-unchecked` and `--secret-header` are for allowed hosts only")
            }
            (Some(_), _) => {
                error("`none` and `host` cannot be combined with other values of --net")
            }
            (None, 0) if !is_for_hosts => Ok(None),
            (None, _) if egress.allow.is_empty() => {
                error("no host is allowed: add --net allow=HOST")
            }
            (None, _) => {
                egress.check_names = self.net_unchecked.then_some(false);
                Ok(Some(PartialNetwork::Hosts(egress)))
            }
        }
    }
}

/// The options of a group, if any of them was given. clap knows a group by the
/// name of its struct, and none that was not declared.
fn given<G: Group>(matches: &mut ArgMatches, id: &str) -> Result<G, clap::Error> {
    match matches.try_contains_id(id) {
        Ok(true) => G::from_arg_matches_mut(matches),
        _ => Ok(G::default()),
    }
}

fn input(from: &FileFrom) -> PartialFile {
    let (path, source, given) = match from {
        FileFrom::Host(PathPair { source, target }) => {
            let name = source.file_name().unwrap_or_default();
            let path = target.clone().unwrap_or_else(|| name.into());
            (path, Some(source.clone()), None)
        }
        FileFrom::Descriptor(number, path) => {
            let given = GivenContent::Descriptor(*number);
            (path.clone(), None, Some(given))
        }
    };
    PartialFile {
        path,
        text: None,
        base64: None,
        source,
        executable: false,
        given,
    }
}
