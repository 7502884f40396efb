//! Values that files write as text or as a number, and that may be `none`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::units::{Bytes, Span};

/// A size, a duration or a count: text such as `256M`, or a bare number.
pub trait Quantity: Sized {
    /// What to write, as the end of "wants …".
    const WANTED: &'static str;
    /// The kind of quantity, for the schema and the manual.
    const FORMAT: &'static str;

    /// Reads the form of flags and of quoted values.
    ///
    /// # Errors
    /// Says what the text should look like.
    fn from_text(text: &str) -> Result<Self, String>;

    /// A whole number without a unit, if that means anything.
    fn from_count(number: u64) -> Option<Self>;

    /// A number with a fraction, if that means anything.
    fn from_real(number: f64) -> Option<Self>;

    /// Writes the form that reads best in a file.
    ///
    /// # Errors
    /// The serializer's own.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

impl Quantity for Bytes {
    const WANTED: &'static str = "a size such as 256M";
    const FORMAT: &'static str = "size";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn from_count(number: u64) -> Option<Self> {
        Some(Self(number))
    }

    fn from_real(_: f64) -> Option<Self> {
        None
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Quantity for Span {
    const WANTED: &'static str = "a duration above zero such as 500ms, or a number of seconds";
    const FORMAT: &'static str = "duration";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn from_count(number: u64) -> Option<Self> {
        Self::from_real(number as f64)
    }

    fn from_real(number: f64) -> Option<Self> {
        Self::from_seconds(number)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Quantity for u64 {
    const WANTED: &'static str = "a whole number";
    const FORMAT: &'static str = "whole number";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("`{text}` is not a whole number"))
    }

    fn from_count(number: u64) -> Option<Self> {
        Some(number)
    }

    fn from_real(_: f64) -> Option<Self> {
        None
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }
}

impl Quantity for f64 {
    const WANTED: &'static str = "a number such as 1 or 0.5";
    const FORMAT: &'static str = "number";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("`{text}` is not a number such as 1 or 0.5"))
    }

    fn from_count(number: u64) -> Option<Self> {
        Some(number as f64)
    }

    fn from_real(number: f64) -> Option<Self> {
        Some(number)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }
}

/// Reads a quantity from text or a number.
pub fn read<'de, T: Quantity, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(QuantityVisitor(PhantomData))
}

/// Writes an optional quantity the way files have it.
pub fn write<T: Quantity, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.write(serializer),
        None => serializer.serialize_none(),
    }
}

/// The schema of a quantity, `none` allowed or not.
pub fn schema<T: Quantity>(none: bool) -> Schema {
    let title = match none {
        true => format!("{} or \"none\"", T::FORMAT),
        false => T::FORMAT.to_owned(),
    };
    json_schema!({ "type": ["string", "number"], "title": title })
}

struct QuantityVisitor<T>(PhantomData<T>);

impl<T: Quantity> Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WANTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::from_count(number)
            .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &T::WANTED))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        u64::try_from(number)
            .ok()
            .and_then(T::from_count)
            .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &T::WANTED))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::from_real(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &T::WANTED))
    }
}

/// A limit that may be lifted: a quantity, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<T>(pub Option<T>);

impl<T: Quantity> FromStr for Bound<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        T::from_text(text)
            .map(|value| Self(Some(value)))
            .map_err(|error| format!("{error}, or none for no limit"))
    }
}

impl<T: Quantity> Serialize for Bound<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.write(serializer),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de, T: Quantity> Deserialize<'de> for Bound<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BoundVisitor(PhantomData))
    }
}

impl<T: Quantity> JsonSchema for Bound<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Bound {}", T::FORMAT).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema::<T>(true)
    }
}

struct BoundVisitor<T>(PhantomData<T>);

impl<T: Quantity> Visitor<'_> for BoundVisitor<T> {
    type Value = Bound<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or \"none\"", T::WANTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bound<T>, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Bound<T>, E> {
        T::from_count(number)
            .map(|value| Bound(Some(value)))
            .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Bound<T>, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Bound<T>, E> {
        T::from_real(number)
            .map(|value| Bound(Some(value)))
            .ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}
