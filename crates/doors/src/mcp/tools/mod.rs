//! The tools. Each is a row of [`TABLE`]: its description for the model, and the one call of the
//! server that it makes.

mod contexts;
mod files;
mod forms;
mod own_words;
mod run;

use std::time::Duration;

use record::json::Object;
use record::object;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use wire::{Languages, Method, words};

use super::instructions::About;
use super::kept::Kept;
use super::output::ToolResult;

pub use forms::schemas;
pub(super) use own_words::in_own_words;

/// A tool. The forms of its arguments and of its answer are in [`forms`].
pub(super) struct Tool {
    /// As the model calls it.
    pub(super) name: &'static str,
    /// As a person sees it.
    title: &'static str,
    /// For the model.
    description: &'static str,
    hints: Hints,
    /// The call that the arguments ask for.
    begin: fn(&str, &Terms) -> Result<Begun, String>,
}

/// What clients may assume of a tool.
struct Hints {
    /// It changes nothing.
    read_only: bool,
    /// It may destroy what was there.
    destructive: bool,
    /// Another call with the same arguments changes nothing more.
    idempotent: bool,
}

/// What a call depends on besides its arguments.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// The most real time of a command in a context.
    pub(super) wall: Option<Duration>,
    /// The languages of code.
    pub(super) languages: Languages,
    /// Whether the client wants to know how an execution goes on.
    pub(super) events: bool,
    /// Whether new contexts outlive the client of the server that creates them.
    pub(super) keep: bool,
}

/// Makes a tool's answer from a call's result.
pub(super) type OfResult = fn(&str, &mut Kept) -> Result<ToolResult, serde_json::Error>;

/// What a tool's answer is made from.
#[derive(Debug)]
pub(super) enum Finish {
    /// The call's result.
    Result(OfResult),
    /// The end of the process that the call starts in this context.
    Process { context: String },
}

/// A call of the server that a tool makes.
#[derive(Debug)]
pub(super) struct Begun {
    /// The call's method.
    pub(super) method: &'static str,
    /// Its parameters, as text.
    pub(super) params: Box<RawValue>,
    pub(super) finish: Finish,
}

impl Begun {
    fn new<M: Method>(params: &M::Params, finish: Finish) -> Self {
        Self {
            method: M::NAME,
            // What this program writes has a form in JSON.
            params: to_raw_value(params).unwrap_or_default(),
            finish,
        }
    }

    /// A call whose result is the tool's answer.
    fn of<M: Method>(params: &M::Params, finish: OfResult) -> Self {
        Self::new::<M>(params, Finish::Result(finish))
    }
}

const NEW: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: false,
};
const READ: Hints = Hints {
    read_only: true,
    destructive: false,
    idempotent: true,
};
const END: Hints = Hints {
    read_only: false,
    destructive: true,
    idempotent: true,
};

/// All tools, in the order in which clients see them.
pub(super) static TABLE: [Tool; 10] = [
    Tool {
        name: "run_code",
        title: "Run code",
        description: "Run code in a sandbox and return its value, output, pictures, files and \
            error. Without context_id nothing is kept from one call to the next; with it, variables, \
            imports and files of that context are there.",
        hints: NEW,
        begin: |arguments, terms| run::code(read(arguments)?, terms),
    },
    Tool {
        name: "run_command",
        title: "Run a shell command",
        description: "Run a command with bash in a sandbox and return its output and exit code. \
            With context_id it runs beside the interpreter of that context, also while code runs \
            there, and works on the same files; variables and cd do not last, but programs that it \
            leaves in the background do.",
        hints: NEW,
        begin: |arguments, terms| run::command(read(arguments)?, terms),
    },
    Tool {
        name: "create_context",
        title: "Create a context",
        description: "Start an interpreter that stays, in a sandbox of its own, and return its \
            context_id for run_code. It ends with close_context, or when it is not used for long.",
        hints: NEW,
        begin: |arguments, terms| contexts::create(read(arguments)?, terms),
    },
    Tool {
        name: "list_contexts",
        title: "List contexts",
        description: "List the contexts that exist, with what they do and when they were last used.",
        hints: READ,
        begin: |arguments, _| contexts::list(read(arguments)?),
    },
    Tool {
        name: "fork_context",
        title: "Fork a context",
        description: "Make copies of a context with all its variables and files, each in a \
            sandbox of its own, to try several ways from the same state. Only for contexts of python \
            that were created with forkable.",
        hints: NEW,
        begin: |arguments, _| contexts::fork(read(arguments)?),
    },
    Tool {
        name: "restart_context",
        title: "Restart a context",
        description: "End the interpreter of a context and start a new one. Its variables are \
            lost; its files stay.",
        hints: END,
        begin: |arguments, _| contexts::restart(read(arguments)?),
    },
    Tool {
        name: "close_context",
        title: "Close a context",
        description: "End a context. Its variables and files are gone.",
        hints: END,
        begin: |arguments, _| contexts::close(read(arguments)?),
    },
    Tool {
        name: "read_file",
        title: "Read a file",
        description: "Read a file, or a part of it, in the working directory of a context.",
        hints: READ,
        begin: |arguments, _| files::read(read(arguments)?),
    },
    Tool {
        name: "write_file",
        title: "Write a file",
        description: "Write a file in the working directory of a context. A file of this name is \
            replaced; directories above it are made.",
        hints: END,
        begin: |arguments, _| files::write(read(arguments)?),
    },
    Tool {
        name: "list_files",
        title: "List files",
        description: "List the files in the working directory of a context.",
        hints: READ,
        begin: |arguments, _| files::list(read(arguments)?),
    },
];

impl Tool {
    /// The call that the arguments ask for.
    ///
    /// # Errors
    /// What is wrong with them, for the model.
    pub(super) fn begin(&self, arguments: &str, terms: &Terms) -> Result<Begun, String> {
        (self.begin)(arguments, terms).map_err(|error| format!("{}: {error}", self.name))
    }

    /// With the schemas of all tools.
    fn declared(&self, about: &About, schemas: &forms::Schemas) -> Object<'static> {
        let (input, output) = schemas.of(self.name, &about.languages());
        object! {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": input,
            "outputSchema": output,
            "annotations": object! {
                "title": self.title,
                "readOnlyHint": self.hints.read_only,
                "destructiveHint": self.hints.destructive,
                "idempotentHint": self.hints.idempotent,
                "openWorldHint": false,
            },
        }
    }
}

/// The tool with this name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TABLE.iter().find(|tool| tool.name == name)
}

/// All tools as `tools/list` shows them.
pub(super) fn declared(about: &About) -> Vec<Object<'static>> {
    let schemas = forms::Schemas::published();
    let declared = TABLE.iter().map(|tool| tool.declared(about, &schemas));
    declared.collect()
}

fn read<'a, T: Deserialize<'a>>(arguments: &'a str) -> Result<T, String> {
    serde_json::from_str(arguments).map_err(|error| words(&error))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn tools_are_declared_with_schemas_that_refer_to_nothing() {
        let about = About::default();
        let tools = serde_json::to_value(declared(&about)).unwrap();
        let names: Vec<_> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), TABLE.len());
        for tool in tools.as_array().unwrap() {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
            assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
            assert!(!tool.to_string().contains("\"$ref\""), "{tool}");
            assert!(!tool.to_string().contains("\"uint64\""), "{tool}");
        }
    }

    #[test]
    fn what_is_wrong_with_arguments_is_named() {
        let why = |name: &str, arguments: Value| {
            find(name)
                .unwrap()
                .begin(&arguments.to_string(), &Terms::default())
                .unwrap_err()
        };
        assert!(why("run_code", json!({})).contains("missing field `code`"));
        assert!(
            why("run_code", json!({"code": "1", "lang": "r"})).contains("unknown field `lang`")
        );
        assert!(why("run_code", json!({"code": "1", "timeout": -1})).contains("timeout: "));
        assert!(
            why("write_file", json!({"context_id": "a", "path": "b"}))
                .contains("`text` or `base64`")
        );
    }
}
