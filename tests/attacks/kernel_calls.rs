//! Calls that read other processes, or administer, extend or replace the
//! kernel.

use std::os::fd::AsRawFd as _;

use nix::sys::wait::waitpid;

use crate::cells::prelude::*;
use crate::cells::raw;

pub(crate) const SUITE: Suite = Suite {
    name: "kernel-calls",
    covers: &[14],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

/// If the filter ever failed: the program has no capability in the initial user
/// namespace, and Landlock's scope separates it from other processes.
const STILL: &[Weaker] = &[(&["seccomp"], With(&[Errno::EPERM]))];
/// The same without Landlock: init keeps no capability that a program could
/// lack, but is not dumpable.
const STILL_TWICE: &[Weaker] = &[
    (&["seccomp"], With(&[Errno::EPERM])),
    (&["seccomp", "landlock"], With(&[Errno::EPERM])),
];

/// `/proc` shows no process that the program may not trace, and init is one.
const INVISIBLE: &[Errno] = &[Errno::ENOENT];
/// Not because of Landlock: init is not dumpable.
const BY_INIT_ITSELF: &[Weaker] = &[(&["landlock"], With(INVISIBLE))];

const ATTACKS: &[Attack] = &[
    // Other processes
    attack("ptrace-init", || {
        const SEIZE: u32 = 0x4206;
        call!(SYS_ptrace, SEIZE, 1, 0, 0).map(drop)
    })
    .live(naive())
    .weaker(STILL_TWICE),
    attack("ptrace-sibling", || {
        with_sibling(|sibling| {
            const SEIZE: u32 = 0x4206;
            call!(SYS_ptrace, SEIZE, sibling, 0, 0).map(drop)
        })
    })
    .live(bare()),
    attack("ptrace-me", || call!(SYS_ptrace, 0, 0, 0, 0).map(drop)).live(bare()),
    attack("read-init", || transfer(libc::SYS_process_vm_readv, 1))
        .live(naive().behind(Errno::EFAULT))
        .weaker(STILL_TWICE),
    attack("write-init", || transfer(libc::SYS_process_vm_writev, 1))
        .live(naive().behind(Errno::EFAULT))
        .weaker(STILL_TWICE),
    attack("read-sibling", || {
        with_sibling(|sibling| transfer(libc::SYS_process_vm_readv, sibling))
    })
    .live(bare().behind(Errno::EFAULT)),
    attack("proc-init-mem", || open("/proc/1/mem", libc::O_RDWR))
        .live(naive())
        .refused(INVISIBLE)
        .weaker(BY_INIT_ITSELF),
    attack("proc-init-root", || {
        open("/proc/1/root/usr", libc::O_RDONLY)
    })
    .live(naive())
    .refused(INVISIBLE)
    .weaker(BY_INIT_ITSELF),
    attack("proc-init-environ", || read("/proc/1/environ"))
        .live(naive())
        .refused(INVISIBLE)
        .weaker(BY_INIT_ITSELF),
    attack("descriptor-of-init", || {
        let init = call!(SYS_pidfd_open, 1, 0)?;
        call!(SYS_pidfd_getfd, init, 1, 0).map(drop)
    })
    .live(naive())
    .weaker(STILL_TWICE),
    // Without the filter, the same user may set these for init.
    attack("limits-of-init", || {
        const NOFILE: i32 = 7;
        let limit = [0_u64; 2];
        call!(SYS_prlimit64, 1, NOFILE, Arg::NULL, &limit).map(drop)?;
        call!(SYS_prlimit64, 1, NOFILE, &limit, Arg::NULL).map(drop)
    })
    .live(naive()),
    attack("kcmp", || {
        const FILE: i32 = 0;
        let own = std::process::id();
        call!(SYS_kcmp, own, own, FILE, 1, 1).map(drop)
    })
    .live(bare().unless(&[Errno::ENOSYS])),
    // Files by handle
    attack("name-to-handle", || handle().map(drop)).live(bare()),
    attack("open-by-handle", || {
        let mut handle = handle().unwrap_or([0; 17]);
        let dir = nix::fcntl::open(
            "/",
            nix::fcntl::OFlag::O_RDONLY,
            nix::sys::stat::Mode::empty(),
        )?;
        call!(
            SYS_open_by_handle_at,
            dir.as_raw_fd(),
            &mut handle,
            libc::O_PATH
        )
        .map(drop)
    })
    .live(root().unless(&[Errno::ESTALE]))
    .weaker(STILL),
    // Programs in the kernel, windows into it
    attack("bpf-map", || {
        const MAP_CREATE: i32 = 0;
        // Type (array), key size, value size, entries.
        let attr = [2_u32, 4, 4, 1];
        call!(SYS_bpf, MAP_CREATE, &attr, size_of_val(&attr)).map(drop)
    })
    .live(root().unless(&[Errno::ENOSYS])),
    attack("perf-event", || {
        let mut attr = [0_u8; 64];
        attr[0] = 1; // software
        attr[4] = 64; // size
        attr[40] = 1 << 5 | 1 << 6; // not the kernel, not the hypervisor
        call!(SYS_perf_event_open, &attr, 0, -1, -1, 0).map(drop)
    })
    .live(root().unless(&[Errno::ENOSYS])),
    attack("userfaultfd", || {
        const USER_MODE_ONLY: i32 = 1;
        call!(SYS_userfaultfd, USER_MODE_ONLY).map(drop)
    })
    .live(bare().unless(&[Errno::ENOSYS])),
    attack("fanotify", || call!(SYS_fanotify_init, 0, 0).map(drop))
        .live(root().unless(&[Errno::ENOSYS]))
        .weaker(STILL),
    // Loading another kernel. None of these would have an effect if the call were
    // allowed.
    attack("kexec", || {
        call!(SYS_kexec_load, 0, 1 << 20, Arg::NULL, 0).map(drop)
    })
    .live(root().behind(Errno::EINVAL).unless(&[Errno::ENOSYS]))
    .weaker(STILL),
    attack("kexec-file", || {
        call!(SYS_kexec_file_load, -1, -1, 0, c"", 1_u64 << 32).map(drop)
    })
    .live(root().behind(Errno::EINVAL).unless(&[Errno::ENOSYS]))
    .weaker(STILL),
    attack("init-module", || {
        call!(SYS_init_module, c"", 0, c"").map(drop)
    })
    .live(root().behind(Errno::ENOEXEC).unless(&[Errno::ENOSYS]))
    .weaker(STILL),
    attack("finit-module", || {
        call!(SYS_finit_module, -1, c"", 0).map(drop)
    })
    .live(root().behind(Errno::EBADF).unless(&[Errno::ENOSYS]))
    .weaker(STILL),
    attack("delete-module", || {
        call!(SYS_delete_module, c"no_such_module", libc::O_NONBLOCK).map(drop)
    })
    .live(root().behind(Errno::ENOENT).unless(&[Errno::ENOSYS]))
    .weaker(STILL),
    attack("reboot", || call!(SYS_reboot, 0, 0, 0, Arg::NULL).map(drop))
        .live(root().behind(Errno::EINVAL))
        .weaker(STILL),
    // The host's administration
    attack("swapon", || {
        call!(SYS_swapon, c"/no-such-file", 0).map(drop)
    })
    .live(root().behind(Errno::ENOENT))
    .weaker(STILL),
    attack("swapoff", || call!(SYS_swapoff, c"/no-such-file").map(drop))
        .live(root().behind(Errno::ENOENT))
        .weaker(STILL),
    attack("quotactl", || {
        const QUOTA_OFF: u32 = 0x0080_0003 << 8;
        call!(SYS_quotactl, QUOTA_OFF, c"/no-such-file", 0, Arg::NULL).map(drop)
    })
    .live(bare().behind(Errno::ENOENT).unless(&[Errno::ENOSYS])),
    attack("acct", || call!(SYS_acct, c"/no-such-file").map(drop))
        .live(root().behind(Errno::ENOENT).unless(&[Errno::ENOSYS]))
        .weaker(STILL),
    attack("kernel-log", || {
        const READ_ALL: i32 = 3;
        let mut buffer = [0_u8; 64];
        call!(SYS_syslog, READ_ALL, &mut buffer, 64).map(drop)
    })
    .live(root()),
    attack("set-time", || {
        // Changes nothing: only the permission is checked.
        call!(SYS_settimeofday, Arg::NULL, Arg::NULL).map(drop)
    })
    .live(root())
    .weaker(STILL),
    attack("host-name", || call!(SYS_sethostname, c"mine", 4).map(drop))
        .live(naive())
        .weaker(STILL),
    attack("domain-name", || {
        call!(SYS_setdomainname, c"mine", 4).map(drop)
    })
    .live(naive())
    .weaker(STILL),
    #[cfg(target_arch = "x86_64")]
    attack("iopl", || call!(SYS_iopl, 3).map(drop))
        .live(root().unless(&[Errno::ENOSYS]))
        .weaker(STILL),
    #[cfg(target_arch = "x86_64")]
    attack("ioperm", || call!(SYS_ioperm, 0x80, 1, 1).map(drop))
        .live(root().unless(&[Errno::ENOSYS]))
        .weaker(STILL),
    // Becoming somebody
    attack("setuid-root", || call!(SYS_setuid, 0).map(drop))
        .live(naive())
        .refused(&[Errno::EPERM, Errno::EINVAL]),
    attack("setgid-root", || call!(SYS_setgid, 0).map(drop))
        .live(naive())
        .refused(&[Errno::EPERM, Errno::EINVAL]),
    attack("setgroups", || call!(SYS_setgroups, 0, Arg::NULL).map(drop)).live(root()),
    attack("raise-capabilities", || {
        const VERSION_3: u32 = 0x2008_0522;
        let header = [VERSION_3, 0];
        const SYS_ADMIN: u32 = 1 << 21;
        // Effective, permitted and inheritable, lower half and upper half.
        let sets = [SYS_ADMIN, SYS_ADMIN, 0, 0, 0, 0];
        call!(SYS_capset, &header, &sets).map(drop)
    })
    .live(root()),
];

/// Copies a byte between this process and address 4096 of another, where nothing is
/// mapped: EFAULT means that the permission check passed.
fn transfer(number: libc::c_long, pid: i32) -> Attempt {
    let mut byte = 0_u8;
    let local = [std::ptr::from_mut(&mut byte) as usize, 1];
    let remote = [4096_usize, 1];
    let args = [
        pid.into(),
        (&local).into(),
        1.into(),
        (&remote).into(),
        1.into(),
        0.into(),
    ];
    raw::syscall(number, &args).map(drop)
}

/// Runs `attempt` on another process of the same user.
fn with_sibling(attempt: impl FnOnce(i32) -> Attempt) -> Attempt {
    let sibling = raw::fork(|| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        0
    })?;
    let came = attempt(sibling.as_raw());
    nix::sys::signal::kill(sibling, nix::sys::signal::Signal::SIGKILL)?;
    waitpid(sibling, None)?;
    came
}

fn read(path: &str) -> Attempt {
    let file = nix::fcntl::open(
        path,
        nix::fcntl::OFlag::O_RDONLY,
        nix::sys::stat::Mode::empty(),
    )?;
    nix::unistd::read(&file, &mut [0; 16]).map(drop)
}

/// A handle of the root directory.
fn handle() -> nix::Result<[u64; 17]> {
    let mut handle = [0_u64; 17];
    // The size of the part that the kernel may fill.
    handle[0] = 128;
    let mut mount = 0_i32;
    call!(
        SYS_name_to_handle_at,
        libc::AT_FDCWD,
        c"/",
        &mut handle,
        &mut mount,
        0
    )?;
    Ok(handle)
}
