//! Host names in one form: lower case, ASCII, without the trailing dot.

use std::fmt;

use super::RuleError;

/// The longest host name in bytes (RFC 1035, without the trailing dot).
pub const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host name in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Reads a name as people write it: any case, with or without a trailing dot, in
    /// Unicode (UTS 46) or ASCII.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let problem = |problem| RuleError::new(text, problem);
        let text_without_dot = text.strip_suffix('.').unwrap_or(text);
        let ascii = if text_without_dot.is_ascii() {
            text_without_dot.to_ascii_lowercase()
        } else {
            idna::domain_to_ascii(text_without_dot)
                .map_err(|_| problem("is not a valid international host name (UTS 46)"))?
        };
        Self::from_ascii(ascii.as_bytes()).ok_or_else(|| {
            problem(
                "is not a host name: up to 253 letters, digits, hyphens and underscores in \
                 labels of up to 63, of which the last is not a number",
            )
        })
    }

    /// Reads a name as it is in a protocol: ASCII in any case, with or without a trailing
    /// dot. `None` for all that no rule could name.
    pub fn from_ascii(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
        if bytes.is_empty() || bytes.len() > MAX_NAME {
            return None;
        }
        let good = |label: &[u8]| {
            let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            (1..=MAX_LABEL).contains(&label.len())
                && label.iter().all(allowed)
                && label.first() != Some(&b'-')
                && label.last() != Some(&b'-')
        };
        if !bytes.split(|byte| *byte == b'.').all(good) {
            return None;
        }
        let last = bytes.rsplit(|byte| *byte == b'.').next()?;
        // Programs read such names as addresses: 127.1, 0x7f.1, 2130706433.
        let number = last.iter().all(u8::is_ascii_digit)
            || last.len() >= 2
                && last[..2].eq_ignore_ascii_case(b"0x")
                && last[2..].iter().all(u8::is_ascii_hexdigit);
        if number {
            return None;
        }
        String::from_utf8(bytes.to_ascii_lowercase()).ok().map(Self)
    }

    /// Whether this name is one of `apex`'s subdomains; a name is not one of its own.
    pub fn is_below(&self, apex: &Self) -> bool {
        self.0
            .strip_suffix(&apex.0)
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }

    /// In canonical form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        for text in ["Example.COM", "example.com.", "EXAMPLE.com"] {
            assert_eq!(Name::parse(text).unwrap().as_str(), "example.com");
        }
        for text in ["bücher.example", "BÜCHER.example.", "bu\u{308}cher.example"] {
            assert_eq!(Name::parse(text).unwrap().as_str(), "xn--bcher-kva.example");
        }
        // Fullwidth letters and dots are those of ASCII.
        assert_eq!(
            Name::parse("ｅxample。com").unwrap().as_str(),
            "example.com"
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = format!("{}.example", "a".repeat(64));
        let longer = "a.".repeat(127) + "example";
        for text in [
            "",
            ".",
            "..",
            "a..b",
            "-a.example",
            "a-.example",
            "a b",
            "a\0b",
            "127.1",
            "1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "a/b",
            "a:b",
            "[::1]",
            "*",
            "a.*.b",
            "éx\u{200b}\0.com",
            &long,
            &longer,
        ] {
            assert!(Name::parse(text).is_err(), "{text:?}");
            assert_eq!(Name::from_ascii(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn subdomains_end_at_a_label() {
        let apex = Name::parse("example.com").unwrap();
        for (text, below) in [
            ("a.example.com", true),
            ("a.b.example.com", true),
            ("example.com", false),
            ("notexample.com", false),
            ("example.com.evil.example", false),
        ] {
            assert_eq!(Name::parse(text).unwrap().is_below(&apex), below, "{text}");
        }
    }
}
