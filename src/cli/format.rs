//! In which shape a record is printed, and the command that prints stored ones.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use record::format::{Format, Shape};

/// In which shape a record is printed.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Shaped {
    /// Print JSON of this shape to standard output: record; tool for streams,
    /// value, exit code and error facts; e2b for its Execution; mcp for a tool result;
    /// anthropic for a tool_result block; openai for a function_call_output
    /// item [default: record]
    #[arg(
        long, value_name = "SHAPE", help_heading = "Record", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(Shape::ALL.map(Shape::name)).map(shape)
    )]
    pub format: Option<Shape>,
    /// Id of the model's tool call that is answered, for anthropic and openai
    #[arg(
        long, value_name = "ID", help_heading = "Record", requires = "format",
        required_if_eq_any = [("format", "anthropic"), ("format", "openai")]
    )]
    pub tool_call_id: Option<String>,
}

impl Shaped {
    /// The format, if one was named.
    pub(super) fn format(self) -> Option<Format> {
        let call_id = self.tool_call_id.unwrap_or_default();
        self.format.map(|shape| Format { shape, call_id })
    }
}

fn shape(name: String) -> Shape {
    Shape::named(&name).unwrap_or_default()
}

/// Show a record for people, or print it in another shape
#[derive(Args, Debug)]
pub struct Show {
    /// File that holds the record, or - for standard input
    #[arg(value_name = "RECORD")]
    pub record: PathBuf,
    /// Print one page of HTML that needs nothing else: no scripts, no network
    #[arg(long, conflicts_with = "format")]
    pub html: bool,
    #[command(flatten)]
    shaped: Shaped,
}

impl Show {
    /// The format, if one was named.
    pub fn format(&self) -> Option<Format> {
        self.shaped.clone().format()
    }
}
