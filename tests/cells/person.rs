//! A person at a terminal.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Check, fail};

/// How long a person waits for expected text.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pseudo-terminal, with a command that was started on it.
pub(crate) struct Person {
    screen: File,
    line: File,
    command: Child,
    settings: String,
    seen: String,
}

impl Person {
    /// Starts `command` in a session of its own on a new terminal.
    pub(crate) fn start(command: &mut Command) -> Check<Self> {
        let screen = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open("/dev/ptmx")?;
        let line = File::from(sys::terminal::open_peer(screen.as_fd())?);
        stty(&line, &["rows", "30", "cols", "100"])?;
        let settings = stty(&line, &["-g"])?;
        command.stdin(line.try_clone()?);
        command.stdout(line.try_clone()?).stderr(line.try_clone()?);
        // SAFETY: both calls are async-signal-safe, and no memory is touched.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                sys::terminal::control(std::io::stdin().as_fd())?;
                Ok(())
            });
        }
        Ok(Self {
            screen,
            line,
            command: command.spawn()?,
            settings,
            seen: String::new(),
        })
    }

    pub(crate) fn types(&mut self, keys: &str) -> Check {
        self.screen.write_all(keys.as_bytes())?;
        Ok(())
    }

    /// Waits until `text` is on the screen, after what was waited for before.
    pub(crate) fn sees(&mut self, text: &str) -> Check {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return Ok(());
            }
            if Instant::now() > until {
                return Err(fail(format!("no {text:?} after {:?}", self.seen)));
            }
            self.look()?;
        }
    }

    /// Types this again and again until `text` is on the screen.
    pub(crate) fn types_until(&mut self, keys: &str, text: &str) -> Check {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            if Instant::now() > until {
                return Err(fail(format!("no {text:?} after {:?}", self.seen)));
            }
            self.types(keys)?;
            sleep(Duration::from_millis(50));
            self.look()?;
        }
        self.sees(text)
    }

    /// Waits for the command's end; returns what was on the screen since the text that was waited for.
    pub(crate) fn sees_to_the_end(&mut self) -> Check<String> {
        self.waits_for_end()?;
        loop {
            let before = self.seen.len();
            self.look()?;
            if self.seen.len() == before {
                return Ok(std::mem::take(&mut self.seen));
            }
        }
    }

    /// Reads new output, or waits a little for it.
    fn look(&mut self) -> Check {
        let mut buffer = [0; 4096];
        match self.screen.read(&mut buffer) {
            Ok(count) => self.seen += &String::from_utf8_lossy(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(Duration::from_millis(5)),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(crate) fn resizes(&self, rows: &str, columns: &str) -> Check {
        stty(&self.line, &["rows", rows, "cols", columns]).map(drop)
    }

    /// The command's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.command.id() as i32)
    }

    pub(crate) fn signals(&self, signal: Signal) -> Check {
        kill(self.pid(), signal)?;
        Ok(())
    }

    /// Waits until the terminal is in raw mode, when the command gets every key unchanged.
    pub(crate) fn waits_for_raw(&self) -> Check {
        let until = Instant::now() + PATIENCE;
        while self.has_its_settings()? {
            if Instant::now() > until {
                return Err(fail("the terminal's settings did not change"));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether the terminal has the settings that it had at the start.
    pub(crate) fn has_its_settings(&self) -> Check<bool> {
        Ok(stty(&self.line, &["-g"])? == self.settings)
    }

    /// Waits for the command's end; returns its exit status as a shell reports it.
    pub(crate) fn waits_for_end(&mut self) -> Check<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.command.try_wait()? {
                return Ok(status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
            }
            if Instant::now() > until {
                return Err(fail(format!("still runs, after {:?}", self.seen)));
            }
            // Unread output would block the command.
            self.look()?;
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

fn stty(line: &File, words: &[&str]) -> Check<String> {
    let done = Command::new("stty")
        .args(words)
        .stdin(line.try_clone()?)
        .output()?;
    if !done.status.success() {
        return Err(fail(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
