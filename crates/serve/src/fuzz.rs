//! Functions that read lines of clients, for fuzzing: `tests/fuzz` calls them with generated
//! inputs, and the tests below with the same corpus and damaged copies of it.
//!
//! Nothing here may panic, and each function asserts what must hold for any bytes.

use std::time::Instant;

use wire::Party;

use serde_json::Value;

use crate::{Action, Hub, Settings};

/// Lines of a client of the server's own protocol, where no supervisor ever answers.
pub fn protocol_lines(bytes: &[u8]) {
    let mut hub = Hub::new(Settings::default(), 1000, Instant::now());
    hub.connect(1, Party::User(1000), false);
    for line in bytes.split(|byte| *byte == b'\n') {
        hub.line(1, line);
    }
    hub.gone(1);
    while let Some(action) = hub.next_action() {
        match action {
            Action::Say(_, line) => drop(is_object(&line)),
            Action::Order(_, line) => assert!(!line.contains('\n'), "{line}"),
            _ => {}
        }
    }
}

/// The object in a line.
fn is_object(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    assert!(value.is_object() && !line.contains('\n'), "{line}");
    value
}

#[cfg(test)]
#[path = "../../../tests/fuzz/damage.rs"]
mod damage;

#[cfg(test)]
mod tests {
    super::damage::test_targets!(protocol_lines);
}
