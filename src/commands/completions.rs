//! `cellblock completions`, and the answers that its scripts ask for.
//!
//! A script asks this executable at each press of the key, so it completes names of this
//! host and this version: profiles, prepared root file systems, contexts.

use std::ffi::{OsStr, OsString};
use std::io;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;

use crate::cli::{self, Shell};
use plan::rootfs::Store;
use plan::seccomp;
use spec::profiles;

/// Has the name of a shell when its script asks.
pub(super) const VARIABLE: &str = "CELLBLOCK_COMPLETE";
const NAME: &str = "cellblock";

/// The script for a shell.
///
/// # Errors
/// None in fact: it is written to memory.
pub(super) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(shell.name()) {
        shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    }
    Ok(script)
}

/// What may stand where the cursor is, in the form for the shell; `words` are those of the
/// call, in which a script has put the line's own after `--`.
///
/// # Errors
/// An unknown shell, or no line.
pub(super) fn answer(shell: &OsStr, words: &[OsString]) -> io::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let shell = shell.to_str().and_then(|name| shells.completer(name));
    let line = words.iter().position(|word| word == "--");
    let (Some(shell), Some(line)) = (shell, line) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut command = cli::command();
    // Some options are declared only now.
    command.build();
    let mut command = with_values(command);
    let cwd = std::env::current_dir().ok();
    let mut answer = Vec::new();
    let line = words[line + 1..].to_vec();
    shell.write_complete(&mut command, line, cwd.as_deref(), &mut answer)?;
    Ok(answer)
}

fn with_values(command: Command) -> Command {
    command
        .mut_args(|arg| match values_of(&arg) {
            Some(values) => arg.add(ArgValueCandidates::new(move || {
                values().into_iter().map(CompletionCandidate::new).collect()
            })),
            None => arg,
        })
        .mut_subcommands(with_values)
}

/// Lists the values that an option or an operand may have, where they are names.
fn values_of(arg: &Arg) -> Option<fn() -> Vec<String>> {
    let value = arg.get_value_names().and_then(<[_]>::first)?;
    let is_operand = arg.is_positional();
    Some(match (arg.get_id().as_str(), value.as_str()) {
        ("lang" | "language", _) => languages,
        ("policy", _) => profile_names,
        ("name", "NAME|PATH") => profile_names,
        ("seccomp", _) => seccomp_names,
        ("rootfs", _) => rootfs_choices,
        (_, "NAME") if is_operand => rootfs_names,
        (_, "RECIPE") => recipes,
        (_, "ID") if is_operand => super::context::ids,
        _ => return None,
    })
}

fn languages() -> Vec<String> {
    let drivers = languages::TABLE.iter();
    drivers.map(|driver| driver.name.to_owned()).collect()
}

fn profile_names() -> Vec<String> {
    let built_in = profiles::built_in().into_iter();
    built_in.map(|profile| profile.name.to_owned()).collect()
}

fn seccomp_names() -> Vec<String> {
    let built_in = seccomp::BUILTIN.iter();
    built_in.map(|(name, _)| (*name).to_owned()).collect()
}

fn rootfs_names() -> Vec<String> {
    let names = Store::open(None).map(|store| store.names().into_keys().collect());
    names.unwrap_or_default()
}

fn rootfs_choices() -> Vec<String> {
    let mut names = rootfs_names();
    names.extend(["auto".to_owned(), "host".to_owned()]);
    names
}

fn recipes() -> Vec<String> {
    let all = rootfs_builder::recipes().into_iter();
    all.map(|recipe| recipe.name).collect()
}
