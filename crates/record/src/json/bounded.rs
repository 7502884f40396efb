//! Lists and objects of a client, with a bound on their number of entries: an entry may take two
//! bytes as text, and many more in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The most entries of a field; see [`bounds!`](crate::bounds).
pub trait Bound {
    /// The field's name, for errors.
    const FIELD: &'static str;
    /// The number.
    const MOST: usize;
}

/// Declares [`Bound`]s: `Cells = "cells", 1000;`.
#[macro_export]
macro_rules! bounds {
    ($($(#[$doc:meta])+ $vis:vis $name:ident = $field:literal, $most:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Debug, PartialEq)]
        $vis enum $name {}

        impl $crate::json::Bound for $name {
            const FIELD: &'static str = $field;
            const MOST: usize = $most;
        }
    )+};
}

/// A list with a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T, B>(Vec<T>, PhantomData<fn() -> B>);

/// An object with a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs<T, B>(BTreeMap<String, T>, PhantomData<fn() -> B>);

impl<T, B> List<T, B> {
    /// The entries.
    pub fn into_inner(self) -> Vec<T> {
        self.0
    }
}

impl<T, B> Pairs<T, B> {
    /// The fields.
    pub fn into_inner(self) -> BTreeMap<String, T> {
        self.0
    }
}

struct Reader<T>(PhantomData<fn() -> T>);

/// Counts one entry more.
fn count<B: Bound, E: Error>(before: usize) -> Result<(), E> {
    let (field, most) = (B::FIELD, B::MOST);
    match before < most {
        true => Ok(()),
        false => Err(E::custom(format_args!(
            "{field}: has more than {most} entries, which is the most"
        ))),
    }
}

impl<'de, T: Deserialize<'de>, B: Bound> Visitor<'de> for Reader<List<T, B>> {
    type Value = List<T, B>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", B::FIELD)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element()? {
            count::<B, _>(list.len())?;
            list.push(entry);
        }
        Ok(List(list, PhantomData))
    }
}

impl<'de, T: Deserialize<'de>, B: Bound> Visitor<'de> for Reader<Pairs<T, B>> {
    type Value = Pairs<T, B>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", B::FIELD)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut pairs = BTreeMap::new();
        while let Some((name, entry)) = entries.next_entry()? {
            count::<B, _>(pairs.len())?;
            pairs.insert(name, entry);
        }
        Ok(Pairs(pairs, PhantomData))
    }
}

impl<'de, T: Deserialize<'de>, B: Bound> Deserialize<'de> for List<T, B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Reader::<Self>(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>, B: Bound> Deserialize<'de> for Pairs<T, B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader::<Self>(PhantomData))
    }
}

impl<T, B> Default for List<T, B> {
    fn default() -> Self {
        Self(Vec::new(), PhantomData)
    }
}

impl<T, B> Default for Pairs<T, B> {
    fn default() -> Self {
        Self(BTreeMap::new(), PhantomData)
    }
}

impl<T, B> Deref for List<T, B> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T, B> Deref for Pairs<T, B> {
    type Target = BTreeMap<String, T>;

    fn deref(&self) -> &BTreeMap<String, T> {
        &self.0
    }
}

/// The schema of a list without a bound: models need not know it.
impl<T: JsonSchema, B> JsonSchema for List<T, B> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Vec::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::bounds! {
        /// Two.
        Two = "fields", 2;
    }

    #[test]
    fn entries_are_bounded() {
        let list = |text: &str| serde_json::from_str::<List<u8, Two>>(text);
        assert_eq!(*list("[1, 2]").unwrap(), [1, 2]);
        let why = list("[1, 2, 3]").unwrap_err().to_string();
        assert!(why.contains("fields: has more than 2 entries"), "{why}");
        let why = list("{}").unwrap_err().to_string();
        assert!(why.contains("expected a list of fields"), "{why}");
        let pairs = |text: &str| serde_json::from_str::<Pairs<u8, Two>>(text);
        assert_eq!(pairs(r#"{"a": 1, "b": 2}"#).unwrap()["b"], 2);
        assert!(pairs(r#"{"a": 1, "b": 2, "c": 3}"#).is_err());
    }
}
