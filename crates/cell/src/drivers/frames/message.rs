//! Frames, built field by field as they come.

use super::text::{Checked, Encoded, Kind, Shown, Start};
use record::json::{Form, Json, length_in_json};
use record::{CodeError, ResultItem};

/// Bytes of one result in JSON. It holds the longest form of each kind: text
/// counts twice, since the record has `text` besides the form.
const ITEM_CAP: usize = 17 << 20;
/// Bytes of one format of a result.
const FORMAT_CAP: usize = 8 << 20;
/// Formats of one result.
const FORMATS_CAP: usize = 32;
/// Bytes of the JSON of a chart, of a table.
const DATA_CAP: usize = 2 << 20;
/// Bytes of the JSON about a result's formats.
const METADATA_CAP: usize = 64 << 10;
/// Bytes of a name, of a media type, of a note.
const NAME_CAP: usize = 256;
/// Bytes of an error's message.
const MESSAGE_CAP: usize = 64 << 10;
/// Lines of a traceback, bytes of each, and of all.
const LINES_CAP: usize = 512;
const LINE_CAP: usize = 8 << 10;
const TRACEBACK_CAP: usize = 1 << 20;

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
        /// About how many bytes the value takes in JSON.
        size: usize,
    },
    /// The code has new forms for the results that it displayed before under
    /// [`ResultItem::display_id`].
    Update {
        /// The forms, and the name, which is there.
        item: ResultItem,
        /// Why forms are missing or cut, in words.
        notes: Vec<String>,
        /// About how many bytes the value takes in JSON.
        size: usize,
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

/// A frame of which some fields have come.
#[derive(Debug)]
pub(super) enum Message {
    Started,
    Result(Item),
    Update(Item),
    Clear {
        wait: bool,
    },
    Error(Exception),
    Done,
    /// Of a kind that nobody knows.
    Unknown,
}

/// A field's value as far as it has come.
#[derive(Debug)]
pub(super) enum Value {
    Ignored,
    Start(Start),
    Shown(Shown),
    Encoded(Encoded),
    Checked(Checked),
}

impl Value {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Ignored => {}
            Self::Start(start) => start.push(bytes),
            Self::Shown(shown) => shown.push(bytes),
            Self::Encoded(encoded) => encoded.push(bytes),
            Self::Checked(checked) => checked.push(bytes),
        }
    }

    fn in_json(&self) -> usize {
        match self {
            Self::Ignored | Self::Start(_) => 0,
            Self::Shown(shown) => shown.in_json(),
            Self::Encoded(encoded) => encoded.in_json(),
            Self::Checked(checked) => checked.shown.length(),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Start(start) => start.finish(),
            _ => String::new(),
        }
    }
}

impl Message {
    /// A frame of this kind, in the form that the kind has on the wire.
    pub(super) fn of(kind: &[u8]) -> Self {
        match kind {
            b"started" => Self::Started,
            b"result" => Self::Result(Item::default()),
            b"update" => Self::Update(Item::default()),
            b"clear" => Self::Clear { wait: false },
            b"error" => Self::Error(Exception::default()),
            b"done" => Self::Done,
            _ => Self::Unknown,
        }
    }

    /// How the value of a field is to be taken, of which this many bytes come.
    pub(super) fn begin(&mut self, form: u8, key: &[u8], length: usize) -> Value {
        match self {
            Self::Result(item) | Self::Update(item) => item.begin(form, key, length),
            Self::Error(exception) => exception.begin(key),
            Self::Clear { wait } => {
                *wait |= key == b"wait";
                Value::Ignored
            }
            Self::Started | Self::Done | Self::Unknown => Value::Ignored,
        }
    }

    /// Drops a value that has become too large.
    pub(super) fn bound(&mut self, key: &[u8], value: &mut Value) {
        if let Self::Result(item) | Self::Update(item) = self
            && item.size + value.in_json() > ITEM_CAP
        {
            *value = Value::Ignored;
            item.note(format!(
                "{}: one result is limited to {ITEM_CAP} bytes",
                shown(key)
            ));
        }
    }

    /// Takes a field whose value is whole.
    pub(super) fn end(&mut self, key: &[u8], value: Value) {
        match self {
            Self::Result(item) | Self::Update(item) => item.end(key, value),
            Self::Error(exception) => exception.end(key, value),
            _ => {}
        }
    }

    /// The frame; `None` for what means nothing.
    pub(super) fn finish(self) -> Option<Frame> {
        Some(match self {
            Self::Started => Frame::Started,
            Self::Result(item) => {
                let (item, notes, size) = item.finish();
                Frame::Result { item, notes, size }
            }
            Self::Update(item) => {
                let (mut item, notes, size) = item.finish();
                item.is_main_result = false;
                // An update without a name is for nothing.
                item.display_id.as_ref()?;
                Frame::Update { item, notes, size }
            }
            Self::Clear { wait } => Frame::Clear { wait },
            Self::Error(Exception {
                error, is_syntax, ..
            }) => Frame::Error { error, is_syntax },
            Self::Done => Frame::Done,
            Self::Unknown => return None,
        })
    }
}

fn shown(key: &[u8]) -> String {
    let mut start = Start::of(NAME_CAP);
    start.push(key);
    start.finish()
}

/// A result on its way.
#[derive(Debug, Default)]
pub(super) struct Item {
    item: ResultItem,
    notes: Vec<String>,
    /// Bytes in JSON.
    size: usize,
}

impl Item {
    fn begin(&mut self, form: u8, key: &[u8], length: usize) -> Value {
        let is_short = |cap| length <= cap;
        match key {
            b"main" => self.item.is_main_result = true,
            b"failed" if self.notes.len() < FORMATS_CAP => {
                return Value::Start(Start::of(NAME_CAP));
            }
            b"display_id" => return Value::Start(Start::of(NAME_CAP)),
            b"metadata" | b"chart" | b"data" => {
                let cap = if key == b"metadata" {
                    METADATA_CAP
                } else {
                    DATA_CAP
                };
                if is_short(cap) {
                    return Value::Checked(Checked::with_room(length));
                }
                *self.object(key) = None;
                self.note(format!("{}: more than {cap} bytes", shown(key)));
            }
            key if is_media_type(key) && self.item.formats.len() < FORMATS_CAP => {
                if is_short(FORMAT_CAP) {
                    return match form {
                        b'b' => Value::Encoded(Encoded::with_room(length)),
                        b'j' => Value::Checked(Checked::with_room(length)),
                        _ => Value::Shown(Shown::with_room(length)),
                    };
                }
                self.note(format!("{}: more than {FORMAT_CAP} bytes", shown(key)));
            }
            _ => {}
        }
        Value::Ignored
    }

    fn object(&mut self, key: &[u8]) -> &mut Option<Json> {
        match key {
            b"metadata" => &mut self.item.metadata,
            b"chart" => &mut self.item.chart,
            _ => &mut self.item.data,
        }
    }

    fn end(&mut self, key: &[u8], value: Value) {
        self.size += value.in_json() + key.len();
        match (key, value) {
            (b"failed", value @ Value::Start(_)) => self.note(value.text()),
            (b"display_id", value @ Value::Start(_)) => {
                let name = value.text();
                self.size += length_in_json(&name);
                self.item.display_id = Some(name);
            }
            (b"metadata" | b"chart" | b"data", Value::Checked(checked)) => {
                let (object, why) = match checked.finish() {
                    (Kind::Object, text) => (Some(Json::checked(text)), None),
                    (Kind::Json, _) => (None, Some("not a JSON object")),
                    (Kind::Text, _) => (None, Some("not JSON")),
                };
                *self.object(key) = object;
                if let Some(why) = why {
                    self.note(format!("{}: {why}", shown(key)));
                }
            }
            (key, value) => {
                let form = match value {
                    Value::Shown(text) => Form::Text(text.finish().0),
                    Value::Encoded(encoded) => Form::Text(encoded.finish()),
                    Value::Checked(checked) => match checked.finish() {
                        (Kind::Object | Kind::Json, text) => form_of(text),
                        (Kind::Text, text) => {
                            self.size += length_in_json(&text).saturating_sub(text.len());
                            Form::Text(text)
                        }
                    },
                    Value::Ignored | Value::Start(_) => return,
                };
                self.item.formats.insert(shown(key), form);
            }
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < FORMATS_CAP {
            self.notes.push(note);
        }
    }

    fn finish(mut self) -> (ResultItem, Vec<String>, usize) {
        if let Some(Form::Text(text)) = self.item.formats.get("text/plain") {
            // As long in JSON as the form is, which is counted already.
            let length = length_in_json(text);
            if self.size + length <= ITEM_CAP {
                self.size += length;
                self.item.text = Some(text.clone());
            } else {
                self.item.formats.remove("text/plain");
                self.note(format!(
                    "text/plain: one result is limited to {ITEM_CAP} bytes"
                ));
            }
        }
        (self.item, self.notes, self.size)
    }
}

/// JSON is kept as it is, but a string is text as any other.
fn form_of(json: String) -> Form {
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

/// An exception on its way.
#[derive(Debug)]
pub(super) struct Exception {
    error: CodeError,
    is_syntax: bool,
    /// Bytes that its traceback may still have.
    room: usize,
}

impl Default for Exception {
    fn default() -> Self {
        Self {
            error: CodeError {
                name: String::new(),
                message: String::new(),
                traceback: Vec::new(),
                line: None,
                errno: None,
            },
            is_syntax: false,
            room: TRACEBACK_CAP,
        }
    }
}

impl Exception {
    fn begin(&mut self, key: &[u8]) -> Value {
        let cap = match key {
            b"name" | b"line" | b"errno" => NAME_CAP,
            b"message" => MESSAGE_CAP,
            b"traceback" if self.error.traceback.len() < LINES_CAP => LINE_CAP.min(self.room),
            b"syntax" => {
                self.is_syntax = true;
                return Value::Ignored;
            }
            _ => return Value::Ignored,
        };
        Value::Start(Start::of(cap))
    }

    fn end(&mut self, key: &[u8], value: Value) {
        if !matches!(value, Value::Start(_)) {
            return;
        }
        let text = value.text();
        match key {
            b"name" => self.error.name = text,
            b"message" => self.error.message = text,
            b"line" => self.error.line = text.parse().ok(),
            b"errno" => self.error.errno = text.parse().ok(),
            _ => {
                self.room = self.room.saturating_sub(text.len());
                self.error.traceback.push(text);
            }
        }
    }
}
