//! What is printed: names in it come from archives and packages, and a terminal
//! must not obey them.

use std::io::{self, Write as _};

use serde::Serialize;

use record::error::{Result, SetupError, Step};
use record::terminal::{self, line as escaped};

/// Rows in columns; the last column is as wide as it is.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.each_ref().map(|c| escaped(c)))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let line = cells.fold(String::new(), |line, (cell, width)| {
            line + &format!("{cell:width$}  ")
        });
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn eprint_line(line: &str) {
    let _ = writeln!(io::stderr(), "{}", escaped(line));
}

/// Prints lines.
pub(super) fn print(text: &str) -> Result<u8> {
    let lines: String = text.lines().map(|line| escaped(line) + "\n").collect();
    write(&mut io::stdout(), &lines)
}

/// Prints JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<u8> {
    let text = serde_json::to_string_pretty(value).map_err(|e| {
        SetupError::new(Step::Outputs, format!("the answer does not serialise: {e}"))
    })?;
    write(&mut terminal::Json::stdout(), &(text + "\n"))
}

fn write(to: &mut dyn io::Write, text: &str) -> Result<u8> {
    to.write_all(text.as_bytes())
        .and_then(|()| to.flush())
        .map_err(|e| SetupError::io(Step::Outputs, "write", &e).on("standard output"))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let text = table(&[row("a", "x"), row("long", "\x1b[2J"), row("", "")]);
        assert_eq!(text, "a     x\nlong  \\x1b[2J\n\n");
    }
}
