//! The frame that lists variables: each field `name` begins another one.

use record::{Variable, Variables};

use super::message::{NAME_CAP, Value};

/// Variables of one frame.
const VARIABLES_CAP: usize = 1000;
/// Bytes of a preview: a hundred characters.
const PREVIEW_CAP: usize = 400;

/// How to take the value of a field of this length.
pub(super) fn begin_field(list: &Variables, key: &[u8], length: usize) -> Value {
    // One too many takes the fields of all that come after the last.
    let is_full = list.variables.len() > VARIABLES_CAP;
    match key {
        b"total" => Value::text(length, NAME_CAP),
        b"name" if !is_full => Value::text(length, NAME_CAP),
        b"type" | b"size" => Value::text(length, NAME_CAP),
        b"preview" => Value::text(length, PREVIEW_CAP),
        _ => Value::Ignored,
    }
}

/// Takes a value that is complete.
pub(super) fn end_field(list: &mut Variables, key: &[u8], text: String) {
    match (key, list.variables.last_mut()) {
        (b"total", _) => list.total = text.parse().unwrap_or(0),
        (b"name", _) => list.variables.push(Variable {
            name: text,
            ..Variable::default()
        }),
        (b"type", Some(last)) => last.kind = text,
        (b"size", Some(last)) => last.size_bytes = text.parse().ok(),
        (b"preview", Some(last)) => last.preview = text,
        _ => {}
    }
}

/// Makes the number agree with the list.
pub(super) fn finish(list: &mut Variables) {
    list.total = list.total.max(list.variables.len() as u64);
    list.variables.truncate(VARIABLES_CAP);
}
