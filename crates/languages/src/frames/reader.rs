//! Reads frames from the bytes that a cell sends.
//!
//! Each piece of a value goes to its final form as it arrives. So nothing is held
//! that will not be kept, and the longest frame takes no longer at a time than many
//! short ones.

use std::mem;

use super::message::{FRAME_CAP, Frame, Message, Value, Violation};

/// Bytes of a field before its key.
const HEAD: usize = 6;

/// Takes bytes as they arrive and gives frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// An incomplete length, or the incomplete head and key of a field.
    held: Vec<u8>,
    stage: Stage,
    violation: Option<Violation>,
}

/// The part of a frame that arrives next.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Length,
    /// The head of a field, and its key.
    Head(Open),
    Value(Open, Field),
}

/// A frame of which not every field has arrived.
#[derive(Debug)]
struct Open {
    /// Bytes of the frame after the current field.
    left: usize,
    message: Message,
}

/// A field whose value arrives.
#[derive(Debug)]
struct Field {
    key: Vec<u8>,
    /// Bytes of the value that are still to arrive.
    left: usize,
    value: Value,
}

impl FrameReader {
    /// A reader at the start of a channel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the channel may end here; within a frame it may not.
    pub fn is_between_frames(&self) -> bool {
        matches!(self.stage, Stage::Length) && self.held.is_empty() && self.violation.is_none()
    }

    /// Gives `take` each frame that `bytes` complete, with the number of its
    /// execution.
    ///
    /// # Errors
    /// The bytes are not the protocol; `take` has the frames before the violation.
    /// All further bytes give the same error.
    pub fn feed(&mut self, bytes: &[u8], take: impl FnMut(u64, Frame)) -> Result<(), Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let outcome = self.read(bytes, take);
        if let Err(violation) = outcome {
            *self = Self {
                violation: Some(violation),
                ..Self::default()
            };
        }
        outcome
    }

    fn read(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(u64, Frame),
    ) -> Result<(), Violation> {
        loop {
            let open = match mem::take(&mut self.stage) {
                Stage::Length => {
                    if !self.hold(4, &mut bytes) {
                        return Ok(());
                    }
                    let left = number(&self.held);
                    self.held.clear();
                    if left > FRAME_CAP {
                        return Err(Violation::Long(left));
                    }
                    let message = Message::default();
                    Open { left, message }
                }
                Stage::Head(mut open) => {
                    let Some(field) = self.begin_field(&mut open, &mut bytes)? else {
                        self.stage = Stage::Head(open);
                        return Ok(());
                    };
                    self.stage = Stage::Value(open, field);
                    continue;
                }
                Stage::Value(mut open, mut field) => {
                    let (piece, rest) = bytes.split_at(field.left.min(bytes.len()));
                    bytes = rest;
                    field.left -= piece.len();
                    field.value.push(piece);
                    open.message.bound(&field.key, &mut field.value);
                    if field.left > 0 {
                        self.stage = Stage::Value(open, field);
                        return Ok(());
                    }
                    open.message.end_field(&field.key, field.value)?;
                    open
                }
            };
            if open.left > 0 {
                self.stage = Stage::Head(open);
            } else {
                let (execution, frame) = open.message.finish()?;
                take(execution, frame);
            }
        }
    }

    /// The next field, without its value; `None` until its head and key are complete.
    fn begin_field(
        &mut self,
        open: &mut Open,
        bytes: &mut &[u8],
    ) -> Result<Option<Field>, Violation> {
        if open.left < HEAD {
            return Err(Violation::Field);
        }
        if !self.hold(HEAD, bytes) {
            return Ok(None);
        }
        let (form, key) = (self.held[0], usize::from(self.held[1]));
        let length = number(&self.held[2..HEAD]);
        let Some(left) = open.left.checked_sub(HEAD + key + length) else {
            return Err(Violation::Field);
        };
        if !self.hold(HEAD + key, bytes) {
            return Ok(None);
        }
        open.left = left;
        let key = self.held.split_off(HEAD);
        self.held.clear();
        let value = open.message.begin_field(form, &key, length)?;
        let left = length;
        Ok(Some(Field { key, left, value }))
    }

    /// Moves bytes to `held` until it has `length`; returns whether it has.
    fn hold(&mut self, length: usize, bytes: &mut &[u8]) -> bool {
        let missing = length.saturating_sub(self.held.len()).min(bytes.len());
        let (piece, rest) = bytes.split_at(missing);
        self.held.extend_from_slice(piece);
        *bytes = rest;
        self.held.len() >= length
    }
}

/// A big-endian number.
fn number(bytes: &[u8]) -> usize {
    let append = |number, byte: &u8| number << 8 | usize::from(*byte);
    bytes.iter().fold(0, append)
}
