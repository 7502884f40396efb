//! Starts cellblock and reads its record.

use std::ffi::{OsStr, OsString};
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use record::stream::Text;
use record::{Outcome, Record};

use super::process::{Finished, Watch};
use super::starts;
use super::{Check, Stage, fail};
use crate::schema::assert_valid_record;

/// A cell to start.
#[derive(Clone)]
pub(crate) struct Cell<'s> {
    stage: &'s Stage,
    verb: &'static str,
    options: Vec<OsString>,
    operands: Vec<OsString>,
    caller_env: Vec<(OsString, OsString)>,
    stdin: Option<Vec<u8>>,
    deadline: Duration,
    is_measured: bool,
}

/// The uid that all cells of this run of the harness have inside, if it is not the usual
/// one.
fn uid() -> Option<OsString> {
    std::env::var_os("CELLS_UID")
}

/// A run that has ended, and its record.
pub(crate) struct Run {
    pub(crate) record: Record,
    /// The record as it was written.
    pub(crate) json: serde_json::Value,
    /// The cellblock process itself.
    pub(crate) process: Finished,
}

impl<'s> Cell<'s> {
    fn new(stage: &'s Stage, verb: &'static str) -> Self {
        Self {
            stage,
            verb,
            options: (["--json".into()].into_iter())
                .chain(uid().into_iter().flat_map(|uid| ["--uid".into(), uid]))
                .collect(),
            operands: Vec::new(),
            caller_env: Vec::new(),
            stdin: None,
            deadline: stage.patience(),
            is_measured: false,
        }
    }

    pub(crate) fn exec<I, S>(stage: &'s Stage, argv: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut cell = Self::new(stage, "exec");
        cell.operands.push("--".into());
        cell.operands
            .extend(argv.into_iter().map(|arg| arg.as_ref().to_owned()));
        cell
    }

    pub(crate) fn code(stage: &'s Stage, language: &str, code: &str) -> Self {
        let mut cell = Self::new(stage, "run");
        cell.operands = ["--lang", language, "-"].map(OsString::from).to_vec();
        cell.stdin(code)
    }

    /// The program and its arguments are in a spec file.
    #[must_use]
    pub(crate) fn without_operands(mut self) -> Self {
        self.operands.clear();
        self
    }

    /// Arguments for the code.
    #[must_use]
    pub(crate) fn arguments<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.operands.extend(words.map(OsString::from));
        self
    }

    /// Any option of cellblock's.
    #[must_use]
    pub(crate) fn option<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.options.extend(words.map(OsString::from));
        self
    }

    /// Any option, in bytes.
    #[must_use]
    pub(crate) fn raw_option<const N: usize>(mut self, words: [&OsStr; N]) -> Self {
        self.options.extend(words.map(OsStr::to_owned));
        self
    }

    #[must_use]
    pub(crate) fn ro(self, source: &Path, target: &Path) -> Self {
        self.pair("--ro", source, target)
    }

    #[must_use]
    pub(crate) fn rw(self, source: &Path, target: &Path) -> Self {
        self.pair("--rw", source, target)
    }

    fn pair(mut self, option: &str, source: &Path, target: &Path) -> Self {
        let mut pair = source.as_os_str().to_owned();
        pair.push(":");
        pair.push(target);
        self.options.extend([option.into(), pair]);
        self
    }

    /// Gives a layer up.
    #[must_use]
    pub(crate) fn without(self, layer: &str) -> Self {
        self.option(["--without", layer])
    }

    #[must_use]
    pub(crate) fn without_all(self, layers: &[&str]) -> Self {
        layers.iter().fold(self, |cell, layer| cell.without(layer))
    }

    /// Sets `--NAME VALUE`.
    #[must_use]
    pub(crate) fn limit(self, name: &str, value: &str) -> Self {
        self.option([&format!("--{name}"), value])
    }

    /// Adds to the environment of cellblock itself.
    #[must_use]
    pub(crate) fn caller_env(mut self, name: &str, value: &str) -> Self {
        self.caller_env.push((name.into(), value.into()));
        self
    }

    /// The content of cellblock's stdin, which is `/dev/null` otherwise.
    #[must_use]
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Has cellblock execute the program, also where code in Python would do so: that
    /// leaves a program with an input of its own as it is.
    #[must_use]
    pub(crate) fn itself(self) -> Self {
        self.stdin("")
    }

    /// Looks at what cellblock takes meanwhile, for `Finished::taken`.
    #[must_use]
    pub(crate) fn measured(mut self) -> Self {
        self.is_measured = true;
        self
    }

    /// How long the harness waits for the end.
    #[must_use]
    pub(crate) fn deadline(mut self, milliseconds: u64) -> Self {
        self.deadline = self.stage.within(milliseconds);
        self
    }

    /// Passes the program's streams through: no record on stdout.
    #[must_use]
    pub(crate) fn passed_through(mut self) -> Self {
        self.options.retain(|option| option != "--json");
        self
    }

    /// The command that starts it, for scenes that start it themselves. Its
    /// stdin is empty.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.stage.cellblock);
        command
            .arg(self.verb)
            .args(&self.options)
            .args(&self.operands)
            // A rootfs in the user's store must not change a test.
            .env("CELLBLOCK_STORE", self.stage.dir.join("no-store"))
            // Nor is what a test keeps the user's.
            .env("XDG_CACHE_HOME", self.stage.dir.join("cache"))
            .env("XDG_STATE_HOME", self.stage.dir.join("state"))
            .envs(self.caller_env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    fn with_stdin(&self) -> Check<Command> {
        let mut command = self.command();
        if let Some(bytes) = &self.stdin {
            let mut file = tempfile::tempfile_in(&self.stage.dir)?;
            file.write_all(bytes)?;
            file.rewind()?;
            command.stdin(file);
        }
        Ok(command)
    }

    /// Starts it.
    pub(crate) fn spawn(&self) -> Check<Watch> {
        self.start(&mut self.with_stdin()?)
    }

    fn start(&self, command: &mut Command) -> Check<Watch> {
        let watch = Watch::start(command)?;
        Ok(match self.is_measured {
            true => watch.measured(),
            false => watch,
        })
    }

    /// Starts it and waits for its end, whether there is a record or not.
    pub(crate) fn finish(&self) -> Check<Finished> {
        let mut command = self.with_stdin()?;
        let ended = self.start(&mut command)?.until_end(self.deadline);
        ended.map_err(|stop| stop.of(&command))
    }

    /// Starts it, waits for its end, and reads the record on stdout.
    pub(crate) fn run(&self) -> Check<Run> {
        Run::of(self.finish()?)
    }

    /// Runs a program that only its limit on time ends, `wall` milliseconds or more. On a busy
    /// host it may not have come far by then: it gets more time until `has_come` holds.
    pub(crate) fn run_to_limit(&self, wall: u64, has_come: impl Fn(&Run) -> bool) -> Check<Run> {
        let run = |wall| {
            let cell = self.clone().limit("wall", &self.stage.duration(wall));
            cell.deadline(wall + 60_000).run()?.ended(Outcome::Timeout)
        };
        let first = run(wall)?;
        if has_come(&first) {
            return Ok(first);
        }
        let last = run(10 * wall)?;
        match has_come(&last) {
            true => Ok(last),
            false => Err(fail(format!("it did not come so far: {}", last.json))),
        }
    }
}

impl Run {
    /// Reads the record on a finished cellblock's stdout. A record that
    /// contradicts itself or the exit status is a failure whatever the test.
    pub(crate) fn of(process: Finished) -> Check<Self> {
        let text = String::from_utf8_lossy(&process.stdout);
        if text.is_empty() {
            return Err(fail(format!("no record: {}", process.complaint())));
        }
        let json = assert_valid_record(&text);
        let record = serde_json::from_str::<Record>(&text)?;
        starts::note(&record);
        if record.exit_code != process.code() {
            return Err(fail(format!(
                "the record says exit code {}, cellblock's is {}",
                record.exit_code,
                process.code()
            )));
        }
        Ok(Self {
            record,
            json,
            process,
        })
    }

    /// What the program wrote to stdout.
    pub(crate) fn stdout(&self) -> &str {
        self.record
            .stdout
            .as_ref()
            .and_then(Text::as_str)
            .unwrap_or("")
    }

    /// The record is one line, whatever bytes it has to hold.
    pub(crate) fn assert_one_line(&self) {
        let ends = self.process.stdout.iter().filter(|byte| **byte == b'\n');
        assert_eq!(ends.count(), 1);
    }

    /// The same, with the record in the message when it ended otherwise.
    pub(crate) fn ended(self, outcome: Outcome) -> Check<Self> {
        if self.record.outcome == outcome {
            return Ok(self);
        }
        Err(fail(format!(
            "outcome {:?} instead of {outcome:?}: {}",
            self.record.outcome, self.json
        )))
    }
}

/// Reads a record that was written to a file.
pub(crate) fn read(path: &Path) -> Check<Record> {
    let text = std::fs::read_to_string(path)?;
    Ok(serde_json::from_value(assert_valid_record(&text))?)
}
