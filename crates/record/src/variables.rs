//! The variables of a context.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The variables that the code of a context has made; what the code itself could forge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Variables {
    /// The first of them, in the interpreter's order.
    pub variables: Vec<Variable>,
    /// How many there are, at least.
    pub total: u64,
}

/// A variable, function or class of the top level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Variable {
    /// Its name; it may hold any character.
    pub name: String,
    /// The name of its value's type, as its language has it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The size of its value in bytes, where that is cheaply known: without what the
    /// value refers to, but with an array's own data.
    pub size_bytes: Option<u64>,
    /// Its value in short, in one line of about 100 characters at most.
    pub preview: String,
}
