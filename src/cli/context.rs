//! `cellblock context`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use super::format::Shaped;
use super::options::Options;
use super::outputs::Outputs;
use super::serve::declare_groups;
use super::values::{FileFrom, OutputTo, Variable, file_from, output_to, variable};
use spec::quantity::Bound;

/// Keep an interpreter between calls: variables, imports, open files and workspace
///
/// Each context is kept by a server process of its own, which ends with the context:
/// when it is deleted or exceeds its idle limit. It listens in
/// $XDG_RUNTIME_DIR/cellblock/contexts, or in /tmp/cellblock-UID/contexts without a
/// runtime directory, for its own user only.
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Context {
    /// What to do.
    #[command(subcommand)]
    pub action: ContextAction,
}

/// What `cellblock context` does.
#[derive(Subcommand, Debug)]
pub enum ContextAction {
    /// Create a context and print its id
    Create(Box<Create>),
    /// Execute code in a context
    ///
    /// On a terminal, output and results are shown as they come; otherwise, or with --json, the
    /// answer is printed as JSON: `state` says whether variables and imports are still there, and
    /// `record` is that of `cellblock run`. The exit status is the code's own, as for
    /// `cellblock run`.
    Run(RunIn),
    /// Run a command in a context's cell, beside its interpreter
    ///
    /// The command works on the same files, within the same limits, and does not wait for code that
    /// the context executes. Its standard input, output and error are the caller's. SIGHUP, SIGINT,
    /// SIGQUIT and SIGTERM are passed on to its process group. The exit status is the command's
    /// own, or 128 and the number of the signal that ended it; 125 if it was not started, or its
    /// cell ended. If cellblock is killed, so is the command.
    Exec(ExecIn),
    /// Interrupt what a context executes: SIGINT, then the grace, then the
    /// interpreter's end
    Interrupt {
        /// The context and the form of the answer.
        #[command(flatten)]
        of: Of,
        /// The time that the code gets to end by itself [default: 2s]
        #[arg(long, value_name = "DUR")]
        grace: Option<Bound<Duration>>,
    },
    /// Begin with a new interpreter in the same workspace
    Restart(Of),
    /// Make contexts that go on from a context's state, and print their ids
    ///
    /// Only contexts that were created with --branches or --replay are forked. With
    /// --branches, random seeds are shared; with --replay, new interpreters execute again
    /// what the context has executed.
    Fork {
        /// The context and the form of the answer.
        #[command(flatten)]
        of: Of,
        /// How many, 1 to 32
        #[arg(short = 'n', value_name = "N", default_value_t = 1)]
        n: usize,
    },
    /// Keep a context's present state, and print its number
    Checkpoint(Of),
    /// Give a context the state and the workspace of a checkpoint
    Rewind {
        /// The context and the form of the answer.
        #[command(flatten)]
        of: Of,
        /// Which checkpoint [default: the last one]
        #[arg(long, value_name = "NUMBER")]
        checkpoint: Option<u64>,
    },
    /// End a context's processes until it is used again; its state is kept on the disk
    ///
    /// Only contexts that were created with --branches or --replay are suspended.
    Suspend(Of),
    /// Give a context the state that it had when it was suspended or lost
    ///
    /// A state that was lost because the interpreter ended can be restored if the context was
    /// created with --replay and nothing else has been executed since.
    Resume(Of),
    /// List a context's variables and what it uses
    Describe(Of),
    /// End a context and remove all that it has
    Delete(Of),
    /// List contexts
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A context, and the form of the answer.
#[derive(Args, Clone, Debug)]
pub struct Of {
    /// The context's id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// `cellblock context create`
#[derive(Clone, Debug)]
pub struct Create {
    /// What it creates.
    pub own: CreateOwn,
    /// How its cell is.
    pub options: Options,
}

/// What a context is created with, besides its cell's options.
#[derive(Args, Clone, Debug)]
pub struct CreateOwn {
    /// Language of the context
    #[arg(long, value_name = "LANG", help_heading = "Context")]
    pub lang: String,
    /// A text that `cellblock context list` shows
    #[arg(long, value_name = "TEXT", help_heading = "Context")]
    pub label: Option<String>,
    /// How long it may have nothing to do before it is deleted
    #[arg(
        long,
        value_name = "DUR",
        default_value = "30m",
        help_heading = "Context"
    )]
    pub idle: Bound<Duration>,
    /// Let it be forked and suspended: the memory of its interpreter, which must be
    /// Python, is laid out without randomisation
    #[arg(long, help_heading = "Context", group = "carried")]
    pub branches: bool,
    /// Let it be forked and suspended by executing again what it has executed, in every
    /// language and without tracing
    #[arg(long, help_heading = "Context", group = "carried")]
    pub replay: bool,
    /// How long it may have nothing to do before it is suspended [default: for ever]
    #[arg(
        long,
        value_name = "DUR",
        requires = "carried",
        help_heading = "Context"
    )]
    pub suspend_after: Option<Bound<Duration>>,
    /// Print the answer as JSON
    #[arg(long, help_heading = "Context")]
    pub json: bool,
}

/// The options of [`CreateOwn`] that its server does not have, and whether they have a
/// value.
pub const OF_CREATE: [(&str, bool); 6] = [
    ("--lang", true),
    ("--label", true),
    ("--branches", false),
    ("--replay", false),
    ("--suspend-after", true),
    ("--json", false),
];

/// `cellblock context run`
#[derive(Args, Clone, Debug)]
#[command(override_usage = "cellblock context run [OPTIONS] ID [FILE | -c CODE | -] [ARGS]...")]
pub struct RunIn {
    /// The context's id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Code to execute
    #[arg(short = 'c', value_name = "CODE", allow_hyphen_values = true)]
    pub code: Option<OsString>,
    /// File that holds the code, or - for standard input; with -c, the first argument
    #[arg(value_name = "FILE")]
    pub source: Option<OsString>,
    /// Arguments that the code sees; those that look like options stand behind `--`
    #[arg(value_name = "ARGS", allow_negative_numbers = true)]
    pub args: Vec<OsString>,
    /// The most real time, at most what the context's limits allow
    #[arg(long, visible_alias = "timeout", value_name = "DUR")]
    pub wall: Option<Bound<Duration>>,
    /// The time between the interrupt at the end of --wall and the interpreter's end
    #[arg(long, value_name = "DUR")]
    pub grace: Option<Bound<Duration>>,
    /// Write a file into the workspace first: FILE[:PATH], or fd:N:PATH (repeatable)
    #[arg(
        long, value_name = "FILE[:PATH]",
        value_parser = OsStringValueParser::new().try_map(file_from)
    )]
    pub file: Vec<FileFrom>,
    /// Copy files that the code creates or changes below /workspace to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write each result that is a picture, or a chart that can be drawn, to a file in this
    /// directory: result-1.png, by the result's number
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Write the record to a file, an open descriptor or standard output (-)
    #[arg(
        long, value_name = "FILE|fd:N|-",
        value_parser = OsStringValueParser::new().try_map(output_to)
    )]
    pub record: Option<OutputTo>,
    /// Print the answer as JSON; an error too, with a record of that
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    #[command(flatten)]
    shaped: Shaped,
}

impl RunIn {
    /// Where the record goes besides the answer.
    pub fn outputs(&self) -> Outputs {
        let format = self.shaped.clone().unchecked();
        let mut outputs = Outputs::unchecked(false, format, self.record.clone(), None);
        outputs.plots.clone_from(&self.plots);
        outputs
    }
}

impl Context {
    /// Whether its streams are those of a command.
    pub const fn is_exec(&self) -> bool {
        matches!(self.action, ContextAction::Exec(_))
    }

    /// The command, if its options go together.
    pub(super) fn checked(self) -> Result<Self, clap::Error> {
        if let ContextAction::Run(run) = &self.action {
            let format = run.shaped.clone().format()?;
            Outputs::new(run.json, format, run.record.clone(), None)?;
        }
        Ok(self)
    }
}

/// `cellblock context exec`
#[derive(Args, Clone, Debug)]
pub struct ExecIn {
    /// The context's id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Give it a terminal of the cell's own as its streams, which the terminal on standard
    /// input shows: job control and Ctrl-C work inside, the size follows, and TERM is the
    /// caller's
    #[arg(long)]
    pub tty: bool,
    /// Working directory, an absolute path inside [default: the context's]
    #[arg(long, value_name = "PATH")]
    pub cwd: Option<PathBuf>,
    /// Set an environment variable besides those of the context; a bare NAME passes the
    /// caller's value (repeatable)
    #[arg(
        long, value_name = "NAME[=VALUE]",
        value_parser = OsStringValueParser::new().try_map(variable)
    )]
    pub env: Vec<Variable>,
    /// Program inside the cell, found by PATH, and its arguments
    #[arg(value_names = ["PROG", "ARGS"], last = true, num_args = 1.., required = true)]
    pub argv: Vec<OsString>,
}

impl Args for Create {
    /// Only when it is called: the other actions need none of its options.
    fn augment_args(command: Command) -> Command {
        command.defer(|command| {
            let about = command.get_about().cloned();
            let long_about = command.get_long_about().cloned();
            declare_groups(CreateOwn::augment_args(command))
                .next_help_heading(None)
                .about(clap::builder::Resettable::from(about))
                .long_about(clap::builder::Resettable::from(long_about))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Create {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut matches = matches.clone();
        let own = CreateOwn::from_arg_matches_mut(&mut matches)?;
        let options = Options::read_cell(&mut matches)?;
        Ok(Self { own, options })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
