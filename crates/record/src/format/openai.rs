//! The input item `function_call_output` that a caller sends to OpenAI's Responses API for
//! a `function_call`. Without pictures its output is a string, which every version of the
//! API and every compatible server accepts; with pictures it is a list. It has no error
//! flag: the first line of the text has the outcome.

use schemars::JsonSchema;
use serde::Serialize;

use super::brief::{Brief, Room};
use crate::Record;

/// An input item that answers a `function_call`.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "function_call_output")]
pub struct FunctionCallOutput<'a> {
    /// `function_call_output`.
    #[serde(rename = "type")]
    kind: Kind,
    /// The `call_id` of the `function_call`.
    call_id: &'a str,
    /// What the model reads.
    output: Output,
}

/// What the model reads.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Output {
    /// Text alone.
    Text(String),
    /// One text, then pictures.
    Parts(Vec<Part>),
}

/// One part of an output.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    InputText {
        /// The text.
        text: String,
    },
    /// A picture.
    InputImage {
        /// Its bytes, as a data URL.
        image_url: String,
    },
}

/// The type.
#[derive(Serialize, JsonSchema)]
enum Kind {
    #[serde(rename = "function_call_output")]
    FunctionCallOutput,
}

impl<'a> FunctionCallOutput<'a> {
    /// The record in this shape, with text and pictures for this room.
    pub fn of(record: &Record, call_id: &'a str, room: Room) -> Self {
        let Brief { text, pictures } = Brief::of(record, room);
        let output = match pictures.is_empty() {
            true => Output::Text(text),
            false => {
                let pictures = pictures.iter().map(|picture| Part::InputImage {
                    image_url: format!("data:{};base64,{}", picture.media_type, picture.base64),
                });
                Output::Parts(
                    [Part::InputText { text }]
                        .into_iter()
                        .chain(pictures)
                        .collect(),
                )
            }
        };
        Self {
            kind: Kind::FunctionCallOutput,
            call_id,
            output,
        }
    }
}
