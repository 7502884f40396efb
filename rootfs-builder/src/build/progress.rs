//! What a person who waits for a build gets to see.
//!
//! On a terminal one line that is drawn again; otherwise a line for each thing
//! that is done. Nothing here runs in the background: cells are started by a
//! process with one thread.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::shop::Item;
use record::terminal;

/// Says on stderr how far a build has come.
#[derive(Debug)]
pub(super) struct Progress {
    /// On a terminal.
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        Self {
            bar: terminal.then(|| {
                ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10))
                    .with_style(plain())
            }),
            quiet,
        }
    }

    /// A line that stays.
    pub(super) fn say(&self, text: &str) {
        let text = &terminal::line(text);
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.println(text),
            None => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }

    /// What is done now.
    pub(super) fn stage(&self, text: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_style(plain());
                bar.set_message(terminal::line(text));
                bar.tick();
            }
            None => self.say(text),
        }
    }

    /// So many bytes are to be fetched: those of the items that are not here.
    pub(super) fn fetching(&self, what: &str, missing: &[&Item]) {
        let bytes: u64 = missing.iter().map(|item| item.size).sum();
        if missing.is_empty() {
            return;
        }
        let count = missing.len();
        let files = if count == 1 { "file" } else { "files" };
        let size = match bytes {
            0 => String::new(),
            bytes => format!(", {}", HumanBytes(bytes)),
        };
        self.say(&format!("{what}: {count} {files} to fetch{size}"));
        if let Some(bar) = &self.bar {
            bar.set_length(bytes);
            bar.set_position(0);
            bar.reset_eta();
            // Of what nobody knows the size, there is only a name to show.
            bar.set_style(if bytes == 0 { plain() } else { counting() });
        }
    }

    /// It is being unpacked.
    pub(super) fn unpacking(&self, name: &str) {
        if self.bar.is_some() {
            self.stage(&format!("unpacking {name}"));
        }
    }

    pub(super) fn begin(&self, item: &Item) {
        if let Some(bar) = &self.bar {
            bar.set_message(terminal::line(&item.name));
            bar.tick();
        }
    }

    /// It was fetched.
    pub(super) fn done(&self, item: &Item) {
        match &self.bar {
            Some(bar) => bar.inc(item.size),
            None => {
                let size = match item.size {
                    0 => String::new(),
                    bytes => format!(", {}", HumanBytes(bytes)),
                };
                self.say(&format!("  fetched {}{size}", item.name));
            }
        }
    }

    /// The line goes, so that a message can stand alone.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn plain() -> ProgressStyle {
    ProgressStyle::with_template("{msg:.dim} [{elapsed}]")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn counting() -> ProgressStyle {
    ProgressStyle::with_template(
        "{bytes}/{total_bytes} {bar:20} {binary_bytes_per_sec}, {eta} left  {wide_msg}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// `1m 12s`, `3.4s`.
pub(super) fn spoken(time: Duration) -> String {
    match time.as_secs() {
        0..=59 => format!("{:.1}s", time.as_secs_f64()),
        seconds => format!("{}m {}s", seconds / 60, seconds % 60),
    }
}
