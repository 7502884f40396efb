//! Text, base64 and JSON, made of a cell's bytes as they come.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::json::Checker;
use record::json::length_in_json;

/// Shows bytes as text. A lone surrogate becomes its escape, `\ud800`, which is how
/// Python shows it; any other byte that is not UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Shown {
    text: String,
    /// The start of a character, at most three bytes.
    held: Vec<u8>,
    /// Bytes of the text in JSON, without its quotes.
    in_json: usize,
    /// Something was escaped or replaced.
    is_altered: bool,
}

impl Shown {
    /// For about so many bytes.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.held.is_empty() {
            return self.show(bytes, false);
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(bytes);
        self.show(&joined, false);
    }

    /// How many bytes the text takes in JSON.
    pub(super) const fn in_json(&self) -> usize {
        self.in_json + 2
    }

    /// How many bytes the text itself has, as JSON takes in JSON.
    pub(super) fn length(&self) -> usize {
        self.text.len()
    }

    /// The text, and whether it is what came, byte for byte.
    pub(super) fn finish(mut self) -> (String, bool) {
        let held = std::mem::take(&mut self.held);
        self.show(&held, true);
        self.text.shrink_to_fit();
        (self.text, !self.is_altered)
    }

    fn show(&mut self, bytes: &[u8], is_end: bool) {
        let before = self.text.len();
        let mut rest = bytes;
        loop {
            let (valid, is_cut) = match std::str::from_utf8(rest) {
                Ok(all) => {
                    self.text.push_str(all);
                    break;
                }
                Err(error) => (error.valid_up_to(), error.error_len().is_none()),
            };
            let (good, bad) = rest.split_at(valid);
            self.text
                .push_str(std::str::from_utf8(good).unwrap_or_default());
            if !is_end && (is_cut || matches!(bad, [0xED, 0xA0..=0xBF])) {
                self.held = bad.to_vec();
                break;
            }
            self.is_altered = true;
            rest = match bad {
                [0xED, b @ 0xA0..=0xBF, c @ 0x80..=0xBF, rest @ ..] => {
                    let unit = 0xD000 | (u16::from(b & 0x3F) << 6) | u16::from(c & 0x3F);
                    // Writing to a String cannot fail.
                    let _ = write!(self.text, "\\u{unit:04x}");
                    rest
                }
                _ => {
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    &bad[1.min(bad.len())..]
                }
            };
        }
        self.in_json += length_in_json(&self.text[before..]) - 2;
    }
}

/// The first `cap` bytes as text.
#[derive(Debug)]
pub(super) struct Start {
    shown: Shown,
    left: usize,
}

impl Start {
    pub(super) fn of(cap: usize) -> Self {
        Self {
            shown: Shown::default(),
            left: cap,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let within = &bytes[..bytes.len().min(self.left)];
        self.left -= within.len();
        self.shown.push(within);
    }

    pub(super) fn finish(self) -> String {
        self.shown.finish().0
    }
}

/// Base64 of bytes.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    text: String,
    /// What does not make up three bytes yet.
    held: Vec<u8>,
}

impl Encoded {
    /// For so many bytes.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes.div_ceil(3) * 4),
            held: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if !self.held.is_empty() {
            let wanted = (3 - self.held.len()).min(rest.len());
            self.held.extend_from_slice(&rest[..wanted]);
            rest = &rest[wanted..];
            if self.held.len() < 3 {
                return;
            }
            BASE64.encode_string(&self.held, &mut self.text);
            self.held.clear();
        }
        let (whole, held) = rest.split_at(rest.len() / 3 * 3);
        BASE64.encode_string(whole, &mut self.text);
        self.held.extend_from_slice(held);
    }

    /// How many bytes the text takes in JSON, without its last ones.
    pub(super) const fn in_json(&self) -> usize {
        self.text.len() + 2
    }

    pub(super) fn finish(mut self) -> String {
        BASE64.encode_string(&self.held, &mut self.text);
        self.text
    }
}

/// Text that may be JSON.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) shown: Shown,
    checker: Checker,
}

/// What it turned out to be.
pub(super) enum Kind {
    Object,
    Json,
    /// Anything else.
    Text,
}

impl Checked {
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            shown: Shown::with_room(bytes),
            checker: Checker::new(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.checker.push(bytes);
        self.shown.push(bytes);
    }

    pub(super) fn finish(mut self) -> (Kind, String) {
        let is_json = self.checker.is_json();
        let (text, is_whole) = self.shown.finish();
        let kind = match is_json && is_whole {
            true if self.checker.is_object() => Kind::Object,
            true => Kind::Json,
            false => Kind::Text,
        };
        (kind, text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(pieces: &[&[u8]]) -> String {
        let mut shown = Shown::default();
        for piece in pieces {
            shown.push(piece);
        }
        let in_json = shown.in_json();
        let is_held = !shown.held.is_empty();
        let (text, _) = shown.finish();
        assert!(is_held || in_json == length_in_json(&text));
        text
    }

    #[test]
    fn surrogates_are_escaped_and_other_junk_is_replaced() {
        for (bytes, shown) in [
            (&b"a\xed\xa0\x80b"[..], "a\\ud800b"),
            (b"\xed\xbf\xbf", "\\udfff"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}"),
            (b"\xed\x9f\xbf", "\u{d7ff}"),
            (b"\xe2\x80\xa8\0", "\u{2028}\0"),
            (b"\xe2\x80", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(text(&[bytes]), shown);
        }
    }

    fn odd_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[a-zé€😀\\n\"]{0,9}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..6),
            Just(vec![0xED, 0xA0, 0x80]),
            Just(vec![0xED, 0xBF]),
            Just(vec![0xF0, 0x9F, 0x98]),
        ];
        proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn valid_text_is_kept(valid in ".*") {
            prop_assert_eq!(text(&[valid.as_bytes()]), valid);
        }

        #[test]
        fn pieces_make_what_the_whole_makes(bytes in odd_bytes(), cut in any::<prop::sample::Index>()) {
            let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(text(&[head, tail]), text(&[&bytes]));
            let mut encoded = Encoded::default();
            encoded.push(head);
            encoded.push(tail);
            prop_assert_eq!(encoded.finish(), BASE64.encode(&bytes));
        }

        #[test]
        fn any_bytes_are_shown_within_the_cap(bytes: Vec<u8>, cap in 0_usize..64) {
            let mut start = Start::of(cap);
            start.push(&bytes);
            prop_assert!(start.finish().len() <= 3 * cap);
        }
    }
}
