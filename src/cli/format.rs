//! In which shape a record is printed, and the command that prints stored ones.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;

use record::format::{Format, Shape};
use spec::Bytes;

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
        value_parser = call_id,
        required_if_eq_any = [("format", "anthropic"), ("format", "openai")]
    )]
    pub tool_call_id: Option<String>,
    /// Bound on what --format prints, pictures and all: bytes of JSON, at least 8K. What is
    /// left out is named in it [default: 50000 for tool, 16M for the others; text for a
    /// model has 50000 of them at most]
    #[arg(
        long, value_name = "SIZE", help_heading = "Record", requires = "format",
        value_parser = format_max
    )]
    pub format_max: Option<usize>,
}

impl Shaped {
    /// The format, if one was named.
    ///
    /// # Errors
    /// A bound for the record, which has limits of its own.
    pub(super) fn format(self) -> Result<Option<Format>, clap::Error> {
        if self.format == Some(Shape::Record) && self.format_max.is_some() {
            return Err(clap::Error::raw(
                ErrorKind::ArgumentConflict,
                "--format-max is not for --format record: bound its parts by limits, such as --output\n",
            ));
        }
        Ok(self.unchecked())
    }

    pub(super) fn unchecked(self) -> Option<Format> {
        self.format.map(|shape| Format {
            shape,
            call_id: self.tool_call_id.unwrap_or_default(),
            max: self.format_max,
        })
    }
}

/// Reads the bound of a format.
pub(super) fn format_max(text: &str) -> Result<usize, String> {
    let Bytes(size) = text.parse()?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let least = Bytes(Format::LEAST_MAX as u64);
    match size < Format::LEAST_MAX {
        true => Err(format!(
            "is too little for the facts alone: give {least} or more"
        )),
        false => Ok(size),
    }
}

fn call_id(text: &str) -> Result<String, String> {
    let most = Format::LONGEST_ID;
    match text.len() > most {
        true => Err(format!("is longer than {most} bytes")),
        false => Ok(text.to_owned()),
    }
}

fn shape(name: String) -> Shape {
    Shape::named(&name).unwrap_or_default()
}

/// Show a record for people, or print it in another shape
#[derive(Args, Debug)]
pub struct Show {
    /// File that holds the record, the answer of `context run --json` or events, or - for standard
    /// input
    #[arg(value_name = "RECORD")]
    pub record: PathBuf,
    /// Print one page of HTML that needs nothing else: no scripts, no network
    #[arg(long, conflicts_with = "format")]
    pub html: bool,
    /// Write pictures and charts to files in this directory instead, and print their paths
    #[arg(long, value_name = "DIR", conflicts_with_all = ["html", "format"])]
    pub plots: Option<PathBuf>,
    #[command(flatten)]
    shaped: Shaped,
}

impl Show {
    /// The options, if they go together.
    pub(super) fn checked(self) -> Result<Self, clap::Error> {
        self.shaped.clone().format()?;
        Ok(self)
    }

    /// The format, if one was named.
    pub fn format(&self) -> Option<Format> {
        self.shaped.clone().unchecked()
    }
}
