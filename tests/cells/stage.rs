//! Who runs the tests, where, and with which executables.

use std::cell::{OnceCell, RefCell};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::scratch::Scratch;
use super::start::Start;
use super::{Cell, Check, fail};

/// Everything that tests share.
pub(crate) struct Stage {
    /// The cellblock under test.
    pub(crate) cellblock: PathBuf,
    /// This executable, where every user may read it.
    pub(crate) probe: PathBuf,
    /// The directory for scratch directories; it belongs to the user who runs the
    /// tests.
    pub(crate) dir: PathBuf,
    /// A factor for every deadline, for slow machines.
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

    /// How the cells are started.
    pub(crate) fn start(&self) -> Start {
        Start::of(&self.cellblock).unwrap_or_default()
    }

    pub(crate) fn root(&self) -> bool {
        nix::unistd::geteuid().is_root()
    }

    /// A bound on how long something may take.
    pub(crate) fn within(&self, milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds) * self.patience
    }

    /// How long to wait for what must come: long, for a busy machine, but less than the minute
    /// that programs sleep which only cellblock ends.
    pub(crate) fn patience(&self) -> Duration {
        self.within(50_000)
    }

    /// Waits until this is so.
    pub(crate) fn wait_until(&self, what: &str, mut is: impl FnMut() -> Check<bool>) -> Check {
        let until = Instant::now() + self.patience();
        while !is()? {
            if Instant::now() > until {
                return Err(fail(format!("not so in time: {what}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// A bound in milliseconds, as an option of cellblock takes it.
    pub(crate) fn duration(&self, milliseconds: u64) -> String {
        format!("{}ms", self.within(milliseconds).as_millis())
    }

    /// Whether tests that take long are wanted.
    pub(crate) fn long(&self) -> bool {
        std::env::var_os("CELLS_LONG").is_some()
    }

    /// How many times to try something that depends on a race: a quarter of `count` every day, and
    /// fewer on a slow machine.
    pub(crate) fn times(&self, count: u32) -> u32 {
        let share = if self.long() { 1 } else { 4 };
        (count / share / self.patience).max(8)
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

    /// Adds a remark to the test's line.
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
