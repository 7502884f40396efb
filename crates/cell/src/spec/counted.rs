//! Lists and tables of an untrusted party, whose entries are counted while they are read: a text
//! of some megabytes can have millions, each of which takes many times its text.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The most arguments.
pub const MOST_ARGUMENTS: usize = 1 << 16;
/// The most environment variables.
pub const MOST_VARIABLES: usize = 4096;
/// Bytes of all of them: execve(2) takes no more with the usual limit of the stack.
pub const LARGEST_ENVIRONMENT: usize = 2 << 20;
/// The most files.
pub const MOST_FILES: usize = 1 << 16;

/// What entries are read into.
pub trait Counted<'de>: Sized {
    /// Reads at most `most` entries of `field`.
    ///
    /// # Errors
    /// It has more, or is not of this form.
    fn read<D: Deserializer<'de>>(
        field: &'static str,
        most: usize,
        deserializer: D,
    ) -> Result<Self, D::Error>;
}

struct Entries<C> {
    field: &'static str,
    most: usize,
    of: PhantomData<C>,
}

impl<C> Entries<C> {
    fn of(field: &'static str, most: usize) -> Self {
        let of = PhantomData;
        Self { field, most, of }
    }

    fn count<E: Error>(&self, before: usize) -> Result<(), E> {
        let Self { field, most, .. } = self;
        match before < *most {
            true => Ok(()),
            false => Err(E::custom(format!(
                "{field}: has more than {most} entries, which is the most"
            ))),
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<Vec<T>> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} entries", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_element()? {
            self.count(all.len())?;
            all.push(entry);
        }
        Ok(all)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<BTreeMap<String, T>> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table of at most {} entries", self.most)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry()? {
            self.count(all.len())?;
            all.insert(name, value);
        }
        Ok(all)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<Option<Vec<T>>> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} entries, or null", self.most)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Vec::read(self.field, self.most, deserializer).map(Some)
    }
}

macro_rules! counted {
    ($($form:ty, $method:ident;)+) => {
        $(impl<'de, T: Deserialize<'de>> Counted<'de> for $form {
            fn read<D: Deserializer<'de>>(
                field: &'static str,
                most: usize,
                deserializer: D,
            ) -> Result<Self, D::Error> {
                deserializer.$method(Entries::<Self>::of(field, most))
            }
        })+
    };
}

counted! {
    Vec<T>, deserialize_seq;
    Option<Vec<T>>, deserialize_option;
    BTreeMap<String, T>, deserialize_map;
}

/// Functions for serde's `deserialize_with`, one for each field.
macro_rules! fields {
    ($($(#[$doc:meta])+ $name:ident <= $most:expr;)+) => {
        $($(#[$doc])+
        ///
        /// # Errors
        /// It has more entries.
        pub fn $name<'de, C: Counted<'de>, D: Deserializer<'de>>(from: D) -> Result<C, D::Error> {
            C::read(stringify!($name), $most, from)
        })+
    };
}

fields! {
    /// Reads the field `args`.
    args <= MOST_ARGUMENTS;
    /// Reads the field `argv`.
    argv <= MOST_ARGUMENTS;
    /// Reads the field `env`.
    env <= MOST_VARIABLES;
    /// Reads the field `allow` of `network`.
    allow <= super::network::MOST_RULES;
    /// Reads the field `deny` of `network`.
    deny <= super::network::MOST_RULES;
    /// Reads the field `secret_headers` of `network`.
    secret_headers <= super::network::MOST_RULES;
}

/// Files of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub Vec<super::RemoteFile>);

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::read("files", MOST_FILES, deserializer).map(Self)
    }
}
