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
    use super::damage::{Target, read_corpus, read_damaged};

    const TARGETS: [Target; 5] = [
        ("upload_form", super::upload_form),
        ("envelopes", super::envelopes),
        ("signed_link", super::signed_link),
        ("sandbox_target", super::sandbox_target),
        ("sandbox_path", super::sandbox_path),
    ];

    #[test]
    fn the_corpus_is_read() {
        read_corpus(&TARGETS);
    }

    #[test]
    fn damaged_inputs_are_read() {
        read_damaged(&TARGETS);
    }
}
