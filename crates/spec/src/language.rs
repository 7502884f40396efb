//! Which language a piece of code is in.

use std::path::Path;

use super::partial::Partial;
use super::read::{did_you_mean, listed};
use languages::{self, Driver};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

/// The language with this name or alias.
///
/// # Errors
/// It is unknown; the error lists the known ones.
pub fn find(name: &str) -> Result<&'static Driver> {
    languages::find(name).ok_or_else(|| {
        let near = suggestion(name);
        let message = format!("unknown language `{name}`{near}");
        let error = SetupError::new(Step::Spec, message).on("language");
        error.hint(known())
    })
}

/// The language of `what`'s code: the one that is `named`, or else the one of the
/// extension of the code's file, or else the one of its `#!` line. Code that has neither,
/// because it was given as text, is Python.
///
/// # Errors
/// The language is unknown, or nothing shows it; the error lists the known ones.
pub(super) fn choose(named: Option<&str>, what: &Partial) -> Result<&'static Driver> {
    if let Some(name) = named {
        return find(name);
    }
    let file = what.code_path();
    let extension = file.and_then(Path::extension).and_then(|e| e.to_str());
    if let Some(driver) = extension.and_then(with_extension) {
        return Ok(driver);
    }
    let code = what.code.as_ref().map(RawText::as_bytes);
    let interpreter = code.and_then(interpreter);
    if let Some(interpreter) = &interpreter {
        let bare = interpreter.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if let Some(driver) = languages::find(interpreter).or_else(|| languages::find(bare)) {
            return Ok(driver);
        }
    }
    let is_text = file.is_none() && what.code_from.is_none();
    if is_text && !code.is_some_and(|code| code.starts_with(b"#!")) {
        return find(languages::USUAL);
    }
    let why = match (extension, interpreter) {
        (_, Some(interpreter)) => {
            let near = suggestion(&interpreter);
            format!("no language here has the interpreter `{interpreter}`{near}")
        }
        (Some(extension), None) => format!("no language here has files with `.{extension}`"),
        (None, None) => "neither a file name nor a `#!` line shows the language".to_owned(),
    };
    Err(SetupError::new(Step::Spec, why)
        .on("language")
        .hint(format!("name it with --lang; {}", known())))
}

fn with_extension(extension: &str) -> Option<&'static Driver> {
    let is_it = |known: &&str| known.eq_ignore_ascii_case(extension);
    let mut drivers = languages::TABLE.iter().copied();
    drivers.find(|driver| driver.extensions.iter().any(is_it))
}

fn known() -> String {
    let names = languages::TABLE.iter().map(|driver| driver.name);
    format!("languages here: {}", listed(names))
}

fn suggestion(name: &str) -> String {
    did_you_mean(
        name,
        languages::TABLE.iter().flat_map(|driver| driver.names()),
    )
}

/// The interpreter of a `#!` line: `python3` in `#!/usr/bin/env -S python3 -I`.
fn interpreter(code: &[u8]) -> Option<String> {
    let line = code.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace().map(base_name);
    let program = words.next()?;
    let program = if program == "env" {
        // `-S` may stand by itself or before what it splits (env(1)).
        words
            .map(|word| word.strip_prefix("-S").unwrap_or(word))
            .find(|word| !word.is_empty() && !word.starts_with('-') && !word.contains('='))?
    } else {
        program
    };
    Some(program.to_owned())
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
