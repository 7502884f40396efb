//! Text to [`Partial`], with errors that name the field.

use std::fmt::Display;

use serde::Deserialize as _;
use serde::de::DeserializeOwned;

use super::node::{Node, Problem, Step as PathStep};
use super::partial::Partial;
use record::error::{Result, SetupError, Step};

/// How a spec file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// JSON.
    Json,
}

impl Format {
    /// The format of `text` in a file called `name`: by its ending, or else by
    /// its first character, since no TOML document starts with a brace.
    pub fn of(name: &str, text: &str) -> Self {
        let has_brace = text.trim_start().starts_with('{');
        match name.ends_with(".json") || (has_brace && !name.ends_with(".toml")) {
            true => Self::Json,
            false => Self::Toml,
        }
    }
}

/// The most problems of one file that are reported at once.
const MANY: usize = 50;

/// Reads a document. Pure: nothing on the host is looked at.
///
/// # Errors
/// The first problem, with its field (`limits.memory`) or its place
/// (`line 3, column 7`) as operand.
pub fn parse<T: DeserializeOwned>(text: &str, format: Format) -> Result<T> {
    T::deserialize(document(text, format)?).map_err(Problem::into_error)
}

/// Reads a file and names all its problems, not only the first. What is wrong
/// is missing from the result.
pub fn parse_all(text: &str, format: Format) -> (Partial, Vec<SetupError>) {
    let mut node = match document(text, format) {
        Ok(node) => node,
        Err(error) => return (Partial::default(), vec![error]),
    };
    let mut problems = Vec::new();
    loop {
        match Partial::deserialize(node.clone()) {
            Ok(partial) => return (partial, problems),
            Err(problem) => {
                let removed = node.remove(&problem.path());
                problems.push(problem.into_error());
                if !removed || problems.len() == MANY {
                    return (Partial::default(), problems);
                }
            }
        }
    }
}

fn document(text: &str, format: Format) -> Result<Node> {
    match format {
        Format::Toml => toml::from_str(text).map_err(|error| {
            let at = error.span().map(|span| position(text, span.start));
            syntax("TOML", error.message(), at)
        }),
        Format::Json => serde_json::from_str(text).map_err(|error| {
            let at = (error.line(), error.column());
            let message = error.to_string();
            let place = format!(" at line {} column {}", at.0, at.1);
            syntax(
                "JSON",
                message.strip_suffix(&place).unwrap_or(&message),
                Some(at),
            )
        }),
    }
}

fn syntax(language: &str, message: &str, at: Option<(usize, usize)>) -> SetupError {
    let message = message.replace('\n', ", ");
    let error = SetupError::new(Step::Spec, format!("not valid {language}: {message}"));
    match at {
        Some((line, column)) => error.on(format!("line {line}, column {column}")),
        None => error,
    }
}

/// Line and column of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

impl Problem {
    fn into_error(self) -> SetupError {
        let path = dotted(&self.path());
        let mut error = SetupError::new(Step::Spec, self.message);
        error.hint = self.hint;
        if path.is_empty() {
            error
        } else {
            error.on(path)
        }
    }
}

/// `limits.memory`, `binds[0].target`, `env."odd name"`.
fn dotted(path: &[PathStep]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Index(index) => text.push_str(&format!("[{index}]")),
            PathStep::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&quoted_key(key));
            }
        }
    }
    text
}

/// A key as it is written in a file: bare where TOML allows that.
pub fn quoted_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}

/// `; did you mean `x`?` when one of the known names is near.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = known
        .into_iter()
        .filter_map(|candidate| Some((slip(name, candidate)?, candidate)))
        .min_by_key(|(slip, _)| *slip);
    match nearest {
        Some((_, candidate)) => format!("; did you mean `{candidate}`?"),
        None => String::new(),
    }
}

/// How many letters are wrong, missing, too many or swapped in `name`, where it is `known` but for a slip: up to a
/// third of its letters, or its end.
pub fn slip(name: &str, known: &str) -> Option<usize> {
    let length = name.chars().count();
    let distance = strsim::osa_distance(name, known);
    let is_slip = distance <= (length / 3).max(1) && distance < length;
    let is_beginning = length >= 3 && known.starts_with(name);
    (is_slip || is_beginning).then_some(distance)
}

/// `a, b, c`.
pub fn listed<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slip_is_taken_for_another_name() {
        for (name, known, slips) in [
            ("memroy", "memory", Some(1)),
            ("pyhton", "python", Some(1)),
            ("wal", "wall", Some(1)),
            ("mem", "memory", Some(3)),
            ("frob", "ro", None),
            ("x", "ro", None),
            ("verbose", "store", None),
            ("jsn", "json", Some(1)),
        ] {
            assert_eq!(slip(name, known), slips, "{name}");
        }
        let known = ["ro", "rw", "memory"];
        assert_eq!(did_you_mean("memoyr", known), "; did you mean `memory`?");
        assert_eq!(did_you_mean("frob", known), "");
    }
}
