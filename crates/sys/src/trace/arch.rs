//! The registers of each machine, as ptrace(2) gives them.

use nix::errno::Errno;
use nix::unistd::Pid;

#[cfg(not(target_arch = "x86_64"))]
use other as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

use machine::COUNT;
pub(super) use machine::EXTENDED;
pub use machine::SUPPORTED;

/// How many words of general registers there are at most.
pub(super) const WORDS: usize = 34;

/// The general registers of a stopped process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    words: [u64; WORDS],
    count: usize,
}

impl Registers {
    /// As words, in the kernel's order.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }

    /// From words in the kernel's order; `None` if this machine has another number of them.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let mut registers = Self {
            words: [0; WORDS],
            count: COUNT,
        };
        (words.len() == COUNT).then(|| {
            registers.words[..COUNT].copy_from_slice(words);
            registers
        })
    }
}

/// Reads a set of registers; returns its length in bytes.
pub(super) fn get_set(pid: Pid, set: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let address = &raw mut vector as usize;
    // SAFETY: the kernel writes to the buffer that the vector describes, no more than it
    // has room for, and the length to the vector.
    unsafe { super::request(libc::PTRACE_GETREGSET, pid, set as usize, address) }?;
    Ok(vector.iov_len)
}

/// Writes a set of registers.
pub(super) fn set_set(pid: Pid, set: i32, bytes: &[u8]) -> Result<(), Errno> {
    let vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let address = &raw const vector as usize;
    // SAFETY: the kernel reads from the bytes that the vector describes.
    unsafe { super::request(libc::PTRACE_SETREGSET, pid, set as usize, address) }.map(drop)
}

pub(super) fn registers(pid: Pid) -> Result<Registers, Errno> {
    let mut bytes = [0; WORDS * 8];
    let length = get_set(pid, libc::NT_PRSTATUS, &mut bytes)?;
    // A process of another ABI, such as 32 bits, has another number of them.
    let words: Vec<u64> = bytes[..length]
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or(0))
        .collect();
    Registers::from_words(&words).ok_or(Errno::ENOEXEC)
}

pub(super) fn set_registers(pid: Pid, registers: &Registers) -> Result<(), Errno> {
    let bytes: Vec<u8> = (registers.words().iter())
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    set_set(pid, libc::NT_PRSTATUS, &bytes)
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use nix::errno::Errno;

    use super::{Registers, WORDS};

    /// Whether processes can be carried on this machine.
    pub const SUPPORTED: bool = true;
    /// The set of vector registers: XSAVE's (`NT_X86_XSTATE`, which libc lacks).
    pub(in super::super) const EXTENDED: i32 = 0x202;
    pub(super) const COUNT: usize = 27;

    // Places in struct user_regs_struct.
    const R10: usize = 7;
    const R9: usize = 8;
    const R8: usize = 9;
    const RAX: usize = 10;
    const RDX: usize = 12;
    const RSI: usize = 13;
    const RDI: usize = 14;
    const ORIG_RAX: usize = 15;
    const RIP: usize = 16;
    const FS_BASE: usize = 21;

    const NO_CALL: u64 = u64::MAX;
    /// Bytes of the instruction `syscall`.
    const CALL_LENGTH: u64 = 2;
    /// The instruction `syscall`.
    const CALL: [u8; 2] = [0x0f, 0x05];

    impl Registers {
        /// The system call that the process waits in and its arguments, if it was
        /// interrupted in one that the kernel begins again.
        pub fn waits_in(&self) -> Option<(i64, [u64; 3])> {
            /// ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND (include/linux/errno.h).
            const AGAIN: [i64; 3] = [-512, -513, -514];
            let is_again = AGAIN.contains(&(self.words[RAX] as i64));
            let args = [self.words[RDI], self.words[RSI], self.words[RDX]];
            is_again.then_some((self.words[ORIG_RAX] as i64, args))
        }

        /// The same, so that the call begins again: what the kernel would do by itself
        /// when a signal's handler does not run.
        #[must_use]
        pub fn resumed(&self) -> Self {
            let mut registers = *self;
            if self.waits_in().is_some() {
                registers.words[RIP] = self.words[RIP].wrapping_sub(CALL_LENGTH);
                registers.words[RAX] = self.words[ORIG_RAX];
                registers.words[ORIG_RAX] = NO_CALL;
            }
            registers
        }

        /// Where the instruction of the system call is, and its bytes.
        pub fn call_site(&self) -> (u64, &'static [u8]) {
            let after = self.waits_in().map_or(0, |_| CALL_LENGTH);
            (self.words[RIP].wrapping_sub(after), &CALL)
        }

        /// Where the thread's own data is.
        pub fn thread_pointer(&self) -> u64 {
            self.words[FS_BASE]
        }

        /// Those with which the process makes a system call at its call site.
        pub(in super::super) fn for_call(&self, number: i64, args: &[u64]) -> Self {
            const PLACES: [usize; 6] = [RDI, RSI, RDX, R10, R8, R9];
            let mut registers = *self;
            registers.words[RIP] = self.call_site().0;
            registers.words[RAX] = number as u64;
            registers.words[ORIG_RAX] = NO_CALL;
            for (index, place) in PLACES.into_iter().enumerate() {
                registers.words[place] = args.get(index).copied().unwrap_or(0);
            }
            registers
        }

        /// What a system call returned.
        pub(in super::super) fn result(&self) -> Result<u64, Errno> {
            match self.words[RAX] as i64 {
                error @ -4095..=-1 => Err(Errno::from_raw(-error as i32)),
                _ => Ok(self.words[RAX]),
            }
        }
    }

    const _: () = assert!(size_of::<libc::user_regs_struct>() == COUNT * 8 && COUNT <= WORDS);
}

/// A machine whose registers are not known here: no process is ever stopped.
#[cfg(not(target_arch = "x86_64"))]
#[allow(missing_docs, reason = "as on the machine that is known")]
mod other {
    use nix::errno::Errno;

    use super::Registers;

    pub const SUPPORTED: bool = false;
    pub(in super::super) const EXTENDED: i32 = libc::NT_PRFPREG;
    pub(super) const COUNT: usize = super::WORDS;

    impl Registers {
        pub fn waits_in(&self) -> Option<(i64, [u64; 3])> {
            None
        }

        #[must_use]
        pub fn resumed(&self) -> Self {
            *self
        }

        pub fn call_site(&self) -> (u64, &'static [u8]) {
            (0, &[])
        }

        pub fn thread_pointer(&self) -> u64 {
            0
        }

        pub(in super::super) fn for_call(&self, _number: i64, _args: &[u64]) -> Self {
            *self
        }

        pub(in super::super) fn result(&self) -> Result<u64, Errno> {
            Err(Errno::ENOSYS)
        }
    }
}
