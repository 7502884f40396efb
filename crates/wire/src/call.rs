//! What a client says.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::failure::{Code, Failure};

/// Longer ids are refused.
const LONGEST_ID: usize = 256;

/// The id of a call, of the client's choosing: a whole number, or text of at most 256
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CallId {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// A method of the protocol, for clients.
pub trait Method {
    /// Its name in a call.
    const NAME: &'static str;
    /// What it takes.
    type Params: Serialize;
    /// Its result.
    type Answer: DeserializeOwned;
}

/// The types of methods' parameters.
mod types {
    use record::bytes::RawText;
    use record::unread::Unread;

    pub(super) use crate::files::*;
    pub(super) use crate::params::*;
    // The large parts of calls are only passed on.
    pub(super) type ContextRun = crate::params::ContextRun<Unread<RawText>>;
    pub(super) type FileWrite = crate::files::FileWrite<Unread<RawText>>;
    pub(super) use crate::process::{
        ProcessInput, ProcessName, ProcessResize, ProcessSignal, ProcessStart,
    };
}

/// The types of methods' results.
mod results {
    pub(super) use record::json::Json;

    pub(super) use crate::answer::*;
    pub(super) use crate::carried::*;
    pub(super) use crate::files::*;
    pub(super) use crate::process::{ProcessList, ProcessStarted};
}

macro_rules! methods {
    ($($(#[$doc:meta])+ $variant:ident($params:ident) -> $answer:ident = $name:literal,)+) => {
        /// A call: a method and its parameters.
        #[derive(Debug, JsonSchema)]
        #[schemars(tag = "method", content = "params")]
        pub enum Call {
            $($(#[$doc])+ #[schemars(rename = $name)] $variant(types::$params),)+
        }

        /// The name of every method.
        pub const METHODS: &[&str] = &[$($name),+];

        /// The methods, as types.
        pub mod method {
            use super::Method;

            $(
                $(#[$doc])+
                #[derive(Clone, Copy, Debug)]
                pub struct $variant;

                impl Method for $variant {
                    const NAME: &'static str = $name;
                    type Params = super::types::$params;
                    type Answer = super::results::$answer;
                }
            )+
        }

        impl Call {
            /// The name of its method.
            pub const fn method(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                }
            }

            fn read(method: &str, params: Option<&RawValue>) -> Result<Self, Failure> {
                match method {
                    $($name => read_params($name, params).map(Self::$variant),)+
                    _ => Err(unknown(method)),
                }
            }
        }
    };
}

methods! {
    /// Runs code or a program in a cell of its own.
    Run(Run) -> Ran = "run",
    /// Creates a context.
    ContextCreate(ContextCreate) -> Created = "context.create",
    /// Executes code in a context, after what was asked of it before.
    ContextRun(ContextRun) -> Executed = "context.run",
    /// Interrupts an execution: SIGINT, the grace, then a kill.
    ContextInterrupt(ContextInterrupt) -> Interrupted = "context.interrupt",
    /// Ends a context's interpreter and begins with a new one; the workspace is kept.
    ContextRestart(ContextName) -> Restarted = "context.restart",
    /// Ends a context's processes; its state is kept on the disk until it is used.
    ContextSuspend(ContextName) -> Suspended = "context.suspend",
    /// Gives a context the state that it had when it was suspended, or before the state was lost.
    ContextResume(ContextName) -> Resumed = "context.resume",
    /// Lists a context's variables and what it uses.
    ContextDescribe(ContextName) -> Json = "context.describe",
    /// Lists contexts.
    ContextList(ContextListing) -> ContextList = "context.list",
    /// Changes a context's label.
    ContextLabel(ContextLabel) -> Done = "context.label",
    /// Makes contexts that go on from the state and workspace of one.
    ContextFork(ContextFork) -> Forked = "context.fork",
    /// Keeps a context's state and workspace, to go back to.
    ContextCheckpoint(ContextName) -> Checkpointed = "context.checkpoint",
    /// Gives a context the state and workspace of one of its checkpoints.
    ContextRewind(ContextRewind) -> Rewound = "context.rewind",
    /// Compares a context's workspace with that of one of its checkpoints.
    ContextDiff(ContextDiff) -> Compared = "context.diff",
    /// Removes a checkpoint.
    ContextForget(ContextForget) -> Done = "context.forget",
    /// Ends a context at once.
    ContextDelete(ContextDelete) -> Deleted = "context.delete",
    /// Writes a file in a context's workspace.
    FileWrite(FileWrite) -> FileWritten = "file.write",
    /// Reads a part of a file in a context's workspace.
    FileRead(FileRead) -> FileContent = "file.read",
    /// Lists a directory of a context's workspace.
    FileList(FileList) -> FileListed = "file.list",
    /// Describes the entry at a path in a context's workspace; links are not followed.
    FileStat(FileName) -> FileFound = "file.stat",
    /// Makes a directory in a context's workspace, and those above it.
    FileMakeDirectory(FileName) -> Json = "file.make_directory",
    /// Moves an entry of a context's workspace to another path.
    FileMove(FileMove) -> FileMoved = "file.move",
    /// Removes a file or directory of a context's workspace.
    FileRemove(FileRemove) -> Json = "file.remove",
    /// Reports changes below a directory of a context's workspace, as events.
    FileWatch(FileWatch) -> Watching = "file.watch",
    /// Ends a watch.
    FileUnwatch(FileUnwatch) -> Done = "file.unwatch",
    /// Starts a program in a context's cell, beside its interpreter.
    ProcessStart(ProcessStart) -> ProcessStarted = "process.start",
    /// Gives a process input.
    ProcessInput(ProcessInput) -> Done = "process.input",
    /// Ends the standard input of a process.
    ProcessCloseInput(ProcessName) -> Done = "process.close_input",
    /// Sends the process group of a process a signal.
    ProcessSignal(ProcessSignal) -> Done = "process.signal",
    /// Changes the size of a process's terminal.
    ProcessResize(ProcessResize) -> Done = "process.resize",
    /// Sends this client the output of a process from now on, as events.
    ProcessConnect(ProcessName) -> ProcessStarted = "process.connect",
    /// Lists the processes of a context.
    ProcessList(ContextName) -> ProcessList = "process.list",
    /// Cancels a call of this client.
    Cancel(Cancel) -> Done = "cancel",
    /// Shows what the server does.
    Status(None) -> Status = "status",
    /// Shows the server's counters.
    Metrics(None) -> MetricsText = "metrics",
    /// Ends the server.
    Shutdown(Shutdown) -> Done = "shutdown",
}

/// A line that is not a call.
#[derive(Debug)]
pub struct Refused {
    /// The call's id, when the line has one.
    pub id: Option<CallId>,
    /// Why.
    pub failure: Failure,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Reads a line.
///
/// # Errors
/// It is not JSON or not a call; names what is allowed.
pub fn parse(line: &str) -> Result<(CallId, Call), Refused> {
    let without_id = |failure| Refused { id: None, failure };
    let envelope: Envelope<'_> = serde_json::from_str(line)
        .map_err(|error| without_id(Failure::new(Code::BadRequest, words(&error))))?;
    let id = envelope.id.ok_or_else(|| {
        without_id(Failure::new(
            Code::BadRequest,
            "`id` is missing: a number or a text",
        ))
    })?;
    let id = read_id(id).map_err(without_id)?;
    match Call::read(&envelope.method, envelope.params) {
        Ok(call) => Ok((id, call)),
        Err(failure) => Err(Refused {
            id: Some(id),
            failure,
        }),
    }
}

/// The id of a call of which only the beginning has arrived, if that comes before what is large.
pub fn id_of_beginning(beginning: &[u8]) -> Option<CallId> {
    /// Reads fields until there are no more, and keeps the id.
    struct Beginning<'a>(&'a mut Option<CallId>);

    impl<'de> Visitor<'de> for Beginning<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a call")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
            while let Some(field) = fields.next_key::<&str>()? {
                match field {
                    "id" => *self.0 = read_id(fields.next_value()?).ok(),
                    _ => drop(fields.next_value::<IgnoredAny>()?),
                }
            }
            Ok(())
        }
    }

    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        // It can end within a character.
        Err(error) => std::str::from_utf8(beginning.get(..error.valid_up_to())?).ok()?,
    };
    let mut id = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The text ends early, so this fails.
    let _ = deserializer.deserialize_map(Beginning(&mut id));
    id
}

fn read_id(text: &RawValue) -> Result<CallId, Failure> {
    let wrong = || {
        let message = format!("`id` is not a whole number or a text of at most {LONGEST_ID} bytes");
        Failure::new(Code::BadRequest, message)
    };
    if text.get().len() > 6 * LONGEST_ID {
        return Err(wrong());
    }
    match serde_json::from_str(text.get()) {
        Ok(CallId::Text(text)) if text.len() > LONGEST_ID => Err(wrong()),
        Ok(id) => Ok(id),
        Err(_) => Err(wrong()),
    }
}

fn read_params<T: DeserializeOwned>(method: &str, params: Option<&RawValue>) -> Result<T, Failure> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| {
        Failure::new(
            Code::BadParams,
            format!("params of {method}: {}", words(&error)),
        )
    })
}

fn unknown(method: &str) -> Failure {
    let shown: String = method.chars().take(64).collect();
    let message = format!(
        "{shown:?} is not a method, but wants one of {}",
        METHODS.join(", ")
    );
    Failure::new(Code::UnknownMethod, message)
}

/// An error's words, of which input can be part, at a bounded length.
pub fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.char_indices().nth(1000) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> (Option<CallId>, String) {
        let Refused { id, failure } = parse(line).unwrap_err();
        (id, failure.to_string())
    }

    #[test]
    fn calls_are_read() {
        let (id, call) = parse(r#"{"id":"a","method":"status"}"#).unwrap();
        assert_eq!((id, call.method()), (CallId::Text("a".into()), "status"));
        let line = r#"{"params":{"request":{"code":"1"},"events":true},"method":"run","id":7}"#;
        let (id, call) = parse(line).unwrap();
        assert_eq!(id, CallId::Number(7));
        let Call::Run(run) = call else {
            panic!("{call:?}")
        };
        assert_eq!((run.request.get(), run.events), (r#"{"code":"1"}"#, true));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_allowed() {
        let (id, why) = refused(r#"{"id":1,"method":"rum"}"#);
        assert_eq!(id, Some(CallId::Number(1)));
        assert!(why.starts_with("unknown_method: \"rum\""), "{why}");
        assert!(why.contains("run, context.create"), "{why}");
        let (_, why) = refused(r#"{"id":1,"method":"cancel","params":{"cal":2}}"#);
        assert!(
            why.contains("unknown field `cal`, expected `call`"),
            "{why}"
        );
        let (_, why) = refused(r#"{"id":1,"method":"status","extra":2}"#);
        assert!(
            why.contains("expected one of `id`, `method`, `params`"),
            "{why}"
        );
        for line in [
            "",
            "{",
            "[]",
            "1",
            r#"{"method":"status"}"#,
            r#"{"id":[],"method":"status"}"#,
            r#"{"id":1.5,"method":"status"}"#,
        ] {
            let (id, why) = refused(line);
            assert!(
                id.is_none() && why.starts_with("bad_request: "),
                "{line}: {why}"
            );
        }
        let long = format!(r#"{{"id":"{}","method":"status"}}"#, "x".repeat(257));
        assert!(refused(&long).1.contains("256 bytes"));
    }

    #[test]
    fn the_id_is_found_in_the_beginning_of_a_line() {
        let long = r#"{"id":"a","method":"run","params":{"request":{"code":"é"#.as_bytes();
        for cut in [long.len(), long.len() - 1] {
            assert_eq!(
                id_of_beginning(&long[..cut]),
                Some(CallId::Text("a".into()))
            );
        }
        let line = br#"{"method":"run","params":{"request":{"code":"x"#;
        assert_eq!(id_of_beginning(line), None);
        assert_eq!(id_of_beginning(b"[7"), None);
    }

    #[test]
    fn an_error_has_a_bounded_length() {
        let line = format!(r#"{{"id":1,"{}":2}}"#, "y".repeat(1 << 20));
        assert!(refused(&line).1.len() < 2000);
    }
}
