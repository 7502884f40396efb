//! A record in the shapes that agent platforms and models expect.
//!
//! Each shape is a pure function of the record and of a bound, which everything in the
//! shape counts towards. A cell's output is only ever a string in it.

use std::io::Write;

use schemars::Schema;

use self::brief::Room;
use crate::json::length_in_json;
use crate::{Record, schema};

pub mod anthropic;
pub mod brief;
pub mod e2b;
mod fit;
mod less;
pub mod mcp;
pub mod openai;
mod public;
pub mod tool;

/// The shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The record itself.
    #[default]
    Record,
    /// The result of a tool that runs a process.
    Tool,
    /// The `Execution` of E2B's code interpreter.
    E2b,
    /// A tool result of the Model Context Protocol.
    Mcp,
    /// A `tool_result` block of Anthropic's Messages API.
    Anthropic,
    /// A `function_call_output` item of OpenAI's Responses API.
    Openai,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Record,
        Self::Tool,
        Self::E2b,
        Self::Mcp,
        Self::Anthropic,
        Self::Openai,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Tool => "tool",
            Self::E2b => "e2b",
            Self::Mcp => "mcp",
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
        }
    }

    /// The shape with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }

    /// Whether it names the call that it answers.
    pub const fn wants_call_id(self) -> bool {
        matches!(self, Self::Anthropic | Self::Openai)
    }

    /// Bytes of JSON that it has at most, unless the caller chooses another bound: what
    /// clients take. `None` for the record, whose parts have limits of their own.
    pub const fn default_max(self) -> Option<usize> {
        match self {
            Self::Record => None,
            Self::Tool => Some(50_000),
            Self::E2b | Self::Mcp | Self::Anthropic | Self::Openai => Some(16 << 20),
        }
    }

    /// Bytes of JSON of the text for a model. Claude Code has 50,000 characters of a tool's
    /// text read, and of MCP's errors some 11,000.
    const fn text_max(self, is_error: bool) -> usize {
        match self {
            Self::Mcp if is_error => 10_000,
            _ => 50_000,
        }
    }

    /// The JSON Schema of what it writes, as `docs/` publishes it.
    pub fn json_schema_document(self) -> Schema {
        match self {
            Self::Record => schema::of::<Record>(),
            Self::Tool => schema::of::<tool::Tool<'_>>(),
            Self::E2b => schema::of::<e2b::Execution<'_>>(),
            Self::Mcp => schema::of::<mcp::CallToolResult<'_>>(),
            Self::Anthropic => schema::of::<anthropic::ToolResult<'_>>(),
            Self::Openai => schema::of::<openai::FunctionCallOutput<'_>>(),
        }
    }
}

/// A shape, and what it needs besides the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// The shape.
    pub shape: Shape,
    /// The id of the call that is answered, for shapes that name it: at most
    /// [`Self::LONGEST_ID`] bytes.
    pub call_id: String,
    /// Bytes of JSON at most, pictures included; at least [`Self::LEAST_MAX`]. Without it,
    /// the shape's default.
    pub max: Option<usize>,
}

impl Format {
    /// The least bound: a shape has its facts in this much, whatever is cut.
    pub const LEAST_MAX: usize = 8 << 10;
    /// Bytes of a call's id.
    pub const LONGEST_ID: usize = 256;
    /// Bytes of JSON around texts and pictures, without the call's id.
    const AROUND: usize = 256;

    /// Writes `record` in this shape, as JSON.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn write(&self, record: &Record, to: impl Write) -> serde_json::Result<()> {
        let max = self.max.or(self.shape.default_max()).unwrap_or(usize::MAX);
        let around = Self::AROUND + length_in_json(&self.call_id);
        let room = Room {
            all: max.saturating_sub(around),
            text: self.shape.text_max(record.is_error),
        };
        let id = &self.call_id;
        match self.shape {
            Shape::Record => serde_json::to_writer(to, record),
            Shape::Tool => serde_json::to_writer(to, &tool::Tool::of(record, max)),
            Shape::E2b => {
                let size = |record: &Record| fit::json_size(&e2b::Execution::of(record));
                let fitting = less::fitting(record, max, size);
                serde_json::to_writer(to, &e2b::Execution::of(&fitting))
            }
            Shape::Mcp => serde_json::to_writer(to, &mcp::CallToolResult::of(record, room)),
            Shape::Anthropic => {
                serde_json::to_writer(to, &anthropic::ToolResult::of(record, id, room))
            }
            Shape::Openai => {
                serde_json::to_writer(to, &openai::FunctionCallOutput::of(record, id, room))
            }
        }
    }
}
