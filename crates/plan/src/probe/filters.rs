//! The calls that a cell needs and that system call filters around this process deny.

use std::sync::OnceLock;

use nix::errno::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use record::error::{SetupError, Step};
use sys::trial::{
    Answer, Answers, FIRST_PRIVILEGED, INET_SOCKET, SET_USER_ID_BIT, SETNS_TO_ANY, UNIX_SOCKET,
    is_filtered, try_all,
};

/// What filters deny, and which option of the service manager causes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Filters {
    /// Denied calls that a cell needs.
    pub denied: Vec<DeniedCall>,
    /// Whether namespaces are denied by their flags, which hides clone3
    /// (`RestrictNamespaces=`, systemd.exec(5)).
    pub namespaces: bool,
    /// Whether set-user-ID bits are denied, which hides openat2
    /// (`RestrictSUIDSGID=`).
    pub set_user_id: bool,
    /// Whether setting the host name is denied, also in an own UTS namespace
    /// (`ProtectHostname=`).
    pub host_name: bool,
    /// Address families of which no socket can be made, such as `AF_INET`
    /// (`RestrictAddressFamilies=`).
    pub families: Vec<String>,
}

/// A system call that a filter denies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeniedCall {
    /// Its name.
    pub name: String,
    /// The name of the error number that it returns; null when it kills the process.
    pub errno: Option<String>,
}

/// Calls that a cell can do without, or that only some cells make.
const OPTIONAL: [&str; 8] = [
    "sched_setaffinity",
    "memfd_create",
    "flock",
    "faccessat2",
    "prlimit64",
    "setdomainname",
    "setsid",
    "setgroups",
];

impl Filters {
    /// The filters around this process, tried once: a process cannot remove one.
    pub fn current() -> &'static Self {
        static CURRENT: OnceLock<Filters> = OnceLock::new();
        CURRENT.get_or_init(|| {
            if !is_filtered() {
                return Self::default();
            }
            sys::mount::note_filter();
            // Where no process can be made, the launch reports it.
            try_all().map_or_else(|_| Self::default(), |answers| Self::of(&answers))
        })
    }

    /// What the `answers` of the kernel and of filters mean.
    fn of(answers: &Answers) -> Self {
        let answer = |name: &str| {
            let found = answers.list.iter().find(|(known, _)| *known == name);
            found.map_or(Answer::Untried, |(_, answer)| *answer)
        };
        let returned = |name: &str, errno: Errno| answer(name) == Answer::Returned(errno as i32);
        let refuses = |name: &str| {
            [Errno::EPERM, Errno::EACCES, Errno::ENOSYS]
                .into_iter()
                .any(|errno| returned(name, errno))
        };
        let (plain, privileged) = answers.list.split_at(FIRST_PRIVILEGED);
        let plain: Vec<&str> = plain
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| {
                ![SETNS_TO_ANY, SET_USER_ID_BIT, INET_SOCKET, UNIX_SOCKET].contains(name)
            })
            // A kernel without landlock returns ENOSYS itself.
            .filter(|name| !(name.starts_with("landlock") && returned(name, Errno::ENOSYS)))
            .collect();
        let privileged: Vec<&str> = privileged.iter().map(|(name, _)| *name).collect();
        // Without capabilities the kernel itself returns EPERM for these.
        let has_power = answers.had_power
            && privileged.iter().any(
                |name| matches!(answer(name), Answer::Returned(errno) if errno != libc::EPERM),
            );
        // Denying all kinds of namespaces denies setns by its name.
        let namespaces = returned(SETNS_TO_ANY, Errno::EPERM)
            && returned("clone3", Errno::ENOSYS)
            && !refuses("unshare");
        let denies_by_eperm = plain
            .iter()
            .filter(|name| !(namespaces && **name == "setns"))
            .any(|name| returned(name, Errno::EPERM));
        let is_denied = |name: &str| match answer(name) {
            Answer::Killed => true,
            Answer::Untried => false,
            Answer::Returned(libc::EPERM) if privileged.contains(&name) => {
                denies_by_eperm || (has_power && name != "setgroups")
            }
            Answer::Returned(_) => refuses(name),
        };
        let denied = plain
            .iter()
            .chain(&privileged)
            .filter(|name| is_denied(name))
            .map(|name| DeniedCall {
                name: (*name).to_owned(),
                errno: match answer(name) {
                    Answer::Returned(errno) => Some(format!("{:?}", Errno::from_raw(errno))),
                    _ => None,
                },
            });
        let families = [("AF_INET", INET_SOCKET), ("AF_UNIX", UNIX_SOCKET)]
            .into_iter()
            .filter(|(_, socket)| refuses(socket) || returned(socket, Errno::EAFNOSUPPORT));
        Self {
            denied: denied.collect(),
            namespaces,
            set_user_id: returned(SET_USER_ID_BIT, Errno::EPERM),
            host_name: ["sethostname", "setdomainname"]
                .iter()
                .all(|name| is_denied(name) && returned(name, Errno::EPERM)),
            families: families.map(|(family, _)| family.to_owned()).collect(),
        }
    }

    /// Whether anything is denied that a cell needs.
    pub fn deny_anything(&self) -> bool {
        !self.denied.is_empty() || self.denies_family("AF_INET")
    }

    fn denies_family(&self, name: &str) -> bool {
        self.families.iter().any(|family| family == name)
    }

    /// The denial of the call `name`, if it is denied.
    pub fn denial(&self, name: &str) -> Option<&DeniedCall> {
        self.denied.iter().find(|call| call.name == name)
    }

    /// The calls that a list of names denies: none if other options explain all of
    /// them, else all.
    pub fn denied_by_name(&self) -> Vec<&str> {
        let is_explained = |call: &&DeniedCall| match (call.name.as_str(), call.errno.as_deref()) {
            ("clone3", Some("ENOSYS")) | ("setns", Some("EPERM")) => self.namespaces,
            ("openat2", Some("ENOSYS")) => self.set_user_id,
            ("sethostname" | "setdomainname", Some("EPERM")) => self.host_name,
            _ => false,
        };
        if self.denied.iter().all(|call| is_explained(&call)) {
            return Vec::new();
        }
        self.denied.iter().map(|call| call.name.as_str()).collect()
    }

    /// Why a cell that makes the calls for which `needs` holds cannot be set up, if a
    /// filter is the reason. One that kills is found before the call is made.
    pub fn refusal(&self, needs: impl Fn(&str) -> bool) -> Option<SetupError> {
        let call = self.denied.iter().find(|call| {
            let is_fatal = call.errno.is_none() || !OPTIONAL.contains(&call.name.as_str());
            is_fatal && needs(&call.name)
        });
        let no_network = || {
            let denied = self.denies_family("AF_INET") && needs("socket");
            denied
                .then(|| SetupError::os(Step::Network, "socket", Errno::EAFNOSUPPORT).on("AF_INET"))
        };
        call.map(DeniedCall::error).or_else(no_network)
    }
}

impl DeniedCall {
    /// The failure of the call.
    pub fn error(&self) -> SetupError {
        let step = step(&self.name);
        let known = [Errno::EPERM, Errno::EACCES, Errno::ENOSYS]
            .into_iter()
            .find(|errno| self.errno.as_deref() == Some(&format!("{errno:?}")));
        match known {
            Some(errno) => SetupError::os(step, &self.name, errno),
            None => SetupError {
                syscall: Some(self.name.clone()),
                ..SetupError::new(step, "a system call filter around cellblock kills for it")
            },
        }
    }
}

/// The step of a cell's set-up that makes the call.
fn step(name: &str) -> Step {
    match name {
        "clone3" | "unshare" => Step::Clone,
        "setns" => Step::Network,
        "sethostname" | "setdomainname" => Step::Hostname,
        "setresuid" | "setresgid" | "setgroups" => Step::Ids,
        "pivot_root" | "umount2" => Step::Pivot,
        "sched_setaffinity" | "prlimit64" => Step::Rlimits,
        "capset" => Step::Capabilities,
        "seccomp" => Step::Seccomp,
        "setsid" | "close_range" => Step::Stdio,
        "pidfd_open" | "pidfd_send_signal" | "signalfd4" => Step::Supervise,
        "flock" | "faccessat2" => Step::Cgroup,
        "memfd_create" => Step::Inputs,
        name if name.starts_with("landlock") => Step::Landlock,
        _ => Step::Mount,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::trial::TRIALS;

    /// What the kernel answers a process with an own user namespace, but for
    /// these calls.
    fn with(changed: &[(&'static str, Answer)]) -> Filters {
        answers(true, changed)
    }

    fn answers(had_power: bool, changed: &[(&'static str, Answer)]) -> Filters {
        let list = TRIALS.iter().enumerate().map(|(index, trial)| {
            let found = changed.iter().find(|(name, _)| *name == trial.0);
            let usual = match trial.0 {
                "unshare" | INET_SOCKET | UNIX_SOCKET => 0,
                "setgroups" => libc::EPERM,
                _ if index >= FIRST_PRIVILEGED && !had_power => libc::EPERM,
                _ => libc::EINVAL,
            };
            let answer = found.map_or(Answer::Returned(usual), |(_, answer)| *answer);
            (trial.0, answer)
        });
        Filters::of(&Answers {
            list: list.collect(),
            had_power,
        })
    }

    const EPERM: Answer = Answer::Returned(libc::EPERM);
    const ENOSYS: Answer = Answer::Returned(libc::ENOSYS);

    #[test]
    fn a_filter_that_denies_nothing_is_ignored() {
        for had_power in [true, false] {
            let filters = answers(had_power, &[]);
            assert_eq!(filters, Filters::default());
            assert_eq!(filters.refusal(|_| true), None);
        }
    }

    #[test]
    fn options_are_told_from_lists() {
        let suid = with(&[(SET_USER_ID_BIT, EPERM), ("openat2", ENOSYS)]);
        assert!(suid.set_user_id && suid.denied_by_name().is_empty());
        let error = suid.refusal(|_| true).unwrap();
        assert_eq!(error.syscall.as_deref(), Some("openat2"));
        assert_eq!(error.errno_name.as_deref(), Some("ENOSYS"));

        let namespaces = answers(false, &[(SETNS_TO_ANY, EPERM), ("clone3", ENOSYS)]);
        assert!(namespaces.namespaces && namespaces.denied_by_name().is_empty());
        assert_eq!(namespaces.denied.len(), 1);
        let all = [(SETNS_TO_ANY, EPERM), ("setns", EPERM), ("clone3", ENOSYS)];
        let all = answers(false, &all);
        assert!(all.namespaces && all.denied_by_name().is_empty());
        assert_eq!(all.denied.len(), 2);

        let name = with(&[("sethostname", EPERM), ("setdomainname", EPERM)]);
        assert!(name.host_name && name.denied_by_name().is_empty());

        let inet = with(&[(INET_SOCKET, Answer::Returned(libc::EAFNOSUPPORT))]);
        assert_eq!(inet.families, ["AF_INET"]);
        assert!(inet.deny_anything() && inet.denied.is_empty());
        assert_eq!(inet.refusal(|_| true).unwrap().step, Step::Network);

        let list = with(&[("fsopen", Answer::Killed), ("move_mount", Answer::Killed)]);
        assert_eq!(list.denied_by_name(), ["fsopen", "move_mount"]);
        assert!(!list.host_name && !list.namespaces && !list.set_user_id);
    }

    #[test]
    fn eperm_without_capabilities_is_the_kernels_own() {
        // A security module that lets user namespaces be made, without power.
        let powerless = TRIALS[FIRST_PRIVILEGED..]
            .iter()
            .map(|(name, ..)| (*name, EPERM));
        assert_eq!(with(&powerless.collect::<Vec<_>>()), Filters::default());
        // A list that denies the others denies these as well.
        let mounts = answers(false, &[("unshare", EPERM), ("umount2", EPERM)]);
        assert!(mounts.denial("fsopen").is_some());
        assert!(mounts.denial("sethostname").is_some());
    }

    #[test]
    fn a_call_that_is_not_made_is_not_missed() {
        let landlock = with(&[("landlock_create_ruleset", Answer::Killed)]);
        assert!(landlock.refusal(|_| true).is_some());
        assert_eq!(landlock.refusal(|name| !name.starts_with("landlock")), None);
        // The kernel's own answer without landlock.
        assert_eq!(
            with(&[("landlock_create_ruleset", ENOSYS)]),
            Filters::default()
        );
        let optional = with(&[("flock", EPERM)]);
        assert_eq!(optional.refusal(|_| true), None);
        assert!(
            with(&[("flock", Answer::Killed)])
                .refusal(|_| true)
                .is_some()
        );
    }
}
