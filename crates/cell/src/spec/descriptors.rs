//! Descriptors of the caller's that the program gets.

use serde::Serialize;

use record::DescriptorRecord;

/// The numbers that they may have: standard streams come before them, and init's own
/// descriptors after them.
pub const NUMBERS: std::ops::RangeInclusive<i32> = 3..=15;

/// A descriptor of the caller's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    /// What it is, for the record.
    #[serde(flatten)]
    pub record: DescriptorRecord,
    /// Whether it leads to the network that its maker has, and not to the cell's.
    pub is_network: bool,
}
