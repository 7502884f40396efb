//! A terminal passed in by the caller: a program that can inject input types commands
//! into the caller's shell (CVE-2017-5226).

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::cells::prelude::*;
use crate::cells::probe::Report;
use crate::cells::process::{self, Finished};

pub(crate) const SUITE: Suite = Suite {
    name: "terminal",
    covers: &[1, 16],
    attacks: &[],
    scenes: &[
        scene("typed-input", |stage| refuses_input(stage, TIOCSTI)),
        // The kernel drops the upper half of the request: a filter that
        // compares all of it lets this through.
        scene("typed-input-with-high-bits", |stage| {
            refuses_input(stage, TIOCSTI | 1 << 32)
        }),
        scene("console-selection", |stage| {
            refuses(stage, TIOCLINUX, Err(Errno::ENOTTY))
        }),
        scene("own-terminal", own_terminal),
        scene("line-discipline", |stage| refuses(stage, TIOCSETD, Ok(()))),
    ],
    actors: &[Actor {
        name: "ioctl",
        run: |args| {
            let request: u64 = args[0].parse().unwrap_or(0);
            // For TIOCSTI a character; for TIOCSETD, discipline 0.
            let argument = u64::from(if request & 0xffff_ffff == TIOCSTI {
                b'\n'
            } else {
                0
            });
            Report::print("ioctl", call!(SYS_ioctl, 0, request, &argument).map(drop));
            0
        },
    }],
};

const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const TIOCSETD: u64 = 0x5423;

fn refuses_input(stage: &Stage, request: u64) -> Check {
    let mut terminal = Terminal::new()?;
    let argument = request.to_string();
    let args = [argument.as_str()];

    let outside = terminal.run(stage, stage.outside("terminal/ioctl", args))?;
    let live = match outside {
        Ok(()) => true,
        // `dev.tty.legacy_tiocsti` is off: the kernel refuses it to everybody.
        Err(Errno::EIO) => {
            stage.note("not live: this kernel refuses it to everybody");
            false
        }
        Err(errno) => return Err(fail(format!("should be live, but gave {errno:?}"))),
    };
    assert_eq!(terminal.typed()?, if live { "\n" } else { "" });

    let cell = stage.probe("terminal/ioctl", args);
    assert_eq!(terminal.run(stage, cell.command())?, Err(Errno::EPERM));
    assert_eq!(terminal.typed()?, "");

    // If the filter ever failed: it is not the program's controlling terminal.
    let unfiltered = terminal.run(stage, cell.without("seccomp").command())?;
    let kernel = if live { Errno::EPERM } else { Errno::EIO };
    assert_eq!(unfiltered, Err(kernel));
    assert_eq!(terminal.typed()?, "");
    Ok(())
}

/// The program controls the cell's own terminal, and reaches no other.
fn own_terminal(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("record");
    for (request, harmless) in [(TIOCSTI, Ok(())), (TIOCLINUX, Err(Errno::ENOTTY))] {
        let argument = request.to_string();
        let mut terminal = Terminal::new()?;
        let args = [argument.as_str()];
        let live = terminal.run(stage, stage.outside("terminal/ioctl", args))?;
        // The kernel refuses TIOCSTI to every process where `dev.tty.legacy_tiocsti` is off.
        let expected = if live == Err(Errno::EIO) {
            live
        } else {
            harmless
        };
        assert_eq!(live, expected);
        terminal.typed()?;

        let cell = stage
            .probe("terminal/ioctl", args)
            .passed_through()
            .option(["--tty", "--record", path.to_str().unwrap_or_default()]);
        // Without the filter, the attempt works, but only on the cell's terminal.
        for (cell, expected) in [
            (cell.clone().without("seccomp"), expected),
            (cell, Err(Errno::EPERM)),
        ] {
            let ended = terminal.finish(stage, cell.command())?;
            let record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)
                .map_err(|error| fail(format!("{error}, {}", ended.complaint())))?;
            let shown = record["stdout"].as_str().unwrap_or("").replace('\r', "");
            let attempt = Report::find("ioctl", &shown);
            assert_eq!(
                attempt.map_err(|stop| fail(format!("{stop:?}, {record}")))?,
                expected
            );
            assert_eq!(terminal.typed()?, "");
        }
    }
    Ok(())
}

fn refuses(stage: &Stage, request: u64, outside: Attempt) -> Check {
    let terminal = Terminal::new()?;
    let argument = request.to_string();
    let args = [argument.as_str()];
    assert_eq!(
        terminal.run(stage, stage.outside("terminal/ioctl", args))?,
        outside
    );
    let cell = stage.probe("terminal/ioctl", args);
    assert_eq!(terminal.run(stage, cell.command())?, Err(Errno::EPERM));
    Ok(())
}

/// A pseudo-terminal in place of a person's.
struct Terminal {
    _person: OwnedFd,
    line: File,
}

impl Terminal {
    fn new() -> Check<Self> {
        const TIOCSPTLCK: u64 = 0x4004_5431;
        const TIOCGPTPEER: u64 = 0x5441;
        let person = File::options().read(true).write(true).open("/dev/ptmx")?;
        call!(SYS_ioctl, person.as_raw_fd(), TIOCSPTLCK, &0_i32)?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK;
        let line = call!(SYS_ioctl, person.as_raw_fd(), TIOCGPTPEER, flags)?;
        Ok(Self {
            _person: person.into(),
            // SAFETY: the call has just made this descriptor, for us alone.
            line: unsafe { File::from_raw_fd(line as i32) },
        })
    }

    /// Runs a command in a session on this terminal; returns what its probe
    /// reports.
    fn run(&self, stage: &Stage, command: Command) -> Check<Attempt> {
        let process = self.finish(stage, command)?;
        let output = String::from_utf8_lossy(&process.stdout);
        // In a cell, the report is in the record.
        match serde_json::from_str::<serde_json::Value>(&output) {
            Ok(record) if record.get("schema").is_some() => {
                Report::find("ioctl", record["stdout"].as_str().unwrap_or(""))
            }
            _ => Report::find("ioctl", &output),
        }
        .map_err(|stop| fail(format!("{stop:?}, {}", process.complaint())))
    }

    fn finish(&self, stage: &Stage, mut command: Command) -> Check<Finished> {
        const TIOCSCTTY: u64 = 0x540e;
        command.stdin(self.line.try_clone()?);
        // SAFETY: both calls are async-signal-safe, and no memory is touched.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                call!(SYS_ioctl, 0, TIOCSCTTY, 1)?;
                Ok(())
            });
        }
        process::finish(&mut command, stage.patience())
    }

    /// What a process that reads from the terminal gets.
    fn typed(&mut self) -> Check<String> {
        let mut buffer = [0; 64];
        match self.line.read(&mut buffer) {
            Ok(count) => Ok(String::from_utf8_lossy(&buffer[..count]).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(String::new()),
            Err(error) => Err(error.into()),
        }
    }
}
