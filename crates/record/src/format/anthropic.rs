//! The content block `tool_result` that a caller sends to Anthropic's Messages API for a
//! tool of its own. (`code_execution_result` is for Anthropic's sandbox only.)

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::brief::{Brief, Room};
use crate::Record;

/// A content block of a user's message that answers a `tool_use` block.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "tool_result")]
pub struct ToolResult<'a> {
    /// `tool_result`.
    #[serde(rename = "type")]
    kind: Kind,
    /// The id of the `tool_use` block.
    tool_use_id: &'a str,
    /// What the model reads: one text, then the pictures.
    content: Vec<Block<'a>>,
    /// Whether the run failed in any way.
    is_error: bool,
}

/// A content block within a result.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Block<'a> {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Where it comes from.
        source: Source<'a>,
    },
}

/// Where a picture comes from.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Source<'a> {
    /// It is given with the block.
    Base64 {
        /// Its media type.
        media_type: &'static str,
        /// Its bytes as base64.
        data: Cow<'a, str>,
    },
}

/// The type.
#[derive(Serialize, JsonSchema)]
enum Kind {
    #[serde(rename = "tool_result")]
    ToolResult,
}

impl<'a> ToolResult<'a> {
    /// The record in this shape, with text and pictures for this room.
    pub fn of(record: &'a Record, tool_use_id: &'a str, room: Room) -> Self {
        let Brief { text, pictures } = Brief::of(record, room);
        let pictures = pictures.into_iter().map(|picture| Block::Image {
            source: Source::Base64 {
                media_type: picture.media_type,
                data: picture.base64,
            },
        });
        Self {
            kind: Kind::ToolResult,
            tool_use_id,
            content: [Block::Text { text }].into_iter().chain(pictures).collect(),
            is_error: record.is_error,
        }
    }
}
