//! Runs a command with a deadline and keeps its output.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::raw::call;
use super::{Check, Stop, fail};

/// A command that has ended.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) elapsed: Duration,
    /// What the command's own process took, if that was measured.
    taken: Option<Taken>,
    /// Whether another process still held stdout or stderr when it ended.
    pub(crate) pipes_still_held: bool,
}

/// What a process took, as last seen.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taken {
    /// The peak resident memory, in bytes: the kernel keeps the maximum, so only the last rise can be
    /// missed.
    pub(crate) peak_rss: u64,
    pub(crate) cpu_time: Duration,
}

impl Finished {
    /// What its process took; a failure where that was not measured.
    pub(crate) fn taken(&self) -> Check<Taken> {
        self.taken.ok_or_else(|| fail("it was not measured"))
    }

    /// The exit status as a shell gives it.
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Its exit status and stderr, for messages.
    pub(crate) fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        format!("status {}, stderr: {}", self.code(), text.trim())
    }
}

/// Starts `command` with its output captured, and waits for its end.
pub(crate) fn finish(command: &mut Command, deadline: Duration) -> Check<Finished> {
    let ended = Watch::start(command)?.until_end(deadline);
    ended.map_err(|stop| stop.of(command))
}

impl Stop {
    /// Adds the command to a failure's words.
    pub(super) fn of(self, command: &Command) -> Self {
        match self {
            Self::Fail(why) => fail(format!("{why}: {command:?}")),
            skip @ Self::Skip(_) => skip,
        }
    }
}

thread_local! {
    /// When the last process with each pid was started here, and when it had ended.
    static STARTED: RefCell<BTreeMap<u32, (SystemTime, Option<SystemTime>)>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Whether the process that had this pid at this time was started here. Pids are used again, also
/// by processes that run beside this harness.
pub(crate) fn was_started_here(pid: u32, at: SystemTime) -> bool {
    STARTED.with_borrow(|started| {
        (started.get(&pid))
            .is_some_and(|(begun, ended)| *begun <= at && ended.is_none_or(|ended| at <= ended))
    })
}

fn note_end(pid: u32) {
    STARTED.with_borrow_mut(|started| {
        if let Some((_, ended)) = started.get_mut(&pid) {
            ended.get_or_insert_with(SystemTime::now);
        }
    });
}

/// A running command whose output is collected.
pub(crate) struct Watch {
    child: Child,
    /// Readable when the child has ended.
    pidfd: OwnedFd,
    started: Instant,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    taken: Option<Taken>,
}

impl Watch {
    /// Starts `command` with its output captured.
    pub(crate) fn start(command: &mut Command) -> Check<Self> {
        let (started, begun) = (Instant::now(), SystemTime::now());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| fail(format!("cannot start {command:?}: {error}")))?;
        STARTED.with_borrow_mut(|started| started.insert(child.id(), (begun, None)));
        let pidfd = pidfd_of(&child)?;
        for pipe in [
            child.stdout.as_ref().map(AsFd::as_fd),
            child.stderr.as_ref().map(AsFd::as_fd),
        ] {
            pipe.map(unblock).transpose()?;
        }
        Ok(Self {
            child,
            pidfd,
            started,
            stdout: Vec::new(),
            stderr: Vec::new(),
            taken: None,
        })
    }

    /// Looks at what the process takes, every few milliseconds until it ends.
    pub(crate) fn measured(mut self) -> Self {
        self.taken.get_or_insert_default();
        self
    }

    /// Closes the reading end of its stdout.
    pub(crate) fn stop_reading(&mut self) {
        self.child.stdout = None;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Check {
        kill(Pid::from_raw(self.pid() as i32), signal)?;
        Ok(())
    }

    /// Collects output for this long, or until the child ends.
    pub(crate) fn pump(&mut self, duration: Duration) -> Check<Option<ExitStatus>> {
        let end = Instant::now() + duration;
        loop {
            self.measure();
            if let Some(status) = self.child.try_wait()? {
                note_end(self.pid());
                return Ok(Some(status));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let nap = match self.taken {
                Some(_) => left.min(Duration::from_millis(2)),
                None => left,
            };
            self.wait_for_more(nap)?;
            self.drain()?;
        }
    }

    fn measure(&mut self) {
        let pid = self.pid();
        if let Some(taken) = &mut self.taken {
            taken.peak_rss = taken.peak_rss.max(peak_rss(pid).unwrap_or(0));
            taken.cpu_time = taken.cpu_time.max(cpu_time(pid).unwrap_or_default());
        }
    }

    /// Reads nothing for this long, or until the child ends.
    pub(crate) fn rest(&mut self, duration: Duration) -> Check<Option<ExitStatus>> {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            self.measure();
            if let Some(status) = self.child.try_wait()? {
                note_end(self.pid());
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(None)
    }

    /// Waits for the end; kills the child when it does not come in time.
    pub(crate) fn until_end(mut self, deadline: Duration) -> Check<Finished> {
        let Some(status) = self.pump(deadline)? else {
            self.child.kill()?;
            self.child.wait()?;
            note_end(self.pid());
            return Err(fail(format!("no end within {deadline:?}")));
        };
        let elapsed = self.started.elapsed();
        self.drain()?;
        Ok(Finished {
            status,
            elapsed,
            taken: self.taken,
            pipes_still_held: self.child.stdout.is_some() || self.child.stderr.is_some(),
            stdout: std::mem::take(&mut self.stdout),
            stderr: std::mem::take(&mut self.stderr),
        })
    }

    /// Collects output until this file is there, with which a program says where it is.
    pub(crate) fn until_exists(&mut self, file: &Path, deadline: Duration) -> Check {
        let end = Instant::now() + deadline;
        while !file.exists() {
            let ended = self.pump(Duration::from_millis(5))?.is_some() && !file.exists();
            if ended || Instant::now() > end {
                let stderr = String::from_utf8_lossy(&self.stderr);
                return Err(fail(format!("no {}: {}", file.display(), stderr.trim())));
            }
        }
        Ok(())
    }

    /// Waits for output, or the child's end.
    fn wait_for_more(&self, nap: Duration) -> Check {
        let mut pipes = vec![PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        if let Some(pipe) = &self.child.stdout {
            pipes.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        }
        if let Some(pipe) = &self.child.stderr {
            pipes.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        }
        match poll(
            &mut pipes,
            PollTimeout::try_from(nap).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads what is there; a pipe at its end is dropped.
    fn drain(&mut self) -> Check {
        if let Some(pipe) = &mut self.child.stdout
            && at_end(pipe.read_to_end(&mut self.stdout))?
        {
            self.child.stdout = None;
        }
        if let Some(pipe) = &mut self.child.stderr
            && at_end(pipe.read_to_end(&mut self.stderr))?
        {
            self.child.stderr = None;
        }
        Ok(())
    }
}

impl Drop for Watch {
    /// A test that failed leaves no cell behind, which would fail others.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.signal(Signal::SIGTERM);
            let _ = self.pump(Duration::from_secs(5));
            let _ = self.child.kill();
            let _ = self.child.wait();
            note_end(self.pid());
        }
    }
}

fn pidfd_of(child: &Child) -> Check<OwnedFd> {
    let fd = call!(SYS_pidfd_open, child.id(), 0)?;
    // SAFETY: the call has just made it, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn at_end(read: io::Result<usize>) -> Check<bool> {
    match read {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn unblock(pipe: BorrowedFd<'_>) -> Check {
    let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL)?);
    fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// The peak resident memory of a process, in bytes. Not `ru_maxrss`, which begins with
/// the parent's at the fork. Nor is it read while the process still has the parent's
/// name: for a moment, a vforked process that executes still has the parent's memory.
fn peak_rss(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let own = fs::read_to_string("/proc/self/comm").ok()?;
    let name = status.lines().next()?.strip_prefix("Name:")?.trim();
    if name == own.trim() {
        return None;
    }
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// CPU time of a process alone (proc_pid_stat(5)).
fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    // utime and stime, the 14th and 15th field, counted from the third.
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 10))
}
