//! System calls without the C library, for processes that share another's memory
//! and with it the place of `errno`.

use std::arch::asm;
use std::ffi::c_void;

use libc::clone_args;
use nix::errno::Errno;
use nix::unistd::Pid;

/// A system call without the C library, which would set its thread's `errno`.
/// Returns the kernel's result; negative is an error number.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn bare(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the registers of the kernel's ABI; the caller vouches for the rest.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") 0,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: likewise.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") 0, options(nostack));
    }
    // SAFETY: likewise.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        asm!("ecall", in("a7") number, inlateout("a0") a as isize => result,
            in("a1") b, in("a2") c, in("a3") d, in("a4") 0, options(nostack));
    }
    result
}

/// Starts a process by clone3(2) as `args` say, which calls `entry` with
/// `argument` and ends with what that returns.
///
/// # Safety
/// `args` must name a stack that no other code uses until the process has ended.
/// `entry` must do nothing but bare system calls on memory that stays valid as
/// long, and must not panic.
pub(super) unsafe fn start(
    args: &clone_args,
    entry: extern "C" fn(*mut c_void) -> i32,
    argument: *mut c_void,
) -> Result<Pid, Errno> {
    let result: isize;
    // SAFETY: the registers of the kernel's ABI. The new process finds its stack
    // empty and its registers as they were; it never leaves this block, so only
    // the caller's side has to keep what the compiler relies on.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "mov edi, eax",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") std::ptr::from_ref(args),
            in("rsi") size_of::<clone_args>(),
            in("r12") entry,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    // SAFETY: likewise.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "mov x8, {exit}",
            "svc 0",
            "2:",
            exit = const libc::SYS_exit,
            in("x8") libc::SYS_clone3,
            inlateout("x0") std::ptr::from_ref(args) as isize => result,
            in("x1") size_of::<clone_args>(),
            in("x20") entry,
            in("x21") argument,
            lateout("x30") _,
        );
    }
    // SAFETY: likewise.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        asm!(
            "ecall",
            "bnez a0, 2f",
            "mv fp, zero",
            "mv a0, s3",
            "jalr s2",
            "li a7, {exit}",
            "ecall",
            "2:",
            exit = const libc::SYS_exit,
            in("a7") libc::SYS_clone3,
            inlateout("a0") std::ptr::from_ref(args) as isize => result,
            in("a1") size_of::<clone_args>(),
            in("s2") entry,
            in("s3") argument,
            lateout("ra") _,
        );
    }
    match result {
        error @ ..0 => Err(Errno::from_raw(-error as i32)),
        pid => Ok(Pid::from_raw(pid as libc::pid_t)),
    }
}
