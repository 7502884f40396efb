//! HTML in the making. What the program says is a `'static` literal; everything
//! else goes through [`Markup::text`] or [`Markup::attribute`], which escape it.

use std::fmt::Write as _;

use record::terminal::escape;

/// A part of a page.
#[derive(Default)]
pub(super) struct Markup(String);

impl Markup {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// HTML as it stands.
    pub(super) fn raw(&mut self, html: &'static str) {
        self.0.push_str(html);
    }

    /// Text. Characters that are not seen, or that change how others are, are
    /// shown as escapes.
    pub(super) fn text(&mut self, text: &str) {
        for character in text.chars() {
            match (character, escape(character)) {
                ('\n', _) => self.0.push('\n'),
                (_, Some(escape)) => {
                    self.raw("<i class=\"escape\">");
                    self.0.push_str(&escape);
                    self.raw("</i>");
                }
                _ => self.push_escaped(character),
            }
        }
    }

    /// An attribute in a tag that is still open. The browser gets the very
    /// value, but for NUL, which no document may hold, and for U+0080 to U+009F,
    /// whose references mean other characters.
    pub(super) fn attribute(&mut self, name: &'static str, value: &str) {
        self.0.push(' ');
        self.0.push_str(name);
        self.0.push_str("=\"");
        for character in value.chars() {
            match character {
                '\0' => self.0.push(char::REPLACEMENT_CHARACTER),
                '\u{80}'..='\u{9f}' => self.0.push(char::REPLACEMENT_CHARACTER),
                '\n' => self.0.push('\n'),
                // The document itself may be shown on a terminal.
                _ if escape(character).is_some() => {
                    let _ = write!(self.0, "&#{};", u32::from(character));
                }
                _ => self.push_escaped(character),
            }
        }
        self.0.push('"');
    }

    fn push_escaped(&mut self, character: char) {
        match character {
            '&' => self.0.push_str("&amp;"),
            '<' => self.0.push_str("&lt;"),
            '>' => self.0.push_str("&gt;"),
            '"' => self.0.push_str("&quot;"),
            '\'' => self.0.push_str("&#39;"),
            _ => self.0.push(character),
        }
    }

    /// `text` between two tags.
    pub(super) fn element(&mut self, open: &'static str, text: &str, close: &'static str) {
        self.raw(open);
        self.text(text);
        self.raw(close);
    }

    /// A text whose lines and spaces count, in a box that scrolls.
    pub(super) fn block(&mut self, label: &str, text: &str) {
        self.raw("<pre tabindex=\"0\" role=\"region\"");
        self.attribute("aria-label", label);
        // The parser drops one line end behind the tag.
        self.element(">\n", text, "</pre>\n");
    }

    /// A table in a box that scrolls sideways; the first cell of each row is its
    /// heading. Without rows, nothing.
    pub(super) fn table(&mut self, label: &str, header: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        self.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
        self.attribute("aria-label", label);
        self.raw("><table>\n");
        let numbers: Vec<bool> = (0..header.len()).map(|at| are_numbers(rows, at)).collect();
        let is_number = |at: usize| numbers.get(at) == Some(&true);
        if header.iter().any(|name| !name.is_empty()) {
            self.raw("<thead><tr>");
            for (index, name) in header.iter().enumerate() {
                match is_number(index) {
                    true => self.element("<th scope=\"col\" class=\"number\">", name, "</th>"),
                    false => self.element("<th scope=\"col\">", name, "</th>"),
                }
            }
            self.raw("</tr></thead>\n");
        }
        self.raw("<tbody>\n");
        for row in rows {
            self.raw("<tr>");
            for (index, cell) in row.iter().enumerate() {
                match index {
                    0 => self.element("<th scope=\"row\">", cell, "</th>"),
                    _ if is_number(index) => self.element("<td class=\"number\">", cell, "</td>"),
                    _ => self.element("<td>", cell, "</td>"),
                }
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
    }

    /// Names and values; without a value, no line.
    pub(super) fn pairs(&mut self, pairs: &[(&'static str, String)]) {
        self.raw("<dl>\n");
        for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
            self.element("<div><dt>", name, "</dt>");
            self.element("<dd>", value, "</dd></div>\n");
        }
        self.raw("</dl>\n");
    }
}

/// Whether a column holds numbers and nothing else. The first one is headings.
fn are_numbers(rows: &[Vec<String>], column: usize) -> bool {
    let cells = || {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.filter(|cell| !cell.is_empty())
    };
    column > 0 && cells().next().is_some() && cells().all(|cell| cell.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn markup(build: impl FnOnce(&mut Markup)) -> String {
        let mut markup = Markup::default();
        build(&mut markup);
        markup.into_text()
    }

    #[test]
    fn text_is_only_text() {
        let html = markup(|m| m.text("</pre><script>alert(\"1\")</script>&amp;'\n\t\0\u{202e}"));
        assert_eq!(
            html,
            "&lt;/pre&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;amp;&#39;\n\t\
             <i class=\"escape\">\\x00</i><i class=\"escape\">\\u{202e}</i>"
        );
    }

    #[test]
    fn an_attribute_stays_in_its_quotes() {
        let html = markup(|m| m.attribute("srcdoc", "\"><img onerror='x'>\0\r\n"));
        assert_eq!(
            html,
            " srcdoc=\"&quot;&gt;&lt;img onerror=&#39;x&#39;&gt;\u{fffd}&#13;\n\""
        );
    }

    #[test]
    fn columns_of_numbers_are_told_apart() {
        let rows = [
            ["1", "2", "-3.5", ""],
            ["2", "x", "", ""],
            ["3", "4", "1e9", ""],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let numbers = (0..5).map(|column| are_numbers(&rows, column));
        assert!(numbers.eq([false, false, true, false, false]));
    }

    proptest! {
        #[test]
        fn nothing_opens_a_tag_or_leaves_an_attribute(text in any::<String>()) {
            let text = format!("{text}<a>{text}\"{text}'");
            let shown = markup(|m| m.text(&text));
            let shown = shown.replace("<i class=\"escape\">", "").replace("</i>", "");
            prop_assert!(!shown.contains(['<', '>', '"', '\'', '\0', '\r']));
            let shown = markup(|m| m.attribute("a", &text));
            prop_assert_eq!(shown.matches('"').count(), 2);
            prop_assert!(!shown.contains(['<', '>', '\'', '\0', '\r']));
        }
    }
}
