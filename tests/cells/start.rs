//! The ways in which cells are started, so that every test runs against each.
//!
//! No option of cellblock's says how a cell is started: that is a server's affair. For
//! the ways other than the usual one this executable plays cellblock. It has the same
//! command line and the same code, and only asks the library for another start.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use nix::sys::stat::{fstat, stat};
use nix::unistd::dup2_stdin;

use cellblock::commands::{CellStart, dispatch_starting};

/// A way to start cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    /// By the executable under test, in one go.
    #[default]
    Cold,
    /// In blank cells, which are complete but for their program.
    Blank,
    /// By forking a template of Python, which executes the program where there is one.
    Forked,
    /// With the state that an interpreter of Python has in another cell; it executes the
    /// program where there is one.
    Carried,
}

impl Start {
    const ALL: [Self; 4] = [Self::Cold, Self::Blank, Self::Forked, Self::Carried];

    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Blank => "blank",
            Self::Forked => "forked",
            Self::Carried => "carried",
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
            Self::Forked => Some("cellblock-forked"),
            Self::Carried => Some("cellblock-carried"),
        }
    }

    /// The start that this process is to make, by the name that it was started with.
    pub(crate) fn of_this_executable() -> Option<Self> {
        Self::of(Path::new(&std::env::args_os().next()?))
    }

    /// The start that an executable makes as cellblock, by its name.
    pub(crate) fn of(executable: &Path) -> Option<Self> {
        let name = executable.file_name()?;
        let is_named = |start: &Self| start.executable().is_some_and(|known| known == name);
        Self::ALL.into_iter().find(is_named)
    }

    /// Plays cellblock; returns the exit status.
    pub(crate) fn as_cellblock(self) -> i32 {
        let start = match self {
            Self::Cold => CellStart::Cold,
            Self::Blank => CellStart::Blank,
            Self::Forked => CellStart::Forked,
            Self::Carried => CellStart::Carried,
        };
        let words: Vec<OsString> = std::env::args_os().collect();
        let words = match self {
            Self::Forked | Self::Carried => through_python(words),
            Self::Cold | Self::Blank => Ok(words),
        };
        let words = match words {
            Ok(words) => words,
            Err(error) => {
                eprintln!("cells: {error}");
                return 125;
            }
        };
        dispatch_starting(words.into_iter(), Instant::now(), start).into()
    }
}

/// Has code in Python execute the program of an `exec` whose record is asked for: what its
/// process has, and what it has lost, it passes on. The code comes on standard input, so a
/// program with an input of its own is left as it is. It has no word by which the driver
/// would take it for code that needs its own file.
fn through_python(mut words: Vec<OsString>) -> io::Result<Vec<OsString>> {
    let place = |wanted: &str| words.iter().position(|word| word == wanted);
    let (Some(verb), Some(_), Some(end)) = (place("exec"), place("--json"), place("--")) else {
        return Ok(words);
    };
    // Another rootfs may have no Python, and another request its own command. Code gets no
    // descriptors, and a copy cannot be inspected before its program runs.
    if ["--rootfs", "--spec", "--pass-fd", "--info-fd"]
        .iter()
        .any(|option| place(option).is_some_and(|at| at < end))
    {
        return Ok(words);
    }
    let null = stat("/dev/null")?;
    if fstat(io::stdin())?.st_rdev != null.st_rdev {
        return Ok(words);
    }
    let literal = |word: &OsString| {
        let bytes = word.as_bytes().iter();
        format!(
            "b'{}'",
            bytes
                .map(|byte| format!("\\x{byte:02x}"))
                .collect::<String>()
        )
    };
    let argv: Vec<String> = words[end + 1..].iter().map(literal).collect();
    let says = |word: &OsString| word.as_bytes().windows(8).any(|part| part == b"LC_CTYPE");
    // Python itself sets this where the cell has no locale.
    let own = match words.iter().any(says) {
        true => "",
        false => "os.environ.pop('LC_CTYPE', None); ",
    };
    let code = format!(
        "import os; {own}argv = [{}]; os.execvp(*argv[:1], argv)",
        argv.join(", ")
    );
    let (read, mut write) = io::pipe()?;
    write.write_all(code.as_bytes())?;
    dup2_stdin(read)?;
    words.truncate(end);
    words[verb] = "run".into();
    words.extend(["--lang", "python", "-"].map(OsString::from));
    Ok(words)
}
