//! Frames, built field by field as they arrive.

use record::json::{Form, Json, length_in_json};
use record::{CodeError, ResultItem, Variables};

use super::text::{Base64Encoder, JsonDecoder, JsonKind, TextDecoder};
use super::variables;

/// Bytes of the longest frame; a driver sends a few forms of 8 MiB at most.
pub(super) const FRAME_CAP: usize = 64 << 20;

/// The bytes are not the protocol, and nothing after them can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A frame announces more than the cap.
    #[error("a frame of {0} bytes, and at most {FRAME_CAP} are allowed")]
    Long(usize),
    /// A field reaches beyond its frame.
    #[error("a field that reaches beyond its frame")]
    Field,
    /// A frame that does not begin with its kind.
    #[error("a frame without a kind")]
    Kind,
    /// A frame whose execution is not a number.
    #[error("a frame of an execution without a number")]
    Execution,
}

/// Bytes of one result in JSON. It holds the longest form of each kind: text
/// counts twice, since the record has `text` besides the form.
const ITEM_CAP: usize = 17 << 20;
/// Bytes of one format of a result.
const FORMAT_CAP: usize = 8 << 20;
/// Formats of one result.
const FORMATS_CAP: usize = 32;
/// Bytes of the JSON of a chart or a table.
const DATA_CAP: usize = 2 << 20;
/// Bytes of the JSON about a result's formats.
const METADATA_CAP: usize = 64 << 10;
/// Bytes of a name, a note or a number.
pub(super) const NAME_CAP: usize = 256;
/// Bytes of an error's message.
const MESSAGE_CAP: usize = 64 << 10;
/// Lines of a traceback, the bytes of each, and of all.
const LINES_CAP: usize = 512;
const LINE_CAP: usize = 8 << 10;
const TRACEBACK_CAP: usize = 1 << 20;

/// A report from a shim, valid and within the caps. It may still be false: the code
/// itself can write frames.
#[derive(Clone, Debug)]
pub enum Frame {
    /// The interpreter runs and the code begins.
    Started,
    /// The code produced a value.
    Result(Displayed),
    /// New forms for the results that the code displayed before under
    /// [`ResultItem::display_id`], which is not `None`.
    Update(Displayed),
    /// The code takes back everything that it displayed so far.
    Clear {
        /// Wait until it displays something new.
        wait: bool,
    },
    /// The code raised an exception that nothing caught.
    Error {
        /// The exception.
        error: CodeError,
        /// The code does not parse. False for a syntax error in a module that it
        /// imported or in text that it evaluated.
        is_syntax: bool,
    },
    /// The interpreter ends by itself after this execution.
    Ending,
    /// What variables there are.
    Variables(Variables),
    /// The execution ended, with an exception or without.
    Done {
        /// The exit status of its last command, for a shell.
        status: Option<u8>,
    },
    /// The interpreter has nothing left to do and waits to be ended, or for the end of the channel.
    Exit {
        /// With which exit status; `None` if the frame has no such number.
        status: Option<u8>,
    },
    /// Some other kind of frame, or an update without a name.
    Unknown,
}

/// A value that the code displayed.
#[derive(Clone, Debug, Default)]
pub struct Displayed {
    /// The value in its forms.
    pub item: ResultItem,
    /// Why forms are missing or cut, in words.
    pub notes: Vec<String>,
    /// About how many bytes the value takes in JSON.
    pub size: usize,
}

/// A frame whose fields arrive.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// `None` until the field `kind` is complete.
    frame: Option<Frame>,
    execution: Option<u64>,
}

/// The part of a field's value that has arrived, in its final form.
#[derive(Debug)]
pub(super) enum Value {
    Ignored,
    Text(TextDecoder),
    Base64(Base64Encoder),
    Json(JsonDecoder),
}

impl Value {
    /// At most this many of `length` bytes, as text.
    pub(super) fn text(length: usize, cap: usize) -> Self {
        Self::Text(TextDecoder::new(length.min(cap)))
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Ignored => {}
            Self::Text(text) => text.push(bytes),
            Self::Base64(base64) => base64.push(bytes),
            Self::Json(json) => json.push(bytes),
        }
    }

    fn length_in_json(&self) -> usize {
        match self {
            Self::Ignored => 0,
            Self::Text(text) => text.length_in_json(),
            Self::Base64(base64) => base64.length_in_json(),
            Self::Json(json) => json.length(),
        }
    }
}

impl Message {
    /// How to take the value of the field that begins.
    pub(super) fn begin_field(
        &mut self,
        form: u8,
        key: &[u8],
        length: usize,
    ) -> Result<Value, Violation> {
        Ok(match &mut self.frame {
            None if form == b't' && key == b"kind" => Value::text(length, NAME_CAP),
            None => return Err(Violation::Kind),
            Some(_) if key == b"execution" => Value::text(length, NAME_CAP),
            Some(Frame::Result(displayed) | Frame::Update(displayed)) => {
                displayed.begin_field(form, key, length)
            }
            Some(Frame::Error { error, is_syntax }) => {
                *is_syntax |= key == b"syntax";
                begin_error_field(error, key, length)
            }
            Some(Frame::Clear { wait }) => {
                *wait |= key == b"wait";
                Value::Ignored
            }
            Some(Frame::Variables(list)) => variables::begin_field(list, key, length),
            Some(Frame::Done { .. } | Frame::Exit { .. }) if key == b"status" => {
                Value::text(length, NAME_CAP)
            }
            Some(
                Frame::Started
                | Frame::Ending
                | Frame::Done { .. }
                | Frame::Exit { .. }
                | Frame::Unknown,
            ) => Value::Ignored,
        })
    }

    /// Drops the value if it has become too large.
    pub(super) fn bound(&mut self, key: &[u8], value: &mut Value) {
        if let Some(Frame::Result(displayed) | Frame::Update(displayed)) = &mut self.frame
            && displayed.size + value.length_in_json() > ITEM_CAP
        {
            *value = Value::Ignored;
            displayed.note_item_cap(&shown(key));
        }
    }

    /// Takes a value that is complete.
    pub(super) fn end_field(&mut self, key: &[u8], value: Value) -> Result<(), Violation> {
        match (&mut self.frame, value) {
            (None, Value::Text(kind)) => self.frame = Some(Frame::of_kind(&kind.finish().0)),
            (Some(_), Value::Text(number)) if key == b"execution" => {
                let number = number.finish().0.parse();
                self.execution = Some(number.map_err(|_| Violation::Execution)?);
            }
            (Some(Frame::Result(displayed) | Frame::Update(displayed)), value) => {
                displayed.end_field(key, value);
            }
            (Some(Frame::Error { error, .. }), Value::Text(text)) => {
                end_error_field(error, key, text.finish().0);
            }
            (Some(Frame::Done { status } | Frame::Exit { status }), Value::Text(text)) => {
                *status = text.finish().0.parse().ok();
            }
            (Some(Frame::Variables(list)), Value::Text(text)) => {
                variables::end_field(list, key, text.finish().0);
            }
            _ => {}
        }
        Ok(())
    }

    /// The frame and the number of its execution.
    pub(super) fn finish(self) -> Result<(u64, Frame), Violation> {
        let mut frame = self.frame.ok_or(Violation::Kind)?;
        match &mut frame {
            Frame::Result(displayed) => displayed.finish(),
            Frame::Update(displayed) if displayed.item.display_id.is_some() => {
                displayed.finish();
                displayed.item.is_main_result = false;
            }
            Frame::Update(_) => frame = Frame::Unknown,
            Frame::Variables(list) => variables::finish(list),
            _ => {}
        }
        Ok((self.execution.ok_or(Violation::Execution)?, frame))
    }
}

impl Frame {
    /// A frame of this kind without any further field.
    fn of_kind(kind: &str) -> Self {
        match kind {
            "started" => Self::Started,
            "result" => Self::Result(Displayed::default()),
            "update" => Self::Update(Displayed::default()),
            "clear" => Self::Clear { wait: false },
            "error" => Self::Error {
                error: CodeError::default(),
                is_syntax: false,
            },
            "ending" => Self::Ending,
            "variables" => Self::Variables(Variables::default()),
            "done" => Self::Done { status: None },
            "exit" => Self::Exit { status: None },
            _ => Self::Unknown,
        }
    }
}

impl Displayed {
    fn begin_field(&mut self, form: u8, key: &[u8], length: usize) -> Value {
        let cap = match key {
            b"main" => {
                self.item.is_main_result = true;
                return Value::Ignored;
            }
            b"failed" | b"display_id" => return Value::text(length, NAME_CAP),
            b"metadata" => METADATA_CAP,
            b"chart" | b"data" => DATA_CAP,
            key if is_media_type(key) && self.item.formats.len() < FORMATS_CAP => FORMAT_CAP,
            _ => return Value::Ignored,
        };
        let object = self.object(key);
        let is_json = object.is_some() || form == b'j';
        if length > cap {
            if let Some(object) = object {
                *object = None;
            }
            self.note(format!("{}: more than {cap} bytes", shown(key)));
            return Value::Ignored;
        }
        match form {
            _ if is_json => Value::Json(JsonDecoder::new(length)),
            b'b' => Value::Base64(Base64Encoder::new(length)),
            _ => Value::text(length, cap),
        }
    }

    fn end_field(&mut self, key: &[u8], value: Value) {
        self.size += value.length_in_json() + key.len();
        let form = match value {
            Value::Ignored => return,
            Value::Text(text) => match (key, text.finish().0) {
                (b"failed", note) => return self.note(note),
                (b"display_id", name) => {
                    self.item.display_id = Some(name);
                    return;
                }
                (_, text) => Form::Text(text),
            },
            Value::Base64(base64) => Form::Text(base64.finish()),
            Value::Json(json) => {
                let (kind, text) = json.finish();
                if self.object(key).is_some() {
                    return self.set_object(key, kind, text);
                }
                match kind {
                    JsonKind::Object | JsonKind::Other => form_of_json(text),
                    JsonKind::Invalid => {
                        self.size += length_in_json(&text).saturating_sub(text.len());
                        Form::Text(text)
                    }
                }
            }
        };
        self.item.formats.insert(shown(key), form);
    }

    /// The field for a JSON object by this key, if there is one.
    fn object(&mut self, key: &[u8]) -> Option<&mut Option<Json>> {
        match key {
            b"metadata" => Some(&mut self.item.metadata),
            b"chart" => Some(&mut self.item.chart),
            b"data" => Some(&mut self.item.data),
            _ => None,
        }
    }

    fn set_object(&mut self, key: &[u8], kind: JsonKind, text: String) {
        let (json, why) = match kind {
            JsonKind::Object => (Some(Json::checked(text)), None),
            JsonKind::Other => (None, Some("not a JSON object")),
            JsonKind::Invalid => (None, Some("not JSON")),
        };
        if let Some(object) = self.object(key) {
            *object = json;
        }
        if let Some(why) = why {
            self.note(format!("{}: {why}", shown(key)));
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < FORMATS_CAP {
            self.notes.push(note);
        }
    }

    fn note_item_cap(&mut self, key: &str) {
        self.note(format!("{key}: one result is limited to {ITEM_CAP} bytes"));
    }

    fn finish(&mut self) {
        if let Some(Form::Text(text)) = self.item.formats.get("text/plain") {
            // The same text again takes the same room.
            let length = length_in_json(text);
            if self.size + length <= ITEM_CAP {
                self.size += length;
                self.item.text = Some(text.clone());
            } else {
                self.item.formats.remove("text/plain");
                self.note_item_cap("text/plain");
            }
        }
    }
}

/// JSON is kept as it is, but a string becomes text.
fn form_of_json(json: String) -> Form {
    if json.trim_start().starts_with('"')
        && let Ok(text) = serde_json::from_str(&json)
    {
        return Form::Text(text);
    }
    Form::Json(Json::checked(json))
}

/// Whether it looks like `text/html` or `application/vnd.x+json;v=1`.
fn is_media_type(key: &[u8]) -> bool {
    key.contains(&b'/') && key.iter().all(u8::is_ascii_graphic)
}

fn shown(key: &[u8]) -> String {
    let mut text = TextDecoder::new(key.len());
    text.push(key);
    text.finish().0
}

fn begin_error_field(error: &CodeError, key: &[u8], length: usize) -> Value {
    let cap = match key {
        b"name" | b"line" | b"errno" => NAME_CAP,
        b"message" => MESSAGE_CAP,
        b"traceback" if error.traceback.len() < LINES_CAP => {
            let used: usize = error.traceback.iter().map(String::len).sum();
            LINE_CAP.min(TRACEBACK_CAP.saturating_sub(used))
        }
        _ => return Value::Ignored,
    };
    Value::text(length, cap)
}

fn end_error_field(error: &mut CodeError, key: &[u8], text: String) {
    match key {
        b"name" => error.name = text,
        b"message" => error.message = text,
        b"line" => error.line = text.parse().ok(),
        b"errno" => error.errno = text.parse().ok(),
        _ => error.traceback.push(text),
    }
}
