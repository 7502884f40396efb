//! Functions that read bytes of HTTP's clients, for fuzzing: `tests/fuzz` calls them with generated
//! inputs, and the tests below with the same corpus and damaged copies of it.
//!
//! Nothing here may panic, and each function asserts what must hold for any bytes. Each is in the
//! module whose parser it calls.

pub use crate::e2b::fuzz::{envelopes, sandbox_path, sandbox_target, signed_link, upload_form};

use std::time::Instant;

use wire::{Code, Failure};

use serde_json::{Value, json};

use crate::mcp::{About, Door, Line};

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
            let call = wire::parse(&line);
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
    super::damage::test_targets!(
        mcp_lines,
        upload_form,
        envelopes,
        signed_link,
        sandbox_target,
        sandbox_path
    );
}
