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
//! and a hard link is a file like any other, so that the same content has the
//! same listing wherever it was unpacked. The tree's digest is the SHA-256 of
//! this text, which `sha256sum manifest.listing` confirms; content is digested
//! with BLAKE3, since SHA-256 without processor support is slower than what a
//! disk's cache delivers.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The first line.
const HEADER: &str = "cellblock.listing.v1 blake3";

/// Everything in a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Ordered by path, each path once.
    pub(super) items: Vec<Item>,
}

/// One thing in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Relative to the tree; empty for its top.
    pub(super) path: Vec<u8>,
    /// What it is.
    pub(super) kind: Kind,
}

/// What a thing in a tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory.
    Directory { mode: u32 },
    /// A regular file.
    File {
        mode: u32,
        size: u64,
        digest: [u8; 32],
    },
    /// A symbolic link and its text.
    Link { text: Vec<u8> },
    /// Something that no prepared tree has.
    Other,
}

impl Listing {
    /// The text that is stored and digested.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = format!("{HEADER}\n").into_bytes();
        for item in &self.items {
            match &item.kind {
                Kind::Directory { mode } => text.extend(format!("d {mode:o} ").bytes()),
                Kind::File { mode, size, digest } => {
                    text.extend(format!("f {mode:o} {size} {} ", hexadecimal(digest)).bytes());
                }
                Kind::Link { .. } => text.extend(b"l "),
                Kind::Other => text.extend(b"o "),
            }
            match item.path.as_slice() {
                [] => text.push(b'.'),
                path => escape(&mut text, path),
            }
            if let Kind::Link { text: target } = &item.kind {
                text.push(b' ');
                escape(&mut text, target);
            }
            text.push(b'\n');
        }
        text
    }

    /// Reads [`Listing::to_text`] back; `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        if lines.next()? != HEADER.as_bytes() {
            return None;
        }
        let items: Option<Vec<Item>> = lines.map(Item::parse).collect();
        let items = items?;
        let ordered = items.windows(2).all(|pair| pair[0].path < pair[1].path);
        ordered.then_some(Self { items })
    }

    /// The tree's digest: 64 hexadecimal digits.
    pub fn digest(&self) -> String {
        digest_of(&self.to_text())
    }

    /// The number of regular files.
    pub fn files(&self) -> u64 {
        self.sizes().count() as u64
    }

    /// Bytes of content of all regular files.
    pub fn size(&self) -> u64 {
        self.sizes().fold(0, u64::saturating_add)
    }

    fn sizes(&self) -> impl Iterator<Item = u64> {
        self.items.iter().filter_map(|item| match item.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        })
    }
}

impl Item {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let kind = fields.next()?;
        let kind = match kind {
            b"d" => Kind::Directory {
                mode: octal(fields.next()?)?,
            },
            b"f" => Kind::File {
                mode: octal(fields.next()?)?,
                size: std::str::from_utf8(fields.next()?).ok()?.parse().ok()?,
                digest: bytes_of(fields.next()?)?,
            },
            b"l" => Kind::Link { text: Vec::new() },
            b"o" => Kind::Other,
            _ => return None,
        };
        let path = match fields.next()? {
            b"." => Vec::new(),
            path => unescape(path)?,
        };
        let kind = match kind {
            Kind::Link { .. } => Kind::Link {
                text: unescape(fields.next()?)?,
            },
            kind => kind,
        };
        fields.next().is_none().then_some(Self { path, kind })
    }
}

/// SHA-256 of a listing's text, in hexadecimal.
pub(super) fn digest_of(text: &[u8]) -> String {
    hexadecimal(&Sha256::digest(text))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(text: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
        *byte = byte_of(digits)?;
    }
    Some(bytes)
}

/// The byte that two hexadecimal digits stand for.
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
    while let [first, behind @ ..] = rest {
        rest = match first {
            b'\\' => {
                let (digits, behind) = behind.strip_prefix(b"x")?.split_at_checked(2)?;
                name.push(byte_of(digits)?);
                behind
            }
            byte => {
                name.push(*byte);
                behind
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
            (0u32..0o10000, any::<u64>(), any::<[u8; 32]>())
                .prop_map(|(mode, size, digest)| Kind::File { mode, size, digest }),
            proptest::collection::vec(1u8.., 1..9).prop_map(|text| Kind::Link { text }),
        ]
    }

    proptest! {
        /// No name and no link text makes a listing that says something else.
        #[test]
        fn a_listing_survives_its_text(
            items in proptest::collection::btree_map(
                proptest::collection::vec(1u8.., 0..9), kind(), 0..9,
            ),
        ) {
            // `.` alone is how the top is written, and no name in a directory.
            let items = items.into_iter().filter(|(path, _)| path != b".");
            let items = items.map(|(path, kind)| Item { path, kind }).collect();
            let listing = Listing { items };
            prop_assert_eq!(Listing::parse(&listing.to_text()), Some(listing));
        }
    }

    #[test]
    fn a_listing_is_plain_text() {
        let file = Kind::File {
            mode: 0o644,
            size: 3,
            digest: [0xab; 32],
        };
        let link = Kind::Link {
            text: b"a b".to_vec(),
        };
        let item = |path: &[u8], kind| Item {
            path: path.to_vec(),
            kind,
        };
        let listing = Listing {
            items: vec![
                item(b"", Kind::Directory { mode: 0o755 }),
                item(b"a\nb", file),
                item(b"c", link),
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
    fn what_is_no_listing_is_refused() {
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
