//! The place where tests run: who runs them, with which executables.

use std::cell::{OnceCell, RefCell};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::scratch::Scratch;
use super::{Cell, Check};

/// Everything that tests share.
pub(crate) struct Stage {
    /// The cellblock under test.
    pub(crate) cellblock: PathBuf,
    /// This executable, where every user may read it.
    pub(crate) probe: PathBuf,
    /// Directory for scratch directories; its owner is who runs the tests.
    pub(crate) dir: PathBuf,
    /// How much longer things may take here, on a slow machine.
    patience: u32,
    notes: RefCell<Vec<String>>,
    cgroup: OnceCell<bool>,
}

impl Stage {
    pub(crate) fn new(cellblock: PathBuf, probe: PathBuf, dir: PathBuf) -> Self {
        let patience = std::env::var("CELLS_PATIENCE")
            .ok()
            .and_then(|factor| factor.parse().ok())
            .unwrap_or(1);
        Self {
            cellblock,
            probe,
            dir,
            patience,
            notes: RefCell::default(),
            cgroup: OnceCell::new(),
        }
    }

    pub(crate) fn root(&self) -> bool {
        nix::unistd::geteuid().is_root()
    }

    /// A bound on how long something may take.
    pub(crate) fn within(&self, milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds) * self.patience
    }

    /// The same as cellblock's options want it.
    pub(crate) fn duration(&self, milliseconds: u64) -> String {
        format!("{}ms", self.within(milliseconds).as_millis())
    }

    /// Whether tests that take long are wanted.
    pub(crate) fn long(&self) -> bool {
        std::env::var_os("CELLS_LONG").is_some()
    }

    /// How often to try what a race decides: less often where all is slow.
    pub(crate) fn times(&self, count: u32) -> u32 {
        (count / self.patience).max(8)
    }

    pub(crate) fn scratch(&self) -> Check<Scratch> {
        Scratch::new(&self.dir)
    }

    /// A cell that runs any program.
    pub(crate) fn exec<I, S>(&self, argv: I) -> Cell<'_>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Cell::exec(self, argv)
    }

    /// A cell that runs a probe of this executable.
    pub(crate) fn probe<const N: usize>(&self, name: &str, args: [&str; N]) -> Cell<'_> {
        let argv = ["/probe", "--probe", name].into_iter().chain(args);
        Cell::exec(self, argv).ro(&self.probe, Path::new("/probe"))
    }

    /// A cell that interprets Python code.
    pub(crate) fn python(&self, code: &str) -> Cell<'_> {
        self.code("python", code)
    }

    /// A cell that interprets code.
    pub(crate) fn code(&self, language: &str, code: &str) -> Cell<'_> {
        Cell::code(self, language, code)
    }

    /// The same probe without a cell.
    pub(crate) fn outside<const N: usize>(&self, name: &str, args: [&str; N]) -> Command {
        let mut command = Command::new(&self.probe);
        command.args(["--probe", name]).args(args);
        command
    }

    /// Something that a reader of the results should know.
    pub(crate) fn note(&self, note: impl Into<String>) {
        self.notes.borrow_mut().push(note.into());
    }

    pub(crate) fn take_notes(&self) -> Vec<String> {
        self.notes.take()
    }

    /// Whether cellblock finds a cgroup here that limits memory.
    pub(crate) fn has_cgroup(&self) -> bool {
        *self.cgroup.get_or_init(|| {
            self.exec(["/bin/true"]).run().is_ok_and(|run| {
                run.record
                    .isolation
                    .and_then(|isolation| isolation.cgroup)
                    .is_some_and(|cgroup| cgroup.controllers.iter().any(|name| name == "memory"))
            })
        })
    }
}
