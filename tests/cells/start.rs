//! The ways in which cells are started, so that every test runs against each.
//!
//! No option of cellblock's says how a cell is started: that is a server's affair. For
//! the ways other than the usual one this executable plays cellblock. It has the same
//! command line and the same code, and only asks the library for another start.

use std::path::Path;
use std::time::Instant;

use cellblock::commands::{CellStart, dispatch_starting};

/// A way to start cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    /// By the executable under test, in one go.
    #[default]
    Cold,
    /// In blank cells, which are complete but for their program.
    Blank,
}

impl Start {
    const ALL: [Self; 2] = [Self::Cold, Self::Blank];

    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Blank => "blank",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|start| start.name() == name)
    }

    /// The file name, beside the stage's own executable, under which this executable
    /// plays cellblock; `None` where that is the executable under test.
    pub(crate) const fn executable(self) -> Option<&'static str> {
        match self {
            Self::Cold => None,
            Self::Blank => Some("cellblock-blank"),
        }
    }

    /// The start that this process is to make, by the name that it was started with.
    pub(crate) fn of_this_executable() -> Option<Self> {
        let path = std::env::args_os().next()?;
        let name = Path::new(&path).file_name()?;
        let is_named = |start: &Self| start.executable().is_some_and(|known| known == name);
        Self::ALL.into_iter().find(is_named)
    }

    /// Plays cellblock; returns the exit status.
    pub(crate) fn as_cellblock(self) -> i32 {
        let start = match self {
            Self::Cold => CellStart::Cold,
            Self::Blank => CellStart::Blank,
        };
        dispatch_starting(std::env::args_os(), Instant::now(), start).into()
    }
}
