//! System calls as a hostile program makes them: by number, with any argument.

use std::ffi::CStr;
use std::marker::PhantomData;

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// One argument register: a number, or the address of something that lives at
/// least as long as the call.
#[derive(Clone, Copy)]
pub(crate) struct Arg<'a>(usize, PhantomData<&'a ()>);

impl Arg<'_> {
    /// A null pointer.
    pub(crate) const NULL: Self = Arg(0, PhantomData);

    const fn word(word: usize) -> Self {
        Arg(word, PhantomData)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for Arg<'_> {
            fn from(number: $number) -> Self {
                Self::word(number as usize)
            }
        })*
    };
}
numbers!(i32, u32, i64, u64, usize);

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(text: &'a CStr) -> Self {
        Self::word(text.as_ptr() as usize)
    }
}

impl<'a, T> From<&'a T> for Arg<'a> {
    fn from(value: &'a T) -> Self {
        Self::word(std::ptr::from_ref(value) as usize)
    }
}

impl<'a, T> From<&'a mut T> for Arg<'a> {
    fn from(value: &'a mut T) -> Self {
        Self::word(std::ptr::from_mut(value) as usize)
    }
}

/// Makes system call `number`.
pub(crate) fn syscall(number: libc::c_long, args: &[Arg<'_>]) -> Result<i64, Errno> {
    let mut words = [0; 6];
    for (word, arg) in words.iter_mut().zip(args) {
        *word = arg.0;
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: every pointer among the words was made by `Arg` from a reference
    // that outlives this call. No caller asks for a call that unmaps or
    // remaps memory of this process, or that returns twice.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// `call!(SYS_mount, c"none", …)`: the system call that libc names so.
macro_rules! call {
    ($number:ident $(, $arg:expr)* $(,)?) => {
        $crate::cells::raw::syscall(nix::libc::$number, &[$($crate::cells::raw::Arg::from($arg)),*])
    };
}
pub(crate) use call;

/// Makes a child by a system call that returns twice; the child ends at once.
pub(crate) fn spawn(number: libc::c_long, args: &[Arg<'_>]) -> Result<(), Errno> {
    let child = call_twice(number, args)?;
    waitpid(child, None).map(drop)
}

/// The child runs `inside` and ends with its status.
pub(crate) fn fork(inside: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(child),
        nix::unistd::ForkResult::Child => exit(inside()),
    }
}

/// Forks, and waits for the child.
pub(crate) fn in_child(inside: impl FnOnce() -> i32) -> Result<WaitStatus, Errno> {
    waitpid(fork(inside)?, None)
}

/// Ends the process at once, without destructors or exit handlers.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: always sound.
    unsafe { libc::_exit(status) }
}

fn call_twice(number: libc::c_long, args: &[Arg<'_>]) -> Result<Pid, Errno> {
    match syscall(number, args)? {
        0 => exit(0),
        child => Ok(Pid::from_raw(child as i32)),
    }
}
