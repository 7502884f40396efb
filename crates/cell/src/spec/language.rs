//! Which language a piece of code is in.

use std::path::Path;

use super::partial::Partial;
use super::read::{did_you_mean, listed};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

/// How to recognise a language.
#[derive(Clone, Copy, Debug)]
pub struct Language<'a> {
    /// The driver's name, such as `python`.
    pub name: &'a str,
    /// Other names, also those of interpreters in a `#!` line.
    pub aliases: &'a [&'a str],
    /// Endings of file names, without the dot.
    pub extensions: &'a [&'a str],
    /// The profile that serves it when the caller names none.
    pub profile: &'a str,
}

impl Language<'_> {
    fn is_called(&self, name: &str) -> bool {
        std::iter::once(&self.name)
            .chain(self.aliases)
            .any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The language of `what`'s code: the one that is named, or else by the ending
/// of the code's file, or else by its `#!` line.
///
/// # Errors
/// The language is unknown or cannot be recognised; the error lists the known ones.
pub fn choose<'a>(
    named: Option<&str>,
    what: &Partial,
    known: &'a [Language<'a>],
) -> Result<&'a Language<'a>> {
    let hint = || format!("languages here: {}", listed(known.iter().map(|l| l.name)));
    let names = || {
        let of = |l: &Language<'a>| std::iter::once(l.name).chain(l.aliases.iter().copied());
        known.iter().flat_map(of)
    };
    if let Some(name) = named {
        return known.iter().find(|l| l.is_called(name)).ok_or_else(|| {
            let near = did_you_mean(name, names());
            SetupError::new(Step::Spec, format!("unknown language `{name}`{near}"))
                .on("language")
                .hint(hint())
        });
    }
    let ending = what
        .code_path()
        .and_then(Path::extension)
        .and_then(|e| e.to_str());
    if let Some(ending) = ending {
        let is_its = |known: &&str| known.eq_ignore_ascii_case(ending);
        let language = known.iter().find(|l| l.extensions.iter().any(is_its));
        if let Some(language) = language {
            return Ok(language);
        }
    }
    let code = what.code.as_ref().map(RawText::as_bytes);
    let interpreter = code.and_then(interpreter);
    if let Some(interpreter) = &interpreter {
        let bare = interpreter.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let language = known
            .iter()
            .find(|l| l.is_called(interpreter) || l.is_called(bare));
        if let Some(language) = language {
            return Ok(language);
        }
    }
    let why = match (ending, interpreter) {
        (_, Some(interpreter)) => {
            let near = did_you_mean(&interpreter, names());
            format!("nothing here runs code for `{interpreter}`{near}")
        }
        (Some(ending), None) => format!("nothing here runs files that end in `.{ending}`"),
        (None, None) => "the language of the code is not given and cannot be recognised".to_owned(),
    };
    Err(SetupError::new(Step::Spec, why)
        .on("language")
        .hint(format!("name it with --lang; {}", hint())))
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
