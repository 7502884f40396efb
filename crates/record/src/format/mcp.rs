//! The result of a tool call in the Model Context Protocol (`CallToolResult`,
//! since 2025-06-18): text and pictures for the model, the record for programs.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::brief::{Brief, Room};
use super::fit::json_size;
use super::less;
use super::public::Public;
use crate::picture::{self, Picture};
use crate::{Record, ResultItem};

/// Bytes of the record for programs, which some clients show to models.
const STRUCTURED: usize = 50_000;

/// The result of a tool call.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "CallToolResult")]
pub struct CallToolResult<'a> {
    /// What a model reads: one text, then the pictures.
    content: Vec<Content<'a>>,
    /// The record without host paths, since clients show it to models, and without its
    /// pictures; cut to fit, as its `truncated` and the notes of its results show.
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
    /// The record in this shape, in this room. Half of it is kept for the record for
    /// programs, or what that may have at most.
    pub fn of(record: &'a Record, room: Room) -> Self {
        let for_model = Room {
            all: room.all - STRUCTURED.min(room.all / 2),
            ..room
        };
        let brief = Brief::of(record, for_model);
        let rest = STRUCTURED.min(room.all.saturating_sub(brief.size()));
        let Brief { text, pictures } = brief;
        let size = |record: &Record| json_size(&Public(Cow::Borrowed(record)));
        let structured = match without_pictures(record, &pictures) {
            None => less::fitting(record, rest, size),
            Some(record) => Cow::Owned(less::fitting(&record, rest, size).into_owned()),
        };
        let pictures = pictures.into_iter().map(|picture| Content::Image {
            data: picture.base64,
            mime_type: picture.media_type,
        });
        Self {
            content: [Content::Text { text }]
                .into_iter()
                .chain(pictures)
                .collect(),
            structured_content: Public(structured),
            is_error: record.is_error,
        }
    }
}

/// The record without its pictures, if it has any: each is in the content, once.
fn without_pictures(record: &Record, shown: &[Picture<'_>]) -> Option<Record> {
    let has_some = |item: &ResultItem| item.formats.keys().any(|name| picture::is_one(name));
    if !record.results.iter().any(has_some) {
        return None;
    }
    let mut record = record.clone();
    for item in &mut record.results {
        let notes = &mut item.notes;
        item.formats.retain(|media_type, form| {
            if !picture::is_one(media_type) {
                return true;
            }
            let is_shown = picture::read(media_type, form)
                .is_ok_and(|picture| shown.iter().any(|other| other.base64 == picture.base64));
            notes.push(match is_shown {
                true => format!("{media_type}: in content"),
                false => format!("{media_type}: left out"),
            });
            false
        });
    }
    Some(record)
}
