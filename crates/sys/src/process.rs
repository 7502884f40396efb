//! Attributes of processes, their descriptors and their ends.

use std::ffi::{CStr, CString};
use std::ops::Add;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::time::ClockId;
use nix::unistd::Pid;

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
    unsafe { super::syscall(libc::SYS_pidfd_send_signal, args) }.map(drop)
}

/// A descriptor of the process `pid` that becomes readable when the process ends
/// (pidfd_open(2), Linux 5.3).
///
/// # Errors
/// The call's error number; ESRCH when there is no such process.
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    unsafe { super::syscall_fd(libc::SYS_pidfd_open, [pid.as_raw() as usize]) }
}

/// Whether this process ignores `signal` (sigaction(2)).
pub fn ignores(signal: Signal) -> bool {
    // SAFETY: sigaction is plain data for which all zeroes is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null action asks for the present one; `action` is valid for writing.
    let asked = unsafe { libc::sigaction(signal as i32, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Marks the descriptors `first..=last` close-on-exec (close_range(2),
/// Linux 5.11).
///
/// # Errors
/// The call's error number.
pub fn cloexec_range(first: RawFd, last: u32) -> Result<(), Errno> {
    let flags = libc::CLOSE_RANGE_CLOEXEC as usize;
    let args = [first as usize, last as usize, flags];
    // SAFETY: no pointers; marking a descriptor invalidates nothing.
    unsafe { super::syscall(libc::SYS_close_range, args) }.map(drop)
}

/// Closes every descriptor of this process but `keep`.
///
/// # Safety
/// No value that owns a descriptor other than `keep` may be used or dropped
/// afterwards.
///
/// # Errors
/// The error number of close_range(2), Linux 5.9.
pub unsafe fn close_all_but(keep: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the caller's promise is the same.
    unsafe { close_from(0, &[keep]) }
}

/// Closes every descriptor from the number `first` on but those in `keep`.
///
/// # Safety
/// No value that owns one of these descriptors other than those in `keep` may be used
/// or dropped afterwards.
///
/// # Errors
/// The error number of close_range(2), Linux 5.9.
pub unsafe fn close_from(first: RawFd, keep: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut first = first as usize;
    let mut keep: Vec<usize> = keep.iter().map(|fd| fd.as_raw_fd() as usize).collect();
    keep.sort_unstable();
    let close = |first: usize, last: usize| {
        // SAFETY: the caller gave up all owners of these descriptors.
        unsafe { super::syscall(libc::SYS_close_range, [first, last]) }.map(drop)
    };
    for kept in keep {
        if kept > first {
            close(first, kept - 1)?;
        }
        first = first.max(kept + 1);
    }
    close(first, u32::MAX as usize)
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

/// Sets the NIS domain name of the UTS namespace (setdomainname(2)).
///
/// # Errors
/// The call's error number.
pub fn set_domain_name(name: &str) -> Result<(), Errno> {
    // SAFETY: pointer and length describe `name`.
    Errno::result(unsafe { libc::setdomainname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// `SO_PASSRIGHTS` of Linux 6.16, which libc does not have yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Sets whether a Unix socket takes descriptors from now on (unix(7), Linux 6.16).
///
/// # Errors
/// That of setsockopt(2); ENOPROTOOPT before Linux 6.16.
pub fn take_descriptors(socket: BorrowedFd<'_>, takes: bool) -> Result<(), Errno> {
    let takes = libc::c_int::from(takes);
    // SAFETY: `takes` is an int, like the option's value.
    Errno::result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const takes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// How many bytes can be read from a pipe without waiting (FIONREAD).
///
/// # Errors
/// That of ioctl(2).
pub fn readable(pipe: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut count: libc::c_int = 0;
    // SAFETY: the call stores an int, which `count` is.
    Errno::result(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// Both.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// What is left of each without `other`'s.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            user: self.user.saturating_sub(other.user),
            system: self.system.saturating_sub(other.system),
        }
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }
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
    unsafe { super::syscall(libc::SYS_kcmp, args) == Ok(0) }
}

/// Whether two descriptors of a process are one open file description, so that they share
/// an offset (kcmp(2)).
pub fn share_file(pid: Pid, one: RawFd, other: RawFd) -> bool {
    const KCMP_FILE: usize = 0;
    let pid = pid.as_raw() as usize;
    let args = [pid, pid, KCMP_FILE, one as usize, other as usize];
    // SAFETY: no pointers.
    unsafe { super::syscall(libc::SYS_kcmp, args) == Ok(0) }
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
    unsafe { super::syscall(libc::SYS_prlimit64, args) }?;
    Ok((limit[0], limit[1]))
}

/// What init knows of the processes that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCount {
    /// Processes that were there when the program ended or was ended, itself
    /// included.
    pub at_end: u32,
    /// Processes and threads that were ever started.
    pub started: Option<u32>,
}

/// CPU time and memory of waited-for children (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildUsage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// The largest resident set of any one of them, in bytes.
    pub max_rss: u64,
    /// How many there were.
    pub count: ProcessCount,
}

/// What all children waited for so far, and theirs, have used.
pub fn children_usage() -> ChildUsage {
    // SAFETY: rusage is plain data for which all zeroes is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing; RUSAGE_CHILDREN cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let duration = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    ChildUsage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        max_rss: usage.ru_maxrss as u64 * 1024,
        count: ProcessCount::default(),
    }
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

/// The standard streams that this process was started with, by number.
pub fn standard_streams() -> [BorrowedFd<'static>; 3] {
    // SAFETY: Rust's start-up opens those that are missing, and cellblock closes
    // none of them.
    [0, 1, 2].map(|number| unsafe { BorrowedFd::borrow_raw(number) })
}

/// Makes `number` a copy of `fd` that stays open over execve(2).
///
/// # Errors
/// The error number of dup2(2) or fcntl(2).
pub fn place(fd: &OwnedFd, number: RawFd) -> Result<(), Errno> {
    if fd.as_raw_fd() == number {
        // dup2 would do nothing, and leave close-on-exec set.
        // SAFETY: no pointers.
        return Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).map(drop);
    }
    // SAFETY: the caller is about to execute another program and gives this
    // number up.
    Errno::result(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(drop)
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

/// A close-on-exec copy of `fd` whose number is `lowest` or higher.
///
/// # Errors
/// The error number of fcntl(2).
pub fn duplicate_above(fd: impl AsFd, lowest: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    let copy = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
    // SAFETY: the kernel has just made the descriptor.
    Errno::result(copy).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
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

/// Drops every capability that this kernel knows from the bounding set of this
/// thread (capabilities(7)).
///
/// # Errors
/// The error number of prctl(2); EPERM without CAP_SETPCAP.
pub fn empty_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        // SAFETY: no pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Errno::result(dropped) {
            Ok(_) => {}
            // The one behind the last.
            Err(Errno::EINVAL) if capability > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Takes from uid 0 what it means for capabilities, for good: programs that it executes get
/// none, and a change of ids gives and takes none (capabilities(7), `securebits`).
///
/// # Errors
/// The error number of prctl(2); EPERM without CAP_SETPCAP.
pub fn lock_securebits() -> Result<(), Errno> {
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, LOCKED_SECUREBITS, 0, 0, 0) })
        .map(drop)
}

/// The `securebits` of [`lock_securebits`], with their locks. What a program keeps over a
/// change of ids is left to it: it has nothing to keep.
pub const LOCKED_SECUREBITS: libc::c_int = libc::SECBIT_NOROOT
    | libc::SECBIT_NOROOT_LOCKED
    | libc::SECBIT_NO_SETUID_FIXUP
    | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

/// Empties the effective, permitted and inheritable sets of the calling thread at
/// once (capset(2)).
///
/// # Errors
/// The call's error number.
pub fn empty_capability_sets() -> Result<(), Errno> {
    /// `_LINUX_CAPABILITY_VERSION_3` (Linux 2.6.26), and this thread.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    const EMPTY: [[u32; 3]; 2] = [[0; 3]; 2];
    let args = [HEADER.as_ptr() as usize, EMPTY.as_ptr() as usize];
    // SAFETY: header and sets have the layout of that version, which reads two
    // triples of 32-bit masks.
    unsafe { super::syscall(libc::SYS_capset, args) }.map(drop)
}

/// The highest number of a capability that this kernel knows.
pub fn last_capability() -> u32 {
    // SAFETY: no pointers.
    let knows = |number: &u32| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *number, 0, 0, 0) } >= 0;
    (0..64).take_while(knows).last().unwrap_or(0)
}

/// Keeps one capability and drops all others, for this thread and for programs that it
/// executes without more privileges (capabilities(7), ambient set).
///
/// # Errors
/// The error number of prctl(2) or capset(2); EPERM where this thread lacks it.
pub fn keep_only_capability(kept: u32) -> Result<(), Errno> {
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    for capability in (0..64).filter(|capability| *capability != kept) {
        // SAFETY: no pointers.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Errno::result(dropped) {
            Ok(_) => {}
            // The one behind the last.
            Err(Errno::EINVAL) if capability > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    let mut sets = [[0_u32; 3]; 2];
    sets[kept as usize / 32] = [1 << (kept % 32); 3];
    let args = [HEADER.as_ptr() as usize, sets.as_ptr() as usize];
    // SAFETY: header and sets have the layout of that version, which reads two
    // triples of 32-bit masks.
    unsafe { super::syscall(libc::SYS_capset, args) }?;
    let raise = libc::PR_CAP_AMBIENT_RAISE;
    // SAFETY: no pointers.
    Errno::result(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, kept, 0, 0) }).map(drop)
}
