//! The kernel's other system call tables, in which a number stands for a different call
//! than the filter expects.

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "foreign-abi",
    covers: &[15],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

#[cfg(target_arch = "x86_64")]
const ATTACKS: &[Attack] = &[
    attack("int-0x80", || {
        const GETPID: u32 = 20;
        compat::call(GETPID, 0)
    })
    .live(bare().unless(&[Errno::ENOSYS]))
    .stopped(Killed),
    attack("int-0x80-unshare", || {
        const UNSHARE: u32 = 310;
        compat::call(UNSHARE, libc::CLONE_NEWUSER as u32)
    })
    .live(bare().unless(&[Errno::ENOSYS]))
    .stopped(Killed),
    // x32 numbers are the native ones with one bit set. Few kernels have it; for the
    // others the number is unknown.
    attack("x32", || x32(libc::SYS_getpid, 0))
        .live(bare().unless(&[Errno::ENOSYS]))
        .stopped(KilledOr(Errno::ENOSYS)),
    attack("x32-unshare", || {
        x32(libc::SYS_unshare, libc::CLONE_NEWUSER)
    })
    .live(bare().unless(&[Errno::ENOSYS]))
    .stopped(KilledOr(Errno::ENOSYS)),
    attack("unknown-number", || {
        crate::cells::raw::syscall(4095, &[]).map(drop)
    })
    .refused(&[Errno::ENOSYS]),
];

#[cfg(not(target_arch = "x86_64"))]
const ATTACKS: &[Attack] = &[attack("unknown-number", || {
    crate::cells::raw::syscall(4095, &[]).map(drop)
})
.refused(&[Errno::ENOSYS])];

#[cfg(target_arch = "x86_64")]
fn x32(number: libc::c_long, argument: i32) -> Attempt {
    const X32: libc::c_long = 0x4000_0000;
    crate::cells::raw::syscall(X32 | number, &[Arg::from(argument)]).map(drop)
}

#[cfg(target_arch = "x86_64")]
mod compat {
    use crate::cells::prelude::*;

    /// A system call of a 32-bit program.
    pub(super) fn call(number: u32, argument: u32) -> Attempt {
        // Without support in the kernel the instruction is a SIGSEGV.
        let ended = crate::cells::raw::in_child(|| enter(number, argument).min(0).abs())?;
        match ended {
            nix::sys::wait::WaitStatus::Exited(_, 0) => Ok(()),
            nix::sys::wait::WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            nix::sys::wait::WaitStatus::Signaled(_, nix::sys::signal::Signal::SIGSYS, _) => {
                // The parent must be able to see how the filter treated the child.
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGSYS)?;
                Err(Errno::EINTR)
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    fn enter(number: u32, argument: u32) -> i32 {
        let answer: i32;
        // SAFETY: neither of the two calls made, getpid and unshare, touches
        // memory; the kernel preserves every register but rax and r8 to r11.
        // rbx is LLVM's own, hence the exchange.
        unsafe {
            std::arch::asm!(
                "xchg {argument:r}, rbx",
                "int 0x80",
                "xchg {argument:r}, rbx",
                argument = inout(reg) u64::from(argument) => _,
                inlateout("eax") number => answer,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        answer
    }
}
