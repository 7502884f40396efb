//! The command line: syntax only. Help, manual pages and completions are
//! generated from these declarations.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};

pub use context::{Context, ContextAction, Create, ExecIn, OF_CREATE, Of, RunIn};
pub use format::Show;
pub use groups::{Environment, Files, Limits, Networking, Security};
pub use options::Options;
pub use outputs::Outputs;
pub use outputs::TERMINAL_TAKEN;
pub use prescan::Prescan;
pub use rootfs::{Add, Build, InStore, Rootfs, RootfsAction};
pub use serve::{Serve, Server, Warm};
pub use values::{FileFrom, OutputTo, PathPair, PortList, Variable};

use groups::with_defaults_of_languages;
use options::Needed;

use record::bytes::RawText;
use record::error::Result;
use spec::read::slip;
use spec::{Mode, Partial};

mod context;
mod format;
mod groups;
mod options;
mod outputs;
mod prescan;
mod rootfs;
mod serve;
mod values;

/// One call of cellblock.
#[derive(Debug)]
pub enum Invocation {
    /// `cellblock run` and `cellblock exec`
    Launch(Box<Launch>),
    /// `cellblock plan`
    Plan(Box<Launch>),
    /// `cellblock serve`
    Serve(Box<Server>),
    /// `cellblock mcp`
    Mcp(Box<Server>),
    /// `cellblock context`
    Context(Context),
    /// `cellblock doctor`
    Doctor(Doctor),
    /// `cellblock show`
    Show(Show),
    /// `cellblock policy`
    Policy(Policy),
    /// `cellblock rootfs`
    Rootfs(Rootfs),
    /// `cellblock completions`
    Completions(Completions),
}

/// Run code in a cell and report everything that happened
///
/// The code comes from FILE, from -c, from standard input (-), or from a spec
/// file. On a terminal, output and results are shown as they come; otherwise, or with
/// --json, the record is printed as JSON.
#[derive(Args, Debug)]
#[command(override_usage = "cellblock run [OPTIONS] [FILE | -c CODE | -] [ARGS]...")]
pub struct Code {
    /// Language of the code [default: from the ending of FILE or the #! line;
    /// otherwise python for -c]
    #[arg(long, value_name = "LANG", help_heading = "Code")]
    pub lang: Option<String>,
    /// Code to run
    // Code may look like an option.
    #[arg(
        short = 'c',
        value_name = "CODE",
        allow_hyphen_values = true,
        help_heading = "Code"
    )]
    pub code: Option<OsString>,
    /// File that holds the code, or - for standard input; with -c, the first
    /// argument
    #[arg(value_name = "FILE")]
    pub source: Option<OsString>,
    /// Arguments that the code sees; those that look like options stand behind `--`
    #[arg(value_name = "ARGS", allow_negative_numbers = true)]
    pub args: Vec<OsString>,
}

/// Run a program in a cell, its standard streams passed straight through
///
/// The exit status is the program's own. It is 124 when a time limit ended it,
/// 125 when the command line is wrong or the cell could not be set up, 126 or
/// 127 when the program could not be executed or found, and 128+n when signal n
/// ended it; the record (--record) distinguishes these from a program's own use of
/// the same numbers. A limit that ended the program is named in a line on standard
/// error.
///
/// With --tty, all keys go to the program, also Ctrl-C and Ctrl-Z. The caller's terminal is in raw
/// mode meanwhile. Its settings are restored at the end, even when cellblock is killed with
/// SIGKILL: a second process does that. If both are killed, a shell with job control restores the
/// settings itself; otherwise `stty sane` or `reset` does.
#[derive(Args, Debug)]
#[command(override_usage = "cellblock exec [OPTIONS] -- PROG [ARGS]...")]
pub struct Program {
    /// Program inside the cell, and its arguments
    #[arg(value_names = ["PROG", "ARGS"], last = true, num_args = 1.., required_unless_present_any = ["spec", "request"])]
    pub argv: Vec<OsString>,
}

/// One call of `cellblock run` or `cellblock exec`.
#[derive(Debug)]
pub struct Launch {
    /// Which of them it is.
    pub mode: Mode,
    /// How it runs.
    pub options: Options,
    /// What runs, as a layer of a spec.
    command: Partial,
}

/// Show what this host supports, what is missing, and how to fix it
#[derive(Args, Debug)]
pub struct Doctor {
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// List, show and check policies
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Policy {
    /// What to do.
    #[command(subcommand)]
    pub action: PolicyAction,
}

/// What `cellblock policy` does.
#[derive(clap::Subcommand, Debug)]
pub enum PolicyAction {
    /// List the built-in profiles and system call policies
    List,
    /// Print a profile with all that it inherits, as TOML
    ///
    /// Beside each value stands the profile that it comes from.
    Show {
        /// Name of a built-in profile, or the path of a file
        #[arg(value_name = "NAME|PATH")]
        name: String,
        /// Print a system call policy instead, as JSON
        #[arg(long, conflicts_with = "source")]
        seccomp: bool,
        /// Print the profile's own file instead, with the reason beside each
        /// value
        #[arg(long)]
        source: bool,
    },
    /// Check a policy of your own and name everything that is wrong with it
    ///
    /// The exit status is 1 when something is.
    Check {
        /// A profile's TOML file, or a system call policy's JSON file
        #[arg(value_name = "PATH")]
        path: PathBuf,
    },
}

/// Print a completion script for a shell
///
/// It completes commands, options, files, and names on this host: languages, profiles,
/// prepared root file systems, contexts. For bash: source <(cellblock completions bash).
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Shells with completions.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash(1)
    Bash,
    /// zsh(1)
    Zsh,
    /// fish(1)
    Fish,
}

impl Shell {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }
}

impl Launch {
    /// All of it as a layer of a spec. `environment` looks up the caller's variables.
    ///
    /// # Errors
    /// `--env NAME` of a variable that the caller does not have.
    pub fn partial(&self, environment: impl Fn(&str) -> Option<OsString>) -> Result<Partial> {
        self.options.partial(self.command.clone(), environment)
    }
}

impl From<Code> for Partial {
    fn from(what: Code) -> Self {
        let mut partial = Self {
            language: what.lang,
            code: what.code.map(Into::into),
            ..Self::default()
        };
        let mut words = what.source.into_iter().chain(what.args);
        if partial.code.is_none() {
            partial.code_file = words.next().map(Into::into);
        }
        if partial.names_command() {
            partial.args = Some(words.map(Into::into).collect());
        }
        partial
    }
}

impl From<Program> for Partial {
    fn from(Program { argv }: Program) -> Self {
        let argv: Vec<RawText> = argv.into_iter().map(Into::into).collect();
        Self {
            argv: Some(argv).filter(|argv| !argv.is_empty()),
            ..Self::default()
        }
    }
}

/// A command's name, and what declares the rest of it.
type Entry = (&'static str, fn(Command) -> Command);

const COMMANDS: [Entry; 11] = [
    ("run", |command| {
        let command = Options::declare(Code::augment_args(command), Needed::ALL);
        with_defaults_of_languages(command)
    }),
    ("exec", |command| {
        Options::declare(Program::augment_args(command), Needed::ALL)
    }),
    ("serve", Server::declare),
    ("mcp", Server::declare_mcp),
    ("context", Context::augment_args),
    ("plan", plan),
    ("doctor", Doctor::augment_args),
    ("show", Show::augment_args),
    ("policy", Policy::augment_args),
    ("rootfs", Rootfs::augment_args),
    ("completions", Completions::augment_args),
];

fn plan(command: Command) -> Command {
    let [run, exec, ..] = COMMANDS;
    command
        .about("Print everything that run or exec would do, and do none of it: as JSON, or in brief on a terminal")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([run, exec].map(subcommand))
}

fn subcommand((name, declare): Entry) -> Command {
    declare(Command::new(name))
}

/// The whole command line, for errors and help, manual pages and completions.
pub fn command() -> Command {
    root()
        .about("Run untrusted code")
        .long_about(
            "Run untrusted code in a cell made of Linux namespaces, a cgroup, \
             Landlock and seccomp, without root, and with one JSON record of everything that \
             happened.",
        )
        .arg_required_else_help(true)
        .subcommands(COMMANDS.map(subcommand))
}

fn root() -> Command {
    Command::new("cellblock")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .disable_help_subcommand(true)
}

/// Reads a command line, the program's name first.
///
/// # Errors
/// clap's own, which prints itself; `--help` and `--version` are among them.
pub fn parse(words: &[OsString], prescan: &Prescan) -> Result<Invocation, clap::Error> {
    match lean(words, prescan).map(|command| command.try_get_matches_from(words)) {
        Some(Ok(matches)) => return invocation(matches),
        Some(Err(error)) if error.kind() == ErrorKind::DisplayVersion => return Err(error),
        // The whole command line explains what is wrong, and has the help.
        None | Some(Err(_)) => {}
    }
    let matches = command().try_get_matches_from(words);
    invocation(matches.map_err(|error| with_separator(without_far_names(error), words))?)
}

/// Leaves out names that clap suggests and that nobody can have meant: it takes any two words that begin alike.
fn without_far_names(mut error: clap::Error) -> clap::Error {
    for (given, suggested) in [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ] {
        let Some(ContextValue::String(given)) = error.get(given) else {
            continue;
        };
        let given = given.trim_start_matches('-');
        let is_near = |name: &str| {
            let name = name.trim_start_matches('-');
            slip(given.split('=').next().unwrap_or(given), name).is_some()
        };
        let is_one_near = match error.get(suggested) {
            Some(ContextValue::String(name)) => is_near(name),
            Some(ContextValue::Strings(names)) => names.iter().any(|name| is_near(name)),
            _ => continue,
        };
        if !is_one_near {
            error.remove(suggested);
        }
    }
    error
}

/// Says where a program belongs that stands where an option would, and that no value is negative.
fn with_separator(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return error,
    };
    let called = |at: usize| words.get(at).map(OsString::as_os_str).unwrap_or_default();
    let is_exec = called(1) == "exec" || called(1) == "plan" && called(2) == "exec";
    let tip = match unknown.as_bytes() {
        [b'-', b'0'..=b'9', ..] => "no option has a negative value",
        [b'-', ..] => return error,
        _ if is_exec => "the program and its arguments come after `--`: cellblock exec -- ls -l",
        _ if called(1) == "context" && called(2) == "exec" => {
            "the program and its arguments come after `--`: cellblock context exec ID -- ls -l"
        }
        _ => return error,
    };
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![tip.into()]),
    );
    error
}

/// A command line that has just what `words` use: to declare all of it would take longer than
/// many calls do. `None` when a word is unknown.
fn lean(words: &[OsString], prescan: &Prescan) -> Option<Command> {
    let called = words.get(1)?.to_str()?;
    if ["--version", "-V"].contains(&called) {
        return Some(root());
    }
    let entry = COMMANDS.into_iter().find(|(name, _)| *name == called)?;
    let command = match called {
        "run" => Options::declare(Code::augment_args(Command::new("run")), prescan.needed?),
        "exec" => Options::declare(Program::augment_args(Command::new("exec")), prescan.needed?),
        _ => subcommand(entry),
    };
    Some(root().subcommand(command))
}

fn invocation(mut matches: ArgMatches) -> Result<Invocation, clap::Error> {
    let (name, mut m) = take(&mut matches);
    Ok(match name {
        "run" | "exec" => Invocation::Launch(launch(name, m)?),
        "plan" => {
            let (name, m) = take(&mut m);
            Invocation::Plan(launch(name, m)?)
        }
        "serve" => Invocation::Serve(Box::new(Server::read(&mut m)?)),
        "mcp" => Invocation::Mcp(Box::new(Server::read(&mut m)?)),
        "context" => Invocation::Context(read::<Context>(&mut m)?.checked()?),
        "doctor" => Invocation::Doctor(read(&mut m)?),
        "show" => Invocation::Show(read::<Show>(&mut m)?.checked()?),
        "policy" => Invocation::Policy(read(&mut m)?),
        "rootfs" => Invocation::Rootfs(read(&mut m)?),
        _ => Invocation::Completions(read(&mut m)?),
    })
}

fn launch(name: &str, mut matches: ArgMatches) -> Result<Box<Launch>, clap::Error> {
    let (mode, command): (_, Partial) = match name {
        "run" => (Mode::Run, read::<Code>(&mut matches)?.into()),
        _ => (Mode::Exec, read::<Program>(&mut matches)?.into()),
    };
    let options = Options::read(&mut matches)?;
    options.refuse_without_effect(mode, command.code_file.as_deref())?;
    Ok(Box::new(Launch {
        mode,
        options,
        command,
    }))
}

fn read<T: FromArgMatches>(matches: &mut ArgMatches) -> Result<T, clap::Error> {
    T::from_arg_matches_mut(matches)
}

/// The subcommand that was called. clap has made sure that there is one, and
/// that it is one of [`COMMANDS`].
fn take(matches: &mut ArgMatches) -> (&'static str, ArgMatches) {
    let (called, matches) = matches.remove_subcommand().unwrap_or_default();
    let name = COMMANDS.iter().map(|(name, ..)| *name);
    (
        name.into_iter().find(|name| *name == called).unwrap_or(""),
        matches,
    )
}

#[cfg(test)]
mod tests;
