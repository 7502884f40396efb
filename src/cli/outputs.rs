//! Where a call's record and events go: as the options say, and as the words of a
//! command line say that is wrong.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::path::PathBuf;

use clap::error::ErrorKind;

use super::format::{Shaped, format_max};
use super::values::{FileFrom, OutputTo, file_from, info_to, output_to, pass_fd, split_value};
use cell::spec::descriptors::NUMBERS;
use record::format::{Format, Shape};

/// Why nothing else is printed while a program has the terminal.
pub const TERMINAL_TAKEN: &str = "--tty shows the program on the terminal, so nothing else is printed there: have the record or the events written to a file (--record FILE, --events FILE)";

/// Where a call's record and events go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// The format of the record on standard output, when it is asked for there.
    pub printed: Option<Format>,
    /// Where else the record goes: a descriptor or a file.
    pub record: Option<OutputTo>,
    /// Where events go.
    pub events: Option<OutputTo>,
    /// The directory that pictures go to.
    pub plots: Option<PathBuf>,
}

impl Outputs {
    /// The outputs of `--json`, `--format`, `--record` and `--events`.
    ///
    /// # Errors
    /// Two of them want the same destination.
    pub(super) fn new(
        json: bool,
        format: Option<Format>,
        record: Option<OutputTo>,
        events: Option<OutputTo>,
    ) -> Result<Self, clap::Error> {
        let mut printing = Vec::new();
        if let Some(format) = &format {
            printing.push(format!("--format {}", format.shape.name()));
        } else if json {
            printing.push("--json".to_owned());
        }
        if record == Some(OutputTo::Stdout) {
            printing.push("--record -".to_owned());
        }
        if events == Some(OutputTo::Stdout) {
            printing.push("--events -".to_owned());
        }
        if let [first, second, ..] = &*printing {
            let rest = match events {
                Some(OutputTo::Stdout) => format!(
                    "leave {first} out, since the last event holds the record, or send the events elsewhere (--events FILE)"
                ),
                _ => {
                    "leave one of them out, or send the record elsewhere (--record FILE)".to_owned()
                }
            };
            return Err(conflict(&format!(
                "{first} and {second} both write to standard output: {rest}\n"
            )));
        }
        if record.is_some() && record == events {
            return Err(conflict(
                "--record and --events name the same destination: leave --record out, since the last event holds the record, or send it elsewhere\n",
            ));
        }
        Ok(Self::unchecked(json, format, record, events))
    }

    fn unchecked(
        json: bool,
        format: Option<Format>,
        record: Option<OutputTo>,
        events: Option<OutputTo>,
    ) -> Self {
        let is_printed = json || record == Some(OutputTo::Stdout);
        Self {
            printed: format.or_else(|| is_printed.then(Format::default)),
            record: record.filter(|to| *to != OutputTo::Stdout),
            events,
            plots: None,
        }
    }

    /// Refuses outputs on standard output for a program that has a terminal.
    ///
    /// # Errors
    /// Record or events go there.
    pub(super) fn refuse_on_terminal(&self) -> Result<(), clap::Error> {
        match self.prints() {
            true => Err(conflict(&format!("{TERMINAL_TAKEN}\n"))),
            false => Ok(()),
        }
    }

    /// Whether record or events go to standard output.
    pub fn prints(&self) -> bool {
        self.printed.is_some() || self.events == Some(OutputTo::Stdout)
    }

    /// The numbers of the caller's descriptors among them.
    pub fn descriptors(&self) -> Vec<i32> {
        let number = |to: &OutputTo| match to {
            OutputTo::Descriptor(number) => Some(*number),
            _ => None,
        };
        let both = [&self.record, &self.events];
        both.into_iter().flatten().filter_map(number).collect()
    }

    /// The numbers of the caller's descriptors that the words of a command line name for
    /// other things than the record and events: files that are read from them, those that
    /// the program gets, and `--info-fd`; and those that a spec file can name.
    pub fn others(words: &[OsString]) -> Vec<i32> {
        let mut words = words.iter().take_while(|word| *word != "--").peekable();
        let mut numbers = Vec::new();
        while let Some(word) = words.next() {
            let (name, value) = split_value(word);
            match name {
                // Code may look like an option.
                b"-c" => drop(words.next()),
                b"--file" => {
                    let from = following(value, &mut words).map(|text| file_from(text.to_owned()));
                    if let Some(Ok(FileFrom::Descriptor(number, _))) = from {
                        numbers.push(number);
                    }
                }
                b"--pass-fd" => {
                    let passed = following(value, &mut words).and_then(OsStr::to_str);
                    if let Some(Ok(passed)) = passed.map(pass_fd) {
                        numbers.push(passed.from);
                    }
                }
                // The spec file may name any of them.
                b"--spec" => numbers.extend(NUMBERS),
                b"--info-fd" => {
                    let to = following(value, &mut words).map(|text| info_to(text.to_owned()));
                    if let Some(Ok(OutputTo::Descriptor(number))) = to {
                        numbers.push(number);
                    }
                }
                _ => {}
            }
        }
        numbers
    }

    /// Looks for outputs in the words of a command line for `run` or `exec`, right
    /// or wrong. Of two on one destination, the events get it, whose last one holds
    /// the record.
    pub fn wanted(words: &[OsString]) -> Self {
        let is_run = |word: &OsString| word == "run" || word == "exec";
        if !words.get(1).is_some_and(is_run) {
            return Self::default();
        }
        let mut words = words[2..]
            .iter()
            .take_while(|word| *word != "--")
            .peekable();
        let (mut json, mut record, mut events) = (false, None, None);
        let mut shaped = Shaped::default();
        while let Some(word) = words.next() {
            let (name, value) = split_value(word);
            match name {
                b"--json" => json = true,
                // Code may look like an option.
                b"-c" => drop(words.next()),
                b"--record" => record = read(value, &mut words).or(record),
                b"--events" => events = read(value, &mut words).or(events),
                b"--format" => {
                    let name = following(value, &mut words);
                    shaped.format = name.and_then(|name| Shape::named(name.to_str()?));
                }
                b"--tool-call-id" => {
                    let id = following(value, &mut words);
                    let id = id.map(|id| id.to_string_lossy().into_owned());
                    shaped.tool_call_id = id.filter(|id| id.len() <= Format::LONGEST_ID);
                }
                b"--format-max" => {
                    let size = following(value, &mut words).and_then(OsStr::to_str);
                    shaped.format_max = size.and_then(|size| format_max(size).ok());
                }
                _ => {}
            }
        }
        let has_id = shaped.tool_call_id.is_some();
        let format = shaped.unchecked().map(|format| match format.shape {
            // An answer to no call would be refused as such.
            shape if shape.wants_call_id() && !has_id => Format::default(),
            _ => format,
        });
        let mut outputs = Self::unchecked(json, format, record, events);
        if outputs.events == Some(OutputTo::Stdout) {
            outputs.printed = None;
        }
        if outputs.record == outputs.events {
            outputs.record = None;
        }
        outputs
    }
}

fn conflict(message: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ArgumentConflict, message)
}

/// The value of an option: behind its `=`, or the next word unless that is an
/// option itself.
fn following<'a>(
    value: Option<&'a OsStr>,
    words: &mut Peekable<impl Iterator<Item = &'a OsString>>,
) -> Option<&'a OsStr> {
    value.or_else(|| {
        let is_value =
            |word: &&OsString| *word == "-" || !word.as_encoded_bytes().starts_with(b"-");
        words.next_if(is_value).map(OsString::as_os_str)
    })
}

fn read<'a>(
    value: Option<&'a OsStr>,
    words: &mut Peekable<impl Iterator<Item = &'a OsString>>,
) -> Option<OutputTo> {
    let text = following(value, words).filter(|text| !text.is_empty())?;
    output_to(text.to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(line: &str) -> Outputs {
        let words: Vec<OsString> = ["cellblock"]
            .into_iter()
            .chain(line.split(' '))
            .map(Into::into)
            .collect();
        Outputs::wanted(&words)
    }

    #[test]
    fn the_format_of_a_wrong_command_line_is_found() {
        let cases = [
            ("run --frob", None),
            ("run --json --frob", Some((Shape::Record, ""))),
            ("run --format frob", None),
            ("run --format record --frob", Some((Shape::Record, ""))),
            ("run --format=tool --frob", Some((Shape::Tool, ""))),
            ("exec --format mcp -- --format tool", Some((Shape::Mcp, ""))),
            (
                "run --format mcp --format-max 8K -x",
                Some((Shape::Mcp, "")),
            ),
            ("run --format openai x", Some((Shape::Record, ""))),
            (
                "run --tool-call-id a --format openai --frob",
                Some((Shape::Openai, "a")),
            ),
            ("exec -- --json", None),
            ("run -c --json --frob", None),
            ("run --record - --frob", Some((Shape::Record, ""))),
            ("doctor --json --frob", None),
            ("rootfs run --json", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|(shape, call_id)| Format {
                shape,
                call_id: call_id.to_owned(),
                max: line.contains("--format-max").then_some(8192),
            });
            assert_eq!(wanted(line).printed, expected, "{line}");
        }
    }

    #[test]
    fn the_destinations_of_a_wrong_command_line_are_found() {
        let file = |name: &str| Some(OutputTo::File(name.into()));
        let cases = [
            ("run --frob", None, None),
            ("run --events - --frob", None, Some(OutputTo::Stdout)),
            ("run --frob --events=-", None, Some(OutputTo::Stdout)),
            ("run --record r --events e --frob", file("r"), file("e")),
            (
                "exec --record=fd:4 --events fd:5 --frob",
                Some(OutputTo::Descriptor(4)),
                Some(OutputTo::Descriptor(5)),
            ),
            ("exec --record fd:x", None, None),
            ("exec --record --json", None, None),
            ("run --record= --frob", None, None),
            (
                "exec --record fd:3 --events fd:3",
                None,
                Some(OutputTo::Descriptor(3)),
            ),
            ("exec --frob -- --events -", None, None),
        ];
        for (line, record, events) in cases {
            let found = wanted(line);
            assert_eq!((found.record, found.events), (record, events), "{line}");
        }
        let both = wanted("run --json --events - --frob");
        assert_eq!((both.printed, both.events), (None, Some(OutputTo::Stdout)));
        let numbers = wanted("exec --record fd:4 --events=fd:7 -- true").descriptors();
        assert_eq!(numbers, [4, 7]);
    }
}
