//! What callers, servers and supervisors say about contexts.

use serde::{Deserialize, Serialize};

/// What became of the state of an interpreter: its variables, imports and open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All of it is still there.
    Kept,
    /// The interpreter ended. The next execution begins with a new one; the workspace is
    /// kept.
    Lost,
    /// It is that of an earlier moment.
    Restored,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

impl TerminalSize {
    /// As the kernel's commands have it: rows, then columns.
    pub const fn pair(self) -> [u16; 2] {
        [self.rows, self.columns]
    }
}
