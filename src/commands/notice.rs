//! Words to a person at a terminal that are no errors.
//!
//! That a limit is best effort on this host is said once: `cellblock/best-effort` below `$XDG_STATE_HOME` or `~/.local/state` remembers that it was said.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, IsTerminal as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::is_quiet;
use super::run::print_if_there_is_room;
use crate::show;
use record::Record;
use spec::{Command, Spec, Stdio};

/// Says on a terminal which limits of `record` are best effort, if it was not said to this user before.
pub(super) fn best_effort(record: &Record) {
    if is_quiet() || !io::stderr().is_terminal() {
        return;
    }
    if let Some(words) = show::best_effort(record)
        && is_first(directory().as_deref())
    {
        print_if_there_is_room(&format!("cellblock: {words}\n"));
    }
}

/// Programs that a person sits before, when they have no arguments.
const INTERACTIVE: [&str; 14] = [
    "bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh", "python", "python3", "node", "R",
    "irb", "htop",
];

/// Says that a shell, and others that a person sits before, want a terminal of their own.
pub(super) fn terminal(spec: &Spec) {
    if let (Command::Exec { argv, .. }, Stdio::Inherit) = (&spec.command, spec.stdio)
        && let [program] = &**argv
    {
        without_terminal(&program.to_lossy());
    }
}

/// The same of a program that is started with nothing but its name, and without `--tty`.
pub(super) fn without_terminal(program: &str) {
    if is_quiet() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return;
    }
    let name = program.rsplit('/').next().unwrap_or_default();
    if INTERACTIVE.contains(&name) {
        print_if_there_is_room(&format!(
            "cellblock: {name} has no terminal of its own, so no job control, and Ctrl-C ends all: \
             `--tty` gives it one\n"
        ));
    }
}

fn directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("cellblock"))
}

/// Notes that it is said. Where nothing can be noted, it is the first time again.
fn is_first(directory: Option<&Path>) -> bool {
    let Some(directory) = directory else {
        return true;
    };
    let _ = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    let made = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(directory.join("best-effort"));
    made.err()
        .is_none_or(|error| error.kind() != ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_where_that_can_be_noted() {
        let top = tempfile::tempdir().unwrap();
        let state = top.path().join("state/cellblock");
        assert!(is_first(Some(&state)));
        assert!(!is_first(Some(&state)));
        assert!(is_first(Some(Path::new("/proc/nowhere"))));
        assert!(is_first(None));
    }
}
