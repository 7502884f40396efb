//! Lists and tables of an untrusted party, whose entries are counted while they are read: a text
//! of some megabytes can have millions, each of which takes many times its text.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer};

use crate::json::{Bound, List, Pairs};

/// The most arguments.
pub const MOST_ARGUMENTS: usize = 1 << 16;
/// The most environment variables.
pub const MOST_VARIABLES: usize = 4096;

/// A form that a list or a table with a bound is read into.
pub trait Counted<'de, B>: Sized {
    /// Reads at most as many entries as the bound allows.
    ///
    /// # Errors
    /// It has more, or is not of this form.
    fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

impl<'de, T: Deserialize<'de>, B: Bound> Counted<'de, B> for Vec<T> {
    fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        List::<T, B>::deserialize(from).map(List::into_inner)
    }
}

impl<'de, T: Deserialize<'de>, B: Bound> Counted<'de, B> for Option<Vec<T>> {
    fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let list = Option::<List<T, B>>::deserialize(from)?;
        Ok(list.map(List::into_inner))
    }
}

impl<'de, T: Deserialize<'de>, B: Bound> Counted<'de, B> for BTreeMap<String, T> {
    fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Pairs::<T, B>::deserialize(from).map(Pairs::into_inner)
    }
}

/// Functions for serde's `deserialize_with`, one for each field.
#[macro_export]
macro_rules! counted_fields {
    ($($(#[$doc:meta])+ $name:ident: $bound:ident;)+) => {
        $($(#[$doc])+
        ///
        /// # Errors
        /// It has more entries.
        pub fn $name<'de, C: $crate::counted::Counted<'de, $bound>, D: serde::Deserializer<'de>>(
            from: D,
        ) -> Result<C, D::Error> {
            C::read(from)
        })+
    };
}

crate::bounds! {
    /// The arguments of code.
    pub MostArgs = "args", MOST_ARGUMENTS;
    /// A program and its arguments.
    pub MostArgv = "argv", MOST_ARGUMENTS;
    /// The variables of the environment.
    pub MostEnv = "env", MOST_VARIABLES;
}

counted_fields! {
    /// Reads the field `args`.
    args: MostArgs;
    /// Reads the field `argv`.
    argv: MostArgv;
    /// Reads the field `env`.
    env: MostEnv;
}
