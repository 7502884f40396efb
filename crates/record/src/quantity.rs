//! Sizes, durations and counts: text such as `256M`, or a bare number.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{Bytes, parse_duration, show_duration};

/// A kind of quantity.
pub trait Quantity: Copy + Sized {
    /// What to write, as the end of "wants …".
    const WANTED: &'static str;
    /// The kind of quantity, for the schema and the manual.
    const FORMAT: &'static str;
    /// What an option's value is called in help texts.
    const VALUE_NAME: &'static str;

    /// Reads the form of flags and of quoted values.
    ///
    /// # Errors
    /// Says what the text should look like.
    fn from_text(text: &str) -> Result<Self, String>;

    /// A whole number without a unit, if that means anything.
    fn from_count(number: u64) -> Option<Self>;

    /// A number with a fraction, if that means anything.
    fn from_real(_: f64) -> Option<Self> {
        None
    }

    /// The form that reads best.
    fn show(&self) -> String;

    /// As the record counts it: bytes, milliseconds, or a number.
    fn amount(&self) -> f64;

    /// Writes the form that reads best in a file.
    ///
    /// # Errors
    /// The serializer's own.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.show())
    }
}

impl Quantity for Bytes {
    const WANTED: &'static str = "a size such as 256M";
    const FORMAT: &'static str = "size";
    const VALUE_NAME: &'static str = "SIZE";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn from_count(number: u64) -> Option<Self> {
        Some(Self(number))
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn amount(&self) -> f64 {
        self.0 as f64
    }
}

impl Quantity for Duration {
    const WANTED: &'static str = "a duration above zero such as 500ms, or a number of seconds";
    const FORMAT: &'static str = "duration";
    const VALUE_NAME: &'static str = "DUR";

    fn from_text(text: &str) -> Result<Self, String> {
        parse_duration(text)
    }

    fn from_count(number: u64) -> Option<Self> {
        Self::from_real(number as f64)
    }

    fn from_real(seconds: f64) -> Option<Self> {
        Self::try_from_secs_f64(seconds)
            .ok()
            .filter(|duration| !duration.is_zero())
    }

    fn show(&self) -> String {
        show_duration(*self)
    }

    fn amount(&self) -> f64 {
        self.as_secs_f64() * 1000.0
    }
}

macro_rules! number {
    ($type:ty, $wanted:literal, $format:literal, $from_real:expr) => {
        impl Quantity for $type {
            const WANTED: &'static str = $wanted;
            const FORMAT: &'static str = $format;
            const VALUE_NAME: &'static str = "N";

            fn from_text(text: &str) -> Result<Self, String> {
                text.parse()
                    .map_err(|_| format!("`{text}` is not {}", Self::WANTED))
            }

            fn from_count(number: u64) -> Option<Self> {
                Some(number as Self)
            }

            fn from_real(number: f64) -> Option<Self> {
                $from_real(number)
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn amount(&self) -> f64 {
                *self as f64
            }

            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.serialize(serializer)
            }
        }
    };
}

number!(u64, "a whole number", "whole number", |_| None);
number!(f64, "a number such as 1 or 0.5", "number", Some);

/// A limit that may be lifted: a quantity, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<T>(pub Option<T>);

impl<T> From<Option<T>> for Bound<T> {
    fn from(limit: Option<T>) -> Self {
        Self(limit)
    }
}

impl<T> From<Bound<T>> for Option<T> {
    fn from(bound: Bound<T>) -> Self {
        bound.0
    }
}

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
        read(deserializer)
    }
}

impl<T: Quantity> JsonSchema for Bound<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Bound {}", T::FORMAT).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema(&format!("{} or \"none\"", T::FORMAT))
    }
}

const AUTO: &str = "auto";

/// A limit whose value cellblock chooses unless one is given: a quantity, `none` or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoBound<T> {
    /// Chosen from the other limits, and from what holds them.
    Auto,
    /// This one, or none.
    Given(Option<T>),
}

impl<T: Quantity> Serialize for AutoBound<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Given(given) => Bound(*given).serialize(serializer),
        }
    }
}

impl<'de, T: Quantity> Deserialize<'de> for AutoBound<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer)
    }
}

impl<T: Quantity> JsonSchema for AutoBound<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("AutoBound {}", T::FORMAT).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema(&format!("{}, \"none\" or \"auto\"", T::FORMAT))
    }
}

/// The schema of a quantity.
pub fn schema(title: &str) -> Schema {
    json_schema!({ "type": ["string", "number"], "title": title })
}

/// The value of a field: a quantity, or one that can be `none`.
pub trait Setting: Copy {
    /// The quantity that it gives.
    type Quantity: Quantity;
    /// Whether it can be `none`.
    const IS_LIFTABLE: bool;
    /// Whether it can be `auto`.
    const HAS_AUTO: bool = false;
    /// What an option's value is called in help texts.
    const VALUE_NAME: &'static str = <Self::Quantity as Quantity>::VALUE_NAME;

    /// The value that is not `none`.
    fn of(quantity: Self::Quantity) -> Self;
    /// Reads the form of flags and of quoted values.
    ///
    /// # Errors
    /// Says what the text should look like.
    fn from_text(text: &str) -> Result<Self, String>;
    /// The form that reads best.
    fn show(&self) -> String;
    /// As the record counts it; `None` when there is no limit.
    fn amount(&self) -> Option<f64>;
}

impl<T: Quantity> Setting for T {
    type Quantity = T;
    const IS_LIFTABLE: bool = false;

    fn of(quantity: T) -> T {
        quantity
    }

    fn from_text(text: &str) -> Result<T, String> {
        Quantity::from_text(text)
    }

    fn show(&self) -> String {
        Quantity::show(self)
    }

    fn amount(&self) -> Option<f64> {
        Some(Quantity::amount(self))
    }
}

impl<T: Quantity> Setting for Bound<T> {
    type Quantity = T;
    const IS_LIFTABLE: bool = true;

    fn of(quantity: T) -> Self {
        Self(Some(quantity))
    }

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn show(&self) -> String {
        self.0
            .map_or_else(|| "none".to_owned(), |value| value.show())
    }

    fn amount(&self) -> Option<f64> {
        self.0.map(|value| value.amount())
    }
}

impl<T: Quantity> Setting for AutoBound<T> {
    type Quantity = T;
    const IS_LIFTABLE: bool = true;
    const HAS_AUTO: bool = true;

    fn of(quantity: T) -> Self {
        Self::Given(Some(quantity))
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        let bound: Result<Bound<T>, String> = text.parse();
        bound
            .map(|bound| Self::Given(bound.0))
            .map_err(|error| format!("{error}, or {AUTO}"))
    }

    fn show(&self) -> String {
        match self {
            Self::Auto => AUTO.to_owned(),
            Self::Given(given) => Bound(*given).show(),
        }
    }

    fn amount(&self) -> Option<f64> {
        match self {
            Self::Auto => None,
            Self::Given(given) => given.map(|value| value.amount()),
        }
    }
}

/// Reads a field from text or a number.
///
/// # Errors
/// It is neither a quantity nor, where that is allowed, `none`.
pub fn read<'de, T: Setting, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(SettingVisitor(PhantomData))
}

struct SettingVisitor<T>(PhantomData<T>);

impl<T: Setting> SettingVisitor<T> {
    fn accept<E: Error>(self, value: Option<T::Quantity>, given: Unexpected<'_>) -> Result<T, E> {
        value
            .map(T::of)
            .ok_or_else(|| E::invalid_value(given, &self))
    }
}

impl<T: Setting> Visitor<'_> for SettingVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::Quantity::WANTED)?;
        f.write_str(if T::IS_LIFTABLE { ", or \"none\"" } else { "" })?;
        f.write_str(if T::HAS_AUTO { ", or \"auto\"" } else { "" })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.accept(
            T::Quantity::from_count(number),
            Unexpected::Unsigned(number),
        )
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.accept(None, Unexpected::Signed(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.accept(T::Quantity::from_real(number), Unexpected::Float(number))
    }
}
