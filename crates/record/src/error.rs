//! Failures of cellblock itself, as opposed to failures of the program.

use std::fmt;

use nix::errno::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! steps {
    (
        $(#[$first_doc:meta])+ $first:ident = $first_doing:literal,
        $($(#[$doc:meta])+ $step:ident = $doing:literal,)+
    ) => {
        /// A step from the request to the record, in the order in which they happen.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            JsonSchema,
        )]
        #[serde(rename_all = "kebab-case")]
        #[repr(u16)]
        pub enum Step {
            $(#[$first_doc])+ $first = 1,
            $($(#[$doc])+ $step,)+
        }

        impl Step {
            /// Every step, in order.
            pub const ALL: &[Self] = &[Self::$first, $(Self::$step),+];

            /// What the step does, as the start of a message.
            pub const fn doing(self) -> &'static str {
                match self {
                    Self::$first => $first_doing,
                    $(Self::$step => $doing,)+
                }
            }
        }
    };
}

steps! {
    /// Reading the command line, the spec file or a policy.
    Spec = "read the request",
    /// Learning what the host can do.
    Probe = "look at this host",
    /// Building, importing, checking or removing a prepared root file system.
    Store = "prepare the rootfs",
    /// Finding the root file system.
    Rootfs = "find the rootfs",
    /// Finding the interpreter inside the root file system.
    Interpreter = "find the interpreter",
    /// Finding or making a cgroup and setting its limits.
    Cgroup = "prepare the cgroup",
    /// Opening what the caller passes in: files, output directory.
    Inputs = "open the inputs",
    /// clone3(2) into the new namespaces.
    Clone = "create the namespaces",
    /// Writing `uid_map`, `gid_map` and `setgroups`.
    IdMap = "map the ids",
    /// Tying the cell's life to the supervisor's.
    Tether = "tie the cell to its supervisor",
    /// Making the network namespace and bringing its loopback device up.
    Network = "make the network",
    /// Setting the host name.
    Hostname = "set the host name",
    /// Becoming the inner user.
    Ids = "become the inner user",
    /// Forbidding nested user namespaces.
    Nesting = "forbid nested user namespaces",
    /// Making a mount.
    Mount = "mount",
    /// Copying an input file in.
    CopyIn = "copy in",
    /// Changing the root directory.
    Pivot = "change the root",
    /// Making the routes and sockets that lead to allowed hosts.
    Egress = "make the way to allowed hosts",
    /// Entering a cgroup namespace.
    CgroupNamespace = "enter a cgroup namespace",
    /// Setting resource limits (setrlimit(2)).
    Rlimits = "set resource limits",
    /// Dropping capabilities.
    Capabilities = "drop capabilities",
    /// Setting `no_new_privs`.
    NoNewPrivs = "set no_new_privs",
    /// Applying Landlock.
    Landlock = "apply landlock",
    /// Applying the system call filter.
    Seccomp = "apply seccomp",
    /// Reporting to the supervisor.
    Report = "report to the supervisor",
    /// Arranging the program's descriptors.
    Stdio = "arrange descriptors",
    /// Entering the working directory.
    Chdir = "enter the working directory",
    /// Executing the program.
    Exec = "execute",
    /// Forking the program from a template.
    Fork = "fork the program from its template",
    /// Watching over the cell.
    Supervise = "watch the cell",
    /// Copying results out.
    Outputs = "copy results out",
    /// Taking an interpreter's state, or giving it to another.
    State = "carry the state",
    /// A server's speaking with its clients.
    Serve = "serve clients",
    /// A client's speaking with a server.
    Ask = "ask the server",
}

impl Step {
    /// The step with this number; numbers begin at 1.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// cellblock could not do what the caller asked for: which step failed, on what, why, and
/// the way out. The record carries it unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
pub struct SetupError {
    /// The step that failed.
    pub step: Step,
    /// What went wrong, in words; lower case, no full stop.
    pub message: String,
    /// The system call that failed, if one did.
    pub syscall: Option<String>,
    /// Its error number.
    pub errno: Option<i32>,
    /// The number's name, such as `EPERM`.
    pub errno_name: Option<String>,
    /// The path, field or value concerned.
    pub operand: Option<String>,
    /// How to fix it.
    pub hint: Option<String>,
}

/// What is said of a program whose interpreter is missing.
const NO_INTERPRETER: &str = "the file is there, and its interpreter or loader is not";

/// Replaces a message that names paths.
const WITHHELD: &str = "the reason names paths on the host";

/// Shorthand for results of this crate.
pub type Result<T, E = SetupError> = std::result::Result<T, E>;

impl SetupError {
    /// A failure that no system call reported.
    pub fn new(step: Step, message: impl Into<String>) -> Self {
        Self {
            step,
            message: message.into(),
            syscall: None,
            errno: None,
            errno_name: None,
            operand: None,
            hint: None,
        }
    }

    /// A failure that `syscall` reported with `errno`.
    pub fn os(step: Step, syscall: &str, errno: Errno) -> Self {
        Self {
            syscall: Some(syscall.to_owned()),
            errno: Some(errno as i32),
            errno_name: Some(format!("{errno:?}")),
            ..Self::new(step, errno.desc().to_lowercase())
        }
    }

    /// execve(2) found the program, and not the interpreter or loader that it names: ENOENT as well.
    pub fn no_interpreter(step: Step, errno: Errno) -> Self {
        Self {
            message: NO_INTERPRETER.to_owned(),
            ..Self::os(step, "execve", errno)
        }
        .hint("write another interpreter into its first line, or use a rootfs that has it; a compiled program can be linked statically")
    }

    /// Whether it is [`SetupError::no_interpreter`].
    pub fn is_of_interpreter(&self) -> bool {
        self.message == NO_INTERPRETER
    }

    /// A failure that `syscall` reported as an [`std::io::Error`].
    pub fn io(step: Step, syscall: &str, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::os(step, syscall, Errno::from_raw(number)),
            None => Self {
                syscall: Some(syscall.to_owned()),
                ..Self::new(step, error.to_string())
            },
        }
    }

    /// Whether another run holds a lock that this one needs, so that the same call may
    /// succeed later.
    pub fn is_busy(&self) -> bool {
        self.step == Step::Inputs
            && self.syscall.as_deref() == Some("flock")
            && self.errno == Some(Errno::EWOULDBLOCK as i32)
    }

    /// Names the path, field or value concerned.
    #[must_use]
    pub fn on(mut self, operand: impl fmt::Display) -> Self {
        self.operand = Some(operand.to_string());
        self
    }

    /// The error for a reader who must not learn the host's paths: without every part
    /// that contains a `/`. The message for an error number never names a path; the working
    /// directory and the program are inside of the cell, and so are files that keep a state from
    /// being carried.
    #[must_use]
    pub fn without_paths(&self) -> Self {
        if self.step == Step::State {
            return self.clone();
        }
        let is_pathless = |text: &&String| !text.contains('/');
        let message = Some(&self.message).filter(|text| self.errno.is_some() || is_pathless(text));
        Self {
            message: message.map_or_else(|| WITHHELD.to_owned(), Clone::clone),
            operand: (self.operand.as_ref())
                .filter(|text| is_pathless(text) || matches!(self.step, Step::Chdir | Step::Exec))
                .cloned(),
            hint: self.hint.as_ref().filter(is_pathless).cloned(),
            ..self.clone()
        }
    }

    /// The error for a person who has just asked for something: without the step's name where what they named
    /// says enough, and the reason before the system call.
    pub fn for_person(&self) -> String {
        let is_callers = match self.step {
            Step::Spec
            | Step::Store
            | Step::Rootfs
            | Step::Interpreter
            | Step::Inputs
            | Step::Chdir
            | Step::Exec
            | Step::Outputs
            | Step::State
            | Step::Serve
            | Step::Ask => true,
            Step::Cgroup => self.syscall.is_none() && self.operand.is_some(),
            _ => false,
        };
        if !is_callers {
            return self.to_string();
        }
        let operand = self.operand.iter().map(|operand| format!("{operand}: "));
        let mut text: String = operand.collect();
        text.push_str(&self.message);
        let call: Vec<&str> = [&self.syscall, &self.errno_name]
            .into_iter()
            .filter_map(Option::as_deref)
            .collect();
        if !call.is_empty() {
            text += &format!(" ({})", call.join(": "));
        }
        text
    }

    /// Names the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.step.doing())?;
        match (&self.syscall, &self.operand) {
            (Some(syscall), Some(operand)) => write!(f, "{syscall}({operand:?}): ")?,
            (Some(syscall), None) => write!(f, "{syscall}: ")?,
            (None, Some(operand)) => write!(f, "{operand}: ")?,
            (None, None) => {}
        }
        match &self.errno_name {
            Some(name) => write!(f, "{name} ({})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_in_their_order() {
        for (index, step) in Step::ALL.iter().enumerate() {
            assert_eq!(usize::from(*step as u16), index + 1);
            assert_eq!(Step::from_number(*step as u16), Some(*step));
        }
        assert_eq!(Step::from_number(0), None);
        assert_eq!(Step::from_number(Step::ALL.len() as u16 + 1), None);
    }

    #[test]
    fn a_person_reads_what_they_named_first() {
        for (error, text) in [
            (
                SetupError::os(Step::Spec, "open", Errno::ENOENT).on("a.py"),
                "a.py: no such file or directory (open: ENOENT)",
            ),
            (
                SetupError::new(Step::Inputs, "there is no such context").on("x"),
                "x: there is no such context",
            ),
            (SetupError::new(Step::Ask, "it is busy"), "it is busy"),
            (
                SetupError::os(Step::Clone, "clone3", Errno::EPERM),
                "create the namespaces: clone3: EPERM (operation not permitted)",
            ),
        ] {
            assert_eq!(error.for_person(), text);
        }
    }

    #[test]
    fn paths_inside_of_the_cell_are_no_secret() {
        let of = |step| {
            SetupError::os(step, "openat2", Errno::ENOENT)
                .on("/x")
                .without_paths()
        };
        assert_eq!(of(Step::Chdir).operand.unwrap(), "/x");
        assert_eq!(of(Step::Inputs).operand, None);
    }

    #[test]
    fn an_error_names_step_operand_errno() {
        let error = SetupError::os(Step::Mount, "open_tree", Errno::EPERM).on("/srv/rootfs/usr");
        assert_eq!(
            error.to_string(),
            "mount: open_tree(\"/srv/rootfs/usr\"): EPERM (operation not permitted)"
        );
    }
}
