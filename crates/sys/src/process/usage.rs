//! The resources that processes have used.

use std::ops::Add;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::Pid;

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// Both.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// Each time without `other`'s, at least zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            user: self.user.saturating_sub(other.user),
            system: self.system.saturating_sub(other.system),
        }
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }
}

/// What init knows of the processes that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCount {
    /// Processes that were there when the program ended or was ended, itself
    /// included.
    pub at_end: u32,
    /// Processes and threads that were ever started.
    pub started: Option<u32>,
}

/// CPU time and memory of waited-for children (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildUsage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// The largest resident set of any one of them, in bytes.
    pub max_rss: u64,
    /// How many there were.
    pub count: ProcessCount,
}

impl ChildUsage {
    fn of(usage: &libc::rusage) -> Self {
        let duration = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        Self {
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            max_rss: usage.ru_maxrss as u64 * 1024,
            count: ProcessCount::default(),
        }
    }

    /// The usage of both together; the count is this one's.
    pub fn and(self, others: Self) -> Self {
        Self {
            user: self.user + others.user,
            system: self.system + others.system,
            max_rss: self.max_rss.max(others.max_rss),
            count: self.count,
        }
    }
}

/// What all children waited for so far, and theirs, have used.
pub fn children_usage() -> ChildUsage {
    // SAFETY: rusage is plain data for which all zeroes is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing; RUSAGE_CHILDREN cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    ChildUsage::of(&usage)
}

/// What has become of a child that was sent SIGSTOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It is stopped, and has used this so far, with the children that it waited for.
    Alive(ChildUsage),
    /// It had ended, and was reaped with this wait status.
    Ended(i32),
}

/// Whether a child that was sent SIGSTOP is stopped, or has ended (wait4(2)); `None` while it is
/// neither. One that waits for a child in vfork(2) stops only when that child has ended or executed
/// a program.
///
/// # Errors
/// The call's error number; ECHILD when it is no child.
pub fn stopped(child: Pid) -> Result<Option<Stopped>, Errno> {
    let mut status = 0;
    let options = libc::__WALL | libc::WUNTRACED | libc::WNOHANG;
    loop {
        // SAFETY: rusage is plain data for which all zeroes is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both are valid for writing.
        let waited =
            unsafe { libc::wait4(child.as_raw(), &raw mut status, options, &raw mut usage) };
        match Errno::result(waited) {
            Ok(0) => return Ok(None),
            Ok(_) if libc::WIFSTOPPED(status) => {
                return Ok(Some(Stopped::Alive(ChildUsage::of(&usage))));
            }
            Ok(_) => return Ok(Some(Stopped::Ended(status))),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, kill};

    use super::*;

    fn soon(child: Pid) -> Option<Stopped> {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(stopped) = stopped(child).unwrap() {
                return Some(stopped);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    #[test]
    fn a_child_that_does_not_stop_is_not_waited_for() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        assert_eq!(stopped(pid), Ok(None));
        kill(pid, Signal::SIGSTOP).unwrap();
        assert!(matches!(soon(pid), Some(Stopped::Alive(_))));
        child.kill().unwrap();
        assert_eq!(soon(pid), Some(Stopped::Ended(libc::SIGKILL)));
        assert!(child.wait().is_err(), "it was not reaped");
    }
}
