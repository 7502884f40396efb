//! Frames, out of whatever bytes come from a cell.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::fields::{Field, Fields};
use super::text::{json, text};
use crate::record::{CodeError, ResultItem};

/// Bytes of one frame.
const FRAME_CAP: usize = 16 << 20;
/// Bytes of all frames together.
const TOTAL_CAP: u64 = 1 << 30;
/// Bytes of one format of a result.
const FORMAT_CAP: usize = 8 << 20;
/// Formats of one result.
const FORMATS_CAP: usize = 32;
/// Values in the JSON of one format.
const NODES_CAP: usize = 1 << 16;
/// Bytes of the JSON of a chart, of a table, and values in it.
const DATA_CAP: usize = 2 << 20;
/// Bytes of the JSON about a result's formats, and values in it.
const METADATA_CAP: usize = 64 << 10;
/// Bytes of a name, of a media type, of a note.
const NAME_CAP: usize = 256;
/// Bytes of an error's message.
const MESSAGE_CAP: usize = 64 << 10;
/// Lines of a traceback, and bytes of each.
const LINES_CAP: usize = 512;
const LINE_CAP: usize = 8 << 10;

/// Something that a shim said, validated and capped but not to be believed: the
/// code itself may have said it.
#[derive(Clone, Debug)]
pub enum Frame {
    /// The interpreter runs and the code begins.
    Started,
    /// The code produced a value.
    Result {
        /// The value in its forms.
        item: ResultItem,
        /// Why forms are missing or cut, in words.
        notes: Vec<String>,
    },
    /// The code has new forms for the results that it displayed before under
    /// [`ResultItem::display_id`].
    Update {
        /// The forms, and the name, which is there.
        item: ResultItem,
        /// Why forms are missing or cut, in words.
        notes: Vec<String>,
    },
    /// The code takes back what it displayed so far.
    Clear {
        /// Not before it displays something new.
        wait: bool,
    },
    /// The code raised an exception that nothing caught.
    Error {
        /// The exception.
        error: CodeError,
        /// Whether it means that the code does not parse; false for a syntax
        /// error in something that the code imported or evaluated.
        is_syntax: bool,
    },
    /// The code ended, with an exception or without.
    Done,
}

/// What came is not the protocol. Nothing that follows can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A frame announces more than the cap.
    #[error("a frame of {0} bytes, and at most {FRAME_CAP} are allowed")]
    Long(usize),
    /// All frames together exceed the cap.
    #[error("more than {TOTAL_CAP} bytes of frames")]
    Total,
    /// A field reaches beyond its frame.
    #[error("a field that reaches beyond its frame")]
    Field,
    /// A frame that does not begin with its kind.
    #[error("a frame without a kind")]
    Kind,
}

/// Takes bytes as they come and gives frames. It holds at most one incomplete
/// frame, and as much of that as has come.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    total: u64,
    unknown: u64,
    broken: Option<Violation>,
}

impl FrameReader {
    /// A reader at the start of a channel.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many frames of an unknown kind there were; they are left out.
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Whether the channel may end here: it does not when a frame is cut short.
    pub const fn is_between_frames(&self) -> bool {
        self.buffer.is_empty() && self.broken.is_none()
    }

    /// Hands the frames that `bytes` complete to `take`.
    ///
    /// # Errors
    /// The bytes are not the protocol, after the frames handed out so far. The
    /// same error comes for all further bytes: the channel is best closed.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(Frame)) -> Result<(), Violation> {
        if let Some(violation) = self.broken {
            return Err(violation);
        }
        self.total += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        let outcome = self.drain(&mut take);
        if let Err(violation) = outcome {
            self.buffer = Vec::new();
            self.broken = Some(violation);
        }
        outcome
    }

    fn drain(&mut self, take: &mut impl FnMut(Frame)) -> Result<(), Violation> {
        if self.total > TOTAL_CAP {
            return Err(Violation::Total);
        }
        let mut rest = self.buffer.as_slice();
        while let Some((length, behind)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > FRAME_CAP {
                return Err(Violation::Long(length));
            }
            let Some((body, behind)) = behind.split_at_checked(length) else {
                break;
            };
            rest = behind;
            match parse(body)? {
                Some(frame) => take(frame),
                None => self.unknown += 1,
            }
        }
        let used = self.buffer.len() - rest.len();
        self.buffer.drain(..used);
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
        Ok(())
    }
}

/// The frame with this body; `None` for an unknown kind.
fn parse(body: &[u8]) -> Result<Option<Frame>, Violation> {
    let mut fields = Fields(body);
    let kind = match fields.next().transpose()? {
        Some(Field {
            form: b't',
            key: b"kind",
            value,
        }) => value,
        _ => return Err(Violation::Kind),
    };
    let frame = match kind {
        b"result" => {
            return result(fields).map(|(item, notes)| Some(Frame::Result { item, notes }));
        }
        b"update" => return update(fields),
        b"clear" => return clear(fields).map(Some),
        b"error" => return error(fields).map(Some),
        b"started" => Some(Frame::Started),
        b"done" => Some(Frame::Done),
        _ => None,
    };
    fields.try_for_each(|field| field.map(drop))?;
    Ok(frame)
}

fn result(fields: Fields<'_>) -> Result<(ResultItem, Vec<String>), Violation> {
    let mut item = ResultItem::default();
    let mut notes = Vec::new();
    for field in fields {
        let field = field?;
        match field.key {
            b"main" => item.is_main_result = true,
            b"failed" if notes.len() < FORMATS_CAP => notes.push(text(field.value, NAME_CAP)),
            b"display_id" => item.display_id = Some(text(field.value, NAME_CAP)),
            b"metadata" => item.metadata = object(&field, METADATA_CAP, &mut notes),
            b"chart" => item.chart = object(&field, DATA_CAP, &mut notes),
            b"data" => item.data = object(&field, DATA_CAP, &mut notes),
            key if is_media_type(key) && item.formats.len() < FORMATS_CAP => {
                let key = text(key, NAME_CAP);
                if field.value.len() > FORMAT_CAP {
                    note(&mut notes, format!("{key}: more than {FORMAT_CAP} bytes"));
                } else {
                    item.formats.insert(key, value(&field));
                }
            }
            _ => {}
        }
    }
    item.text = match item.formats.get("text/plain") {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    Ok((item, notes))
}

/// An update without a name is for nothing.
fn update(fields: Fields<'_>) -> Result<Option<Frame>, Violation> {
    let (mut item, notes) = result(fields)?;
    item.is_main_result = false;
    Ok((item.display_id.is_some()).then_some(Frame::Update { item, notes }))
}

fn clear(fields: Fields<'_>) -> Result<Frame, Violation> {
    let mut wait = false;
    for field in fields {
        wait |= field?.key == b"wait";
    }
    Ok(Frame::Clear { wait })
}

/// The JSON object in a field of at most `cap` bytes; nothing else, and not
/// one of so many values that it would take many times its length.
fn object(field: &Field<'_>, cap: usize, notes: &mut Vec<String>) -> Option<Value> {
    let reason = if field.value.len() > cap {
        format!("more than {cap} bytes")
    } else {
        match json(field.value, NODES_CAP) {
            Some(value @ Value::Object(_)) => return Some(value),
            Some(_) => "not a JSON object".to_owned(),
            None => format!("not JSON of at most {NODES_CAP} values"),
        }
    };
    note(notes, format!("{}: {reason}", text(field.key, NAME_CAP)));
    None
}

fn note(notes: &mut Vec<String>, text: String) {
    if notes.len() < FORMATS_CAP {
        notes.push(text);
    }
}

fn value(field: &Field<'_>) -> Value {
    let shown = || text(field.value, FORMAT_CAP).into();
    match field.form {
        b'b' => BASE64.encode(field.value).into(),
        b'j' => json(field.value, NODES_CAP).unwrap_or_else(shown),
        _ => shown(),
    }
}

/// Whether it looks like `text/html` or `application/vnd.x+json;v=1`.
fn is_media_type(key: &[u8]) -> bool {
    key.contains(&b'/') && key.iter().all(u8::is_ascii_graphic)
}

fn error(fields: Fields<'_>) -> Result<Frame, Violation> {
    let mut error = CodeError {
        name: String::new(),
        message: String::new(),
        traceback: Vec::new(),
        line: None,
        errno: None,
    };
    let mut is_syntax = false;
    for field in fields {
        let field = field?;
        match field.key {
            b"name" => error.name = text(field.value, NAME_CAP),
            b"message" => error.message = text(field.value, MESSAGE_CAP),
            b"traceback" if error.traceback.len() < LINES_CAP => {
                error.traceback.push(text(field.value, LINE_CAP));
            }
            b"line" => error.line = number(field.value),
            b"errno" => error.errno = number(field.value),
            b"syntax" => is_syntax = true,
            _ => {}
        }
    }
    Ok(Frame::Error { error, is_syntax })
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
