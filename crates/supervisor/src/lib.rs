//! The processes of a server: a spawner, and one supervisor for each cell.
//!
//! ```text
//!   front end ──► spawner ──fork──► supervisor ──clone3──► init ──► program
//!       └────────── orders, reports ─────┘
//! ```
//!
//! A guest, a further interpreter in the same cell, has a supervisor of its own, which that of the
//! cell forks (`guests.rs`).
//!
//! Where interpreters are forked from a template, a process that keeps it is between the
//! spawner and the supervisor.
//!
//! The front end may have threads; the spawner is forked from it before it has any.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod guests;
mod keeper;
mod mailbox;
mod orders;
mod processes;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod spawner;
mod supervisor;
// They launch alone, which a build for release has no help for.
#[cfg(all(test, debug_assertions))]
mod tests;

pub use engine::context::MOST_HISTORY;
pub use keeper::{Renewal, TemplateInUse, Templates};
pub use orders::{Execute, FileOrder, Layout, Open, Order, OrderName, Report, State};
pub use processes::{ProcessOrder, ProcessStart, TerminalSize};
pub use spawner::Spawner;

use std::path::PathBuf;

use record::bytes::RawText;
use record::error::Result;
use spec::{self, Ask, Mode, Partial, RemoteRequest, Spec, Stdio, UserLimits};

/// What a server was started with; each request is laid over it.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The spec file.
    pub spec: Option<PathBuf>,
    /// The flags.
    pub flags: Partial,
    /// Where relative host paths start.
    pub cwd: PathBuf,
    /// The modules that its template of Python loads.
    pub preload: Vec<String>,
    /// The share that each of its cells has of what the kernel counts per user; that of a single
    /// run if this is absent.
    pub share: Option<UserLimits>,
}

impl Base {
    /// A request, laid over what the server was started with, and whether it says what to execute.
    /// Code may come with each execution. A cell that lasts may have no interpreter, and only
    /// processes that are started in it.
    ///
    /// # Errors
    /// The request is wrong, or asks for what the server does not allow.
    fn request(&self, request: &str, lasts: bool) -> Result<(Spec, bool)> {
        let mut request = RemoteRequest::parse(request)?;
        let has_code = request.argv.is_some() || request.code.is_some();
        let has_processes_only = lasts && !has_code && request.language.is_none();
        if has_processes_only {
            // A placeholder, taken out below: a spec has a program or code.
            request.argv = Some(vec![RawText::from("none")]);
        }
        let mode = match request.argv {
            Some(_) => Mode::Exec,
            None => Mode::Run,
        };
        if mode == Mode::Run {
            request.code.get_or_insert_default();
        }
        let ask = Ask {
            mode,
            cwd: &self.cwd,
            stdio: Stdio::Capture,
            lends: false,
        };
        let flags = self.flags.clone();
        let mut spec = spec::load_for(&ask, self.spec.as_deref(), request, flags)?;
        spec.lasting = lasts;
        spec.user_limits = self.share.unwrap_or(spec.user_limits);
        if has_processes_only {
            spec.command = spec::Command::Exec {
                argv: Vec::new(),
                argv0: None,
            };
        }
        Ok((spec, has_code))
    }
}
