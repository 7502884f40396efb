//! One call of the builder: its progress on standard error, and the caller's
//! interrupts.
//!
//! Nothing here runs in the background: cells are started by a process with one
//! thread.

use crate::errors::store_error;
use std::cell::RefCell;
use std::io::{IsTerminal as _, Write as _};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::Signal;

use record::error::{Result, SetupError};
use record::terminal;
use supervise::BlockedSignals;

/// One call of the builder.
#[derive(Debug)]
pub(crate) struct Job {
    signals: BlockedSignals,
    /// On a terminal, one line that is redrawn; hidden elsewhere.
    bar: ProgressBar,
    /// Whether each step is a line instead.
    prints_lines: bool,
    /// The step that was reported last.
    step: RefCell<String>,
}

impl Job {
    /// Blocks the signals that interrupt the call: until the job ends they are
    /// errors of [`Job::check`], so that everything half-made is removed.
    pub(crate) fn begin(is_quiet: bool) -> Result<Self> {
        let on_terminal = std::io::stderr().is_terminal();
        let target = match on_terminal && !is_quiet {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        };
        Ok(Self {
            signals: BlockedSignals::block()?,
            bar: ProgressBar::with_draw_target(Some(0), target),
            prints_lines: !on_terminal && !is_quiet,
            step: RefCell::default(),
        })
    }

    /// # Errors
    /// The caller has interrupted the call.
    pub(crate) fn check(&self) -> Result<()> {
        match self.signals.next() {
            Some(signal) => Err(interrupted(Some(signal))),
            None => Ok(()),
        }
    }

    /// Prints a line that stays.
    pub(crate) fn print(&self, text: &str) {
        let text = terminal::line(text);
        if self.prints_lines {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        self.bar.println(text);
    }

    /// Reports the step that begins now.
    pub(crate) fn step(&self, text: &str) {
        if self.prints_lines {
            self.print(text);
        }
        self.detail(text);
    }

    /// Reports one of many short steps, on a terminal only.
    pub(crate) fn detail(&self, text: &str) {
        self.bar.set_style(style("{msg:.dim} [{elapsed}]"));
        self.bar.set_message(terminal::line(text));
        self.bar.tick();
    }

    /// Reports a step that takes long and the bytes that it has done so far.
    ///
    /// # Errors
    /// The caller has interrupted the call.
    pub(crate) fn advance(&self, text: &str, bytes: u64) -> Result<()> {
        self.check()?;
        if *self.step.borrow() != text {
            text.clone_into(&mut self.step.borrow_mut());
            self.step(text);
        }
        if !self.bar.is_hidden() {
            self.detail(&format!("{text}: {}", HumanBytes(bytes)));
        }
        Ok(())
    }

    /// Announces downloads of these sizes, in bytes; 0 when a size is unknown.
    pub(crate) fn begin_downloads(&self, kind: &str, sizes: &[u64]) {
        if sizes.is_empty() {
            return;
        }
        let bytes: u64 = sizes.iter().sum();
        let count = sizes.len();
        let files = if count == 1 { "file" } else { "files" };
        self.print(&format!("{kind}: {count} {files} to fetch{}", size(bytes)));
        self.bar.set_length(bytes);
        self.bar.set_position(0);
        self.bar.reset_eta();
        if bytes > 0 {
            self.bar.set_style(style(
                "{bytes}/{total_bytes} {bar:20} {binary_bytes_per_sec}, {eta} left  {wide_msg}",
            ));
        }
    }

    pub(crate) fn begin_download(&self, name: &str) {
        self.bar.set_message(terminal::line(name));
        self.bar.tick();
    }

    pub(crate) fn end_download(&self, name: &str, bytes: u64) {
        self.bar.inc(bytes);
        if self.prints_lines {
            self.print(&format!("  fetched {name}{}", size(bytes)));
        }
    }
}

impl Drop for Job {
    /// Clears the line, so that the caller's messages stand alone.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The error of an interrupted call.
pub(crate) fn interrupted(signal: Option<Signal>) -> SetupError {
    let by = signal.map_or_else(String::new, |signal| format!(" by {signal}"));
    store_error(format!("interrupted{by}")).hint(
        "the store has nothing incomplete; fetched files are kept, and the same command \
         continues from there",
    )
}

/// `, 3.5 MiB`, unless the size is unknown.
fn size(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(", {}", HumanBytes(bytes)),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
