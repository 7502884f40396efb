//! Files of the caller's that are the program's standard output or standard error.
//!
//! A limit on the size of files ([`spec::Limits::file_size`]) holds for all that a process writes to,
//! the caller's files too. So the program gets a pipe, and a process of its own carries its bytes into
//! the file: it may wait for a disk, which the supervisor must not do.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{FileStat, SFlag};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{pipe2, read, write};

use super::process::fork_with;
use super::stdio::{NAMES, look};
use super::{END_DEADLINE, wait_for};
use record::error::{Result, SetupError, Step};
use sys::process::{duplicate_above, pidfd_open, standard_streams};

/// Bytes that are carried at once.
const CHUNK: usize = 64 << 10;

/// What the program gets in place of standard output and standard error, where these are files.
#[derive(Default)]
pub(super) struct ToFiles {
    pub(super) program: [Option<OwnedFd>; 2],
    pub(super) writers: Vec<FileWriter>,
}

impl ToFiles {
    /// Two streams of the same file have one pipe, so that their order stays.
    ///
    /// # Errors
    /// When the caller has no descriptors or processes left.
    pub(super) fn of_caller() -> Result<Self> {
        let [_, stdout, stderr] = standard_streams();
        let [out, err] = [file(stdout), file(stderr)];
        let same = |(out, err): (&FileStat, &FileStat)| {
            (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
        };
        let is_shared = out.as_ref().zip(err.as_ref()).is_some_and(same);
        let mut to_files = Self::default();
        if out.is_some() {
            to_files.add(1, stdout)?;
        }
        if is_shared {
            let pipe = to_files.program[0].as_ref().map(OwnedFd::try_clone);
            to_files.program[1] = pipe
                .transpose()
                .map_err(|e| SetupError::io(Step::Stdio, "fcntl", &e).on(NAMES[2]))?;
        } else if err.is_some() {
            to_files.add(2, stderr)?;
        }
        Ok(to_files)
    }

    fn add(&mut self, number: usize, stream: BorrowedFd<'_>) -> Result<()> {
        let failed = |call, errno| SetupError::os(Step::Stdio, call, errno).on(NAMES[number]);
        let (from, into) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed("pipe2", errno))?;
        let to = duplicate_above(stream, 3).map_err(|errno| failed("fcntl", errno))?;
        let writer = fork_with(from, &[to.as_fd()], |from| {
            carry(&from, &to).err().map_or(0, |errno| errno as i32)
        });
        let writer = pidfd_open(writer?).map_err(|errno| failed("pidfd_open", errno))?;
        self.program[number - 1] = Some(into);
        self.writers.push(FileWriter(writer));
        Ok(())
    }
}

/// What a stream shows of itself, if it is a file that can be written.
fn file(stream: BorrowedFd<'_>) -> Option<FileStat> {
    let (flags, stat) = look(stream).ok()?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let is_written = flags & OFlag::O_ACCMODE != OFlag::O_RDONLY && !flags.contains(OFlag::O_PATH);
    (kind == SFlag::S_IFREG && is_written).then_some(stat)
}

/// A process that writes to a file of the caller's. It ends when no process has its pipe open any
/// more.
#[derive(Debug)]
pub struct FileWriter(OwnedFd);

impl FileWriter {
    /// Waits for what the program wrote last; all processes of the cell must have ended.
    ///
    /// # Errors
    /// Why the rest is not in the file: the error number of write(2), or ETIMEDOUT if the process
    /// still waits for the disk.
    pub fn finish(self) -> Result<(), Errno> {
        if !wait_for(self.0.as_fd(), Instant::now() + END_DEADLINE) {
            return Err(Errno::ETIMEDOUT);
        }
        match waitid(Id::PIDFd(self.0.as_fd()), WaitPidFlag::WEXITED) {
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            Ok(WaitStatus::Exited(_, errno)) => Err(Errno::from_raw(errno)),
            Ok(_) => Err(Errno::EINTR),
            // The caller ignores SIGCHLD, and so the kernel keeps no status.
            Err(_) => Ok(()),
        }
    }
}

/// Carries until the pipe is at its end, or the file takes no more: then a program that writes on gets
/// SIGPIPE.
fn carry(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    // A limit of the caller's own is an error of write(2).
    SigSet::from(Signal::SIGXFSZ).thread_block()?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let mut bytes = match read(from, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => &buffer[..count],
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        };
        while !bytes.is_empty() {
            match write(to, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
