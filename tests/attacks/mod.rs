//! One file per technique of the attack catalogue.

use crate::cells::Suite;

mod namespaces;

/// Every technique, in the catalogue's order.
pub(crate) const SUITES: &[&Suite] = &[&namespaces::SUITE];
