//! Descriptors of the caller's that the program gets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use record::DescriptorRecord;

/// The numbers that they may have: standard streams come before them, and init's own
/// descriptors after them.
pub const NUMBERS: std::ops::RangeInclusive<i32> = 3..=15;

/// A descriptor of the caller's that the program is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PassedFd {
    /// The caller's number, 3 to 15.
    pub from: i32,
    /// The program's number, 3 to 15; by default the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<i32>,
}

impl PassedFd {
    /// The program's number.
    pub fn inside(self) -> i32 {
        self.to.unwrap_or(self.from)
    }
}

/// A descriptor of the caller's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    /// What it is, for the record.
    #[serde(flatten)]
    pub record: DescriptorRecord,
    /// Whether it leads to the network that its maker has, and not to the cell's.
    pub is_network: bool,
}
