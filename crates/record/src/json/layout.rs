//! JSON with other spaces. Values keep their characters: a number that no type holds keeps
//! all its digits.

/// Levels that are indented; deeper ones are not indented further.
const DEEPEST: usize = 32;

/// Without spaces between values.
pub(super) fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for token in Tokens(json) {
        out.push_str(token);
    }
    out
}

/// A value on each line, indented by its depth.
pub(super) fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(2 * json.len());
    let mut depth = 0_usize;
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth.min(DEEPEST)));
    };
    let mut tokens = Tokens(json).peekable();
    while let Some(token) = tokens.next() {
        let is_closing = |token: &&str| matches!(*token, "]" | "}");
        match token {
            "[" | "{" => {
                out.push_str(token);
                if let Some(end) = tokens.next_if(is_closing) {
                    out.push_str(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            "]" | "}" => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push_str(token);
            }
            "," => {
                out.push_str(token);
                line(&mut out, depth);
            }
            ":" => out.push_str(": "),
            other => out.push_str(other),
        }
    }
    out
}

/// Strings, other values, and the marks between them.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0.trim_ascii_start();
        let length = match text.bytes().next()? {
            b'"' => string(text),
            b'[' | b']' | b'{' | b'}' | b',' | b':' => 1,
            _ => {
                let ends = |c: char| c.is_ascii_whitespace() || "[]{},:\"".contains(c);
                text.find(ends).unwrap_or(text.len())
            }
        };
        let (token, rest) = text.split_at(length);
        self.0 = rest;
        Some(token)
    }
}

/// Bytes of the string that the text begins with, quotes included.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_keep_their_characters() {
        let json =
            r#" { "a\"]" : [ 123456789012345678901234567890 , 1.50, -0e1 ],"b":{ },"c" : [] } "#;
        let compacted = r#"{"a\"]":[123456789012345678901234567890,1.50,-0e1],"b":{},"c":[]}"#;
        assert_eq!(compact(json), compacted);
        let lines = r#"{
  "a\"]": [
    123456789012345678901234567890,
    1.50,
    -0e1
  ],
  "b": {},
  "c": []
}"#;
        assert_eq!(pretty(json), lines);
        assert!(pretty(&"[".repeat(10_000)).len() < 1 << 20);
    }

    proptest! {
        /// What is no JSON does no harm either.
        #[test]
        fn any_text_can_be_laid_out(text in "[\\[\\]{},:\"\\\\ a1€]{0,40}") {
            prop_assert_eq!(compact(&compact(&text)), compact(&text));
            pretty(&text);
        }
    }
}
