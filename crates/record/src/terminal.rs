//! Text that is safe to print on a terminal.
//!
//! Names, messages and values come from archives, packages and programs. A terminal obeys
//! the control characters in them, and invisible characters that change how others look
//! deceive the reader. Everything that is printed goes through this module.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// The escape for a control character or a deceptive one; `None` for any other character
/// and for a tab.
pub fn escape(character: char) -> Option<String> {
    match character {
        '\t' => None,
        '\n' => Some("\\n".to_owned()),
        '\r' => Some("\\r".to_owned()),
        _ if character.is_control() => Some(format!("\\x{:02x}", u32::from(character))),
        _ if is_deceptive(character) => Some(format!("\\u{{{:x}}}", u32::from(character))),
        _ => None,
    }
}

/// Whether a character is invisible: zero-width joiners and fillers, soft hyphens,
/// direction marks, line separators, variation selectors except the emoji one, byte order
/// marks, tags.
pub fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// One line with such characters escaped.
pub fn line(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match escape(character) {
            Some(escape) => escaped.push_str(&escape),
            None => escaped.push(character),
        }
    }
    escaped
}

/// Several lines with such characters escaped, except the line feeds.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Text for standard output: escaped for a terminal, unchanged otherwise.
pub fn for_stdout(text: String) -> String {
    match io::stdout().is_terminal() {
        true => lines(&text),
        false => text,
    }
}

/// JSON for standard output: the same value, escaped for a terminal.
pub fn json_for_stdout(json: String) -> String {
    match io::stdout().is_terminal() {
        true => json_text(&json),
        false => json,
    }
}

/// Writes JSON, for a terminal with `\u` escapes, which keep its value: outside strings
/// JSON has no character that needs one.
pub struct Json<W> {
    to: W,
    is_terminal: bool,
    /// The first bytes of an incomplete character.
    rest: Vec<u8>,
}

impl<W: Write> Json<W> {
    /// Writes to `to`; for a terminal, with control characters escaped.
    pub fn new(to: W, is_terminal: bool) -> Self {
        Self {
            to,
            is_terminal,
            rest: Vec::new(),
        }
    }
}

impl<W: Write> Write for Json<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.to.write(bytes);
        }
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let escaped = json_text(&String::from_utf8_lossy(&self.rest[..whole]));
        self.rest.drain(..whole);
        self.to.write_all(escaped.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn json_text(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        let is_layout = matches!(character, '\n' | '\t' | '\r');
        if is_layout || escape(character).is_none() {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One of each kind.
    const HOSTILE: &str = "\x1b[2J\x07\x7f\u{9b}\u{ad}\u{200b}\u{200d}\u{202a}\u{202e}\u{2066}\
                           \u{2069}\u{2028}\u{2029}\u{feff}\u{e0041}\u{e0101}\u{fe01}\u{3164}\r";

    fn is_safe(text: &str) -> bool {
        !text
            .chars()
            .any(|c| (c.is_control() && c != '\n' && c != '\t') || is_deceptive(c))
    }

    #[test]
    fn nothing_of_each_kind_passes() {
        assert!(!is_safe(HOSTILE), "live");
        assert!(is_safe(&line(HOSTILE)));
        assert_eq!(lines("a\x1b\nb\u{202e}"), "a\\x1b\nb\\u{202e}");
        assert_eq!(line("a\nb"), "a\\nb");
        assert_eq!(line("é 漢字 👍️ \t"), "é 漢字 👍️ \t");
    }

    proptest! {
        #[test]
        fn json_stays_the_same_value(text in any::<String>(), cut in 1_usize..9) {
            let value = serde_json::json!({ HOSTILE: text + HOSTILE });
            let json = serde_json::to_vec_pretty(&value).unwrap();
            let mut shown = Json::new(Vec::new(), true);
            for piece in json.chunks(cut) {
                shown.write_all(piece).unwrap();
            }
            let shown = String::from_utf8(shown.to).unwrap();
            prop_assert!(is_safe(&shown));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
            let mut plain = Json::new(Vec::new(), false);
            plain.write_all(&json).unwrap();
            prop_assert_eq!(plain.to, json);
        }
    }
}
