//! A stream as text, in the pieces in which it comes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Text and bytes of a piece.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    /// Only when the text does not show every byte.
    pub base64: Option<String>,
}

/// Makes text of a stream's bytes: a character that the end of a piece cuts is
/// held back until the rest of it comes.
#[derive(Debug, Default)]
pub struct Chunks {
    /// The start of a character, at most three bytes.
    held: Vec<u8>,
}

impl Chunks {
    /// The piece that `bytes` complete; `None` when that is not one character.
    pub fn next(&mut self, bytes: &[u8]) -> Option<Piece> {
        let bytes: Cow<'_, [u8]> = match self.held.as_slice() {
            [] => bytes.into(),
            held => [held, bytes].concat().into(),
        };
        let whole = bytes.len() - cut_character(&bytes);
        self.held = bytes[whole..].to_vec();
        Piece::of(&bytes[..whole])
    }

    /// What is held back at the stream's end.
    pub fn end(&mut self) -> Option<Piece> {
        Piece::of(&std::mem::take(&mut self.held))
    }
}

impl Piece {
    fn of(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let base64 = matches!(text, Cow::Owned(_)).then(|| BASE64.encode(bytes));
        let text = text.into_owned();
        (!text.is_empty()).then_some(Self { text, base64 })
    }
}

/// How many bytes at the end start a character that would go on.
fn cut_character(bytes: &[u8]) -> usize {
    let starts = |count: &usize| {
        let end = bytes.get(bytes.len().wrapping_sub(*count)..);
        let whole = end.map(std::str::from_utf8);
        matches!(whole, Some(Err(error)) if error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3).find(starts).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[a-zé€😀\\n]{0,20}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..6),
            // Starts of characters, of allowed ones and others.
            Just(vec![0xF0, 0x9F, 0x98]),
            Just(vec![0xE2, 0x82]),
            Just(vec![0xED, 0xA0]),
            Just(vec![0xC3]),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn pieces_make_the_text_of_the_whole(
            stream in stream(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut chunks = Chunks::default();
            let mut pieces: Vec<Piece> = cuts
                .windows(2)
                .filter_map(|ends| chunks.next(&stream[ends[0]..ends[1]]))
                .collect();
            pieces.extend(chunks.end());
            let text: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            prop_assert_eq!(text, String::from_utf8_lossy(&stream));
            let bytes: Vec<u8> = pieces
                .into_iter()
                .flat_map(|piece| match piece.base64 {
                    Some(base64) => BASE64.decode(base64).unwrap(),
                    None => piece.text.into_bytes(),
                })
                .collect();
            prop_assert_eq!(bytes, stream);
        }
    }

    #[test]
    fn a_character_waits_for_its_end() {
        let mut chunks = Chunks::default();
        assert_eq!(chunks.next(&[0xE2]), None);
        assert_eq!(chunks.next(&[0x82]), None);
        let euro = chunks.next(&[0xAC, b'!']).unwrap();
        assert_eq!((euro.text.as_str(), euro.base64), ("€!", None));
        assert_eq!(chunks.next(&[0xE2]), None);
        let broken = chunks.end().unwrap();
        assert_eq!(
            (broken.text.as_str(), broken.base64.as_deref()),
            ("\u{FFFD}", Some("4g=="))
        );
        assert_eq!(chunks.end(), None);
    }
}
