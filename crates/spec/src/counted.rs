//! Lists and tables of an untrusted party, whose entries are counted while they are read: a text
//! of some megabytes can have millions, each of which takes many times its text.

use std::collections::BTreeMap;

use record::json::{Bound, List, Pairs};
use serde::de::{Deserialize, Deserializer};

/// The most arguments.
pub const MOST_ARGUMENTS: usize = 1 << 16;
/// The most environment variables.
pub const MOST_VARIABLES: usize = 4096;
/// Bytes of all of them: execve(2) takes no more with the usual limit of the stack.
pub const LARGEST_ENVIRONMENT: usize = 2 << 20;
/// The most files.
pub const MOST_FILES: usize = 1 << 16;

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
macro_rules! fields {
    ($($(#[$doc:meta])+ $name:ident: $bound:ident;)+) => {
        $($(#[$doc])+
        ///
        /// # Errors
        /// It has more entries.
        pub fn $name<'de, C: Counted<'de, $bound>, D: Deserializer<'de>>(
            from: D,
        ) -> Result<C, D::Error> {
            C::read(from)
        })+
    };
}

record::bounds! {
    /// The arguments of code.
    pub MostArgs = "args", MOST_ARGUMENTS;
    /// A program and its arguments.
    pub MostArgv = "argv", MOST_ARGUMENTS;
    /// The variables of the environment.
    pub MostEnv = "env", MOST_VARIABLES;
    /// The rules of `network.allow`.
    pub MostAllow = "allow", super::network::MOST_RULES;
    /// The rules of `network.deny`.
    pub MostDeny = "deny", super::network::MOST_RULES;
    /// The rules of `network.secret_headers`.
    pub MostSecretHeaders = "secret_headers", super::network::MOST_RULES;
    /// The files of a request.
    pub MostFiles = "files", MOST_FILES;
}

fields! {
    /// Reads the field `args`.
    args: MostArgs;
    /// Reads the field `argv`.
    argv: MostArgv;
    /// Reads the field `env`.
    env: MostEnv;
    /// Reads the field `allow` of `network`.
    allow: MostAllow;
    /// Reads the field `deny` of `network`.
    deny: MostDeny;
    /// Reads the field `secret_headers` of `network`.
    secret_headers: MostSecretHeaders;
}

/// Files of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub Vec<super::RemoteFile>);

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        List::<_, MostFiles>::deserialize(deserializer).map(|list| Self(list.into_inner()))
    }
}
