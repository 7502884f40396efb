//! A captured stream in a record: one copy of the kept bytes.
//!
//! A megabyte of output may take six in JSON. So [`Text`] and [`Base64`] share
//! the bytes as they were captured, and make their characters while the record
//! is being written.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The bytes kept of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Bytes missing between head and tail.
    gap: u64,
}

impl Kept {
    /// All of a stream, in two parts that follow each other.
    pub fn whole(mut head: Vec<u8>, mut tail: Vec<u8>) -> Self {
        // A character that the boundary cuts is put together.
        let rest = continuation(&tail);
        head.extend(tail.drain(..rest));
        Self { head, tail, gap: 0 }
    }

    /// The two ends of a stream of `total` bytes. Text that was cut within a
    /// character is still text: what is left of that character is dropped.
    pub fn ends(mut head: Vec<u8>, mut tail: Vec<u8>, total: u64) -> Self {
        let before = without_cut_end(&head);
        let after = &tail[continuation(&tail)..];
        if let (Ok(before), Ok(_)) = (before, std::str::from_utf8(after)) {
            head.truncate(before.len());
            tail.drain(..continuation(&tail));
        }
        let gap = total - (head.len() + tail.len()) as u64;
        Self { head, tail, gap }
    }

    /// How many bytes there are of the head, and of both.
    pub fn lengths(&self) -> (u64, u64) {
        let head = self.head.len() as u64;
        (head, head + self.tail.len() as u64)
    }

    /// Its text, and its base64 when the text does not show every byte.
    pub fn forms(self) -> (Text, Option<Base64>) {
        let is_text = [&self.head, &self.tail]
            .iter()
            .all(|part| std::str::from_utf8(part).is_ok());
        let kept = Arc::new(self);
        let base64 = (!is_text).then(|| Base64(Form::Kept(Arc::clone(&kept))));
        (Text(kept), base64)
    }
}

/// How many bytes at the start continue a UTF-8 sequence that began before; more
/// than three are none.
fn continuation(bytes: &[u8]) -> usize {
    let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    bytes.iter().take(3).take_while(continues).count()
}

/// The text without the start of a UTF-8 sequence that the end cuts off.
fn without_cut_end(bytes: &[u8]) -> Result<&str, std::str::Utf8Error> {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()])
        }
        other => other,
    }
}

/// A stream's text: invalid UTF-8 is shown as U+FFFD, and where it was cut stands
/// a line that says how much is missing.
#[derive(Clone, Default)]
pub struct Text(Arc<Kept>);

impl Text {
    /// The text, if it is in one piece, as that of every record is that was read.
    pub fn as_str(&self) -> Option<&str> {
        let is_whole = self.0.gap == 0 && self.0.tail.is_empty();
        is_whole.then(|| std::str::from_utf8(&self.0.head).ok())?
    }

    /// Its last bytes, at most this many; nothing from before a gap.
    pub fn end(&self, most: usize) -> String {
        let part = match self.0.tail.is_empty() {
            true => &self.0.head,
            false => &self.0.tail,
        };
        let from = part.len().saturating_sub(most);
        String::from_utf8_lossy(&part[from..]).into_owned()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Arc::new(Kept::whole(text.into_bytes(), Vec::new())))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lossy(&self.0.head, f)?;
        if self.0.gap > 0 {
            f.write_str(&cut_line(self.0.gap))?;
        }
        write_lossy(&self.0.tail, f)
    }
}

/// Like `String::from_utf8_lossy`, in pieces.
fn write_lossy(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        f.write_str(chunk.valid())?;
        if !chunk.invalid().is_empty() {
            f.write_char(char::REPLACEMENT_CHARACTER)?;
        }
    }
    Ok(())
}

/// The line that stands where this many bytes are missing.
pub fn cut_line(gap: u64) -> String {
    format!("\n[… {} bytes cut …]\n", grouped(gap))
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A stream's kept bytes, head and tail with nothing between them, as base64.
#[derive(Clone)]
pub struct Base64(Form);

#[derive(Clone)]
enum Form {
    Kept(Arc<Kept>),
    /// As a record had it that was read.
    Read(String),
}

impl fmt::Display for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = match &self.0 {
            Form::Kept(kept) => kept,
            Form::Read(text) => return f.write_str(text),
        };
        // Padding may only come at the end, and the parts meet anywhere: the
        // three bytes around that place go by themselves.
        let split = kept.head.len() - kept.head.len() % 3;
        let (head, rest) = kept.head.split_at(split);
        let need = if rest.is_empty() { 0 } else { 3 - rest.len() };
        let (first, tail) = kept.tail.split_at(need.min(kept.tail.len()));
        write_base64(head, f)?;
        write_base64(&[rest, first].concat(), f)?;
        write_base64(tail, f)
    }
}

fn write_base64(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0; 4096];
    for chunk in bytes.chunks(text.len() / 4 * 3) {
        let length = BASE64
            .encode_slice(chunk, &mut text)
            .map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text[..length]).map_err(|_| fmt::Error)?)?;
    }
    Ok(())
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Form::Read(text)))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

impl PartialEq for Base64 {
    /// Whether both have the same characters.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Equal when the record shows them alike.
impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[a-z€😀\"\\\\\\x00\\n]{0,5}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..5),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Wherever the two parts meet, the forms are those of all bytes at once.
        #[test]
        fn parts_make_a_whole(bytes in bytes(), at: prop::sample::Index) {
            let (head, tail) = bytes.split_at(at.index(bytes.len() + 1));
            let (text, base64) = Kept::whole(head.to_vec(), tail.to_vec()).forms();
            let lossy = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(
                serde_json::to_string(&text).unwrap(),
                serde_json::to_string(&lossy).unwrap()
            );
            let is_text = std::str::from_utf8(&bytes).is_ok();
            let expected = (!is_text).then(|| BASE64.encode(&bytes));
            prop_assert_eq!(base64.map(|base64| base64.to_string()), expected);
        }

        #[test]
        fn base64_of_two_ends_is_that_of_their_bytes(head in bytes(), tail in bytes()) {
            let kept = Kept { head, tail, gap: 5 };
            let expected = BASE64.encode([&kept.head[..], &kept.tail].concat());
            prop_assert_eq!(Base64(Form::Kept(Arc::new(kept))).to_string(), expected);
        }
    }

    #[test]
    fn long_base64_has_no_seams() {
        let head: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        let kept = Kept::whole(head.clone(), vec![255; 5000]);
        let (_, base64) = kept.forms();
        let expected = BASE64.encode([head, vec![255; 5000]].concat());
        assert_eq!(base64.unwrap().to_string(), expected);
    }

    #[test]
    fn only_a_whole_text_is_a_str() {
        let text = Text::from("a\u{e9}".to_owned());
        assert_eq!(text.as_str(), Some("a\u{e9}"));
        let read: Text = serde_json::from_str("\"a\u{e9}\"").unwrap();
        assert_eq!(read, text);
        let (cut, _) = Kept::ends(b"ab".to_vec(), b"yz".to_vec(), 2004).forms();
        assert_eq!(cut.as_str(), None);
        assert_eq!(cut.to_string(), "ab\n[… 2,000 bytes cut …]\nyz");
    }
}
