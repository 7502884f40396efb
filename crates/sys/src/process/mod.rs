//! Attributes of processes, their descriptors and their ends.

mod capabilities;
mod descriptors;
mod usage;

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::Resource;
use nix::sys::signal::Signal;
use nix::time::ClockId;
use nix::unistd::Pid;

pub use capabilities::{
    LOCKED_SECUREBITS, empty_bounding_set, empty_capability_sets, keep_only_capability,
    last_capability, lock_securebits,
};
pub use descriptors::{
    cloexec_range, close_all_but, close_from, close_together, duplicate_above, place, readable,
    share_file, standard_streams, take_descriptors,
};
pub use usage::{ChildUsage, CpuTime, ProcessCount, Stopped, children_usage, stopped};

/// Nanoseconds on CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time that all threads of a process have used, to the nanosecond (clock_getres(2));
/// `None` once the process is gone. Any process may read it of any other.
#[must_use]
pub fn cpu_clock(pid: Pid) -> Option<Duration> {
    /// `CPUCLOCK_SCHED` of the kernel: what the scheduler has counted.
    const SCHEDULED: libc::clockid_t = 2;
    // As clock_getcpuclockid(3) makes it, which would check the process as well.
    let clock = ClockId::from_raw((!pid.as_raw() << 3) | SCHEDULED);
    clock.now().ok().map(Duration::from)
}

/// Sends `signal` through a pidfd (pidfd_send_signal(2), Linux 5.1).
///
/// # Errors
/// The call's error number; ESRCH when the process is gone.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    let args = [pidfd.as_raw_fd() as usize, signal as usize];
    // SAFETY: a null siginfo asks for the one that kill(2) would send.
    unsafe { crate::syscall(libc::SYS_pidfd_send_signal, args) }.map(drop)
}

/// A descriptor of the process `pid` that becomes readable when the process ends
/// (pidfd_open(2), Linux 5.3).
///
/// # Errors
/// The call's error number; ESRCH when there is no such process.
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    unsafe { crate::syscall_fd(libc::SYS_pidfd_open, [pid.as_raw() as usize]) }
}

/// Whether this process ignores `signal` (sigaction(2)).
pub fn ignores(signal: Signal) -> bool {
    // SAFETY: sigaction is plain data for which all zeroes is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null action asks for the present one; `action` is valid for writing.
    let asked = unsafe { libc::sigaction(signal as i32, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Signals that callers ignore, on purpose (nohup(1)), as shells do for jobs in
/// the background, or as Rust does (SIGPIPE).
const OFTEN_IGNORED: [libc::c_int; 14] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGCHLD,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Sets the dispositions back to their defaults that a program would inherit.
/// Handlers go with execve(2); what is ignored stays ignored (signal(7)).
pub fn default_signal_dispositions() {
    for signal in OFTEN_IGNORED {
        // SAFETY: SIG_DFL installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Lets this process wait for its children. A caller may ignore SIGCHLD, which is inherited: the kernel
/// then sends no signal at their end, and keeps no exit status (wait(2)).
pub fn expect_children() {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Sets a limit of this process, soft and hard, and returns what it was (prlimit(2)).
///
/// # Errors
/// The call's error number; EPERM for a hard limit above the one that holds.
pub fn swap_rlimit(resource: Resource, (soft, hard): (u64, u64)) -> Result<(u64, u64), Errno> {
    let new = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let mut old = new;
    // SAFETY: both limits live through the call, which writes to the second; 0 is this process.
    Errno::result(unsafe { libc::prlimit(0, resource as _, &raw const new, &raw mut old) })?;
    Ok((old.rlim_cur, old.rlim_max))
}

/// Takes `gid` as real, effective and saved group of this process (setresgid(2)), which has one
/// thread: without the C library's care for others.
///
/// # Errors
/// The call's error number.
pub fn become_group(gid: u32) -> Result<(), Errno> {
    // SAFETY: no pointers.
    unsafe { crate::syscall(libc::SYS_setresgid, [gid as usize; 3]) }.map(drop)
}

/// Takes `uid` as real, effective and saved user of this process (setresuid(2)), likewise.
///
/// # Errors
/// The call's error number.
pub fn become_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: no pointers.
    unsafe { crate::syscall(libc::SYS_setresuid, [uid as usize; 3]) }.map(drop)
}

/// Sets the NIS domain name of the UTS namespace (setdomainname(2)).
///
/// # Errors
/// The call's error number.
pub fn set_domain_name(name: &str) -> Result<(), Errno> {
    // SAFETY: pointer and length describe `name`.
    Errno::result(unsafe { libc::setdomainname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// The CPUs that this process may use, by rising number.
///
/// # Errors
/// The error number of sched_getaffinity(2).
pub fn allowed_cpus() -> Result<Vec<usize>, Errno> {
    use nix::sched::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect())
}

/// Whether two processes have one address space, as after vfork(2) (kcmp(2)).
pub fn share_memory(one: Pid, other: Pid) -> bool {
    const KCMP_VM: usize = 1;
    let args = [one.as_raw() as usize, other.as_raw() as usize, KCMP_VM];
    // SAFETY: no pointers.
    unsafe { crate::syscall(libc::SYS_kcmp, args) == Ok(0) }
}

/// The soft and the hard limit of another process on the resource with this number
/// (prlimit(2)).
///
/// # Errors
/// The call's error number; EINVAL for a number that no resource has.
pub fn limit_of(pid: Pid, resource: u32) -> Result<(u64, u64), Errno> {
    let mut limit = [0_u64; 2];
    let args = [
        pid.as_raw() as usize,
        resource as usize,
        0,
        limit.as_mut_ptr() as usize,
    ];
    // SAFETY: the kernel writes a soft and a hard limit of 64 bits each.
    unsafe { crate::syscall(libc::SYS_prlimit64, args) }?;
    Ok((limit[0], limit[1]))
}

/// Asks whether a process may be made in a new user namespace, by trying
/// unshare(2) here.
///
/// # Errors
/// The call's error number: the namespace was refused.
pub fn try_nested_userns() -> Result<(), Errno> {
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::unshare(libc::CLONE_NEWUSER) }).map(drop)
}

/// Waits for any child, at once or until one ends (waitpid(2)); `None` when
/// none has ended yet.
///
/// # Errors
/// The call's error number; ECHILD when there are no children.
pub fn reap(block: bool) -> Result<Option<(Pid, i32)>, Errno> {
    let mut status = 0;
    let options = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` is valid for writing.
        match Errno::result(unsafe { libc::waitpid(-1, &raw mut status, options) }) {
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((Pid::from_raw(pid), status))),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Has the memory of the program that this process will execute laid out without
/// randomisation (personality(2)).
///
/// # Errors
/// The call's error number.
pub fn fix_layout() -> Result<(), Errno> {
    const PRESENT: libc::c_ulong = 0xffff_ffff;
    // SAFETY: no pointers.
    let now = Errno::result(unsafe { libc::personality(PRESENT) })?;
    let fixed = now as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    // SAFETY: likewise.
    Errno::result(unsafe { libc::personality(fixed) }).map(drop)
}

/// Executes `path` (execve(2)); returns only when that fails, with the error.
pub fn execute(path: &CStr, argv: &[CString], env: &[CString]) -> Errno {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: all are C strings, both lists end with a null pointer.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    Errno::last()
}

/// Whether memory can be writable and executable at once, as compilers at run
/// time want it. A filter or `PR_SET_MDWE` (Linux 6.3) may deny that.
pub fn can_write_and_execute() -> bool {
    const SIZE: usize = 4096;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches
    // no memory in use.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping is ours, and nothing refers to it.
    unsafe { libc::munmap(page, SIZE) };
    true
}

/// Ends this process without running anything that its parent set up.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: no pointers; no handler or destructor runs.
    unsafe { libc::_exit(status) }
}

/// Whether this process has just one thread: each is a directory in its `task`,
/// beside `.` and `..`, and the count of links says so in one call.
///
/// # Errors
/// The error number of stat(2); ENOENT where `/proc` is not mounted.
pub fn has_one_thread() -> Result<bool, Errno> {
    Ok(nix::sys::stat::stat(c"/proc/self/task")?.st_nlink == 3)
}

/// Waits until everything written to the file system of `file` is on its disk
/// (syncfs(2); it reports failed writes since Linux 5.8).
///
/// # Errors
/// The call's error number; ENOSPC or EDQUOT where room was found missing late.
pub fn sync_file_system(file: &std::fs::File) -> Result<(), Errno> {
    // SAFETY: no pointers, and the descriptor is open.
    Errno::result(unsafe { libc::syncfs(file.as_raw_fd()) }).map(drop)
}
