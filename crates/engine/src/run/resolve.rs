//! A spec against this host: nothing is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Compiled, FilterPolicy, sockets};
use languages::{self, Driver};
use plan::probe::{Filters, HostFacts, HostNames, devices, repositories};
use plan::rootfs::{Lease, Tree};
use plan::{Plan, ProgramRequest};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};
use spec::language::find as find_language;
use spec::limits::RESERVE;
use spec::{Bytes, Command, Layer, Network, Spec};

/// A spec resolved against this host, and what the launch needs besides.
#[derive(Debug)]
pub struct Resolved {
    /// Everything that a launch will do.
    pub plan: Plan,
    /// What the host can do.
    pub host: HostFacts,
    /// The system call policy; `None` when given up.
    pub filter: Option<FilterPolicy>,
    /// What the caller should know of before anything runs.
    pub warnings: Vec<String>,
    pub(super) driver: Option<&'static Driver>,
    /// Keeps a tree of the store from being removed.
    pub(super) lease: Option<Arc<Lease>>,
}

impl Resolved {
    /// The driver of the code's language.
    pub(crate) fn driver(&self) -> Option<&'static Driver> {
        self.driver
    }
}

/// Resolves `spec` against this host without changing anything.
///
/// # Errors
/// The step that cannot be done, and the way out.
pub fn resolve(spec: &Spec) -> Result<Resolved> {
    resolve_with(spec, HostFacts::gather()?)
}

/// The same for a call that uses its shim's compiled form, if there is one.
#[inline(never)]
pub(super) fn resolve_for(spec: &Spec, compiled: Option<&Compiled>) -> Result<Resolved> {
    resolve_within(spec, HostFacts::gather()?, compiled)
}

/// The same with what this process has found out about the host before.
pub(crate) fn resolve_with(spec: &Spec, host: HostFacts) -> Result<Resolved> {
    resolve_within(spec, host, None)
}

fn resolve_within(spec: &Spec, host: HostFacts, compiled: Option<&Compiled>) -> Result<Resolved> {
    let needs = |call: &str| match call {
        "seccomp" => !spec.without.contains(&Layer::Seccomp),
        "setgroups" => host.uid == 0,
        "setns" | "socket" => spec.network != Network::Host,
        // Made only where no cgroup holds the CPUs.
        "sched_setaffinity" => false,
        call => !call.starts_with("landlock") || !spec.without.contains(&Layer::Landlock),
    };
    match Filters::current().refusal(needs) {
        Some(error) => Err(error),
        None => put_together(spec, host, compiled),
    }
}

/// The same on a host whose filters do not matter: `doctor` tries each part.
pub fn resolve_on(spec: &Spec, host: HostFacts) -> Result<Resolved> {
    put_together(spec, host, None)
}

fn put_together(spec: &Spec, mut host: HostFacts, compiled: Option<&Compiled>) -> Result<Resolved> {
    let driver = match &spec.command {
        Command::Run { language, .. } if spec.lasting => Some(find_language(language)?.lasting()),
        Command::Run { language, .. } => Some(find_language(language)?),
        Command::Exec { .. } => None,
    };
    let preferred = driver.map(|driver| driver.rootfs);
    let mut tree = Tree::find(&spec.rootfs, spec.store.as_deref(), preferred)?;
    match spec.network {
        Network::None => {}
        Network::Hosts(_) => tree.open_etc(&["resolv.conf"])?,
        Network::Host => {
            host.names = HostNames::read();
            tree.open_etc(&["resolv.conf", "hosts"])?;
        }
    }
    host.devices = (spec.devices.iter())
        .map(devices::find)
        .collect::<Result<_>>()?;
    for (bind, has_git) in plan::with_protection(spec) {
        if bind.source.is_dir() {
            let found = match has_git {
                true => repositories::beneath(&bind.source)?,
                false => Vec::new(),
            };
            host.repositories.insert(bind.source.clone(), found);
        }
    }
    let program = program(spec, &tree, driver, compiled)?;
    let plan = Plan::new(spec, &host, &tree, program)?;
    plan.program.check_lengths()?;
    let filter = plan
        .seccomp
        .as_deref()
        .map(FilterPolicy::find)
        .transpose()?;
    Ok(Resolved {
        warnings: sockets::warnings(spec, &plan),
        plan,
        host,
        filter,
        driver,
        lease: tree.lease,
    })
}

/// What is to be executed.
fn program(
    spec: &Spec,
    tree: &Tree,
    driver: Option<&'static Driver>,
    compiled: Option<&Compiled>,
) -> Result<ProgramRequest> {
    match (&spec.command, driver) {
        (Command::Run { code, args, .. }, Some(driver)) => {
            let interpreter = interpreter(tree, driver)?;
            let is_compiled = driver
                .compiled_file()
                .is_some_and(|path| tree.has_file(Path::new(&path)));
            let ahead = compiled.and_then(|found| found.find(tree, driver, &interpreter));
            let memory = spec.limits.memory.map(|limit| limit.0);
            Ok(ProgramRequest {
                program: interpreter.as_path().into(),
                argv: driver.argv(&interpreter, args, memory, is_compiled),
                channel: driver.has_channel(),
                reserve: match driver.reserves {
                    true => RESERVE,
                    false => Bytes(0),
                },
                files: match spec.lasting {
                    true => files_of_all(tree, driver.files_for(code)),
                    false => driver.files_for(code).into_iter().chain(ahead).collect(),
                },
            })
        }
        (Command::Exec { argv, argv0 }, _) if !argv.is_empty() => Ok(ProgramRequest {
            program: argv[0].clone(),
            argv: [argv0.as_ref().unwrap_or(&argv[0])]
                .into_iter()
                .chain(&argv[1..])
                .cloned()
                .collect(),
            channel: false,
            reserve: RESERVE,
            files: Vec::new(),
        }),
        (Command::Exec { .. }, _) if spec.lasting => Ok(ProgramRequest {
            program: RawText::default(),
            argv: Vec::new(),
            channel: false,
            reserve: RESERVE,
            files: files_of_all(tree, Vec::new()),
        }),
        _ => Err(SetupError::new(Step::Spec, "no program to execute").on("argv")),
    }
}

/// `own`, and the files of the drivers of all languages that `tree` has. A cell that lasts may get
/// guests, when nothing can be put below [`languages::DIRECTORY`] any more.
fn files_of_all(tree: &Tree, own: Vec<(PathBuf, RawText)>) -> Vec<(PathBuf, RawText)> {
    let mut all: BTreeMap<PathBuf, RawText> = own.into_iter().collect();
    let lasting = languages::TABLE.iter().map(|driver| driver.lasting());
    for driver in lasting.filter(|driver| interpreter(tree, driver).is_ok()) {
        all.extend(driver.files_for(&RawText::default()));
    }
    all.into_iter().collect()
}

/// The driver's interpreter inside `tree`.
///
/// # Errors
/// The tree has none.
pub fn interpreter(tree: &Tree, driver: &Driver) -> Result<PathBuf> {
    let named = tree.interpreters.get(driver.name).map(PathBuf::as_path);
    let usual = driver.interpreters.iter().map(Path::new);
    let found = named
        .into_iter()
        .chain(usual)
        .find(|path| tree.has_program(path));
    found.map(Into::into).ok_or_else(|| {
        SetupError::new(
            Step::Interpreter,
            format!("no {} in the rootfs `{}`", driver.name, tree.label),
        )
        .on(driver.interpreters.join(", "))
        .hint(format!(
            "install {} there, or name a directory that has it with --rootfs",
            driver.name
        ))
    })
}
