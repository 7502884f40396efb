//! System calls tried in a process that is thrown away, to learn which of them a
//! filter around this process (seccomp(2)) denies.
//!
//! Every call gets arguments that the kernel refuses or that change nothing, so its
//! answer without a filter is known. Calls whose privileges the kernel checks before
//! the arguments come last, in namespaces of the child's own.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::shared::Shared;

/// A call's name in [`Answers`], its number and its arguments.
pub type Trial = (&'static str, libc::c_long, [usize; 5]);

/// The outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returned this error number; 0 when it succeeded.
    Returned(i32),
    /// The process was killed for it.
    Killed,
    /// It was not tried.
    Untried,
}

/// The outcomes of all trials.
#[derive(Clone, Debug)]
pub struct Answers {
    /// One for each of [`TRIALS`].
    pub list: Vec<(&'static str, Answer)>,
    /// Whether the privileged ones were tried with the capabilities of a user
    /// namespace; without these, their EPERM may be the kernel's.
    pub had_power: bool,
}

const NONE: usize = usize::MAX;
const BAD_FLAGS: usize = 0x4000_0000;

/// The first of the trials that need the capabilities of a user namespace.
pub const FIRST_PRIVILEGED: usize = TRIALS.len() - 7;
/// Creating the namespaces for them is tried before.
const UNSHARE: usize = 0;

/// The calls that the set-up of a cell makes and that the filters of service
/// managers and containers deny; then those that tell such filters apart.
pub const TRIALS: [Trial; 40] = [
    ("unshare", libc::SYS_unshare, [0; 5]),
    ("clone3", libc::SYS_clone3, [0; 5]),
    ("setns", libc::SYS_setns, [NONE, 1, 0, 0, 0]),
    ("openat2", libc::SYS_openat2, [NONE, 0, 0, 0, 0]),
    ("open_tree", libc::SYS_open_tree, [NONE, 0, BAD_FLAGS, 0, 0]),
    ("mount_setattr", libc::SYS_mount_setattr, [NONE, 0, 0, 0, 0]),
    ("fsconfig", libc::SYS_fsconfig, [NONE, 0, 0, 0, 0]),
    ("umount2", libc::SYS_umount2, [0, BAD_FLAGS, 0, 0, 0]),
    ("mount", libc::SYS_mount, [0; 5]),
    ("symlinkat", libc::SYS_symlinkat, [0, NONE, 0, 0, 0]),
    ("mknodat", libc::SYS_mknodat, [NONE, 0, 0, 0, 0]),
    ("mkdirat", libc::SYS_mkdirat, [NONE, 0, 0, 0, 0]),
    ("capset", libc::SYS_capset, [0; 5]),
    ("setresuid", libc::SYS_setresuid, [NONE, NONE, NONE, 0, 0]),
    ("setresgid", libc::SYS_setresgid, [NONE, NONE, NONE, 0, 0]),
    ("prlimit64", libc::SYS_prlimit64, [0, NONE, 0, 0, 0]),
    ("sched_setaffinity", libc::SYS_sched_setaffinity, [0; 5]),
    ("setsid", libc::SYS_setsid, [0; 5]),
    ("close_range", libc::SYS_close_range, [1, 0, 0, 0, 0]),
    ("memfd_create", libc::SYS_memfd_create, [0; 5]),
    ("pidfd_open", libc::SYS_pidfd_open, [NONE, 0, 0, 0, 0]),
    (
        "pidfd_send_signal",
        libc::SYS_pidfd_send_signal,
        [NONE, 0, 0, 0, 0],
    ),
    ("signalfd4", libc::SYS_signalfd4, [NONE, 0, 0, 0, 0]),
    ("flock", libc::SYS_flock, [NONE, 0, 0, 0, 0]),
    ("faccessat2", libc::SYS_faccessat2, [NONE, 0, 0, 0, 0]),
    ("seccomp", libc::SYS_seccomp, [NONE, 0, 0, 0, 0]),
    (
        "landlock_create_ruleset",
        libc::SYS_landlock_create_ruleset,
        [0, 0, 1, 0, 0],
    ),
    (
        "landlock_add_rule",
        libc::SYS_landlock_add_rule,
        [NONE, 0, 0, 0, 0],
    ),
    (
        "landlock_restrict_self",
        libc::SYS_landlock_restrict_self,
        [NONE, 0, 0, 0, 0],
    ),
    // Each denied, by its arguments, by one option of a service manager.
    (SETNS_TO_ANY, libc::SYS_setns, [NONE, 0, 0, 0, 0]),
    (SET_USER_ID_BIT, libc::SYS_fchmod, [NONE, 0o4000, 0, 0, 0]),
    (
        INET_SOCKET,
        libc::SYS_socket,
        [libc::AF_INET as usize, libc::SOCK_DGRAM as usize, 0, 0, 0],
    ),
    (
        UNIX_SOCKET,
        libc::SYS_socket,
        [libc::AF_UNIX as usize, libc::SOCK_DGRAM as usize, 0, 0, 0],
    ),
    ("fsopen", libc::SYS_fsopen, [0; 5]),
    ("fsmount", libc::SYS_fsmount, [NONE, 0, 0, 0, 0]),
    (
        "move_mount",
        libc::SYS_move_mount,
        [NONE, 0, NONE, 0, BAD_FLAGS],
    ),
    ("pivot_root", libc::SYS_pivot_root, [0; 5]),
    ("sethostname", libc::SYS_sethostname, [0, NONE, 0, 0, 0]),
    ("setdomainname", libc::SYS_setdomainname, [0, NONE, 0, 0, 0]),
    // Its EPERM says nothing in a namespace without mapped groups.
    ("setgroups", libc::SYS_setgroups, [NONE, 0, 0, 0, 0]),
];

/// setns(2) to a namespace of any kind.
pub const SETNS_TO_ANY: &str = "setns to any namespace";
/// fchmod(2) with a set-user-ID bit.
pub const SET_USER_ID_BIT: &str = "fchmod with a set-user-ID bit";
/// socket(2) of `AF_INET`.
pub const INET_SOCKET: &str = "socket of AF_INET";
/// socket(2) of `AF_UNIX`.
pub const UNIX_SOCKET: &str = "socket of AF_UNIX";

/// Shared with the child, and zeroed, which is [`Answer::Untried`] throughout.
#[repr(C)]
struct Page {
    at: AtomicUsize,
    had_power: AtomicBool,
    is_answered: [AtomicBool; TRIALS.len()],
    errnos: [AtomicI32; TRIALS.len()],
}

/// Whether this process is under a filter (`PR_GET_SECCOMP`, prctl(2)).
pub fn is_filtered() -> bool {
    // SAFETY: without pointers; a filter that kills for prctl(2) would have done
    // so when the C library began.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 2 }
}

/// Tries every call. A filter may kill the process that does; another one then
/// goes on behind the call.
///
/// # Errors
/// The error number of mmap(2), fork(2) or waitpid(2).
pub fn try_all() -> Result<Answers, Errno> {
    // SAFETY: a zeroed Page is valid, and consists of atomics.
    let page = unsafe { Shared::zeroed() }?;
    collect(page.get())
}

fn collect(page: &Page) -> Result<Answers, Errno> {
    let mut list: Vec<_> = TRIALS.map(|(name, ..)| (name, Answer::Untried)).into();
    let mut next = 0;
    while next < TRIALS.len() {
        page.at.store(next, Ordering::SeqCst);
        // SAFETY: the child makes system calls on its own memory and on `page`,
        // and nothing else: it takes no lock and allocates nothing.
        let pid = match unsafe { libc::fork() } {
            0 => play(page, next),
            pid => Errno::result(pid).map(Pid::from_raw)?,
        };
        let status = loop {
            match waitpid(pid, None) {
                Err(Errno::EINTR) => {}
                status => break status?,
            }
        };
        next = match status {
            WaitStatus::Exited(..) => TRIALS.len(),
            _ => {
                let at = page.at.load(Ordering::SeqCst);
                if let Some((_, answer)) = list.get_mut(at) {
                    *answer = Answer::Killed;
                }
                at + 1
            }
        };
    }
    for (index, (_, answer)) in list.iter_mut().enumerate() {
        if page.is_answered[index].load(Ordering::SeqCst) {
            *answer = Answer::Returned(page.errnos[index].load(Ordering::SeqCst));
        }
    }
    Ok(Answers {
        list,
        had_power: page.had_power.load(Ordering::SeqCst),
    })
}

/// The child's part. No memory is freed: it ends here.
fn play(page: &Page, first: usize) -> ! {
    // A death for a system call leaves no core; landlock_restrict_self(2) wants
    // no_new_privs.
    // SAFETY: no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    for (index, (_, number, args)) in TRIALS.into_iter().enumerate() {
        if index == FIRST_PRIVILEGED {
            gain_power(page);
        }
        if index < first {
            continue;
        }
        page.at.store(index, Ordering::SeqCst);
        // SAFETY: every pointer among the arguments is null, which the kernel
        // refuses; a descriptor that is made goes with the process.
        let result = unsafe { super::syscall(number, args) };
        let errno = result.err().map_or(0, |errno| errno as i32);
        page.errnos[index].store(errno, Ordering::SeqCst);
        page.is_answered[index].store(true, Ordering::SeqCst);
    }
    super::process::exit_now(0)
}

fn gain_power(page: &Page) {
    let is_allowed = page.is_answered[UNSHARE].load(Ordering::SeqCst)
        && page.errnos[UNSHARE].load(Ordering::SeqCst) == 0;
    if !is_allowed {
        return;
    }
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWUTS;
    // SAFETY: no pointers; the child has one thread and nothing depends on its
    // namespaces.
    let made = unsafe { super::syscall(libc::SYS_unshare, [namespaces as usize]) };
    page.had_power.store(made.is_ok(), Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn without_a_filter_no_call_is_denied() {
        if is_filtered() {
            return skip("a filter is around these tests");
        }
        let answers = try_all().unwrap();
        for (index, (name, answer)) in answers.list.iter().enumerate() {
            let expected: &[i32] = match *name {
                _ if index >= FIRST_PRIVILEGED && !answers.had_power => &[libc::EPERM],
                "setgroups" => &[libc::EPERM, libc::EINVAL],
                "unshare" | "setresuid" | "setresgid" | "setsid" | INET_SOCKET | UNIX_SOCKET => {
                    &[0]
                }
                "landlock_create_ruleset" => &[0, libc::EOPNOTSUPP, libc::ENOSYS],
                name if name.starts_with("landlock") => {
                    &[libc::EBADF, libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS]
                }
                _ => &[libc::EINVAL, libc::EFAULT, libc::EBADF],
            };
            assert!(
                matches!(answer, Answer::Returned(errno) if expected.contains(errno)),
                "{name}: {answer:?}"
            );
        }
        assert_eq!(TRIALS[UNSHARE].0, "unshare");
        assert_eq!(TRIALS[FIRST_PRIVILEGED].0, "fsopen");
    }
}
