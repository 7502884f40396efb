//! One pass over the words of a command line before clap reads them: what must be known
//! first, and of a line that is wrong, too.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::os::fd::RawFd;
use std::slice;

use super::format::{Shaped, format_max};
use super::options::Needed;
use super::outputs::Outputs;
use super::values::{FileFrom, OutputTo, file_from, info_to, output_to, pass_fd, split_value};
use record::format::{Format, Shape};
use spec::Mode;
use spec::descriptors::NUMBERS;

/// What the words of a command line say, right or wrong.
#[derive(Debug, Default)]
pub struct Prescan {
    /// What is called, if it is `run` or `exec`.
    pub mode: Option<Mode>,
    /// Where the record and the events of `run` and `exec` go. Of two on one destination,
    /// the events get it, whose last one holds the record.
    pub outputs: Outputs,
    /// The numbers of the caller's descriptors that are named, and those that a spec file
    /// can name.
    pub descriptors: Vec<RawFd>,
    /// Whether standard error gets no line of cellblock's own.
    pub quiet: bool,
    /// Which options of `run` and `exec` are used. `None` if a word is not known as an
    /// option: clap has to say what it is.
    pub(super) needed: Option<Needed>,
}

type Words<'a> = Peekable<slice::Iter<'a, OsString>>;

impl Prescan {
    /// Looks at the words of a command line, the program's name first.
    pub fn of(words: &[OsString]) -> Self {
        let [_, called, rest @ ..] = words else {
            return Self::default();
        };
        let mode = match called.to_str() {
            Some("run") => Some(Mode::Run),
            Some("exec") => Some(Mode::Exec),
            _ => None,
        };
        let mut words = rest.iter().peekable();
        let mut descriptors = Vec::new();
        let (mut needed, mut is_known) = (Needed::default(), true);
        let mut told = Told::default();
        let mut quiet = false;
        // Behind the first `--` begin the words of the program.
        while let Some(word) = words.next().filter(|word| *word != "--") {
            let (name, value) = split_value(word);
            let Some(name) = name.strip_prefix(b"--") else {
                match word.as_encoded_bytes() {
                    // Code may look like an option, and be `--`.
                    b"-c" => drop(words.next()),
                    [b'-', _, ..] => is_known = false,
                    _ => {}
                }
                continue;
            };
            is_known &= name == b"lang" || str::from_utf8(name).is_ok_and(|name| needed.note(name));
            match name {
                b"file" | b"pass-fd" | b"info-fd" => {
                    let text = following(value, &mut words);
                    descriptors.extend(text.and_then(|text| descriptor(name, text)));
                }
                // Any word: that of a login shell begins with `-`.
                b"argv0" if value.is_none() => drop(words.next()),
                b"argv0" => {}
                b"quiet" => quiet = mode.is_some(),
                // The spec file may name any of them.
                b"spec" => descriptors.extend(NUMBERS),
                _ => told.note(name, value, &mut words),
            }
        }
        let outputs = match mode {
            Some(_) => told.outputs(),
            None => Outputs::default(),
        };
        let both = [&outputs.record, &outputs.events];
        descriptors.extend(both.into_iter().flatten().filter_map(OutputTo::descriptor));
        Self {
            mode,
            outputs,
            descriptors,
            quiet,
            needed: is_known.then_some(needed),
        }
    }
}

/// The options that say where the record and the events go.
#[derive(Default)]
struct Told {
    json: bool,
    record: Option<OutputTo>,
    events: Option<OutputTo>,
    shaped: Shaped,
}

impl Told {
    fn note<'a>(&mut self, name: &[u8], value: Option<&'a OsStr>, words: &mut Words<'a>) {
        let mut to = |known: Option<OutputTo>| {
            let text = following(value, words).filter(|text| !text.is_empty());
            let read = text.and_then(|text| output_to(text.to_owned()).ok());
            read.or(known)
        };
        match name {
            b"json" => self.json = true,
            b"record" => self.record = to(self.record.take()),
            b"events" => self.events = to(self.events.take()),
            b"format" => {
                let name = following(value, words);
                self.shaped.format = name.and_then(|name| Shape::named(name.to_str()?));
            }
            b"tool-call-id" => {
                let id = following(value, words);
                let id = id.map(|id| id.to_string_lossy().into_owned());
                self.shaped.tool_call_id = id.filter(|id| id.len() <= Format::LONGEST_ID);
            }
            b"format-max" => {
                let size = following(value, words).and_then(OsStr::to_str);
                self.shaped.format_max = size.and_then(|size| format_max(size).ok());
            }
            _ => {}
        }
    }

    fn outputs(self) -> Outputs {
        let has_id = self.shaped.tool_call_id.is_some();
        let format = self.shaped.unchecked().map(|format| match format.shape {
            // An answer to no call would be refused as such.
            shape if shape.wants_call_id() && !has_id => Format::default(),
            _ => format,
        });
        let mut outputs = Outputs::unchecked(self.json, format, self.record, self.events);
        if outputs.events == Some(OutputTo::Stdout) {
            outputs.printed = None;
        }
        if outputs.record == outputs.events {
            outputs.record = None;
        }
        outputs
    }
}

/// The number of the caller's descriptor in the value of `--file`, `--pass-fd` or `--info-fd`.
fn descriptor(name: &[u8], text: &OsStr) -> Option<RawFd> {
    match name {
        b"file" => match file_from(text.to_owned()).ok()? {
            FileFrom::Descriptor(number, _) => Some(number),
            FileFrom::Host(_) => None,
        },
        b"pass-fd" => Some(pass_fd(text.to_str()?).ok()?.from),
        _ => info_to(text.to_owned()).ok()?.descriptor(),
    }
}

/// The value of an option: behind its `=`, or the next word unless that is an
/// option itself.
fn following<'a>(value: Option<&'a OsStr>, words: &mut Words<'a>) -> Option<&'a OsStr> {
    value.or_else(|| {
        let is_value =
            |word: &&OsString| *word == "-" || !word.as_encoded_bytes().starts_with(b"-");
        words.next_if(is_value).map(OsString::as_os_str)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prescan(line: &str) -> Prescan {
        let words = ["cellblock"].into_iter().chain(line.split(' '));
        let words: Vec<OsString> = words.map(Into::into).collect();
        Prescan::of(&words)
    }

    fn wanted(line: &str) -> Outputs {
        prescan(line).outputs
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
            ("run -c -- --json --frob", Some((Shape::Record, ""))),
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
    }

    #[test]
    fn all_descriptors_that_are_named_are_found() {
        for (line, expected) in [
            ("exec --record fd:4 --events=fd:7 -- true", &[4, 7][..]),
            (
                "exec --file fd:5:x --pass-fd=6=9 --info-fd 8 -- x",
                &[5, 6, 8],
            ),
            ("exec --pass-fd 4 --pass-fd 5 --frob", &[4, 5]),
            ("exec --file a:b --info-fd ./7 -- --pass-fd 4", &[]),
            ("run -c --pass-fd 4", &[]),
            ("context create --file fd:3:x", &[3]),
            ("show --record fd:4", &[]),
        ] {
            assert_eq!(prescan(line).descriptors, expected, "{line}");
        }
        let any: Vec<RawFd> = NUMBERS.collect();
        assert_eq!(prescan("plan exec --spec x").descriptors, any);
    }

    #[test]
    fn an_unknown_word_is_left_to_clap() {
        for (line, is_known) in [
            ("run --lang python --memory=1G - x", true),
            ("run -c --frob", true),
            ("exec --json -- --frob -x", true),
            ("exec --frob -- x", false),
            ("run -x", false),
            ("run --help", false),
        ] {
            assert_eq!(prescan(line).needed.is_some(), is_known, "{line}");
        }
    }
}
