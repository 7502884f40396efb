//! The listing of a tree: one line for each directory, file and link, in the
//! byte order of their paths.
//!
//! ```text
//! cellblock.listing.v1 blake3
//! d 755 .
//! d 755 usr/bin
//! f 755 6831736 <64 hexadecimal digits> usr/bin/python3.13
//! l usr/bin/python3 python3.13
//! ```
//!
//! Mode bits are octal; a link has none. Blanks, control characters and
//! backslashes in names are written as `\xNN`. Owners and times are left out,
//! and hard links are ordinary files, so that the same content has the same
//! listing wherever it was unpacked. The tree's digest is the SHA-256 of this
//! text, as `sha256sum manifest.listing` prints it. Content is digested with
//! BLAKE3, since SHA-256 without processor support is slower than the page cache.

use blake3::Hash;

use crate::packages::digest_of;

mod digest;
mod verify;

pub(crate) use digest::of_tree;
pub(crate) use verify::verify;
pub use verify::{Change, Difference};

/// The first line.
const HEADER: &str = "cellblock.listing.v1 blake3";

/// The content of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Ordered by path, each path once.
    lines: Vec<Line>,
}

/// A directory, file or link of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Relative to the tree; empty for its top.
    path: Vec<u8>,
    kind: Kind,
}

/// The type of a line and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Directory {
        mode: u32,
    },
    File {
        mode: u32,
        size: u64,
        digest: Hash,
    },
    Link {
        text: Vec<u8>,
    },
    /// A special file, which no prepared tree has.
    Special,
}

impl Listing {
    /// The text that is stored and digested.
    pub(crate) fn to_text(&self) -> Vec<u8> {
        let mut text = format!("{HEADER}\n").into_bytes();
        for line in &self.lines {
            match &line.kind {
                Kind::Directory { mode } => text.extend(format!("d {mode:o} ").bytes()),
                Kind::File { mode, size, digest } => {
                    text.extend(format!("f {mode:o} {size} {} ", digest.to_hex()).bytes());
                }
                Kind::Link { .. } => text.extend(b"l "),
                Kind::Special => text.extend(b"o "),
            }
            match line.path.as_slice() {
                [] => text.push(b'.'),
                path => escape(&mut text, path),
            }
            if let Kind::Link { text: target } = &line.kind {
                text.push(b' ');
                escape(&mut text, target);
            }
            text.push(b'\n');
        }
        text
    }

    /// Parses the result of [`Listing::to_text`]; `None` for any other text.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        if lines.next()? != HEADER.as_bytes() {
            return None;
        }
        let lines: Option<Vec<Line>> = lines.map(Line::parse).collect();
        let lines = lines?;
        let is_ordered = lines.windows(2).all(|pair| pair[0].path < pair[1].path);
        is_ordered.then_some(Self { lines })
    }

    /// The tree's digest: 64 hexadecimal digits.
    pub(crate) fn digest(&self) -> String {
        digest_of(&self.to_text())
    }

    /// Number of regular files.
    pub(crate) fn files(&self) -> u64 {
        self.sizes().count() as u64
    }

    /// Bytes of content of all regular files.
    pub(crate) fn size(&self) -> u64 {
        self.sizes().fold(0, u64::saturating_add)
    }

    fn sizes(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().filter_map(|line| match line.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        })
    }
}

impl Line {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut kind = match fields.next()? {
            b"d" => Kind::Directory {
                mode: octal(fields.next()?)?,
            },
            b"f" => Kind::File {
                mode: octal(fields.next()?)?,
                size: std::str::from_utf8(fields.next()?).ok()?.parse().ok()?,
                digest: Hash::from_hex(fields.next()?).ok()?,
            },
            b"l" => Kind::Link { text: Vec::new() },
            b"o" => Kind::Special,
            _ => return None,
        };
        let path = match fields.next()? {
            b"." => Vec::new(),
            path => unescape(path)?,
        };
        if let Kind::Link { text } = &mut kind {
            *text = unescape(fields.next()?)?;
        }
        fields.next().is_none().then_some(Self { path, kind })
    }
}

/// Decodes two hexadecimal digits.
fn byte_of(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

fn octal(text: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok()
}

fn escape(text: &mut Vec<u8>, name: &[u8]) {
    for byte in name {
        match byte {
            0..=b' ' | b'\\' | 0x7f => text.extend(format!("\\x{byte:02x}").bytes()),
            byte => text.push(*byte),
        }
    }
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = match first {
            b'\\' => {
                let (digits, after) = after.strip_prefix(b"x")?.split_at_checked(2)?;
                name.push(byte_of(digits)?);
                after
            }
            byte => {
                name.push(*byte);
                after
            }
        };
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            (0u32..0o10000).prop_map(|mode| Kind::Directory { mode }),
            (0u32..0o10000, any::<u64>(), any::<[u8; 32]>()).prop_map(|(mode, size, digest)| {
                Kind::File {
                    mode,
                    size,
                    digest: digest.into(),
                }
            }),
            proptest::collection::vec(1u8.., 1..9).prop_map(|text| Kind::Link { text }),
        ]
    }

    proptest! {
        /// No name or link text changes the meaning of a listing.
        #[test]
        fn text_parses_to_the_same_listing(
            items in proptest::collection::btree_map(
                proptest::collection::vec(1u8.., 0..9), kind(), 0..9,
            ),
        ) {
            // `.` alone is how the top is written, and no name in a directory.
            let items = items.into_iter().filter(|(path, _)| path != b".");
            let items = items.map(|(path, kind)| Line { path, kind }).collect();
            let listing = Listing { lines: items };
            prop_assert_eq!(Listing::parse(&listing.to_text()), Some(listing));
        }
    }

    #[test]
    fn a_listing_is_plain_text() {
        let file = Kind::File {
            mode: 0o644,
            size: 3,
            digest: [0xab; 32].into(),
        };
        let link = Kind::Link {
            text: b"a b".to_vec(),
        };
        let line = |path: &[u8], kind| Line {
            path: path.to_vec(),
            kind,
        };
        let listing = Listing {
            lines: vec![
                line(b"", Kind::Directory { mode: 0o755 }),
                line(b"a\nb", file),
                line(b"c", link),
            ],
        };
        let wanted = format!(
            "{HEADER}\nd 755 .\nf 644 3 {} a\\x0ab\nl c a\\x20b\n",
            "ab".repeat(32)
        );
        assert_eq!(String::from_utf8(listing.to_text()).unwrap(), wanted);
        assert_eq!((listing.files(), listing.size()), (1, 3));
    }

    #[test]
    fn other_text_is_refused() {
        let good = format!("{HEADER}\nd 755 .\nl a b\n");
        assert!(Listing::parse(good.as_bytes()).is_some());
        for (from, to) in [
            ("v1", "v2"),
            ("l a b\n", "l a b"),
            ("l a b", "l a"),
            ("l a b", "l a b c"),
            ("l a b", "x a b"),
            ("d 755", "d 855"),
            ("l a b", "l a \\x0"),
            ("l a b", "l a b\nl a c"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_eq!(Listing::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
