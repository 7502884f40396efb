//! The base of all tests here: cells to start, probes to run in them, and the runner.

pub(crate) mod attack;
pub(crate) mod cell;
mod crew;
pub(crate) mod host;
pub(crate) mod left;
pub(crate) mod naive;
pub(crate) mod person;
pub(crate) mod private;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod runner;
pub(crate) mod scratch;
pub(crate) mod stage;
pub(crate) mod start;
pub(crate) mod starts;
pub(crate) mod swap;
mod table;
pub(crate) mod wall;

use std::fmt;

use attack::Attack;
use cell::Cell;
use host::Need;
use probe::{Actor, Attempt};
use stage::Stage;

/// The names that nearly all files of tests use.
pub(crate) mod prelude {
    pub(crate) use nix::errno::Errno;
    pub(crate) use nix::libc;
    pub(crate) use record::Outcome;

    pub(crate) use super::attack::Refusal::{Killed, KilledOr, With};
    pub(crate) use super::attack::{Attack, Weaker, attack, bare, naive, root, without};
    pub(crate) use super::host::{Need, open};
    pub(crate) use super::probe::{Actor, Attempt};
    pub(crate) use super::raw::{Arg, call};
    pub(crate) use super::stage::Stage;
    pub(crate) use super::{Check, Scene, Suite, fail, python_scene, scene};
}

/// The tests about one subject.
pub(crate) struct Suite {
    /// The first part of the names of its tests.
    pub(crate) name: &'static str,
    /// The lines of the attack catalogue that it covers.
    pub(crate) covers: &'static [u8],
    /// Attempts that must be refused.
    pub(crate) attacks: &'static [Attack],
    /// Tests that are not a single attempt.
    pub(crate) scenes: &'static [Scene],
    /// Programs that play a part in a scene, inside a cell or outside.
    pub(crate) actors: &'static [Actor],
}

/// A test that is not a single attempt.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// What the host must have.
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(&Stage) -> Check,
}

/// A test that every host can run.
pub(crate) const fn scene(name: &'static str, run: fn(&Stage) -> Check) -> Scene {
    Scene {
        name,
        needs: &[],
        run,
    }
}

/// A test whose cells run Python.
pub(crate) const fn python_scene(name: &'static str, run: fn(&Stage) -> Check) -> Scene {
    scene(name, run).needs(&[Need::Program("python3")])
}

impl Scene {
    /// Adds what the host must have.
    pub(crate) const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }
}

/// The result of a test, or of a step of one.
pub(crate) type Check<T = ()> = Result<T, Stop>;

/// Why a test ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A promise does not hold.
    Fail(String),
    /// This host cannot show it.
    Skip(String),
}

/// The test has failed.
pub(crate) fn fail(why: impl fmt::Display) -> Stop {
    Stop::Fail(why.to_string())
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Fail(error.to_string())
    }
}

impl From<nix::errno::Errno> for Stop {
    fn from(errno: nix::errno::Errno) -> Self {
        Self::Fail(errno.to_string())
    }
}

impl From<serde_json::Error> for Stop {
    fn from(error: serde_json::Error) -> Self {
        Self::Fail(error.to_string())
    }
}
