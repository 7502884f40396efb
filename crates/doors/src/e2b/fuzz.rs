//! Functions that read bytes of E2B's clients, for fuzzing (`crate::fuzz`).

pub use super::access::sandbox_target;
pub use super::connect::envelopes;
pub use super::envd::{sandbox_path, upload_form};
pub use super::links::signed_link;
