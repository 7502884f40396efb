//! Two directory entries that change places all the time.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::{Actor, Check, Stage, fail};

/// A process that exchanges two paths until it is stopped.
pub(crate) struct Swapper(Child);

/// What it runs.
pub(crate) const ACTOR: Actor = Actor {
    name: "swap",
    run: |args| {
        let [one, other] = args else { return 2 };
        // Ends with the harness, whatever becomes of that.
        while nix::unistd::getppid().as_raw() != 1 {
            let flags = RenameFlags::RENAME_EXCHANGE;
            if renameat2(AT_FDCWD, one.as_str(), AT_FDCWD, other.as_str(), flags).is_err() {
                return 1;
            }
            // Long enough for a set-up to get through now and then.
            std::thread::sleep(Duration::from_micros(50));
        }
        0
    },
};

impl Swapper {
    pub(crate) fn start(stage: &Stage, one: &Path, other: &Path) -> Check<Self> {
        let child = Command::new(&stage.probe)
            .args(["--probe", "bind-swap/swap"])
            .args([one, other])
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Stops it; it must have been at work all the time.
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
