//! The cell of a template: its start and its end.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::Pid;

use super::{Template, failed};
use crate::Denials;
use crate::cell::{Cancel, Cell};
use crate::proc::Lines;
use crate::watch::{Phase, SETUP_DEADLINE};
use jail::child::Content;
use jail::launch::{Launch, Namespaces, Role, wait_for};
use plan::{Fallback, Namespace, Plan};
use record::error::{Result, SetupError, Step};

/// How long the modules of a template may take to load.
const LOADING: Duration = Duration::from_secs(120);
/// The most bytes of what a template that failed has written that are repeated.
const LAST_WORDS: usize = 2000;

/// A template in its cell. Dropping it ends the template and all cells that were forked
/// from it: their namespaces are below its own.
#[derive(Debug)]
pub struct TemplateCell<'a> {
    cell: Box<Cell<'a>>,
    template: Template,
}

impl<'a> TemplateCell<'a> {
    /// Starts a template by a plan for one ([`Plan::for_template`]), and returns once it
    /// has loaded its modules.
    ///
    /// # Errors
    /// The step that failed; what the template wrote, if its modules cannot be loaded.
    pub fn start(plan: Rc<Plan>, cancel: Cancel<'a>) -> Result<Self> {
        let launch = Launch {
            plan: Rc::clone(&plan),
            role: Role::Template,
            filter: None,
            content: Content::default(),
            // It is trusted, and what its copies share with it is not theirs.
            cgroup: None,
            fallback: Fallback::default(),
            until: Step::Exec,
            holds: false,
        };
        let mut cell = Cell::start(launch, Denials::default(), cancel)?;
        let deadline = Instant::now() + SETUP_DEADLINE;
        while cell.phase == Phase::SetUp && cell.seen.failure.is_none() {
            if !wait_for(cell.running.report.as_fd(), deadline) {
                return Err(SetupError::new(
                    Step::Fork,
                    "the template's cell was not set up in time",
                ));
            }
            cell.receive_message();
        }
        if let Some(failure) = cell.seen.failure.take() {
            return Err(failure);
        }
        // Its own time is not counted.
        cell.deadline = None;
        let control = cell
            .running
            .control
            .take()
            .ok_or_else(|| failed("socketpair")(Errno::EBADF))?;
        let take = |cell: &mut Cell<'_>, kind| {
            let place = cell.namespaces.iter().position(|(found, _)| *found == kind);
            place.map(|place| cell.namespaces.swap_remove(place).1)
        };
        let (Some(user), Some(pid)) = (
            take(&mut cell, Namespace::User),
            take(&mut cell, Namespace::Pid),
        ) else {
            return Err(SetupError::new(
                Step::Fork,
                "the template's init sent no namespaces",
            ));
        };
        await_ready(&control, &cell)?;
        refuse_shared_memory(&cell)?;
        let namespaces = Namespaces {
            user,
            pid,
            ids: plan.ids.clone(),
        };
        Ok(Self {
            cell,
            template: Template {
                control: Arc::new(control),
                namespaces: Arc::new(namespaces),
                watched: Arc::default(),
            },
        })
    }

    /// The template's pid, as this process sees it.
    ///
    /// # Errors
    /// It has ended.
    pub fn pid(&self) -> Result<Pid> {
        super::only_child(self.cell.running.init.pid)
    }

    /// Bytes of memory that the template has for itself.
    pub fn memory(&self) -> Option<u64> {
        let pid = self.pid().ok()?;
        Lines::read(format!("/proc/{pid}/status"))?.bytes("RssAnon:")
    }

    /// What copies are asked for with.
    pub const fn template(&self) -> &Template {
        &self.template
    }
}

/// Waits until the modules are loaded.
fn await_ready(control: &OwnedFd, cell: &Cell<'_>) -> Result<()> {
    let deadline = Instant::now() + LOADING;
    let mut word = [0; 16];
    while wait_for(control.as_fd(), deadline) {
        match recv(control.as_raw_fd(), &mut word, MsgFlags::MSG_DONTWAIT) {
            Ok(5) if word.starts_with(b"ready") => return Ok(()),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Ok(_) | Err(_) => {
                let message = match last_words(cell) {
                    words if words.is_empty() => {
                        "the template ended while it loaded its modules".to_owned()
                    }
                    words => format!("the template could not load its modules: {words}"),
                };
                return Err(SetupError::new(Step::Fork, message).hint(
                    "name modules that the rootfs has and that start no threads (--preload)",
                ));
            }
        }
    }
    Err(SetupError::new(
        Step::Fork,
        "the template's modules were not loaded in time",
    ))
}

/// The last line of what it has written to stderr.
fn last_words(cell: &Cell<'_>) -> String {
    let mut buffer = vec![0; 256 << 10];
    let read = cell.running.output[1]
        .as_ref()
        .map(|fd| nix::unistd::read(fd, &mut buffer));
    let length = read.and_then(std::result::Result::ok).unwrap_or(0);
    let text = String::from_utf8_lossy(&buffer[..length]);
    let line = text.trim_end().lines().last().unwrap_or_default();
    line.chars().take(LAST_WORDS).collect()
}

/// What a template shares with its copies would be shared among them.
fn refuse_shared_memory(cell: &Cell<'_>) -> Result<()> {
    let program = super::only_child(cell.running.init.pid)?;
    let path = format!("/proc/{program}/maps");
    let maps =
        fs::read_to_string(&path).map_err(|e| SetupError::io(Step::Fork, "read", &e).on(&path))?;
    let is_shared = |line: &&str| {
        let mode = line.split_ascii_whitespace().nth(1);
        mode.is_some_and(|mode| mode.as_bytes().get(1) == Some(&b'w') && mode.ends_with('s'))
    };
    match maps.lines().find(is_shared) {
        None => Ok(()),
        Some(line) => Err(SetupError::new(
            Step::Fork,
            format!("the template's modules share memory with its copies: {line}"),
        )),
    }
}
