//! JSON from a cell, kept as text.
//!
//! A parsed value takes up to ninety times as much memory as its text
//! (`[{"":0},…]`). So the text is checked when it comes, kept, and written to the
//! record unchanged. Readers parse one value at a time, within bounds.
#![expect(
    clippy::disallowed_types,
    reason = "Json::parse bounds what a value takes"
)]

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

mod bounded;
mod layout;
mod object;

pub use bounded::{Bound, List, Pairs};
pub use object::Object;

/// Approximate number of bytes that a parsed value may take.
const PARSED_CAP: usize = 16 << 20;
/// What a value takes: in a list, which has spare room.
const VALUE: usize = 2 * size_of::<Value>();
/// What an object takes besides its entries (a node of a B-tree), and an entry.
const OBJECT: usize = 640;
const ENTRY: usize = 96;

/// Reads JSON. The whole program uses this or `serde_json::from_str`: `serde_json` compiles
/// separate code for bytes and for text, so each type's code would be in the executable twice.
///
/// # Errors
/// It is not UTF-8, not JSON, or not of this type.
pub fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    let text = std::str::from_utf8(bytes).map_err(serde_json::Error::custom)?;
    serde_json::from_str(text)
}

/// A value as text.
pub fn text_of(value: &(impl Serialize + ?Sized)) -> String {
    // What this program writes has a form in JSON.
    serde_json::to_string(value).unwrap_or_default()
}

/// JSON text on one line, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Box<str>);

/// A form of a result: text, or JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Form {
    /// Text; base64 for binary media types.
    Text(String),
    /// JSON other than a string.
    Json(Json),
}

impl Json {
    /// Takes `text`, which was checked to be JSON as it arrived.
    pub fn checked(mut text: String) -> Self {
        if text.contains(['\n', '\r']) {
            // In JSON a line ends only between values, where a space does as well.
            // Events are lines.
            let mut bytes = text.into_bytes();
            let ends = bytes
                .iter_mut()
                .filter(|byte| matches!(byte, b'\n' | b'\r'));
            ends.for_each(|byte| *byte = b' ');
            // It was text, and is still.
            text = String::from_utf8(bytes).unwrap_or_default();
        }
        Self(text.into())
    }

    /// A value as text.
    pub fn of(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The value; `None` when it would take more than some 16 MB of memory.
    pub fn parse(&self) -> Option<Value> {
        let left = Cell::new(PARSED_CAP);
        let mut deserializer = serde_json::Deserializer::from_str(&self.0);
        let value = Bounded(&left).deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(value)
    }

    /// The text without spaces between values.
    pub fn compact(&self) -> String {
        layout::compact(&self.0)
    }

    /// The text for people, indented.
    pub fn pretty(&self) -> String {
        layout::pretty(&self.0)
    }
}

impl Form {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Json(_) => None,
        }
    }

    /// The form as JSON for people.
    pub fn pretty(&self) -> String {
        match self {
            Self::Text(text) => serde_json::to_string(text).unwrap_or_default(),
            Self::Json(json) => json.pretty(),
        }
    }
}

impl From<Value> for Form {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text),
            other => Self::Json(Json::of(&other)),
        }
    }
}

impl From<&str> for Form {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(&self.0) {
            Ok(raw) => raw.serialize(serializer),
            // The check would be wrong; a record there is all the same.
            Err(_) => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::checked(raw.get().to_owned()))
    }
}

impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        match json.text().trim_start().starts_with('"') {
            true => serde_json::from_str(json.text())
                .map(Self::Text)
                .map_err(D::Error::custom),
            false => Ok(Self::Json(json)),
        }
    }
}

/// Any JSON, as for [`Value`].
macro_rules! any_json {
    ($type:ty) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                Value::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                Value::json_schema(generator)
            }
        }
    };
}

any_json!(Json);
any_json!(Form);

/// How many bytes a text takes in JSON, with its quotes.
pub fn length_in_json(text: &str) -> usize {
    let length = |byte| match byte {
        b'"' | b'\\' | 8 | 9 | 10 | 12 | 13 => 2,
        0..=31 => 6,
        _ => 1,
    };
    2 + text.bytes().map(length).sum::<usize>()
}

/// Builds a [`Value`] while there is memory left for it.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a Cell<usize>);

impl Bounded<'_> {
    fn charge<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.ok_or_else(|| E::custom("too large"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.charge(VALUE)?;
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

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.charge(value.len())?;
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
        self.charge(OBJECT)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.charge(ENTRY + key.len())?;
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_stays_what_it_is_on_one_line() {
        let json = Json::checked("{\"a\":\n[1.50,\r\n\"x\"]}".to_owned());
        let line = "{\"a\": [1.50,  \"x\"]}";
        assert_eq!(serde_json::to_string(&json).unwrap(), line);
        assert_eq!(json.parse(), Some(json!({"a": [1.5, "x"]})));
        let forms: [Form; 2] = serde_json::from_str("[\"a\\n\", {\"b\": 1}]").unwrap();
        assert_eq!(forms[0].as_str(), Some("a\n"));
        assert_eq!(forms[1], Form::Json(Json("{\"b\": 1}".into())));
        let value = serde_json::to_value(&forms).unwrap();
        assert_eq!(value, json!(["a\n", {"b": 1}]));
        assert_eq!(
            serde_json::from_value::<[Form; 2]>(value).unwrap()[0],
            forms[0]
        );
    }

    #[test]
    fn what_would_take_too_much_is_not_parsed() {
        let many =
            |item: &str, count: usize| Json::checked(format!("[{}]", vec![item; count].join(",")));
        assert!(many("{\"\":0}", 10_000).parse().is_some());
        assert_eq!(many("{\"\":0}", 40_000).parse(), None);
        assert!(many("1.5", 100_000).parse().is_some());
        assert_eq!(many("[]", 1 << 20).parse(), None);
    }

    #[test]
    fn the_length_in_json_is_that() {
        for text in ["", "a\"b\\\n\u{1}\u{7f}é", "\t\u{8}\u{c}\r\u{1f}"] {
            let written = serde_json::to_string(text).unwrap();
            assert_eq!(length_in_json(text), written.len(), "{written}");
        }
    }
}
