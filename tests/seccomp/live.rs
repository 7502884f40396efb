//! Single calls behind a loaded filter. Each is made without the filter too, and
//! must end otherwise there: a probe that fails anyway would prove nothing.

use std::os::fd::AsRawFd;

use libc::{EAFNOSUPPORT, ENOPROTOOPT, ENOSYS, EPERM};
use plan::seccomp::{Compiled, Unheld, precompiled};

use super::kernel::{Call, Ended, in_child};

fn default() -> Option<&'static Compiled> {
    Some(precompiled("default", false, Unheld::default()).unwrap())
}

/// Asserts that the filter answers this call, and that nothing else would.
fn assert_denied(errno: i32, name: &str, args: &[u64]) {
    let call = Call::new(name, args);
    assert_eq!(call.behind(default()), Ended::Failed(errno), "{name}");
    assert_ne!(
        call.behind(None),
        Ended::Failed(errno),
        "{name} fails alike without the filter"
    );
}

/// Asserts that the filter leaves this call alone.
fn assert_allowed(name: &str, args: &[u64]) {
    let call = Call::new(name, args);
    assert_eq!(call.behind(default()), call.behind(None), "{name}");
}

const HIGH: u64 = 1 << 32;
const AT_FDCWD: u64 = -100_i64 as u64;
const NO_FD: u64 = -1_i64 as u64;

#[test]
fn dangerous_calls_get_eperm() {
    let myself = u64::from(std::process::id());
    assert_denied(EPERM, "ptrace", &[0]);
    assert_denied(EPERM, "unshare", &[0]);
    assert_denied(EPERM, "setns", &[NO_FD, 0]);
    assert_denied(EPERM, "process_vm_readv", &[myself]);
    assert_denied(EPERM, "pidfd_getfd", &[NO_FD, 0, 0]);
    assert_denied(EPERM, "keyctl", &[0, -1_i64 as u64, 0]);
    assert_denied(EPERM, "name_to_handle_at", &[AT_FDCWD, 0, 0, 0, 0]);
    assert_denied(EPERM, "fanotify_mark", &[NO_FD, 0, 0, 0, 0]);
}

#[test]
fn what_the_policy_does_not_name_is_absent() {
    // cachestat(2) and clone3(2) exist here, or their errors would not differ.
    assert_denied(ENOSYS, "cachestat", &[NO_FD, 0, 0, 0]);
    assert_denied(ENOSYS, "clone3", &[0, 0]);
    assert_eq!(
        Call::numbered(9999, &[]).behind(default()),
        Ended::Failed(ENOSYS)
    );
    assert_eq!(
        Call::numbered(u32::MAX, &[]).behind(default()),
        Ended::Failed(ENOSYS)
    );
}

#[test]
fn clone_makes_processes_but_no_namespaces() {
    let sigchld = libc::SIGCHLD as u64;
    assert_allowed("clone", &[sigchld]);
    // With CLONE_FS the kernel refuses a user namespace as well, but as EINVAL.
    let (newuser, fs) = (libc::CLONE_NEWUSER as u64, libc::CLONE_FS as u64);
    assert_denied(EPERM, "clone", &[newuser | fs | sigchld]);
    assert_denied(EPERM, "clone", &[HIGH | newuser | fs | sigchld]);
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ] {
        let call = Call::new("clone", &[flag as u64 | sigchld]);
        assert_eq!(call.behind(default()), Ended::Failed(EPERM), "{flag:#x}");
    }
}

/// The kernel takes an ioctl's number as 32 bits: whatever stands above them, it
/// is the same operation, as the run without the filter shows on a terminal.
#[test]
fn terminal_ioctls_are_denied_whatever_the_upper_half_says() {
    let terminal = std::fs::File::open("/dev/ptmx").unwrap();
    let fd = terminal.as_raw_fd() as u64;
    let discipline = 0_i32;
    let [unused, n_tty] = [0, &raw const discipline as u64];
    for high in [0, HIGH, 0xffff_ffff << 32] {
        assert_eq!(
            Call::new("ioctl", &[fd, high | 0x5423, n_tty]).behind(None),
            Ended::Succeeded
        );
        assert_denied(EPERM, "ioctl", &[fd, high | 0x5423, n_tty]);
        // Without a controlling terminal: ENOTTY without the filter.
        assert_denied(EPERM, "ioctl", &[NO_FD, high | 0x5412, unused]);
        assert_denied(EPERM, "ioctl", &[NO_FD, high | 0x541c, unused]);
    }
    let mut size = [0_u16; 4];
    let tiocgwinsz = Call::new("ioctl", &[fd, 0x5413, &raw mut size as u64]);
    assert_eq!(tiocgwinsz.behind(default()), Ended::Succeeded);
}

#[test]
fn only_harmless_sockets_can_be_made() {
    let (stream, datagram, raw) = (1, 2, 3);
    let (unix, inet, inet6, netlink, vsock, packet, alg) = (1, 2, 10, 16, 40, 17, 38);
    for (family, kind, protocol) in [
        (unix, stream, 0),
        (inet, stream, 0),
        (inet, stream, 6),
        (inet6, datagram, 17),
        (netlink, raw, 0),
    ] {
        assert_allowed("socket", &[family, kind, protocol]);
    }
    // Kernel events, which anyone may listen to; ICMP, refused otherwise or not at all.
    assert_denied(EAFNOSUPPORT, "socket", &[netlink, raw, 15]);
    assert_denied(EAFNOSUPPORT, "socket", &[inet, datagram, 1]);
    assert_denied(EAFNOSUPPORT, "socket", &[HIGH | netlink, raw, HIGH | 15]);
    // Calls that a kernel may lack.
    for (family, kind) in [
        (vsock, stream),
        (packet, raw),
        (alg, 5),
        (HIGH | vsock, stream),
    ] {
        let call = Call::new("socket", &[family, kind, 0]);
        assert_eq!(
            call.behind(default()),
            Ended::Failed(EAFNOSUPPORT),
            "{family:#x}"
        );
    }
    let mut pair = [0_i32; 2];
    assert_allowed("socketpair", &[unix, stream, 0, &raw mut pair as u64]);
    assert_denied(
        EAFNOSUPPORT,
        "socketpair",
        &[inet, stream, 0, &raw mut pair as u64],
    );
}

#[test]
fn arguments_decide_about_the_rest() {
    assert_denied(ENOPROTOOPT, "setsockopt", &[NO_FD, 6, 31, 0, 0]);
    assert_allowed("setsockopt", &[NO_FD, 6, 1, 0, 0]);
    let mut size = 0_u32;
    assert_denied(EPERM, "prctl", &[35, 15, &raw mut size as u64, 0, 0]);
    assert_allowed("prctl", &[4, 0]);
    assert_denied(EPERM, "seccomp", &[1, 8, 0]);
    assert_allowed("seccomp", &[1, 0, 0]);
    assert_denied(EPERM, "personality", &[0x0020_0000]);
    assert_allowed("personality", &[0xffff_ffff]);
    // The parent's limits, which may only be read here.
    let parent = u64::from(std::process::id());
    assert_denied(EPERM, "prlimit64", &[parent, 7, 0, 0]);
    assert_allowed("prlimit64", &[0, 7, 0, 0]);
    for kind in [libc::S_IFCHR, libc::S_IFBLK] {
        assert_denied(EPERM, "mknodat", &[AT_FDCWD, 0, u64::from(kind | 0o600), 0]);
    }
    for kind in [0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK] {
        assert_allowed("mknodat", &[AT_FDCWD, 0, u64::from(kind | 0o600), 0]);
    }
}

#[test]
fn strict_denies_programs_that_are_in_no_directory() {
    let strict = precompiled("strict", false, Unheld::default());
    for call in [
        Call::new("memfd_create", &[0, 0]),
        Call::new("execveat", &[NO_FD, 0, 0, 0, 0]),
    ] {
        assert_eq!(call.behind(strict), Ended::Failed(EPERM));
        assert_eq!(call.behind(default()), call.behind(None));
        assert_ne!(call.behind(None), Ended::Failed(EPERM));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_and_32_bit_calls_kill() {
    const X32: u32 = 0x4000_0000;
    let getpid = Call::new("getpid", &[]).number;
    let x32 = Call::numbered(X32 | getpid, &[]);
    assert_eq!(x32.behind(default()), Ended::Killed(libc::SIGSYS));
    assert_ne!(x32.behind(None), Ended::Killed(libc::SIGSYS));

    let int_80 = |filter: Option<&Compiled>| {
        in_child(|| {
            if let Some(filter) = filter {
                super::kernel::load(&filter.program, 0);
            }
            let returned: i32;
            // SAFETY: getpid, number 20 there, takes nothing and changes only
            // the register that it returns in.
            unsafe {
                std::arch::asm!("int 0x80", inlateout("eax") 20 => returned, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
            };
            returned.into()
        })
    };
    assert_eq!(int_80(default()), Ended::Killed(libc::SIGSYS));
    // Success, or SIGSEGV where the kernel serves no 32-bit programs.
    assert_ne!(int_80(None), Ended::Killed(libc::SIGSYS));
}
