//! Text and JSON from a cell.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The first `cap` bytes of `bytes` as text. A lone surrogate becomes its
/// escape, `\ud800`, which is how Python shows it; any other byte that is not
/// UTF-8 becomes U+FFFD.
pub(super) fn text(bytes: &[u8], cap: usize) -> String {
    let mut rest = &bytes[..bytes.len().min(cap)];
    let mut out = String::with_capacity(rest.len());
    loop {
        let valid = match std::str::from_utf8(rest) {
            Ok(all) => {
                out.push_str(all);
                return out;
            }
            Err(error) => error.valid_up_to(),
        };
        let (good, bad) = rest.split_at(valid);
        out.push_str(&String::from_utf8_lossy(good));
        rest = match bad {
            [0xED, b @ 0xA0..=0xBF, c @ 0x80..=0xBF, rest @ ..] => {
                let unit = 0xD000 | (u16::from(b & 0x3F) << 6) | u16::from(c & 0x3F);
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
                rest
            }
            _ => {
                out.push(char::REPLACEMENT_CHARACTER);
                &bad[1.min(bad.len())..]
            }
        };
    }
}

/// JSON text as a value; `None` if it is not JSON, is nested more than 127 deep
/// or has more than `nodes` values. The last bounds memory: `[[],[],…]` takes
/// ten times its length once parsed.
pub(super) fn json(bytes: &[u8], nodes: usize) -> Option<Value> {
    let left = Cell::new(nodes);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Bounded(&left).deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(value)
}

/// Builds a [`Value`] while there are nodes left.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.0.get().checked_sub(1);
        self.0
            .set(left.ok_or_else(|| D::Error::custom("too many values"))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key()? {
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            assert_eq!(text(bytes, 99), shown);
        }
    }

    #[test]
    fn json_is_bounded() {
        assert_eq!(
            json(b"[1, {\"a\": null}]", 4).unwrap().to_string(),
            r#"[1,{"a":null}]"#
        );
        assert_eq!(json(b"[1, {\"a\": null}]", 3), None);
        assert_eq!(json(b"[1] 2", 9), None);
        assert_eq!(json("[".repeat(1 << 20).as_bytes(), 1 << 20), None);
    }

    proptest! {
        #[test]
        fn valid_text_is_kept(valid in ".*") {
            prop_assert_eq!(text(valid.as_bytes(), valid.len()), valid);
        }

        #[test]
        fn any_bytes_are_shown_within_the_cap(bytes: Vec<u8>, cap in 0_usize..64) {
            prop_assert!(text(&bytes, cap).len() <= 3 * cap);
        }

        #[test]
        fn json_means_what_serde_json_says(bytes in r#"[\[\]{}:,"a1\-.e \\u]{0,24}"#) {
            let expected: Option<Value> = serde_json::from_str(&bytes).ok();
            prop_assert_eq!(json(bytes.as_bytes(), 99), expected);
        }
    }
}
