//! Text, base64 and JSON, made from a cell's bytes as they arrive.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use base64::engine::general_purpose::{GeneralPurpose, STANDARD as BASE64};
use base64::write::EncoderStringWriter;

use super::json::Checker;
use record::json::length_in_json;

/// Makes text of bytes. A lone surrogate becomes its escape, `\ud800`, as in Python;
/// any other byte that is not UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub(super) struct TextDecoder {
    text: String,
    /// The start of a character, at most three bytes.
    held: Vec<u8>,
    /// Bytes that are still accepted.
    left: usize,
    /// Bytes of the text in JSON, without its quotes.
    in_json: usize,
    /// Whether a byte was escaped or replaced.
    is_altered: bool,
}

impl TextDecoder {
    /// Takes this many bytes and ignores the rest.
    pub(super) fn new(most: usize) -> Self {
        Self {
            text: String::with_capacity(most),
            left: most,
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        if self.held.is_empty() {
            return self.decode(bytes, false);
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(bytes);
        self.decode(&joined, false);
    }

    /// Bytes of the text in JSON.
    pub(super) const fn length_in_json(&self) -> usize {
        self.in_json + 2
    }

    /// The text, and whether it is byte for byte what arrived.
    pub(super) fn finish(mut self) -> (String, bool) {
        let held = std::mem::take(&mut self.held);
        self.decode(&held, true);
        self.text.shrink_to_fit();
        (self.text, !self.is_altered)
    }

    fn decode(&mut self, bytes: &[u8], is_end: bool) {
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

/// Makes base64 of bytes.
pub(super) struct Base64Encoder {
    /// In a box, since it has a buffer of a kilobyte.
    writer: Box<EncoderStringWriter<'static, GeneralPurpose, String>>,
    length: usize,
}

impl Base64Encoder {
    /// For this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let length = bytes.div_ceil(3) * 4;
        let text = String::with_capacity(length);
        Self {
            writer: Box::new(EncoderStringWriter::from_consumer(text, &BASE64)),
            length,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        // Writing to a String cannot fail.
        let _ = self.writer.write_all(bytes);
    }

    /// Bytes that all of it will take in JSON.
    pub(super) const fn length_in_json(&self) -> usize {
        self.length + 2
    }

    pub(super) fn finish(self) -> String {
        self.writer.into_inner()
    }
}

impl fmt::Debug for Base64Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base64Encoder({})", self.length)
    }
}

/// Makes text of bytes, and checks whether it is JSON.
#[derive(Debug)]
pub(super) struct JsonDecoder {
    text: TextDecoder,
    checker: Checker,
}

/// What the text is.
#[derive(Clone, Copy, Debug)]
pub(super) enum JsonKind {
    Object,
    /// Any other JSON.
    Other,
    /// Not JSON.
    Invalid,
}

impl JsonDecoder {
    /// For this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            text: TextDecoder::new(bytes),
            checker: Checker::default(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.checker.push(bytes);
        self.text.push(bytes);
    }

    /// Bytes of the text, which is what JSON takes in JSON.
    pub(super) fn length(&self) -> usize {
        self.text.text.len()
    }

    pub(super) fn finish(mut self) -> (JsonKind, String) {
        let is_json = self.checker.is_json();
        let (text, is_exact) = self.text.finish();
        let kind = match is_json && is_exact {
            true if self.checker.is_object() => JsonKind::Object,
            true => JsonKind::Other,
            false => JsonKind::Invalid,
        };
        (kind, text)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use proptest::prelude::*;

    use super::*;

    fn text(pieces: &[&[u8]]) -> String {
        let mut shown = TextDecoder::new(1 << 16);
        for piece in pieces {
            shown.push(piece);
        }
        let in_json = shown.length_in_json();
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
            let mut encoded = Base64Encoder::new(bytes.len());
            encoded.push(head);
            encoded.push(tail);
            prop_assert_eq!(encoded.finish(), BASE64.encode(&bytes));
        }

        #[test]
        fn any_bytes_are_shown_within_the_cap(bytes: Vec<u8>, cap in 0_usize..64) {
            let mut start = TextDecoder::new(cap);
            start.push(&bytes);
            prop_assert!(start.finish().0.len() <= 3 * cap);
        }
    }
}
