//! Quantities with their units.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::quantity;

/// A number of bytes. Reads `4096`, `64K`, `256M`, `1G`, `2T`, also with `iB`
/// or `B` behind; every suffix is a power of 1024, as in systemd and cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    /// 2^20 bytes.
    pub const MIB: u64 = 1 << 20;
    /// 2^30 bytes.
    pub const GIB: u64 = 1 << 30;

    /// `count` times 2^20 bytes.
    pub const fn mib(count: u64) -> Self {
        Self(count * Self::MIB)
    }
}

const SUFFIXES: [(&str, u32); 5] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("", 0)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = SUFFIXES
            .iter()
            .take(4)
            .rev()
            .find(|(_, shift)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        match best {
            Some((suffix, shift)) => write!(f, "{}{suffix}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || {
            format!(
                "`{text}` is not a size: write a number of bytes, or one with K, M, G or T, such as 256M"
            )
        };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let suffix = text[digits.len()..].to_ascii_uppercase();
        let suffix = suffix
            .strip_suffix("IB")
            .or(suffix.strip_suffix('B'))
            .unwrap_or(&suffix);
        let (_, shift) = SUFFIXES
            .iter()
            .find(|(s, _)| *s == suffix)
            .ok_or_else(wanted)?;
        let number: u64 = digits.parse().map_err(|_| wanted())?;
        number
            .checked_mul(1 << shift)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is more bytes than 64 bits can count"))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quantity::read(deserializer)
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        quantity::schema("size")
    }
}

/// Reads `2s`, `500ms`, `1m 30s`, or a bare number of seconds such as `1.5`.
///
/// # Errors
/// Says what a duration looks like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    parsed.filter(|d| *d > Duration::ZERO).ok_or_else(|| {
        format!("`{text}` is not a duration above zero: write seconds, or a number with ms, s, m or h, such as 500ms or 1m 30s")
    })
}

/// A duration for people, in the form that [`parse_duration`] reads.
pub fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("4096", 4096, "4K"),
            ("64k", 65536, "64K"),
            ("256M", 268_435_456, "256M"),
            ("256MiB", 268_435_456, "256M"),
            ("1gb", 1 << 30, "1G"),
            ("1500", 1500, "1500"),
        ] {
            let parsed: Bytes = text.parse().unwrap();
            assert_eq!(parsed, Bytes(bytes), "{text}");
            assert_eq!(parsed.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn bad_sizes_say_what_is_wanted() {
        for text in ["", "M", "-1", "1.5G", "12Q", "99999999999T", "256 M"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", "0", "-3", "soon", "nan", "inf"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
