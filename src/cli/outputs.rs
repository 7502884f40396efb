//! Where a call's record and events go.

use std::path::PathBuf;

use clap::error::ErrorKind;

use super::values::OutputTo;
use record::format::Format;

/// Why nothing else is printed while a program has the terminal.
pub const TERMINAL_TAKEN: &str = "--tty shows the program on the terminal, so nothing else is printed there: have the record or the events written to a file (--record FILE, --events FILE)";

/// Where a call's record and events go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// The format of the record on standard output, when it is asked for there.
    pub printed: Option<Format>,
    /// Where else the record goes: a descriptor or a file.
    pub record: Option<OutputTo>,
    /// Where events go.
    pub events: Option<OutputTo>,
    /// The directory that pictures go to.
    pub plots: Option<PathBuf>,
}

impl Outputs {
    /// The outputs of `--json`, `--format`, `--record` and `--events`.
    ///
    /// # Errors
    /// Two of them want the same destination.
    pub(super) fn new(
        json: bool,
        format: Option<Format>,
        record: Option<OutputTo>,
        events: Option<OutputTo>,
    ) -> Result<Self, clap::Error> {
        let mut printing = Vec::new();
        if let Some(format) = &format {
            printing.push(format!("--format {}", format.shape.name()));
        } else if json {
            printing.push("--json".to_owned());
        }
        if record == Some(OutputTo::Stdout) {
            printing.push("--record -".to_owned());
        }
        if events == Some(OutputTo::Stdout) {
            printing.push("--events -".to_owned());
        }
        if let [first, second, ..] = &*printing {
            let rest = match events {
                Some(OutputTo::Stdout) => format!(
                    "leave {first} out, since the last event holds the record, or send the events elsewhere (--events FILE)"
                ),
                _ => {
                    "leave one of them out, or send the record elsewhere (--record FILE)".to_owned()
                }
            };
            return Err(conflict(&format!(
                "{first} and {second} both write to standard output: {rest}\n"
            )));
        }
        if record.is_some() && record == events {
            return Err(conflict(
                "--record and --events name the same destination: leave --record out, since the last event holds the record, or send it elsewhere\n",
            ));
        }
        Ok(Self::unchecked(json, format, record, events))
    }

    /// The same without a look at whether they go together.
    pub(super) fn unchecked(
        json: bool,
        format: Option<Format>,
        record: Option<OutputTo>,
        events: Option<OutputTo>,
    ) -> Self {
        let is_printed = json || record == Some(OutputTo::Stdout);
        Self {
            printed: format.or_else(|| is_printed.then(Format::default)),
            record: record.filter(|to| *to != OutputTo::Stdout),
            events,
            plots: None,
        }
    }

    /// Refuses outputs on standard output for a program that has a terminal.
    ///
    /// # Errors
    /// Record or events go there.
    pub(super) fn refuse_on_terminal(&self) -> Result<(), clap::Error> {
        match self.prints() {
            true => Err(conflict(&format!("{TERMINAL_TAKEN}\n"))),
            false => Ok(()),
        }
    }

    /// Whether record or events go to standard output.
    pub fn prints(&self) -> bool {
        self.printed.is_some() || self.events == Some(OutputTo::Stdout)
    }
}

fn conflict(message: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ArgumentConflict, message)
}
