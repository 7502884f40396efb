//! Failures of cellblock itself, apart from failures of the program.

use std::fmt;

use nix::errno::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stage of setting a cell up, in the order in which they happen.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[repr(u16)]
pub enum Step {
    /// Reading the command line, the spec file or a policy.
    Spec = 1,
    /// Learning what the host can do.
    Probe,
    /// Building, importing, checking or removing a prepared root file system.
    Store,
    /// Finding the root file system.
    Rootfs,
    /// Finding the interpreter inside the root file system.
    Interpreter,
    /// Finding or making a cgroup and setting its limits.
    Cgroup,
    /// Opening what the caller passes in: files, output directory.
    Inputs,
    /// clone3(2) into the new namespaces.
    Clone,
    /// Writing `uid_map`, `gid_map` and `setgroups`.
    IdMap,
    /// Tying the cell's life to the supervisor's.
    Tether,
    /// Making the network namespace and bringing its loopback device up.
    Network,
    /// Setting the host name.
    Hostname,
    /// Becoming the inner user.
    Ids,
    /// Forbidding nested user namespaces.
    Nesting,
    /// Making a mount.
    Mount,
    /// Copying an input file in.
    CopyIn,
    /// Changing the root directory.
    Pivot,
    /// Entering a cgroup namespace.
    CgroupNamespace,
    /// Setting resource limits (setrlimit(2)).
    Rlimits,
    /// Dropping capabilities.
    Capabilities,
    /// Setting `no_new_privs`.
    NoNewPrivs,
    /// Applying Landlock.
    Landlock,
    /// Applying the system call filter.
    Seccomp,
    /// Reporting to the supervisor.
    Report,
    /// Arranging the program's descriptors.
    Stdio,
    /// Entering the working directory.
    Chdir,
    /// Executing the program.
    Exec,
    /// Watching over the cell.
    Supervise,
    /// Copying results out.
    Outputs,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 29] = [
        Self::Spec,
        Self::Probe,
        Self::Store,
        Self::Rootfs,
        Self::Interpreter,
        Self::Cgroup,
        Self::Inputs,
        Self::Clone,
        Self::IdMap,
        Self::Tether,
        Self::Network,
        Self::Hostname,
        Self::Ids,
        Self::Nesting,
        Self::Mount,
        Self::CopyIn,
        Self::Pivot,
        Self::CgroupNamespace,
        Self::Rlimits,
        Self::Capabilities,
        Self::NoNewPrivs,
        Self::Landlock,
        Self::Seccomp,
        Self::Report,
        Self::Stdio,
        Self::Chdir,
        Self::Exec,
        Self::Supervise,
        Self::Outputs,
    ];

    /// The step with this number, as it stands in a child's failure message.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u16 == number)
    }

    /// What the step does, as the start of a message.
    pub const fn doing(self) -> &'static str {
        match self {
            Self::Spec => "read the request",
            Self::Probe => "look at this host",
            Self::Store => "prepare the rootfs",
            Self::Rootfs => "find the rootfs",
            Self::Interpreter => "find the interpreter",
            Self::Cgroup => "prepare the cgroup",
            Self::Inputs => "open the inputs",
            Self::Clone => "create the namespaces",
            Self::IdMap => "map the ids",
            Self::Tether => "tie the cell to its supervisor",
            Self::Network => "make the network",
            Self::Hostname => "set the host name",
            Self::Ids => "become the inner user",
            Self::Mount => "mount",
            Self::CopyIn => "copy in",
            Self::Pivot => "change the root",
            Self::CgroupNamespace => "enter a cgroup namespace",
            Self::Nesting => "forbid nested user namespaces",
            Self::Rlimits => "set resource limits",
            Self::Capabilities => "drop capabilities",
            Self::NoNewPrivs => "set no_new_privs",
            Self::Landlock => "apply landlock",
            Self::Seccomp => "apply seccomp",
            Self::Report => "report to the supervisor",
            Self::Stdio => "arrange descriptors",
            Self::Chdir => "enter the working directory",
            Self::Exec => "execute",
            Self::Supervise => "watch the cell",
            Self::Outputs => "copy results out",
        }
    }
}

/// cellblock could not do what was asked: which step, on what, why, and the way
/// out. The record carries it unchanged.
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

/// Stands for a message that names paths.
const WITHHELD: &str = "the reason names paths of the host's";

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

    /// The same for an [`std::io::Error`].
    pub fn io(step: Step, syscall: &str, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::os(step, syscall, Errno::from_raw(number)),
            None => Self {
                syscall: Some(syscall.to_owned()),
                ..Self::new(step, error.to_string())
            },
        }
    }

    /// Whether another run has what this one wants, so that the same call may succeed
    /// later.
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

    /// The same for a reader who is not to know the host's paths: without every
    /// part that has a `/` in it. The message of an error number names none.
    #[must_use]
    pub fn without_paths(&self) -> Self {
        let is_pathless = |text: &&String| !text.contains('/');
        let message = Some(&self.message).filter(|text| self.errno.is_some() || is_pathless(text));
        Self {
            message: message.map_or_else(|| WITHHELD.to_owned(), Clone::clone),
            operand: self.operand.as_ref().filter(is_pathless).cloned(),
            hint: self.hint.as_ref().filter(is_pathless).cloned(),
            ..self.clone()
        }
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
    fn steps_have_the_numbers_of_their_order() {
        for (index, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(step as u16), index + 1);
            assert_eq!(Step::from_number(step as u16), Some(step));
        }
        assert_eq!(Step::from_number(0), None);
        assert_eq!(Step::from_number(Step::ALL.len() as u16 + 1), None);
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
