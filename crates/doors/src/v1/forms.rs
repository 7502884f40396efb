//! The types of each method's parameters and result. Nothing that serves requests uses them.
#![expect(
    clippy::disallowed_types,
    reason = "it stands for content that is not parsed"
)]

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;
use wire::{Method, method};

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

const TABLE: &[Row] = &[
    known::<method::Status>(),
    opaque::<method::Metrics>(),
    known::<method::Run>(),
    known::<method::ContextCreate>(),
    known::<method::ContextList>(),
    opaque::<method::ContextDescribe>(),
    known::<method::ContextDelete>(),
    known::<method::ContextRun>(),
    known::<method::ContextInterrupt>(),
    known::<method::ContextRestart>(),
    known::<method::ContextLabel>(),
    known::<method::ContextSuspend>(),
    known::<method::ContextResume>(),
    known::<method::ContextFork>(),
    known::<method::ContextRewind>(),
    known::<method::ContextCheckpoint>(),
    known::<method::ContextForget>(),
    known::<method::ContextDiff>(),
    opaque::<method::FileList>(),
    opaque::<method::FileStat>(),
    opaque::<method::FileMakeDirectory>(),
    opaque::<method::FileMove>(),
    opaque::<method::FileRead>(),
    opaque::<method::FileWrite>(),
    opaque::<method::FileRemove>(),
    known::<method::FileWatch>(),
    known::<method::ProcessStart>(),
    known::<method::ProcessList>(),
    known::<method::ProcessConnect>(),
    known::<method::ProcessInput>(),
    known::<method::ProcessCloseInput>(),
    known::<method::ProcessSignal>(),
    known::<method::ProcessResize>(),
];

const fn known<M: Method<Params: JsonSchema, Answer: JsonSchema>>() -> Row {
    (M::NAME, |generator| Forms {
        takes: generator.subschema_for::<M::Params>(),
        gives: generator.subschema_for::<M::Answer>(),
    })
}

/// A method whose result has no schema.
const fn opaque<M: Method<Params: JsonSchema>>() -> Row {
    (M::NAME, |generator| Forms {
        takes: generator.subschema_for::<M::Params>(),
        gives: generator.subschema_for::<Value>(),
    })
}
