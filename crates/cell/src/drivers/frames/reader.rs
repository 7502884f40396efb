//! Frames, out of whatever bytes come from a cell.
//!
//! Nothing is held but what will be kept: each piece of a value goes to its final
//! form as it comes, which costs a few nanoseconds a byte, so that the longest
//! frame takes no longer at a time than as many short ones.

use super::message::{Frame, Message, Value};

/// Most bytes of one frame; announcing more is a violation. A driver sends a few
/// forms of 8 MiB at most.
const FRAME_CAP: usize = 64 << 20;
/// Bytes of a field before its key.
const HEAD: usize = 6;
/// No kind is longer.
const KIND_CAP: usize = 16;

/// What came is not the protocol. Nothing that follows can be understood.
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
}

/// Takes bytes as they come and gives frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// What has come of a length, or of a field's head and key.
    held: Vec<u8>,
    stage: Stage,
    unknown: u64,
    broken: Option<Violation>,
}

#[derive(Debug, Default)]
enum Stage {
    /// A frame's length comes.
    #[default]
    Length,
    /// A field's head comes, unless the frame ends here.
    Head(Open),
    /// A field's value comes.
    Value(Open, Field),
}

/// A frame that has begun.
#[derive(Debug)]
struct Open {
    /// Its bytes that are to come.
    left: usize,
    /// `None` until its kind has come.
    message: Option<Message>,
}

/// A field whose value comes.
#[derive(Debug)]
struct Field {
    key: Vec<u8>,
    /// Its bytes that are to come.
    left: usize,
    /// `None` for the kind, whose bytes are held.
    value: Option<Value>,
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
    pub fn is_between_frames(&self) -> bool {
        matches!(self.stage, Stage::Length) && self.held.is_empty() && self.broken.is_none()
    }

    /// Hands the frames that `bytes` complete to `take`.
    ///
    /// # Errors
    /// The bytes are not the protocol, after the frames handed out so far. The
    /// same error comes for all further bytes.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(Frame)) -> Result<(), Violation> {
        if let Some(violation) = self.broken {
            return Err(violation);
        }
        let mut rest = bytes;
        let outcome = loop {
            match self.step(&mut rest, &mut take) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(violation) => break Err(violation),
            }
        };
        if let Err(violation) = outcome {
            *self = Self {
                unknown: self.unknown,
                broken: Some(violation),
                ..Self::default()
            };
        }
        outcome
    }

    /// Goes on by one part of a frame; says whether there was enough for it.
    fn step(&mut self, rest: &mut &[u8], take: &mut impl FnMut(Frame)) -> Result<bool, Violation> {
        match std::mem::take(&mut self.stage) {
            Stage::Length => {
                if !hold(&mut self.held, rest, 4) {
                    return Ok(false);
                }
                let length = number(&self.held);
                self.held.clear();
                if length > FRAME_CAP {
                    return Err(Violation::Long(length));
                }
                self.go_on(
                    Open {
                        left: length,
                        message: None,
                    },
                    take,
                )?;
                Ok(true)
            }
            Stage::Head(open) => self.head(open, rest),
            Stage::Value(open, field) => self.value(open, field, rest, take),
        }
    }

    fn head(&mut self, mut open: Open, rest: &mut &[u8]) -> Result<bool, Violation> {
        if open.left < HEAD {
            return Err(Violation::Field);
        }
        let mut is_whole = hold(&mut self.held, rest, HEAD);
        let mut key = 0;
        if is_whole {
            key = usize::from(self.held[1]);
            let length = number(&self.held[2..HEAD]);
            let is_within = open.left.checked_sub(HEAD + key) >= Some(length);
            if !is_within {
                return Err(Violation::Field);
            }
            is_whole = hold(&mut self.held, rest, HEAD + key);
        }
        if !is_whole {
            self.stage = Stage::Head(open);
            return Ok(false);
        }
        let (form, length) = (self.held[0], number(&self.held[2..HEAD]));
        open.left -= HEAD + key + length;
        let key = self.held.split_off(HEAD);
        self.held.clear();
        let value = match &mut open.message {
            Some(message) => Some(message.begin(form, &key, length)),
            None if form == b't' && key == b"kind" => None,
            None => return Err(Violation::Kind),
        };
        let left = length;
        self.stage = Stage::Value(open, Field { key, left, value });
        Ok(true)
    }

    fn value(
        &mut self,
        mut open: Open,
        mut field: Field,
        rest: &mut &[u8],
        take: &mut impl FnMut(Frame),
    ) -> Result<bool, Violation> {
        let (bytes, behind) = rest.split_at(field.left.min(rest.len()));
        *rest = behind;
        field.left -= bytes.len();
        match (&mut field.value, &mut open.message) {
            (Some(value), Some(message)) => {
                value.push(bytes);
                message.bound(&field.key, value);
            }
            // One byte more than the longest kind makes it another.
            _ => drop(hold(&mut self.held, &mut &*bytes, KIND_CAP)),
        }
        if field.left > 0 {
            self.stage = Stage::Value(open, field);
            return Ok(false);
        }
        match (field.value, &mut open.message) {
            (Some(value), Some(message)) => message.end(&field.key, value),
            _ => open.message = Some(Message::of(&self.held)),
        }
        self.held.clear();
        self.go_on(open, take)?;
        Ok(true)
    }

    /// Goes on to the next field, or to the next frame.
    fn go_on(&mut self, open: Open, take: &mut impl FnMut(Frame)) -> Result<(), Violation> {
        if open.left > 0 {
            self.stage = Stage::Head(open);
            return Ok(());
        }
        match open.message.ok_or(Violation::Kind)?.finish() {
            Some(frame) => take(frame),
            None => self.unknown += 1,
        }
        Ok(())
    }
}

/// Fills `held` up to `length` bytes; says whether they are there.
fn hold(held: &mut Vec<u8>, rest: &mut &[u8], length: usize) -> bool {
    let missing = length.saturating_sub(held.len()).min(rest.len());
    let (bytes, behind) = rest.split_at(missing);
    held.extend_from_slice(bytes);
    *rest = behind;
    held.len() >= length
}

/// A big-endian number.
fn number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}
