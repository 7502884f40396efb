//! Functions that read lines of clients, for fuzzing: `tests/fuzz` calls them with generated
//! inputs, and the tests below with the same corpus and damaged copies of it.
//!
//! Nothing here may panic, and each function asserts what must hold for any bytes.

use std::time::Instant;

use serde_json::{Value, json};

use crate::mcp::{About, Door, Line};
use crate::protocol::{self, Code, Failure};
use crate::{Action, Hub, Party, Settings};

/// Lines of a client of MCP. The first byte says what the server answers to each of their calls.
pub fn mcp_lines(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else {
        return;
    };
    let now = Instant::now();
    let mut door = Door::new(About::default());
    for line in bytes.split(|byte| *byte == b'\n') {
        door.take_from_client(line, now);
        while let Some(line) = door.next_line() {
            let line = match line {
                Line::Client(line) => {
                    assert_eq!(is_object(&line)["jsonrpc"], "2.0");
                    continue;
                }
                Line::Server(line) => line,
            };
            // Whatever a client sends, the door makes calls of the server's protocol.
            let call = protocol::parse(&line);
            assert!(call.is_ok(), "{line}: {call:?}");
            let id = is_object(&line)["id"].take();
            let answer = match how % 3 {
                0 => json!({"id": id, "error": {"code": "failed", "message": "no"}}),
                1 => json!({"id": id, "result": {}}),
                _ => continue,
            };
            door.take_from_server(answer.to_string().as_bytes(), now);
        }
    }
    door.fail(&Failure::new(Code::ShuttingDown, "the end"));
    while let Some(line) = door.next_line() {
        if let Line::Client(line) = line {
            is_object(&line);
        }
    }
    assert!(door.is_idle());
}

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
    super::damage::test_targets!(mcp_lines, protocol_lines);
}
