//! A double fork that copies memory once, as machine code for a process of another program.
//!
//! A copy of a template becomes a child of its cell's init because its parent, a process in the
//! same pid namespace, ends at once. That process needs no memory of its own: it shares that of its
//! parent, which waits for it (`CLONE_VM` and `CLONE_VFORK`, clone(2)). Copying the memory of a
//! Python that has loaded pandas, and freeing the copy, takes milliseconds.
//!
//! The C library has no such call. What it starts on a stack of its own never leaves that stack,
//! and the copy has to return to where its template was called. The code here changes the stack in
//! the copy, and leaves the fork itself to the C library, which also puts its own state in order.

/// The position-independent machine code of this function; empty on machines for which there is
/// none.
///
/// ```c
/// long double_fork(void before(void), pid_t fork(void), void after_in_copy(void),
///                  void after_in_caller(void), void *end_of_stack);
/// ```
///
/// It calls `before`, forks twice by `fork`, and calls one of the other two. It returns 0 in the
/// copy. In the caller it returns the pid of the process in between, or a negative error number.
/// That process has ended, with status 0 if there is a copy, and is to be waited for. While it
/// lives, it uses the memory below `end_of_stack`, which is aligned to 16 bytes.
///
/// The copy has no restartable sequences (rseq(2)): the kernel takes them from a process that shares
/// memory, and what that forks inherits none.
pub fn code() -> &'static [u8] {
    machine::code()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod machine {
    use std::arch::global_asm;
    use std::slice;

    const FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;

    /// The function, between its symbols.
    macro_rules! function {
        ($($instruction:literal,)*) => {
            global_asm!(
                ".pushsection .text",
                ".balign 16",
                ".hidden cellblock_double_fork, cellblock_double_fork_end",
                ".globl cellblock_double_fork, cellblock_double_fork_end",
                "cellblock_double_fork:",
                $($instruction,)*
                "cellblock_double_fork_end:",
                ".popsection",
                clone = const libc::SYS_clone,
                flags = const FLAGS,
                exit = const libc::SYS_exit_group,
            );
        };
    }

    #[cfg(target_arch = "x86_64")]
    function!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "mov rbx, rsi",
        "mov r12, rdx",
        "mov r13, rcx",
        "mov r14, r8",
        "call rdi",
        "mov rbp, rsp",
        "mov eax, {clone}",
        "mov edi, {flags}",
        "mov rsi, r14",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "syscall",
        "test rax, rax",
        "jnz 3f",
        // The process in between, on the other stack.
        "call rbx",
        "test eax, eax",
        "jz 2f",
        "shr eax, 31",
        "mov edi, eax",
        "mov eax, {exit}",
        "syscall",
        // The copy, which goes back to the first stack.
        "2:",
        "mov rsp, rbp",
        "call r12",
        "xor ebx, ebx",
        "jmp 4f",
        // The caller.
        "3:",
        "mov rbx, rax",
        "call r13",
        "4:",
        "mov rax, rbx",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    );

    #[cfg(target_arch = "aarch64")]
    function!(
        "stp x29, x30, [sp, -48]!",
        "stp x19, x20, [sp, 16]",
        "stp x21, x22, [sp, 32]",
        "mov x29, sp",
        "mov x19, x1",
        "mov x20, x2",
        "mov x21, x3",
        "mov x22, x4",
        "blr x0",
        "mov x0, {flags}",
        "mov x1, x22",
        "mov x2, xzr",
        "mov x3, xzr",
        "mov x4, xzr",
        "mov x8, {clone}",
        "svc 0",
        "cbnz x0, 3f",
        // The process in between, on the other stack.
        "blr x19",
        "cbz w0, 2f",
        "lsr w0, w0, 31",
        "mov x8, {exit}",
        "svc 0",
        // The copy, which goes back to the first stack.
        "2:",
        "mov sp, x29",
        "blr x20",
        "mov x19, xzr",
        "b 4f",
        // The caller.
        "3:",
        "mov x19, x0",
        "blr x21",
        "4:",
        "mov x0, x19",
        "ldp x19, x20, [sp, 16]",
        "ldp x21, x22, [sp, 32]",
        "ldp x29, x30, [sp], 48",
        "ret",
    );

    // SAFETY: the assembly above defines both, and only their addresses are used.
    unsafe extern "C" {
        static cellblock_double_fork: u8;
        static cellblock_double_fork_end: u8;
    }

    pub(super) fn code() -> &'static [u8] {
        let (start, end) = (
            &raw const cellblock_double_fork,
            &raw const cellblock_double_fork_end,
        );
        // SAFETY: the two symbols are in one section, with the code between them, which never
        // changes.
        unsafe { slice::from_raw_parts(start, end.addr() - start.addr()) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    pub(super) const fn code() -> &'static [u8] {
        &[]
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicI64, Ordering};

    use nix::sys::prctl::set_child_subreaper;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, Pid, fork, getppid};

    type Function = extern "C" fn();
    type DoubleFork =
        extern "C" fn(Function, extern "C" fn() -> i32, Function, Function, *mut c_void) -> i64;

    static CALLED: AtomicI64 = AtomicI64::new(0);

    /// Adds a digit to those of the functions called so far.
    fn note(digit: i64) {
        CALLED.store(
            CALLED.load(Ordering::Relaxed) * 10 + digit,
            Ordering::Relaxed,
        );
    }

    extern "C" fn before() {
        note(1);
    }

    extern "C" fn in_copy() {
        note(2);
    }

    extern "C" fn in_caller() {
        note(3);
    }

    extern "C" fn real_fork() -> i32 {
        // SAFETY: the process that calls this has one thread.
        unsafe { libc::fork() }
    }

    extern "C" fn no_fork() -> i32 {
        -1
    }

    /// The code in memory of its own, as another program has it.
    fn mapped() -> DoubleFork {
        let code = super::code();
        let (writable, executable) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::PROT_READ | libc::PROT_EXEC,
        );
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the mapping is new, and large enough for the code, which is a function of this
        // type.
        unsafe {
            let memory = libc::mmap(std::ptr::null_mut(), 4096, writable, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(code.as_ptr(), memory.cast(), code.len());
            assert_eq!(libc::mprotect(memory, 4096, executable), 0);
            std::mem::transmute::<*mut c_void, DoubleFork>(memory)
        }
    }

    /// Forks twice, and ends with 0 if both sides are as they should be.
    fn try_both() -> i32 {
        let double_fork = mapped();
        let mut stack = vec![0_u128; 4096];
        let end = stack.as_mut_ptr_range().end.cast();
        let caller = std::process::id();
        assert_eq!(set_child_subreaper(true), Ok(()));
        let between = double_fork(before, real_fork, in_copy, in_caller, end);
        if between == 0 {
            let is_copy = std::process::id() != caller && CALLED.load(Ordering::Relaxed) == 12;
            // The caller is its parent once the process in between has ended.
            while getppid().as_raw() != caller as i32 {}
            return if is_copy { 40 } else { 41 };
        }
        let between = Pid::from_raw(between as i32);
        assert_eq!(CALLED.load(Ordering::Relaxed), 13);
        assert_eq!(waitpid(between, None), Ok(WaitStatus::Exited(between, 0)));
        let copy = waitpid(Pid::from_raw(-1), None);
        assert!(matches!(copy, Ok(WaitStatus::Exited(_, 40))), "{copy:?}");
        let between = double_fork(before, no_fork, in_copy, in_caller, end);
        let between = Pid::from_raw(between as i32);
        assert_eq!(waitpid(between, None), Ok(WaitStatus::Exited(between, 1)));
        0
    }

    #[test]
    fn a_copy_returns_to_where_its_template_was_called() {
        // SAFETY: fork(3) of the C library leaves the heap usable in the child, which needs no lock
        // of this process's other threads, and ends by `_exit`.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => crate::process::exit_now(try_both()),
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
    }
}
