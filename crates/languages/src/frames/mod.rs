//! The protocol between the supervisor and a shim.
//!
//! ```text
//! supervisor                              shim (in the cell)
//!     │ ── request ─────────────────────► │  execution, interrupted, restored, code, name, directory, argument…, memory
//!     │ ◄──────────────────────── started │  the interpreter runs, the code begins
//!     │ ── SIGINT ──────────────────────► │  if the execution is to be interrupted
//!     │ ◄───────── result, update, clear │  any number of times
//!     │ ◄────────────────────────── error │  the code raised an exception
//!     │ ◄───────────────────────── ending │  the interpreter will end by itself
//!     │ ◄─────────────────────────── done │  the execution has ended
//!     │ ◄─────────────────────────── exit │  the interpreter waits to be ended
//! ```
//!
//! A shim can serve several requests, one after the other. Each request has the
//! number of its execution, and each frame repeats the number of the execution that
//! was running when the frame was written.
//!
//! A request with `work` = `describe` and `execution` alone executes no code: its
//! frames are `started`, `variables` and `done`.
//!
//! The first request after the interpreter got the state of a checkpoint has `restored`: the shim
//! then renews generators of random numbers, as a child of fork(2) does (docs/RANDOMNESS.md).
//!
//! # Interrupts
//!
//! The supervisor sends SIGINT to the program's process group once it has read `started`, and not
//! after it has read `done`. From `started` on, the signal interrupts the execution, however early
//! it arrives: the shim reports it as an `error`, `done` follows, and the state is kept. Before
//! `started` and after `done`, the shim ignores it. A signal that arrives while the execution ends
//! has either effect, and no effect on the next one: the supervisor sends the next request only
//! after init has sent the signal, and that request has `interrupted`. A shim whose runtime handles
//! signals in a thread of its own waits until it has handled that one. If the code has set a
//! handler of its own, that handler decides what the signal does. A request to describe can be
//! interrupted, too. A shell gets SIGURG in place of SIGINT (`languages/shell`).
//!
//! # Messages
//!
//! Either direction is a sequence of messages, and a message is a sequence of
//! fields; numbers are big-endian:
//!
//! ```text
//! message:  length of the fields (4 bytes), fields
//! field:    type (1), length of the key (1), length of the value (4), key, value
//! ```
//!
//! The types are `t` for text (UTF-8; a lone surrogate may have its three-byte
//! form), `b` for bytes and `j` for JSON text. A key may occur more than once. In a
//! frame the first field is `kind`, a text; `execution` is a decimal number as text.
//!
//! | kind | fields besides `kind` and `execution` |
//! |---|---|
//! | `started` | |
//! | `result` | `main` if it is the last expression's value; each media type with its data; `failed`: why a form is missing; `display_id`: a name for updates; `metadata`, `chart`, `data`: JSON objects, as in the record |
//! | `update` | as for `result`: new forms for everything displayed under `display_id` |
//! | `clear` | takes back everything displayed so far; with `wait`, once there is a new result |
//! | `error` | `name`, `message`, `traceback` (one per line), `line`, `errno`, `syntax` if the code does not parse |
//! | `ending` | |
//! | `variables` | `total`: how many there are; of each: `name`, which comes first, `type`, `size` in bytes if it is cheaply known, `preview` |
//! | `done` | `status`: the exit status of the last command, for a shell |
//! | `exit` | `status`: the exit status to be ended with |
//!
//! A shim that has only its own exit left to do may first send `exit` and wait for a moment, at
//! most until the reading end of the frames' pipe is closed. Where the program is the cell's only
//! process and has one thread, the supervisor has it killed instead and reports this exit status:
//! the kernel takes milliseconds to free the memory of a large process, and no record has to wait
//! for that.
//!
//! Messages are plain fields and not JSON because most languages can write fields
//! without loading a library: Python's `json` costs a third of its start-up time, and
//! R and Java have none. Images need no base64 on the way either.
//!
//! User code shares its process with the shim and can write to the channel. The
//! reader therefore trusts nothing in a frame: it checks and caps everything while it
//! arrives, and keeps JSON as text ([`record::json`]). A forger can only give wrong
//! results and a wrong error for its own run.

mod json;
mod message;
mod reader;
mod text;
mod variables;

pub use message::{Displayed, Frame, Violation};
pub use reader::FrameReader;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

/// The largest request, in bytes.
pub const REQUEST_CAP: usize = 64 << 20;

/// What a shim is to do.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The number of this execution, which each of its frames repeats. What executes no
    /// code has a number, too.
    pub execution: u64,
    /// Whether SIGINT was sent to the shim during its last execution.
    pub follows_interrupt: bool,
    /// Whether the interpreter has another one's state, or one of its own of an earlier moment,
    /// since its last request.
    pub is_restored: bool,
    /// What to do.
    pub work: Work<'a>,
}

/// The work of a request.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// Executes code.
    Execute(Code<'a>),
    /// Lists the variables.
    Describe,
}

/// Code to execute, and what goes with it.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The code.
    pub code: &'a RawText,
    /// The name of the code in tracebacks.
    pub name: &'a str,
    /// The directory of the caller's modules, inside the cell.
    pub directory: &'a Path,
    /// Whether the driver may put the code into a file of that name in the directory.
    pub has_file: bool,
    /// The arguments that the code sees.
    pub args: &'a [RawText],
    /// The cell's limit on memory in bytes, for interpreters that enforce one themselves.
    pub memory: Option<u64>,
    /// Whether no other request follows.
    pub is_last: bool,
}

impl Request<'_> {
    /// The message to write to the channel.
    ///
    /// # Errors
    /// It would exceed [`REQUEST_CAP`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut message = vec![0; 4];
        let mut add = |key: &str, value: &[u8]| {
            // Longer values exceed the cap, so their length does not matter.
            let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            message.extend([b'b', key.len() as u8]);
            message.extend(length.to_be_bytes());
            message.extend(key.as_bytes());
            message.extend(value);
        };
        add("execution", self.execution.to_string().as_bytes());
        if self.follows_interrupt {
            add("interrupted", b"");
        }
        if self.is_restored {
            add("restored", b"");
        }
        match self.work {
            Work::Describe => add("work", b"describe"),
            Work::Execute(code) => {
                let directory: &OsStr = code.directory.as_ref();
                add("code", code.code.as_bytes());
                add("name", code.name.as_bytes());
                add("directory", directory.as_bytes());
                if code.has_file {
                    add("file", b"");
                }
                for argument in code.args {
                    add("argument", argument.as_bytes());
                }
                if let Some(limit) = code.memory {
                    add("memory", limit.to_string().as_bytes());
                }
                if code.is_last {
                    add("last", b"");
                }
            }
        }
        let length = message.len() - 4;
        if length > REQUEST_CAP {
            let message = format!("{length} bytes, and at most {REQUEST_CAP} are allowed");
            return Err(SetupError::new(Step::Spec, message)
                .on("code and its arguments")
                .hint("put data into a file of its own (--file)"));
        }
        message[..4].copy_from_slice(&(length as u32).to_be_bytes());
        Ok(message)
    }
}
