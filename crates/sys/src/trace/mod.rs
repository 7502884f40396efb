//! Stops another process, looks into it, and has it make system calls (ptrace(2)).
//!
//! The process is hostile: it can be killed or end at any moment, and what is read from
//! it means nothing. No wait is without a deadline. A process that was made to call
//! something gets its registers and signal mask back when it is let go.

mod arch;
mod wait;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Pid;

use super::memory::{Span, errno_of};
use arch::EXTENDED;
pub use arch::{Registers, SUPPORTED};
use wait::Stop;

/// How long a process gets to stop, and to make one system call.
const DEADLINE: Duration = Duration::from_secs(5);

/// The longest state of vector registers that a kernel has: room for several times what
/// processors have today.
const LONGEST_EXTENDED: usize = 64 << 10;

/// All signals but SIGTRAP, by which a step announces its end.
const ALL_BUT_TRAP: u64 = !(1 << (libc::SIGTRAP - 1));

/// Ranges that the kernel takes in one call.
const SPANS_AT_ONCE: usize = 1024;

/// Traces and stops an idle child of this process, as a supervisor does with its cell's program.
///
/// # Errors
/// Those of [`Tracee::stop`].
pub fn try_on_child() -> Result<(), Errno> {
    // SAFETY: the child makes system calls without memory of their own, until it is killed.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(Errno::last()),
        0 => loop {
            // SAFETY: no pointers.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
            }
        },
        pid => Pid::from_raw(pid),
    };
    let stopped = Tracee::stop(child).map(drop);
    // SAFETY: no pointers but the absent status; the child is this process's own.
    unsafe {
        libc::kill(child.as_raw(), libc::SIGKILL);
        libc::waitpid(child.as_raw(), std::ptr::null_mut(), libc::__WALL);
    }
    stopped
}

/// A process that this thread traces, and that is stopped. Only the thread that stopped
/// it may use it. Dropping it lets the process go on where it was.
#[derive(Debug)]
pub struct Tracee {
    pid: Pid,
    /// Its registers and signals blocked when it stopped.
    registers: Registers,
    blocked: u64,
    /// Whether they have to be put back.
    is_changed: bool,
    is_gone: bool,
    memory: File,
}

impl Tracee {
    /// Stops the process `pid`, whose parent or ancestor this process need not be. When
    /// this process ends before it lets it go, the kernel kills it.
    ///
    /// # Errors
    /// That of ptrace(2): EPERM where the host forbids it or another process traces it,
    /// ESRCH when it is gone; ETIMEDOUT when it does not stop; ENOSYS on a machine whose
    /// registers are not known here.
    pub fn stop(pid: Pid) -> Result<Self, Errno> {
        if !SUPPORTED {
            return Err(Errno::ENOSYS);
        }
        let options = libc::PTRACE_O_EXITKILL as usize;
        order(libc::PTRACE_SEIZE, pid, options)?;
        // Before the process is let go again by a failure below, it must have stopped.
        let stopped = order(libc::PTRACE_INTERRUPT, pid, 0).and_then(|()| {
            let deadline = Instant::now() + DEADLINE;
            loop {
                match wait::for_stop(pid, deadline)? {
                    Stop::Interrupted => return Ok(()),
                    // A signal came first: it is delivered.
                    Stop::Signal(signal) => order(libc::PTRACE_CONT, pid, signal as usize)?,
                    Stop::Gone => return Err(Errno::ESRCH),
                }
            }
        });
        let begun = stopped.and_then(|()| {
            let path = format!("/proc/{pid}/mem");
            let mut options = File::options();
            let memory = options
                .read(true)
                .write(true)
                .open(path)
                .map_err(errno_of)?;
            Ok((memory, arch::registers(pid)?, blocked_signals(pid)?))
        });
        match begun {
            Ok((memory, registers, blocked)) => Ok(Self {
                pid,
                registers,
                blocked,
                is_changed: false,
                is_gone: false,
                memory,
            }),
            Err(errno) => {
                // It may have ended; otherwise it goes on.
                let _ = order(libc::PTRACE_DETACH, pid, 0);
                Err(errno)
            }
        }
    }

    /// Its pid, as this process sees it.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its registers where it stopped.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The signals that it has blocked, a bit for each.
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// The state of its vector registers, as the kernel keeps it.
    ///
    /// # Errors
    /// That of ptrace(2).
    pub fn extended(&self) -> Result<Vec<u8>, Errno> {
        let mut state = vec![0; LONGEST_EXTENDED];
        let length = arch::get_set(self.pid, EXTENDED, &mut state)?;
        state.truncate(length);
        Ok(state)
    }

    /// Gives it other registers, vector registers and blocked signals, with which it goes
    /// on. The kernel refuses what a program could not set itself.
    ///
    /// # Errors
    /// That of ptrace(2).
    pub fn become_like(
        &mut self,
        registers: &Registers,
        extended: &[u8],
        blocked: u64,
    ) -> Result<(), Errno> {
        arch::set_set(self.pid, EXTENDED, extended)?;
        arch::set_registers(self.pid, registers)?;
        self.registers = *registers;
        self.blocked = blocked;
        self.is_changed = true;
        Ok(())
    }

    /// Has it make a system call, under its own filter and with its own rights.
    ///
    /// # Errors
    /// Outer: it could not be made to, and can only be killed. Inner: what the call
    /// returned.
    pub fn call(&mut self, number: i64, args: &[u64]) -> Result<Result<u64, Errno>, Errno> {
        if !self.is_changed {
            // No handler may run in between.
            block_signals(self.pid, ALL_BUT_TRAP)?;
            self.is_changed = true;
        }
        let at = self.registers.for_call(number, args);
        arch::set_registers(self.pid, &at)?;
        let deadline = Instant::now() + DEADLINE;
        loop {
            order(libc::PTRACE_SINGLESTEP, self.pid, 0)?;
            let stop = wait::for_stop(self.pid, deadline)?;
            let now = match stop {
                Stop::Signal(libc::SIGTRAP) => return Ok(arch::registers(self.pid)?.result()),
                // Its group was stopped or continued, before the call or behind it.
                Stop::Interrupted => arch::registers(self.pid)?,
                Stop::Signal(_) => return Err(Errno::EFAULT),
                Stop::Gone => {
                    self.is_gone = true;
                    return Err(Errno::ESRCH);
                }
            };
            if now != at {
                return Ok(now.result());
            }
        }
    }

    /// Reads the spans one behind the other into `buffer`, as far as the process may read
    /// them itself; returns how much was read.
    ///
    /// # Errors
    /// That of process_vm_readv(2) if nothing could be read.
    pub fn read(&self, spans: &[Span], buffer: &mut [u8]) -> Result<usize, Errno> {
        let local = [libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        }];
        self.transfer(libc::SYS_process_vm_readv, &local, spans)
    }

    /// Writes `bytes` to the spans, as far as the process may write there itself; returns
    /// how much was written.
    ///
    /// # Errors
    /// That of process_vm_writev(2) if nothing could be written.
    pub fn write(&self, spans: &[Span], bytes: &[u8]) -> Result<usize, Errno> {
        let local = [libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        }];
        self.transfer(libc::SYS_process_vm_writev, &local, spans)
    }

    /// Reads what starts at `address`, whether the process may read it or not.
    ///
    /// # Errors
    /// That of pread(2) on `/proc/PID/mem`.
    pub fn read_forced(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        (self.memory.read_exact_at(buffer, address)).map_err(errno_of)
    }

    /// Writes to private memory at `address`, whether the process may write there or not.
    ///
    /// # Errors
    /// That of pwrite(2) on `/proc/PID/mem`.
    pub fn write_forced(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        (self.memory.write_all_at(bytes, address)).map_err(errno_of)
    }

    /// Kills it: half changed, it must not go on.
    pub fn kill(mut self) {
        // SAFETY: no pointers. The pid is that of a tracee, which nobody else waits for
        // before this thread has, so it names no other process.
        unsafe { libc::kill(self.pid.as_raw(), libc::SIGKILL) };
        let _ = wait::for_end(self.pid, Instant::now() + DEADLINE);
        self.is_gone = true;
    }

    fn transfer(
        &self,
        call: libc::c_long,
        local: &[libc::iovec; 1],
        spans: &[Span],
    ) -> Result<usize, Errno> {
        let local_length = local[0].iov_len;
        let mut left = local_length;
        let mut remote = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; SPANS_AT_ONCE];
        let mut count = 0;
        for (place, span) in remote.iter_mut().zip(spans) {
            place.iov_base = span.start as *mut libc::c_void;
            place.iov_len = (span.len() as usize).min(left);
            left -= place.iov_len;
            count += 1;
        }
        // SAFETY: the local vector describes the caller's buffer, of which the kernel
        // reads or writes no more than that; addresses of the other process it checks.
        let done = unsafe {
            libc::syscall(
                call,
                self.pid.as_raw(),
                local.as_ptr(),
                1,
                remote.as_ptr(),
                count,
                0,
            )
        };
        Errno::result(done).map(|done| done as usize)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        if self.is_changed {
            // A process that has ended meanwhile takes neither.
            let _ = arch::set_registers(self.pid, &self.registers.resumed());
            let _ = block_signals(self.pid, self.blocked);
        }
        let _ = order(libc::PTRACE_DETACH, self.pid, 0);
    }
}

/// The most spans that [`Tracee::read`] and [`Tracee::write`] take at once.
pub const fn spans_at_once() -> usize {
    SPANS_AT_ONCE
}

/// What each C library takes for the number of a request.
#[cfg(target_env = "musl")]
type RequestNumber = libc::c_int;
#[cfg(not(target_env = "musl"))]
type RequestNumber = libc::c_uint;
/// From linux/ptrace.h: libc gives them another type than musl's ptrace(2) takes.
const GET_SIGNAL_MASK: RequestNumber = 0x420a;
const SET_SIGNAL_MASK: RequestNumber = 0x420b;

/// A request that takes numbers.
fn order(what: RequestNumber, pid: Pid, number: usize) -> Result<(), Errno> {
    // SAFETY: none of the requests that this module makes by this function has a pointer.
    unsafe { request(what, pid, 0, number) }.map(drop)
}

/// Any request.
///
/// # Safety
/// `address` and `data` must be what ptrace(2) expects of this request, and any pointer
/// among them valid.
unsafe fn request(
    what: RequestNumber,
    pid: Pid,
    address: usize,
    data: usize,
) -> Result<libc::c_long, Errno> {
    // SAFETY: the caller vouches for the arguments.
    Errno::result(unsafe { libc::ptrace(what, pid.as_raw(), address, data) })
}

fn blocked_signals(pid: Pid) -> Result<u64, Errno> {
    let mut mask = 0_u64;
    let address = &raw mut mask as usize;
    // SAFETY: the kernel writes a mask of this size.
    unsafe { request(GET_SIGNAL_MASK, pid, size_of::<u64>(), address) }?;
    Ok(mask)
}

fn block_signals(pid: Pid, mask: u64) -> Result<(), Errno> {
    let address = &raw const mask as usize;
    // SAFETY: the kernel reads a mask of this size.
    unsafe { request(SET_SIGNAL_MASK, pid, size_of::<u64>(), address) }.map(drop)
}
