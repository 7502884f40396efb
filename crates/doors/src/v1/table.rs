//! What there is, where, and which call of the protocol it is.

use axum::routing::MethodFilter;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;
use serve::protocol as p;

/// A resource and what can be done with it.
pub(super) struct Route {
    pub(super) verb: Verb,
    /// With its parameters in braces.
    pub(super) path: &'static str,
    /// The method of the protocol.
    pub(super) call: &'static str,
    pub(super) about: &'static str,
    /// Parameters of the query, and those of the path that are not text.
    pub(super) fields: &'static [(&'static str, Kind)],
    /// What the call always has.
    pub(super) fixed: &'static [&'static str],
    /// All parameters of the call.
    pub(super) takes: fn(&mut SchemaGenerator) -> Schema,
    /// The call's result.
    pub(super) gives: fn(&mut SchemaGenerator) -> Schema,
    pub(super) reply: Reply,
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

/// What a parameter in a path or query is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The call's result.
    Json,
    /// The result of what is new.
    Created,
    /// The result; with `events`, all that happens as server-sent events.
    Streams,
    /// The result of a new process; with `events`, server-sent events until its end.
    Starts,
    /// Server-sent events, until the client goes.
    Watches,
    /// A text.
    Text,
    /// A file's content.
    Content,
    /// The result; the body of the request is a file's content.
    Upload,
}

impl Verb {
    pub(super) const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
        }
    }

    /// Its name in an OpenAPI document.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }
}

impl Kind {
    /// A text as a value of this kind.
    pub(super) fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Text => Some(text.into()),
            Self::Number => text.parse::<u64>().ok().map(Value::from),
            Self::Flag => text.parse::<bool>().ok().map(Value::from),
        }
    }

    pub(super) const fn wanted(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "a whole number",
            Self::Flag => "true or false",
        }
    }

    /// Its name in a JSON Schema.
    pub(super) const fn schema(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "integer",
            Self::Flag => "boolean",
        }
    }
}

impl Route {
    /// Whether the body of a request is an object with parameters.
    pub(super) fn has_object(&self) -> bool {
        matches!(self.verb, Verb::Post | Verb::Put) && self.reply != Reply::Upload
    }

    /// The names of the parameters in its path.
    pub(super) fn in_path(&self) -> impl Iterator<Item = &'static str> {
        let parts = self.path.split('/');
        parts
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| name.trim_start_matches('*'))
    }

    /// What this parameter is.
    pub(super) fn kind(&self, name: &str) -> Option<Kind> {
        let field = self.fields.iter().find(|(own, _)| *own == name);
        let in_path = || self.in_path().any(|own| own == name).then_some(Kind::Text);
        field.map(|(_, kind)| *kind).or_else(in_path)
    }
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What is read and written as it is.
fn any(generator: &mut SchemaGenerator) -> Schema {
    of::<Value>(generator)
}

/// What most routes have.
const PLAIN: Route = Route {
    verb: Verb::Get,
    path: "",
    call: "",
    about: "",
    fields: &[],
    fixed: &[],
    takes: of::<p::None>,
    gives: any,
    reply: Reply::Json,
};

const CONTEXT: Route = Route {
    takes: of::<p::ContextName>,
    ..PLAIN
};

const PROCESS: Route = Route {
    fields: &[("process", Kind::Number)],
    takes: of::<p::ProcessName>,
    gives: of::<p::Done>,
    ..PLAIN
};

pub(super) const TABLE: &[Route] = &[
    Route {
        path: "/v1/status",
        call: "status",
        about: "Cells, memory, queue, contexts, checkpoints and pools",
        gives: of::<p::Status>,
        ..PLAIN
    },
    Route {
        path: "/v1/metrics",
        call: "metrics",
        about: "Counters in Prometheus's text format",
        reply: Reply::Text,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/runs",
        call: "run",
        about: "Runs code or a program in a cell of its own",
        takes: of::<p::Run>,
        gives: of::<p::Ran>,
        reply: Reply::Streams,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts",
        call: "context.create",
        about: "Creates a context, which exists until it is deleted or idle for too long",
        fixed: &["keep"],
        takes: of::<p::ContextCreate>,
        gives: of::<p::Created>,
        reply: Reply::Created,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts",
        call: "context.list",
        about: "Lists contexts",
        fields: &[("label", Kind::Text)],
        takes: of::<p::ContextListing>,
        gives: of::<p::ContextList>,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}",
        call: "context.describe",
        about: "Lists a context's variables and what it uses",
        ..CONTEXT
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}",
        call: "context.delete",
        about: "Ends a context at once",
        gives: of::<p::Deleted>,
        ..CONTEXT
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/run",
        call: "context.run",
        about: "Executes code in a context, after what was asked of it before",
        takes: of::<p::ContextRun>,
        gives: of::<p::Executed>,
        reply: Reply::Streams,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/interrupt",
        call: "context.interrupt",
        about: "Interrupts an execution: SIGINT, the grace, then a kill",
        takes: of::<p::ContextInterrupt>,
        gives: of::<p::Interrupted>,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/restart",
        call: "context.restart",
        about: "Ends a context's interpreter and begins with a new one; the workspace is kept",
        gives: of::<p::Restarted>,
        ..CONTEXT
    },
    Route {
        verb: Verb::Put,
        path: "/v1/contexts/{context}/label",
        call: "context.label",
        about: "Changes a context's label",
        takes: of::<p::ContextLabel>,
        gives: of::<p::Done>,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/suspend",
        call: "context.suspend",
        about: "Ends a context's processes; its state is kept on the disk until it is used",
        gives: of::<p::Suspended>,
        ..CONTEXT
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/resume",
        call: "context.resume",
        about: "Gives a suspended context a cell, before it has something to do",
        gives: of::<p::Resumed>,
        ..CONTEXT
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/fork",
        call: "context.fork",
        about: "Makes contexts that go on from the state and workspace of one",
        takes: of::<p::ContextFork>,
        gives: of::<p::Forked>,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/rewind",
        call: "context.rewind",
        about: "Gives a context the state and workspace of one of its checkpoints",
        takes: of::<p::ContextRewind>,
        gives: of::<p::Rewound>,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/checkpoints",
        call: "context.checkpoint",
        about: "Keeps a context's state and workspace, to go back to",
        gives: of::<p::Checkpointed>,
        reply: Reply::Created,
        ..CONTEXT
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}/checkpoints/{checkpoint}",
        call: "context.forget",
        about: "Removes a checkpoint",
        fields: &[("checkpoint", Kind::Number)],
        takes: of::<p::ContextForget>,
        gives: of::<p::Done>,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/diff",
        call: "context.diff",
        about: "Compares a context's workspace with that of one of its checkpoints",
        fields: &[("with", Kind::Number)],
        takes: of::<p::ContextDiff>,
        gives: of::<p::Compared>,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/files",
        call: "file.list",
        about: "Lists a directory of a context's workspace",
        fields: &[
            ("path", Kind::Text),
            ("recursive", Kind::Flag),
            ("depth", Kind::Number),
        ],
        takes: of::<p::FileList>,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/stat",
        call: "file.stat",
        about: "Describes the entry at a path in a context's workspace",
        fields: &[("path", Kind::Text)],
        takes: of::<p::FileName>,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/directories",
        call: "file.make_directory",
        about: "Makes a directory in a context's workspace",
        takes: of::<p::FileName>,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/move",
        call: "file.move",
        about: "Moves an entry of a context's workspace to another path",
        takes: of::<p::FileMove>,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/files/{*path}",
        call: "file.read",
        about: "Reads a file of a context's workspace",
        takes: of::<p::FileRead>,
        reply: Reply::Content,
        ..PLAIN
    },
    Route {
        verb: Verb::Put,
        path: "/v1/contexts/{context}/files/{*path}",
        call: "file.write",
        about: "Writes a file in a context's workspace",
        fields: &[("executable", Kind::Flag), ("append", Kind::Flag)],
        takes: of::<p::FileWrite>,
        reply: Reply::Upload,
        ..PLAIN
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}/files/{*path}",
        call: "file.remove",
        about: "Removes a file or directory of a context's workspace",
        takes: of::<p::FileRemove>,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/watch",
        call: "file.watch",
        about: "Reports changes below a directory of a context's workspace, as events",
        fields: &[("path", Kind::Text)],
        takes: of::<p::FileWatch>,
        gives: of::<p::Watching>,
        reply: Reply::Watches,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/processes",
        call: "process.start",
        about: "Starts a program in a context's cell, beside its interpreter",
        takes: of::<p::ProcessStart>,
        gives: of::<p::ProcessStarted>,
        reply: Reply::Starts,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/processes",
        call: "process.list",
        about: "Lists the processes of a context",
        gives: of::<p::ProcessList>,
        ..CONTEXT
    },
    Route {
        path: "/v1/contexts/{context}/processes/{process}/events",
        call: "process.connect",
        about: "Reports the output of a process from now on, and its end, as events",
        gives: of::<p::ProcessStarted>,
        reply: Reply::Watches,
        ..PROCESS
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/processes/{process}/input",
        call: "process.input",
        about: "Gives a process input",
        takes: of::<p::ProcessInput>,
        ..PROCESS
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}/processes/{process}/input",
        call: "process.close_input",
        about: "Ends the standard input of a process",
        ..PROCESS
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/processes/{process}/signal",
        call: "process.signal",
        about: "Sends the process group of a process a signal",
        takes: of::<p::ProcessSignal>,
        ..PROCESS
    },
    Route {
        verb: Verb::Put,
        path: "/v1/contexts/{context}/processes/{process}/terminal",
        call: "process.resize",
        about: "Changes the size of a process's terminal",
        takes: of::<p::ProcessResize>,
        ..PROCESS
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A connection is what these are about, and HTTP has others for that.
    const WITHOUT: [&str; 3] = ["cancel", "file.unwatch", "shutdown"];

    #[test]
    fn every_method_of_the_protocol_has_one_resource() {
        let own: Vec<&str> = TABLE.iter().map(|route| route.call).collect();
        let unique: BTreeSet<&str> = own.iter().copied().collect();
        assert_eq!(unique.len(), own.len());
        let all = p::METHODS.iter().copied();
        let wanted: BTreeSet<&str> = all.filter(|name| !WITHOUT.contains(name)).collect();
        assert_eq!(unique, wanted);
    }

    #[test]
    fn parameters_are_those_of_the_method() {
        for route in TABLE {
            let mut generator = SchemaGenerator::default();
            let _ = (route.takes)(&mut generator);
            let all = serde_json::to_string(generator.definitions()).unwrap();
            let fields = route.fields.iter().map(|(name, _)| *name);
            for name in fields
                .chain(route.in_path())
                .chain(route.fixed.iter().copied())
            {
                let is_known = all.contains(&format!("\"{name}\":"));
                assert!(is_known, "{}: {name}: {all}", route.path);
            }
        }
    }
}
