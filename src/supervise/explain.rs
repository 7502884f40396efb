//! The words of the record's `context`, for whoever wrote the code.

use std::borrow::Cow;

use nix::sys::signal::Signal;

use super::verdict::{Exhausted, FullTmpfs, Place};
use super::{category, modules};
use crate::record::{Category, CodeError, Denied};

/// What went wrong with an exception of this category.
pub(super) fn exception_context(
    error: &CodeError,
    category: Category,
    place: &Place<'_>,
) -> String {
    let advice = match category {
        Category::Syntax => "the code does not parse; correct it there",
        Category::Name => {
            "it uses a name or attribute that does not exist; define it, or correct its spelling"
        }
        Category::Import => &import_advice(error, place),
        Category::Type => "a value has the wrong type there",
        Category::Value => "a value, key or index is not what that operation takes",
        Category::File => {
            "a file is missing or not of the right kind; relative paths start in the working directory, and only files that were passed in exist"
        }
        Category::Permission => "the cell forbids that; write only below /workspace or /tmp",
        Category::Network if category::network_answered(error) => {
            "nobody listens there, or the connection was cut"
        }
        Category::Network if place.has_network => "the network does not reach that",
        Category::Network => "the cell has no network; pass data in as files",
        Category::Timeout => "something took longer than the code itself allows it",
        _ => "the traceback shows where",
    };
    let line = error
        .line
        .map_or_else(String::new, |line| format!(" on line {line}"));
    format!(
        "the code raised {}{line}: {advice}",
        shown_class(&error.name)
    )
}

fn import_advice(error: &CodeError, place: &Place<'_>) -> String {
    if error.message.starts_with("cannot import name ") {
        return "the module that is there has no such name; correct its spelling, or do as that version wants".to_owned();
    }
    modules::advice(&error.message, place)
        .unwrap_or_else(|| "a module is missing; use one that the rootfs has".to_owned())
}

/// An exception's class as a part of a sentence. It comes from the cell: it can
/// be of any length and hold anything.
fn shown_class(name: &str) -> String {
    let shown: String = name
        .chars()
        .filter(|c| c.is_alphanumeric() || "_.$:-".contains(*c))
        .take(80)
        .collect();
    match shown.as_str() {
        "" => "an exception".to_owned(),
        _ => shown,
    }
}

/// What the policy denied, as the end of a sentence.
pub(super) fn denials(denied: &[Denied]) -> String {
    const NAMED: usize = 5;
    if denied.is_empty() {
        return String::new();
    }
    let mut names: Vec<String> = denied
        .iter()
        .take(NAMED)
        .map(|denied| match denied.count {
            0 | 1 => denied.name.clone(),
            count => format!("{} ({count} times)", denied.name),
        })
        .collect();
    if denied.len() > NAMED {
        names.push(format!("{} more", denied.len() - NAMED));
    }
    format!("; the policy denied {}", names.join(", "))
}

/// A signal as people write it.
pub(super) fn signal_name(signal: i32) -> Cow<'static, str> {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().into(),
        Err(_) => format!("signal {signal}").into(),
    }
}

/// What a signal usually means, as the end of a sentence.
pub(super) fn signal_meaning(signal: i32) -> &'static str {
    match Signal::try_from(signal) {
        Ok(Signal::SIGSEGV) => ": it used memory that is not its own, or overflowed its stack",
        Ok(Signal::SIGBUS) => ": it used a mapped page that has nothing behind it",
        Ok(Signal::SIGABRT) => ": it gave up by itself; stderr may say why",
        Ok(Signal::SIGFPE) => ": it divided by zero or overflowed an integer",
        Ok(Signal::SIGILL) => ": it ran an instruction that this CPU does not have",
        Ok(Signal::SIGPIPE) => ": it wrote to a pipe that nobody reads",
        _ => "",
    }
}

/// What shells mean by a status, as the end of a sentence.
pub(super) fn status_meaning(status: u8) -> String {
    match status {
        126 => ", which from a shell means a command that cannot be executed".to_owned(),
        127 => ", which from a shell means a command that was not found".to_owned(),
        129.. => match Signal::try_from(i32::from(status) - 128) {
            Ok(signal) => format!(
                ", which from a shell means a command that {} ended",
                signal.as_str()
            ),
            Err(_) => String::new(),
        },
        _ => String::new(),
    }
}

/// Which tmpfs are full of what.
pub(super) fn full_context(full: &[FullTmpfs]) -> String {
    let full: Vec<String> = full
        .iter()
        .map(|tmpfs| match tmpfs.exhausted {
            Exhausted::Space(size) => format!("{} is full ({size})", tmpfs.name),
            Exhausted::Inodes(count) => {
                format!("{} holds as many files as it can ({count})", tmpfs.name)
            }
        })
        .collect();
    full.join(" and ")
}
