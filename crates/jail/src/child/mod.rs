//! The cell's init: what runs inside before the program does, and around it.
//!
//! [`main`] is the life of an init, and [`set_up`] an ordered list of steps.
//! A step that fails ends the set-up with a fixed-size failure message; the
//! supervisor, which holds the plan, turns it into words. Nothing here knows
//! where the plan came from.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use plan::Plan;
use sys::shared::Progress;
use workspace::Stage;

pub mod command;
mod confine;
mod copy;
mod egress;
mod fail;
mod files;
mod hold;
mod identity;
mod init;
mod interrupt;
mod landlock;
mod machine;
mod mounts;
mod overlay;
pub mod parcel;
mod processes;
mod program;
mod protect;
pub mod report;
mod stdio;
mod supervisors;
mod terminal;
mod tether;
mod tree;
mod waiting;

pub(crate) use mounts::open_bind;
pub(crate) use terminal::TerminalSetup;

use fail::Fail;
use program::Streams;
use record::error::Step;
use report::Reporter;
use terminal::Terminal;

/// The call of a failure to execute a program that is there: what it needs to run is not.
pub(crate) const MISSING_INTERPRETER: &str = fail::Call::Interpreter.name();

/// What a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It executes a program.
    Program,
    /// Its program is a template, from which the programs of copies are forked.
    Template,
    /// Its program is forked from a template.
    Copy {
        /// The cell's uid and gid in the template's user namespace.
        ids_above: (u32, u32),
    },
}

/// What init needs besides the plan: descriptors and prepared memory.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// What the cell is for.
    pub role: Role,
    /// The last step to take: [`Step::Exec`] for a program; an earlier one to try
    /// the steps up to it, which then have to prove that they work.
    pub until: Step,
    /// Whether to wait for the program once all else is there. Then the plan's program
    /// and input files do not count: they come with the order.
    pub holds: bool,
    /// The caller's umask, which the program gets. Init has [`UMASK`].
    pub umask: Mode,
    /// Limits that no cgroup holds, so that init and program must.
    pub fallback: &'a plan::Fallback,
    /// The CPUs to bind the cell to; empty where a cgroup limits them.
    pub cpus: &'a [usize],
    /// The socket to the supervisor.
    pub report: OwnedFd,
    /// Shows the supervisor how far the set-up has come.
    pub progress: &'a Progress,
    /// What goes into the cell.
    pub content: Content,
    /// What becomes the program's descriptors 0, 1 and 2; `None` leaves the
    /// caller's in place.
    pub stdio: [Option<OwnedFd>; 3],
    /// The initial state of a terminal of the cell's own, if all three streams are to be that
    /// terminal.
    pub terminal: Option<TerminalSetup>,
    /// Standard streams of the caller's that are opened anew.
    pub shields: Vec<Shield>,
    /// The driver's end of its channel: its descriptors, in their order.
    pub channel: Vec<OwnedFd>,
    /// Descriptors of the caller's that the program gets, each with its number there.
    pub passed: Vec<(i32, OwnedFd)>,
    /// The system call filter.
    pub filter: Option<&'a Filter>,
}

/// What goes into a cell; the supervisor has opened it.
#[derive(Debug, Default)]
pub struct Content {
    /// Open input files, in the order of the plan's.
    pub inputs: Vec<Option<OwnedFd>>,
    /// What the cell's own scratch places begin with, besides these.
    pub stages: Vec<Stage>,
    /// The certificates that the cell trusts, if it has some of its own.
    pub certificates: Certificates,
    /// Detached mounts to use for binds of the plan, by its index.
    pub binds: Vec<Option<OwnedFd>>,
    /// Descriptors of the caller's that the program gets, each with its number there.
    pub passed: Vec<(i32, OwnedFd)>,
}

/// The certificates that a cell with an authority of its own trusts.
#[derive(Debug, Default)]
pub struct Certificates {
    /// As PEM.
    pub bundle: Vec<u8>,
    /// As a Java keystore, where the plan has one.
    pub java: Vec<u8>,
}

/// A file or terminal of the caller's that is a standard stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shield {
    /// The stream.
    pub stream: BorrowedFd<'static>,
    /// How it is open: `O_RDONLY`, `O_WRONLY` or `O_RDWR`.
    pub access: OFlag,
    /// Whether the set-up fails when it cannot be opened anew.
    pub required: bool,
}

/// A system call filter, ready to load (seccomp(2)).
#[derive(Clone, Debug)]
pub struct Filter {
    /// Its instructions.
    pub program: Vec<sys::seccomp::Instruction>,
    /// Whether the supervisor answers denied calls, and counts them.
    pub notify: bool,
}

#[cfg(debug_assertions)]
thread_local! {
    /// Names of steps that init leaves out, for tests of the checks that detect a missing step.
    pub static LEFT_OUT: std::cell::RefCell<Vec<&'static str>> =
        const { std::cell::RefCell::new(Vec::new()) };
}

/// Whether init leaves a step out.
#[cfg(debug_assertions)]
fn is_left_out(step: &'static str) -> bool {
    LEFT_OUT.with_borrow(|left_out| left_out.contains(&step))
}

/// Init's umask (umask(2)): the modes of what it makes do not depend on the caller.
pub(crate) const UMASK: Mode = Mode::from_bits_truncate(0o022);

/// The life of a cell's init. It closes no descriptor on the way out: they go
/// with the process.
pub(crate) fn main(mut cell: Prepared<'_>) -> ! {
    // SAFETY: init has one thread, and reads no variable.
    unsafe { sys::environment::wipe() };
    // The program's descriptors are put in place in a table that init shares,
    // so init's own must be out of the way.
    for fd in std::iter::once(&mut cell.report).chain(&mut cell.channel) {
        if let Ok(high) = sys::process::duplicate_above(&*fd, program::RESERVED) {
            *fd = high;
        }
    }
    let report = Reporter::new(&cell.report, cell.progress);
    let content = std::mem::take(&mut cell.content);
    let status = match set_up(&cell, content, &report) {
        Ok(Some(init)) => init.run(),
        Ok(None) => {
            report.ended(0, sys::process::ChildUsage::default());
            0
        }
        Err(failure) => {
            report.failed(&failure);
            copy::await_end(cell.role, &report);
            1
        }
    };
    sys::process::exit_now(status)
}

/// Takes the steps of the plan in order, up to `cell.until`. A step that the plan
/// does not ask for does nothing. Returns `None` where no program was to start.
fn set_up<'a>(
    cell: &'a Prepared<'a>,
    content: Content,
    report: &Reporter<'_>,
) -> Result<Option<init::Init<'a>>, Fail> {
    let (plan, until) = (cell.plan, cell.until);
    tether::die_with_supervisor(report)?;
    if until < Step::IdMap {
        return Ok(None);
    }
    copy::offer_pid_namespace(cell.role, report)?;
    let network = identity::begin_network(plan, report)?;
    identity::set_host_name(plan, report)?;
    let sources = mounts::open_sources(plan, content.binds, report)?;
    let streams = stdio::shield(&cell.shields, report)?;
    tether::wait_for_id_maps(plan, report)?;
    if let Role::Copy { ids_above } = cell.role {
        identity::map_own_ids(plan, ids_above, report)?;
    }
    identity::become_inner_user(plan, cell.role, report)?;
    stdio::reopen(streams, report)?;
    tether::die_with_supervisor(report)?;
    confine::limit_user_namespace(plan, report)?;
    let root = mounts::build(plan, sources, &content.certificates, report)?;
    let mut scratch = Vec::new();
    if let Some(root) = &root {
        scratch = mounts::open_scratch(plan, root)?;
        for stage in content.stages {
            tree::make(stage, root, report)?;
        }
        if !cell.holds {
            files::copy_in(plan, &content.inputs, root, report)?;
        }
    }
    if until < Step::Pivot {
        return Ok(None);
    }
    mounts::change_root(root, report)?;
    identity::enter_network(network, report)?;
    egress::open(plan.egress.as_ref(), report)?;
    identity::enter_cgroup_namespace(plan, report)?;
    confine::bind_to_cpus(cell.cpus, report)?;
    if until < Step::Capabilities {
        return Ok(None);
    }
    match cell.role {
        Role::Template => confine::keep_forking(report)?,
        Role::Program | Role::Copy { .. } => confine::drop_capabilities(plan, report)?,
    }
    if until < Step::NoNewPrivs {
        return Ok(None);
    }
    confine::set_no_new_privs(report)?;
    if until < Step::Landlock {
        return Ok(None);
    }
    if let Role::Copy { .. } = cell.role {
        return copy::await_program(cell, &scratch, report).map(Some);
    }
    let setup = cell.terminal.as_ref().filter(|_| until == Step::Exec);
    let terminal = setup
        .map(|setup| Terminal::open(setup, report))
        .transpose()?;
    landlock::restrict(plan, report)?;
    match until {
        Step::Landlock => landlock::prove(plan).map(|()| None),
        Step::Seccomp => program::try_filter(cell, report).map(|()| None),
        _ => begin(cell, scratch, terminal, report),
    }
}

/// Starts the program, unless the cell goes on without one, or ends instead.
fn begin<'a>(
    cell: &'a Prepared<'a>,
    mut scratch: Vec<OwnedFd>,
    terminal: Option<Terminal>,
    report: &Reporter<'_>,
) -> Result<Option<init::Init<'a>>, Fail> {
    let signals = init::block_signals()?;
    let (begin, stdin) = match cell.holds {
        true => match hold::wait(cell, &scratch, report)? {
            None => return Ok(None),
            Some(hold::Ordered::Stay) => {
                report.staying()?;
                return Ok(Some(init::Init::new(cell, signals, None)));
            }
            Some(hold::Ordered::Program(begin, stdin)) => {
                // The supervisor has them already.
                scratch.clear();
                (begin, stdin)
            }
        },
        false => (program::Begin::of(cell.plan)?, None),
    };
    let [own, stdout, stderr] = cell.stdio.each_ref().map(Option::as_ref);
    let start = program::Start {
        begin: &begin,
        streams: match &terminal {
            Some(terminal) => Streams::Terminal(&terminal.line),
            None => Streams::Given([stdin.as_ref().or(own), stdout, stderr]),
        },
        channel: &cell.channel,
        passed: &cell.passed,
        ruleset: None,
    };
    let started = program::start(cell, &start, report)?;
    let above = copy::namespaces_for_copies(cell)?;
    let master = terminal.as_ref().map(|terminal| &terminal.master);
    report.started(&scratch, started.listener.as_ref(), master, &above)?;
    let mut init = init::Init::new(cell, signals, Some(started.pid));
    init.terminal = terminal.map(|terminal| terminal.line);
    // Init closes them with all others that are not its own.
    std::mem::forget((scratch, started.listener, above));
    Ok(Some(init))
}
