//! Two directory entries that change places all the time.

use std::ffi::CString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use super::{Actor, Check, Stage, fail};

/// A process that exchanges two paths until it is stopped.
pub(crate) struct Swapper(Child);

/// The loop in the child process.
pub(crate) const ACTOR: Actor = Actor {
    name: "swap",
    run: |args| {
        let [one, other] = args else { return 2 };
        // Ends with the harness, even when the harness is killed.
        while nix::unistd::getppid().as_raw() != 1 {
            if exchange(one, other).is_err() {
                return 1;
            }
            // Long enough for a set-up to succeed now and then.
            std::thread::sleep(Duration::from_micros(50));
        }
        0
    },
};

/// renameat2(2) with RENAME_EXCHANGE. nix has it for glibc alone.
fn exchange(one: &str, other: &str) -> Result<(), Errno> {
    let path = |text: &str| CString::new(text).map_err(|_| Errno::EINVAL);
    let (one, other) = (path(one)?, path(other)?);
    let here = libc::AT_FDCWD;
    // SAFETY: both are C strings that outlive the call.
    let status = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            here,
            one.as_ptr(),
            here,
            other.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    Errno::result(status).map(drop)
}

impl Swapper {
    pub(crate) fn start(stage: &Stage, one: &Path, other: &Path) -> Check<Self> {
        let child = Command::new(&stage.probe)
            .args(["--probe", "bind-swap/swap"])
            .args([one, other])
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Stops it; it must have been running until now.
    pub(crate) fn stop(mut self) -> Check {
        if let Some(status) = self.0.try_wait()? {
            return Err(fail(format!("the swapper gave up: {status}")));
        }
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.end();
    }
}
