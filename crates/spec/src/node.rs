//! A document as a tree, and serde's way from it to a type.
//!
//! TOML and JSON both become a [`Node`] first, so that an error can say which
//! field it concerns and what was near, whatever the format.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use super::read::{did_you_mean, listed};

/// A value of a document.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Real(f64),
    Text(String),
    /// Items with the index that they had in the file.
    List(Vec<(usize, Node)>),
    Map(BTreeMap<String, Node>),
}

/// One step of the way to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Why a tree does not fit a type, and where.
#[derive(Debug)]
pub(super) struct Problem {
    /// From the value up to the root.
    upward: Vec<Step>,
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    fn new(message: impl Into<String>) -> Self {
        Self {
            upward: Vec::new(),
            message: message.into(),
            hint: None,
        }
    }

    fn below(mut self, step: Step) -> Self {
        self.upward.push(step);
        self
    }

    /// From the root down to the value.
    pub(super) fn path(&self) -> Vec<Step> {
        self.upward.iter().rev().cloned().collect()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_value(unexpected, wanted)
    }

    fn invalid_value(unexpected: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let given = match unexpected {
            Unexpected::Bool(value) => value.to_string(),
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Str(text) => format!("{text:?}"),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a table".to_owned(),
            Unexpected::Unit => "null".to_owned(),
            other => other.to_string(),
        };
        Self::new(format!("is {given}, but wants {}", plainly(wanted)))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let near = did_you_mean(variant, expected.iter().copied());
        Self::new(format!(
            "is {variant:?}, but wants one of {}{near}",
            listed(expected)
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let near = did_you_mean(field, expected.iter().copied());
        let mut problem = Self::new(format!("there is no such field{near}"));
        problem.hint = Some(format!("fields here: {}", listed(expected)));
        problem.below(Step::Key(field.to_owned()))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new("is missing").below(Step::Key(field.to_owned()))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new("is given twice").below(Step::Key(field.to_owned()))
    }
}

/// What serde's own types want, in the words of the files.
fn plainly(wanted: &dyn Expected) -> String {
    let text = wanted.to_string();
    match text.as_str() {
        "a string" | "path string" => "text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a map" => "a table".to_owned(),
        "a sequence" => "a list".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" | "u64" => "a whole number".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        other if other.starts_with("enum ") || other.starts_with("variant ") => "text".to_owned(),
        _ => text,
    }
}

impl Node {
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Null => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Unsigned(number) => Unexpected::Unsigned(*number),
            Self::Signed(number) => Unexpected::Signed(*number),
            Self::Real(number) => Unexpected::Float(*number),
            Self::Text(text) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        }
    }

    /// Takes the value at `path` out; when that leads nowhere, because a field
    /// is missing, its parent. False when there was nothing to take.
    pub(super) fn remove(&mut self, path: &[Step]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        match (self, first) {
            (Self::Map(map), Step::Key(key)) => match map.get_mut(key) {
                None => false,
                Some(child) => child.remove(rest) || map.remove(key).is_some(),
            },
            (Self::List(list), Step::Index(index)) => {
                match list.iter().position(|(original, _)| original == index) {
                    None => false,
                    Some(at) => {
                        if !list[at].1.remove(rest) {
                            list.remove(at);
                        }
                        true
                    }
                }
            }
            _ => false,
        }
    }
}

/// The most values that a document may have: a short text can hold many, each of
/// which takes some memory.
const MOST_VALUES: usize = 200_000;

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        NodeVisitor {
            left: &Cell::new(MOST_VALUES),
        }
        .deserialize(deserializer)
    }
}

#[derive(Clone, Copy)]
struct NodeVisitor<'a> {
    /// How many more values there may be.
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for NodeVisitor<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| {
            de::Error::custom(format_args!(
                "the document has more than {MOST_VALUES} values"
            ))
        })?;
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeVisitor<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(u64::try_from(number).map_or(Node::Signed(number), Node::Unsigned))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Real(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Node, E> {
        Ok(Node::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push((list.len(), item));
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(self)?;
            if map.contains_key(&key) {
                let twice = format!("{key:?} is given twice in one table");
                return Err(de::Error::custom(twice));
            }
            map.insert(key, value);
        }
        Ok(Node::Map(map))
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Unsigned(number) => visitor.visit_u64(number),
            Self::Signed(number) => visitor.visit_i64(number),
            Self::Real(number) => visitor.visit_f64(number),
            Self::Text(text) => visitor.visit_string(text),
            Self::List(list) => visitor.visit_seq(Items {
                rest: list.into_iter(),
            }),
            Self::Map(map) => visitor.visit_map(Fields {
                rest: map.into_iter(),
                value: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self {
            Self::Null => visitor.visit_none(),
            given => visitor.visit_some(given),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    /// Only from a table: serde would take a list as well, by position.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self {
            Self::Map(_) => self.deserialize_any(visitor),
            other => Err(de::Error::invalid_type(other.unexpected(), &"a table")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self {
            Self::Text(text) => {
                let text: StringDeserializer<Problem> = text.into_deserializer();
                visitor.visit_enum(text)
            }
            other => {
                let wanted = format!("one of {}", listed(variants));
                Err(de::Error::invalid_type(
                    other.unexpected(),
                    &wanted.as_str(),
                ))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items {
    rest: std::vec::IntoIter<(usize, Node)>,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Problem;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Problem> {
        let Some((index, item)) = self.rest.next() else {
            return Ok(None);
        };
        seed.deserialize(item)
            .map(Some)
            .map_err(|problem| problem.below(Step::Index(index)))
    }
}

struct Fields {
    rest: std::collections::btree_map::IntoIter<String, Node>,
    value: Option<(String, Node)>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Problem> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        let name: StringDeserializer<Problem> = key.clone().into_deserializer();
        self.value = Some((key, value));
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        let Some((key, value)) = self.value.take() else {
            return Err(Problem::new("a value was asked for before its key"));
        };
        seed.deserialize(value)
            .map_err(|problem| problem.below(Step::Key(key)))
    }
}
