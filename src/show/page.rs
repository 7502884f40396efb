//! Text for a terminal, out of parts that may be hostile.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd as _;

use record::terminal::{escape, lines};
use sys::terminal::Size;

/// Characters of one line that are shown.
const WIDEST: usize = 2000;
/// The most and the fewest columns of prose.
const COLUMNS: usize = 80;
const FEWEST_COLUMNS: usize = 30;
/// Characters of one cell of a table that are shown.
const WIDEST_CELL: usize = 60;

/// How a page is meant to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    is_coloured: bool,
    /// Columns of prose.
    columns: usize,
}

impl Style {
    /// Text alone.
    pub const PLAIN: Self = Self {
        is_coloured: false,
        columns: COLUMNS,
    };
    /// Text with colours.
    pub const COLOURED: Self = Self {
        is_coloured: true,
        ..Self::PLAIN
    };

    /// Coloured when stdout is a terminal that takes colours and `NO_COLOR` is
    /// not set (no-color.org); prose fits into a narrow one.
    pub fn of_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let width = Size::of(io::stdout().as_fd()).map_or(0, |size| usize::from(size.columns()));
        let columns = match width {
            // It reports none.
            0 => COLUMNS,
            _ => width.clamp(FEWEST_COLUMNS, COLUMNS),
        };
        Self {
            columns,
            is_coloured: io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb,
        }
    }
}

/// What a part of the text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Faint,
    Heading,
    Good,
    Caution,
    Bad,
}

impl Tone {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Faint => Some("2"),
            Self::Heading => Some("1"),
            Self::Good => Some("1;32"),
            Self::Caution => Some("33"),
            Self::Bad => Some("1;31"),
        }
    }
}

/// A page in the making. The only control characters in it are line ends, tabs
/// and, with colours, the sequences of [`Tone`]; others are shown as escapes.
pub(super) struct Page {
    style: Style,
    text: String,
}

impl Page {
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            text: String::new(),
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Adds to the line; line ends in `text` are shown as escapes.
    pub(super) fn put(&mut self, tone: Tone, text: &str) {
        let code = tone.code().filter(|_| self.style.is_coloured);
        if let Some(code) = code {
            let _ = write!(self.text, "\x1b[{code}m");
        }
        self.push_shortened(text, WIDEST);
        if code.is_some() {
            self.text.push_str("\x1b[0m");
        }
    }

    /// Appends a text to the line, of which `used` columns are taken, and ends the line. Longer
    /// text goes on below, after `indent` blanks. Words are not broken, and neither is text between
    /// backticks, which readers copy.
    pub(super) fn prose(&mut self, used: usize, indent: usize, text: &str) {
        let mut shown = Self::new(Style::PLAIN);
        shown.push_shortened(text, WIDEST);
        let mut column = used;
        for (index, word) in unbroken(&shown.text).into_iter().enumerate() {
            let width = word.chars().count();
            match index {
                0 => {}
                _ if column + 1 + width <= self.style.columns => {
                    self.text.push(' ');
                    column += 1;
                }
                _ => {
                    self.end_line();
                    self.text.extend(std::iter::repeat_n(' ', indent));
                    column = indent;
                }
            }
            self.text.push_str(word);
            column += width;
        }
        self.end_line();
    }

    /// Appends a piece of a stream, its line ends as they are.
    pub(super) fn text(&mut self, text: &str) {
        self.text.push_str(&lines(text));
    }

    pub(super) fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// An empty line and a title.
    pub(super) fn heading(&mut self, title: &str) {
        self.end_line();
        self.put(Tone::Heading, title);
        self.end_line();
    }

    /// Lines of text: all of it, or `most` lines, the last of them from the
    /// text's end, and none of them very long.
    pub(super) fn block(&mut self, indent: &str, text: &str, most: Option<usize>) {
        if text.is_empty() {
            return;
        }
        let widest = most.map_or(usize::MAX, |_| WIDEST);
        let most = most.unwrap_or(usize::MAX);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let count = text.split('\n').count();
        let last = most / 4;
        let left_out = match count > most {
            true => most - last..count - last,
            false => count..count,
        };
        for (index, line) in text.split('\n').enumerate() {
            if index == left_out.start {
                let note = format!("{indent}… {} more lines …", left_out.len());
                self.put(Tone::Faint, &note);
                self.end_line();
            }
            if !left_out.contains(&index) {
                self.text.push_str(indent);
                self.push_shortened(line.strip_suffix('\r').unwrap_or(line), widest);
                self.end_line();
            }
        }
    }

    /// Names and values, a line each; without a value, no line.
    pub(super) fn pairs(&mut self, pairs: &[(&str, String)]) {
        let shown = || pairs.iter().filter(|(_, value)| !value.is_empty());
        let width = shown().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in shown() {
            self.put(Tone::Faint, &format!("  {name:width$}  "));
            self.prose(width + 4, width + 4, value);
        }
    }

    /// A table under a heading, its columns aligned; without rows, nothing.
    pub(super) fn table(&mut self, title: &str, header: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        self.heading(title);
        self.grid(header, rows);
    }

    /// Rows whose columns are aligned.
    pub(super) fn grid(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let escape = |cell: &str| {
            let mut page = Self::new(Style::PLAIN);
            if page.push_escaped(cell, WIDEST_CELL) > 0 {
                page.text.push('…');
            }
            page.text
        };
        let header: Vec<String> = header.iter().map(|cell| escape(cell)).collect();
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| escape(cell)).collect())
            .collect();
        let mut widths = Vec::new();
        for row in rows.iter().chain([&header]) {
            widths.resize(row.len().max(widths.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut line = |tone, row: &[String]| {
            let mut text = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "  {cell:width$}");
            }
            if !text.trim_end().is_empty() {
                self.put(tone, text.trim_end());
                self.end_line();
            }
        };
        line(Tone::Faint, &header);
        for row in &rows {
            line(Tone::Plain, row);
        }
    }

    fn push_shortened(&mut self, text: &str, most: usize) {
        let more = self.push_escaped(text, most);
        if more > 0 {
            let _ = write!(self.text, "… {more} more characters");
        }
    }

    /// Adds up to `most` characters, those a terminal would obey as escapes;
    /// returns how many more there are.
    fn push_escaped(&mut self, text: &str, most: usize) -> usize {
        let mut characters = text.chars();
        for character in characters.by_ref().take(most) {
            match escape(character) {
                Some(escape) => self.text.push_str(&escape),
                None => self.text.push(character),
            }
        }
        characters.count()
    }
}

/// The words of a text; text between backticks is one word.
fn unbroken(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut is_quoted) = (0, false);
    for (index, character) in text.char_indices() {
        match character {
            '`' => is_quoted = !is_quoted,
            ' ' if !is_quoted => {
                words.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use record::terminal::is_deceptive;

    fn page(build: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::new(Style::PLAIN);
        build(&mut page);
        page.into_text()
    }

    #[test]
    fn a_terminal_is_told_nothing() {
        let text = page(|page| page.put(Tone::Bad, "\x1b]0;title\x07\u{9b}2J\u{202e}\r\n\0é\t"));
        assert_eq!(text, "\\x1b]0;title\\x07\\x9b2J\\u{202e}\\r\\n\\x00é\t");
    }

    #[test]
    fn only_tones_make_colours() {
        let mut page = Page::new(Style::COLOURED);
        page.put(Tone::Good, "ok\x1b[31m");
        assert_eq!(page.into_text(), "\x1b[1;32mok\\x1b[31m\x1b[0m");
    }

    #[test]
    fn long_blocks_lose_their_middle() {
        let lines: String = (1..=100).map(|n| format!("{n}\n")).collect();
        assert_eq!(
            page(|page| page.block("  ", &lines, Some(8))),
            "  1\n  2\n  3\n  4\n  5\n  6\n  … 92 more lines …\n  99\n  100\n"
        );
        assert_eq!(
            page(|page| page.block("", "a\r\nb\n\n", Some(8))),
            "a\nb\n\n"
        );
        assert_eq!(page(|page| page.block("", &lines, Some(100))), lines);
    }

    #[test]
    fn prose_ends_at_the_last_column_and_leaves_commands_whole() {
        let words = "word ".repeat(20);
        let text = page(|page| page.prose(0, 2, words.trim_end()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                words[..79].to_owned(),
                format!("  {}", words[80..].trim_end())
            ]
        );
        let command = format!("`{}`", words.trim_end());
        let text = page(|page| page.prose(0, 2, &format!("try {command}, or {command}")));
        assert_eq!(text, format!("try\n  {command},\n  or\n  {command}\n"));
    }

    #[test]
    fn only_short_blocks_have_short_lines() {
        let line = "x".repeat(WIDEST + 1);
        let cut = format!("{}… 1 more characters\n", "x".repeat(WIDEST));
        assert_eq!(page(|page| page.block("", &line, Some(1))), cut);
        assert_eq!(
            page(|page| page.block("", &line, None)),
            line.clone() + "\n"
        );
    }

    #[test]
    fn tables_are_aligned_by_what_is_shown() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            page(|page| page.table(
                "t",
                &["", "head"],
                &[row(["é", "\x1b", "x"]), row(["long", "", "y"])]
            )),
            "\nt\n        head\n  é     \\x1b  x\n  long        y\n"
        );
        assert_eq!(page(|page| page.table("t", &["head"], &[])), "");
        let long = "x".repeat(WIDEST_CELL + 1);
        assert_eq!(
            page(|page| page.table("t", &[], &[row([&long, "y", ""])])),
            format!("\nt\n  {}…  y\n", "x".repeat(WIDEST_CELL))
        );
    }

    proptest! {
        #[test]
        fn no_control_character_passes(text in any::<String>(), raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = text + &String::from_utf8_lossy(&raw);
            let shown = page(|page| {
                page.put(Tone::Bad, &text);
                page.block("  ", &text, Some(3));
                page.pairs(&[("name", text.clone())]);
                page.prose(0, 2, &text);
                page.text(&text);
                page.table(&text, &[&text], &[vec![text.clone()]]);
            });
            prop_assert!(!shown.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || is_deceptive(c)));
        }
    }
}
