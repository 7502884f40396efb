//! One line of a listing: an entry and its path.

use blake3::Hash;

use super::Kind;

impl Kind {
    /// The line of an entry at `path`, with its end.
    pub(super) fn line(&self, path: &[u8]) -> Vec<u8> {
        let mut text = match self {
            Self::Directory { mode } => format!("d {mode:o} "),
            Self::File { mode, size, digest } => format!("f {mode:o} {size} {} ", digest.to_hex()),
            Self::Link { .. } => "l ".to_owned(),
            Self::Special => "o ".to_owned(),
        }
        .into_bytes();
        match path {
            [] => text.push(b'.'),
            path => escape(&mut text, path),
        }
        if let Self::Link { text: target } = self {
            text.push(b' ');
            escape(&mut text, target);
        }
        text.push(b'\n');
        text
    }

    /// Parses a line without its end; `None` for any other text.
    pub(super) fn parse(line: &[u8]) -> Option<(Vec<u8>, Self)> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut kind = match fields.next()? {
            b"d" => Self::Directory {
                mode: octal(fields.next()?)?,
            },
            b"f" => Self::File {
                mode: octal(fields.next()?)?,
                size: std::str::from_utf8(fields.next()?).ok()?.parse().ok()?,
                digest: Hash::from_hex(fields.next()?).ok()?,
            },
            b"l" => Self::Link {
                text: Box::default(),
            },
            b"o" => Self::Special,
            _ => return None,
        };
        let path = match fields.next()? {
            b"." => Vec::new(),
            path => unescape(path)?,
        };
        if let Self::Link { text } = &mut kind {
            *text = unescape(fields.next()?)?.into();
        }
        fields.next().is_none().then_some((path, kind))
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
            proptest::collection::vec(1u8.., 1..9)
                .prop_map(|text| Kind::Link { text: text.into() }),
        ]
    }

    proptest! {
        /// No name or link text changes the meaning of a line.
        #[test]
        fn a_line_parses_to_the_same_entry(
            path in proptest::collection::vec(1u8.., 0..9), kind in kind(),
        ) {
            // `.` alone is how the top is written, and no name in a directory.
            prop_assume!(path != b".");
            let line = kind.line(&path);
            let line = line.strip_suffix(b"\n").unwrap();
            prop_assert!(!line.contains(&b'\n'));
            prop_assert_eq!(Kind::parse(line), Some((path, kind)));
        }
    }

    #[test]
    fn a_line_is_plain_text() {
        let file = Kind::File {
            mode: 0o644,
            size: 3,
            digest: [0xab; 32].into(),
        };
        let link = Kind::Link {
            text: b"a b".as_slice().into(),
        };
        let top = Kind::Directory { mode: 0o755 };
        let digest = "ab".repeat(32);
        for (path, kind, wanted) in [
            ("", top, "d 755 .\n"),
            ("a\nb", file, &format!("f 644 3 {digest} a\\x0ab\n")),
            ("c", link, "l c a\\x20b\n"),
        ] {
            let line = kind.line(path.as_bytes());
            assert_eq!(String::from_utf8(line).unwrap(), wanted);
        }
    }

    #[test]
    fn other_text_is_refused() {
        assert!(Kind::parse(b"l a b").is_some());
        for bad in ["", "l a", "l a b c", "x a b", "d 855 a", "l a \\x0"] {
            assert_eq!(Kind::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
