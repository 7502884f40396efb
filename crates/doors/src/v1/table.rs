//! What there is, where, and which call of the protocol it is.

use axum::routing::MethodFilter;
use serde_json::value::{RawValue, to_raw_value};
use wire::{Method as _, method};

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
    pub(super) reply: AnswerForm,
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
pub(super) enum AnswerForm {
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
    pub(super) fn read(self, text: &str) -> Option<Box<RawValue>> {
        match self {
            Self::Text => to_raw_value(text).ok(),
            Self::Number => to_raw_value(&text.parse::<u64>().ok()?).ok(),
            Self::Flag => to_raw_value(&text.parse::<bool>().ok()?).ok(),
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
        matches!(self.verb, Verb::Post | Verb::Put) && self.reply != AnswerForm::Upload
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

/// What most routes have.
const PLAIN: Route = Route {
    verb: Verb::Get,
    path: "",
    call: "",
    about: "",
    fields: &[],
    fixed: &[],
    reply: AnswerForm::Json,
};

const PROCESS: Route = Route {
    fields: &[("process", Kind::Number)],
    ..PLAIN
};

pub(super) const TABLE: &[Route] = &[
    Route {
        path: "/v1/status",
        call: method::Status::NAME,
        about: "Cells, memory, queue, contexts, checkpoints and pools",
        ..PLAIN
    },
    Route {
        path: "/v1/metrics",
        call: method::Metrics::NAME,
        about: "Counters in Prometheus's text format",
        reply: AnswerForm::Text,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/runs",
        call: method::Run::NAME,
        about: "Runs code or a program in a cell of its own",
        reply: AnswerForm::Streams,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts",
        call: method::ContextCreate::NAME,
        about: "Creates a context, which exists until it is deleted or idle for too long",
        fixed: &["keep"],
        reply: AnswerForm::Created,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts",
        call: method::ContextList::NAME,
        about: "Lists contexts",
        fields: &[("label", Kind::Text), ("context", Kind::Text)],
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}",
        call: method::ContextDescribe::NAME,
        about: "Lists a context's variables and what it uses",
        ..PLAIN
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}",
        call: method::ContextDelete::NAME,
        about: "Ends a context at once",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/run",
        call: method::ContextRun::NAME,
        about: "Executes code in a context, after what was asked of it before",
        reply: AnswerForm::Streams,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/interrupt",
        call: method::ContextInterrupt::NAME,
        about: "Interrupts an execution: SIGINT, the grace, then a kill",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/restart",
        call: method::ContextRestart::NAME,
        about: "Ends a context's interpreter and begins with a new one; the workspace is kept",
        ..PLAIN
    },
    Route {
        verb: Verb::Put,
        path: "/v1/contexts/{context}/label",
        call: method::ContextLabel::NAME,
        about: "Changes a context's label",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/suspend",
        call: method::ContextSuspend::NAME,
        about: "Ends a context's processes; its state is kept on the disk until it is used",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/resume",
        call: method::ContextResume::NAME,
        about: "Gives a suspended context a cell, before it has something to do",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/fork",
        call: method::ContextFork::NAME,
        about: "Makes contexts that go on from the state and workspace of one",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/rewind",
        call: method::ContextRewind::NAME,
        about: "Gives a context the state and workspace of one of its checkpoints",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/checkpoints",
        call: method::ContextCheckpoint::NAME,
        about: "Keeps a context's state and workspace, to go back to",
        reply: AnswerForm::Created,
        ..PLAIN
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}/checkpoints/{checkpoint}",
        call: method::ContextForget::NAME,
        about: "Removes a checkpoint",
        fields: &[("checkpoint", Kind::Number)],
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/diff",
        call: method::ContextDiff::NAME,
        about: "Compares a context's workspace with that of one of its checkpoints",
        fields: &[("with", Kind::Number)],
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/files",
        call: method::FileList::NAME,
        about: "Lists a directory of a context's workspace",
        fields: &[
            ("path", Kind::Text),
            ("recursive", Kind::Flag),
            ("depth", Kind::Number),
        ],
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/stat",
        call: method::FileStat::NAME,
        about: "Describes the entry at a path in a context's workspace",
        fields: &[("path", Kind::Text)],
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/directories",
        call: method::FileMakeDirectory::NAME,
        about: "Makes a directory in a context's workspace",
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/move",
        call: method::FileMove::NAME,
        about: "Moves an entry of a context's workspace to another path",
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/files/{*path}",
        call: method::FileRead::NAME,
        about: "Reads a file of a context's workspace",
        reply: AnswerForm::Content,
        ..PLAIN
    },
    Route {
        verb: Verb::Put,
        path: "/v1/contexts/{context}/files/{*path}",
        call: method::FileWrite::NAME,
        about: "Writes a file in a context's workspace, in parts if it is longer than 4 MiB",
        fields: &[("executable", Kind::Flag), ("append", Kind::Flag)],
        reply: AnswerForm::Upload,
        ..PLAIN
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}/files/{*path}",
        call: method::FileRemove::NAME,
        about: "Removes a file or directory of a context's workspace",
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/watch",
        call: method::FileWatch::NAME,
        about: "Reports changes below a directory of a context's workspace, as events",
        fields: &[("path", Kind::Text)],
        reply: AnswerForm::Watches,
        ..PLAIN
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/processes",
        call: method::ProcessStart::NAME,
        about: "Starts a program in a context's cell, beside its interpreter",
        reply: AnswerForm::Starts,
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/processes",
        call: method::ProcessList::NAME,
        about: "Lists the processes of a context",
        ..PLAIN
    },
    Route {
        path: "/v1/contexts/{context}/processes/{process}/events",
        call: method::ProcessConnect::NAME,
        about: "Reports the output of a process from now on, and its end, as events",
        reply: AnswerForm::Watches,
        ..PROCESS
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/processes/{process}/input",
        call: method::ProcessInput::NAME,
        about: "Gives a process input",
        ..PROCESS
    },
    Route {
        verb: Verb::Delete,
        path: "/v1/contexts/{context}/processes/{process}/input",
        call: method::ProcessCloseInput::NAME,
        about: "Ends the standard input of a process",
        ..PROCESS
    },
    Route {
        verb: Verb::Post,
        path: "/v1/contexts/{context}/processes/{process}/signal",
        call: method::ProcessSignal::NAME,
        about: "Sends the process group of a process a signal",
        ..PROCESS
    },
    Route {
        verb: Verb::Put,
        path: "/v1/contexts/{context}/processes/{process}/terminal",
        call: method::ProcessResize::NAME,
        about: "Changes the size of a process's terminal",
        ..PROCESS
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemars::SchemaGenerator;
    use wire::METHODS;

    use super::super::forms;
    use super::*;

    /// A connection is what these are about, and HTTP has others for that.
    const WITHOUT: [&str; 3] = [
        method::Cancel::NAME,
        method::FileUnwatch::NAME,
        method::Shutdown::NAME,
    ];

    #[test]
    fn every_method_of_the_protocol_has_one_resource() {
        let own: Vec<&str> = TABLE.iter().map(|route| route.call).collect();
        let unique: BTreeSet<&str> = own.iter().copied().collect();
        assert_eq!(unique.len(), own.len());
        let all = METHODS.iter().copied();
        let wanted: BTreeSet<&str> = all.filter(|name| !WITHOUT.contains(name)).collect();
        assert_eq!(unique, wanted);
    }

    #[test]
    fn parameters_are_those_of_the_method() {
        for route in TABLE {
            let mut generator = SchemaGenerator::default();
            assert!(forms::of(route.call, &mut generator).is_some());
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
