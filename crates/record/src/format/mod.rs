//! A record in the shapes that agent platforms and models expect.
//!
//! Each shape is a pure function of the record. A cell's output is only ever a string in
//! it, and text for a model is bounded ([`brief`]).

use std::io::Write;

use schemars::Schema;

use crate::{Record, schema};

pub mod anthropic;
pub mod brief;
pub mod e2b;
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
    /// The id of the call that is answered, for shapes that name it.
    pub call_id: String,
}

impl Format {
    /// Writes `record` in this shape, as JSON.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn write(&self, record: &Record, to: impl Write) -> serde_json::Result<()> {
        match self.shape {
            Shape::Record => serde_json::to_writer(to, record),
            Shape::Tool => serde_json::to_writer(to, &tool::Tool::of(record)),
            Shape::E2b => serde_json::to_writer(to, &e2b::Execution::of(record)),
            Shape::Mcp => serde_json::to_writer(to, &mcp::CallToolResult::of(record)),
            Shape::Anthropic => {
                serde_json::to_writer(to, &anthropic::ToolResult::of(record, &self.call_id))
            }
            Shape::Openai => {
                serde_json::to_writer(to, &openai::FunctionCallOutput::of(record, &self.call_id))
            }
        }
    }
}
