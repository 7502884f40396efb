//! Functions that read bytes of HTTP's clients, for fuzzing: `tests/fuzz` calls them with generated
//! inputs, and the tests below with the same corpus and damaged copies of it.
//!
//! Nothing here may panic, and each function asserts what must hold for any bytes. Each is in the
//! module whose parser it calls.

pub use crate::e2b::fuzz::{envelopes, sandbox_path, sandbox_target, signed_link, upload_form};

#[cfg(test)]
#[path = "../../../tests/fuzz/damage.rs"]
mod damage;

#[cfg(test)]
mod tests {
    super::damage::test_targets!(
        upload_form,
        envelopes,
        signed_link,
        sandbox_target,
        sandbox_path
    );
}
