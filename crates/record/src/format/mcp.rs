//! The result of a tool call in the Model Context Protocol (`CallToolResult`,
//! since 2025-06-18): text and pictures for the model, the record for programs.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::brief::Brief;
use super::public::Public;
use crate::Record;

/// The result of a tool call.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "CallToolResult")]
pub struct CallToolResult<'a> {
    /// What a model reads: one text, then the pictures.
    content: Vec<Content<'a>>,
    /// The whole record without host paths, since clients show it to models.
    #[serde(rename = "structuredContent")]
    #[schemars(with = "Record")]
    structured_content: Public<'a>,
    /// Whether the run failed in any way.
    #[serde(rename = "isError")]
    is_error: bool,
}

/// One part of a result.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Content<'a> {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes as base64.
        data: Cow<'a, str>,
        /// Its media type.
        #[serde(rename = "mimeType")]
        mime_type: &'static str,
    },
}

impl<'a> CallToolResult<'a> {
    /// The record in this shape.
    pub fn of(record: &'a Record) -> Self {
        let Brief { text, pictures } = Brief::of(record);
        let pictures = pictures.into_iter().map(|picture| Content::Image {
            data: picture.base64,
            mime_type: picture.media_type,
        });
        Self {
            content: [Content::Text { text }]
                .into_iter()
                .chain(pictures)
                .collect(),
            structured_content: Public(record),
            is_error: record.is_error,
        }
    }
}
