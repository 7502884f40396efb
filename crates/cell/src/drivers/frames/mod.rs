//! What the supervisor and a shim say to each other on the channel.
//!
//! ```text
//! supervisor                              shim (in the cell)
//!     │ ── request ─────────────────────► │  code, name, directory, argument…, memory, parts of the shim
//!     │ ◄──────────────────────── started │  the interpreter runs, the code begins
//!     │ ◄───────── result, update, clear │  any number of times
//!     │ ◄────────────────────────── error │  the code raised
//!     │ ◄─────────────────────────── done │  the code ended; threads may go on
//! ```
//!
//! Either direction is a sequence of messages, and a message is a sequence of
//! fields; numbers are big-endian:
//!
//! ```text
//! message:  length of the fields (4 bytes), fields
//! field:    type (1), length of the key (1), length of the value (4), key, value
//! ```
//!
//! The types are `t` for text (UTF-8, in which lone surrogates may stand as
//! their three-byte form), `b` for bytes and `j` for JSON text. A key may occur
//! more than once. In a frame, the first field is `kind`.
//!
//! | kind | fields |
//! |---|---|
//! | `started` | |
//! | `result` | `main` if it is the last expression's value; each media type with its data; `failed`: why a form is missing; `display_id`: a name for updates; `metadata`, `chart`, `data`: JSON objects, as in the record |
//! | `update` | as for `result`: new forms for those that were displayed under `display_id` |
//! | `clear` | takes back what was displayed so far; with `wait`, once there is a new result |
//! | `error` | `name`, `message`, `traceback` (one per line), `line`, `errno`, `syntax` if the code does not parse |
//! | `done` | |
//!
//! Plain fields and not JSON, because most languages can write them without
//! loading a library: Python's `json` costs a third of its start-up, R and Java
//! have none. Images need no base64 on the way either.
//!
//! User code shares its process with the shim and can write to the channel.
//! Nothing in a frame is trusted: everything is checked and capped while it comes,
//! JSON stays the text that it is ([`record::json`]), and the worst that a
//! forger gets is wrong results and a wrong error of its own.

mod fields;
mod json;
mod message;
mod reader;
mod text;

pub use message::Frame;
pub use reader::{FrameReader, Violation};

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::Part;
use crate::spec::Bytes;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

/// The most that the code and its arguments may come to, in bytes.
pub const REQUEST_CAP: usize = 64 << 20;

/// What a shim is asked to run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The code.
    pub code: &'a RawText,
    /// What the code is called in tracebacks.
    pub name: &'a str,
    /// Where modules of the caller's are, inside the cell.
    pub directory: &'a Path,
    /// Arguments that the code sees.
    pub args: &'a [RawText],
    /// The cell's limit on memory, for interpreters that keep one themselves.
    pub memory: Option<Bytes>,
    /// Parts of the shim; a field each.
    pub parts: &'a [Part],
}

impl Request<'_> {
    /// The message to write to the channel.
    ///
    /// # Errors
    /// It would exceed [`REQUEST_CAP`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut message = vec![0; 4];
        fields::write(&mut message, "code", self.code.as_bytes());
        fields::write(&mut message, "name", self.name.as_bytes());
        let directory: &OsStr = self.directory.as_ref();
        fields::write(&mut message, "directory", directory.as_bytes());
        for argument in self.args {
            fields::write(&mut message, "argument", argument.as_bytes());
        }
        if let Some(limit) = self.memory {
            fields::write(&mut message, "memory", limit.0.to_string().as_bytes());
        }
        for part in self.parts {
            fields::write(&mut message, part.name, part.content.as_bytes());
        }
        let length = u32::try_from(message.len() - 4).unwrap_or(u32::MAX);
        if length as usize > REQUEST_CAP {
            let message = format!("{length} bytes, and at most {REQUEST_CAP} are allowed");
            return Err(SetupError::new(Step::Spec, message)
                .on("code and its arguments")
                .hint("put data into a file of its own (--file)"));
        }
        message[..4].copy_from_slice(&length.to_be_bytes());
        Ok(message)
    }
}
