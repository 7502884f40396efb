//! The types of each method's parameters and result. Nothing that serves requests uses them.
#![expect(
    clippy::disallowed_types,
    reason = "it stands for content that is not parsed"
)]

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;
use serve::protocol as p;

/// The parameters and the result of a method.
pub(super) struct Forms {
    /// All parameters of the call.
    pub(super) takes: Schema,
    /// The call's result.
    pub(super) gives: Schema,
}

/// The forms of this method of the protocol.
pub(super) fn of(method: &str, generator: &mut SchemaGenerator) -> Option<Forms> {
    let (_, forms) = TABLE.iter().find(|(own, _)| *own == method)?;
    Some(forms(generator))
}

/// A method, and what makes its forms.
type Row = (&'static str, fn(&mut SchemaGenerator) -> Forms);

/// Content that is not parsed has the type [`Value`].
const TABLE: &[Row] = &[
    ("status", forms::<p::None, p::Status>),
    ("metrics", forms::<p::None, Value>),
    ("run", forms::<p::Run, p::Ran>),
    ("context.create", forms::<p::ContextCreate, p::Created>),
    ("context.list", forms::<p::ContextListing, p::ContextList>),
    ("context.describe", forms::<p::ContextName, Value>),
    ("context.delete", forms::<p::ContextName, p::Deleted>),
    ("context.run", forms::<p::ContextRun, p::Executed>),
    (
        "context.interrupt",
        forms::<p::ContextInterrupt, p::Interrupted>,
    ),
    ("context.restart", forms::<p::ContextName, p::Restarted>),
    ("context.label", forms::<p::ContextLabel, p::Done>),
    ("context.suspend", forms::<p::ContextName, p::Suspended>),
    ("context.resume", forms::<p::ContextName, p::Resumed>),
    ("context.fork", forms::<p::ContextFork, p::Forked>),
    ("context.rewind", forms::<p::ContextRewind, p::Rewound>),
    (
        "context.checkpoint",
        forms::<p::ContextName, p::Checkpointed>,
    ),
    ("context.forget", forms::<p::ContextForget, p::Done>),
    ("context.diff", forms::<p::ContextDiff, p::Compared>),
    ("file.list", forms::<p::FileList, Value>),
    ("file.stat", forms::<p::FileName, Value>),
    ("file.make_directory", forms::<p::FileName, Value>),
    ("file.move", forms::<p::FileMove, Value>),
    ("file.read", forms::<p::FileRead, Value>),
    ("file.write", forms::<p::FileWrite, Value>),
    ("file.remove", forms::<p::FileRemove, Value>),
    ("file.watch", forms::<p::FileWatch, p::Watching>),
    ("process.start", forms::<p::ProcessStart, p::ProcessStarted>),
    ("process.list", forms::<p::ContextName, p::ProcessList>),
    (
        "process.connect",
        forms::<p::ProcessName, p::ProcessStarted>,
    ),
    ("process.input", forms::<p::ProcessInput, p::Done>),
    ("process.close_input", forms::<p::ProcessName, p::Done>),
    ("process.signal", forms::<p::ProcessSignal, p::Done>),
    ("process.resize", forms::<p::ProcessResize, p::Done>),
];

fn forms<Takes: JsonSchema, Gives: JsonSchema>(generator: &mut SchemaGenerator) -> Forms {
    Forms {
        takes: generator.subschema_for::<Takes>(),
        gives: generator.subschema_for::<Gives>(),
    }
}
