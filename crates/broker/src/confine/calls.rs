//! The system calls that the loop needs, with glibc and with musl (seccomp(2)).

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Allowed whatever their arguments.
const ALLOWED: &[libc::c_long] = &[
    // Sockets; `program` has socket(2) and sendto(2).
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // The loop.
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_splice,
    libc::SYS_write,
    libc::SYS_writev,
    // hosts(5) and resolv.conf(5); Landlock says where.
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_statx,
    // Memory: EXECUTABLE below has mmap(2) and mprotect(2).
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Time, random ids, signals, the end.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
];

/// What musl and older glibc use on x86-64 instead.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_stat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

/// Allowed for memory that is not executable; the third argument is its protection.
const EXECUTABLE: [libc::c_long; 2] = [libc::SYS_mmap, libc::SYS_mprotect];

/// Loads the filter. What it does not name fails with EPERM.
pub(super) fn filter() -> io::Result<()> {
    let program = program().map_err(io::Error::other)?;
    let instructions: Vec<sys::seccomp::Instruction> = program
        .iter()
        .map(|insn| sys::seccomp::Instruction {
            code: insn.code,
            jt: insn.jt,
            jf: insn.jf,
            k: insn.k,
        })
        .collect();
    Ok(sys::seccomp::install(&instructions)?)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let is = |argument, value: libc::c_int| {
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            value as u64,
        )
    };
    let masked = |argument, mask: libc::c_int, value: libc::c_int| {
        let compare = SeccompCmpOp::MaskedEq(mask as u64);
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value as u64)
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in ALLOWED.iter().chain(OLD) {
        rules.insert(*call, Vec::new());
    }
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            let kind = masked(1, 0xf, kind)?;
            // Protocol 0: Landlock's rules for ports do not cover MPTCP.
            sockets.push(SeccompRule::new(vec![is(0, family)?, kind, is(2, 0)?])?);
        }
    }
    rules.insert(libc::SYS_socket, sockets);
    // With MSG_FASTOPEN it connects, which Landlock does not see.
    let sends = SeccompRule::new(vec![masked(3, libc::MSG_FASTOPEN, 0)?])?;
    rules.insert(libc::SYS_sendto, vec![sends]);
    for call in EXECUTABLE {
        let rule = SeccompRule::new(vec![masked(2, libc::PROT_EXEC, 0)?])?;
        rules.insert(call, vec![rule]);
    }
    let nonblocking = is(1, libc::FIONBIO as libc::c_int)?;
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(vec![nonblocking])?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)?.try_into()
}
