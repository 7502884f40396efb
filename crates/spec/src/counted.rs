//! Lists and tables of an untrusted party, which are counted while they are read.

pub use record::counted::*;
use record::json::List;
use serde::de::{Deserialize, Deserializer};

/// Bytes of all variables: execve(2) takes no more with the usual limit of the stack.
pub const LARGEST_ENVIRONMENT: usize = 2 << 20;
/// The most files.
pub const MOST_FILES: usize = 1 << 16;

record::bounds! {
    /// The rules of `network.allow`.
    pub MostAllow = "allow", super::network::MOST_RULES;
    /// The rules of `network.deny`.
    pub MostDeny = "deny", super::network::MOST_RULES;
    /// The rules of `network.secret_headers`.
    pub MostSecretHeaders = "secret_headers", super::network::MOST_RULES;
    /// The files of a request.
    pub MostFiles = "files", MOST_FILES;
}

record::counted_fields! {
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

impl record::unread::Form for Files {
    const BEGINS: &'static [u8] = b"[";
    const WANTED: &'static str = "a list of files";
}
