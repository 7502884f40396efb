//! Failures inside the cell: numbers only.

use nix::errno::Errno;

use record::error::Step;

macro_rules! calls {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// A system call that can fail during set-up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub(crate) enum Call { $($variant),+ }

        impl Call {
            const ALL: &[Self] = &[$(Self::$variant),+];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

calls! {
    None = "",
    Prctl = "prctl",
    Recv = "recv",
    Send = "sendmsg",
    Ioctl = "ioctl",
    Socket = "socket",
    Setsockopt = "setsockopt",
    Bind = "bind",
    Listen = "listen",
    Sethostname = "sethostname",
    Setdomainname = "setdomainname",
    Setgroups = "setgroups",
    Setresgid = "setresgid",
    Setresuid = "setresuid",
    Open = "open",
    Lseek = "lseek",
    Openat2 = "openat2",
    OpenTree = "open_tree",
    MountSetattr = "mount_setattr",
    MoveMount = "move_mount",
    Fsopen = "fsopen",
    Fsconfig = "fsconfig",
    Fsmount = "fsmount",
    Fsetxattr = "fsetxattr",
    Umount = "umount2",
    Mount = "mount",
    Getdents = "getdents64",
    ClockGettime = "clock_gettime",
    Mkdir = "mkdirat",
    Symlink = "symlinkat",
    Link = "linkat",
    Write = "write",
    Sendfile = "sendfile",
    PivotRoot = "pivot_root",
    Fchdir = "fchdir",
    Unshare = "unshare",
    Setns = "setns",
    Affinity = "sched_setaffinity",
    Capset = "capset",
    Landlock = "landlock_restrict_self",
    Sigprocmask = "rt_sigprocmask",
    Signalfd = "signalfd4",
    Clone = "clone",
    Setsid = "setsid",
    Dup = "dup3",
    CloseRange = "close_range",
    Setrlimit = "setrlimit",
    Seccomp = "seccomp",
    Execve = "execve",
    // What execve(2) of a file that is there did not find.
    Interpreter = "interpreter",
}

impl Call {
    pub(super) fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A failed system call; `item` is an index into the plan, or -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fail {
    pub step: Step,
    pub call: Call,
    pub errno: Errno,
    pub item: i32,
}

/// Where in the set-up system calls are made: at which step, on which item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    step: Step,
    item: i32,
}

impl Site {
    pub(super) const fn new(step: Step) -> Self {
        Self { step, item: -1 }
    }

    pub(super) fn on(self, item: usize) -> Self {
        Self {
            item: i32::try_from(item).unwrap_or(-1),
            ..self
        }
    }

    pub(super) const fn failed(self, call: Call, errno: Errno) -> Fail {
        Fail {
            step: self.step,
            call,
            errno,
            item: self.item,
        }
    }
}

/// Adds to a failed system call which one it was, and where in the set-up.
pub(super) trait At<T> {
    fn at(self, site: Site, call: Call) -> Result<T, Fail>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, site: Site, call: Call) -> Result<T, Fail> {
        self.map_err(|errno| site.failed(call, errno))
    }
}
