//! An interrupt for a program that must not get SIGINT itself.
//!
//! Bash installs another handler of SIGINT while it waits for a command. If SIGINT arrives before
//! Bash has noted the former handler, the new one sends SIGINT to Bash again and again, without
//! end. So Bash gets SIGURG, which the driver handles, and the commands that Bash waits for get
//! SIGINT. A process that Bash has forked and that executes nothing else, as a subshell, is Bash,
//! too.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};

/// Interrupts a program that leads a process group: it gets SIGURG, and what it waits for gets
/// `signal`. A program without a handler for SIGURG, which the code may have executed in
/// place of the shell, gets `signal` with its group.
pub(super) fn interrupt(program: Pid, signal: Signal) {
    let Some(shell) = Masks::of(program).filter(Masks::handle_urgent) else {
        let _ = kill(Pid::from_raw(-program.as_raw()), signal);
        return;
    };
    // First, so that the shell knows when the command that it waits for ends.
    let _ = kill(program, Signal::SIGURG);
    for pid in processes().filter(|pid| *pid != program && getpgid(Some(*pid)) == Ok(program)) {
        let masks = Masks::of(pid);
        if masks.as_ref().is_some_and(Masks::ignore_interrupts) {
            continue;
        }
        let is_copy = masks.is_some_and(|masks| masks.are_copied_from(&shell));
        let _ = kill(
            pid,
            match signal {
                Signal::SIGINT if is_copy => Signal::SIGURG,
                _ => signal,
            },
        );
    }
}

/// The processes that `/proc` shows to init: all but those that are not dumpable (prctl(2)).
fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)))
}

/// How a process deals with signals: a bit for each.
#[derive(Debug)]
struct Masks {
    ignored: u64,
    caught: u64,
}

impl Masks {
    fn of(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/status")).ok()?)
    }

    /// From proc_pid_status(5).
    fn parse(status: &[u8]) -> Option<Self> {
        let status = String::from_utf8_lossy(status);
        let mask = |name| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(value.trim(), 16).ok()
        };
        Some(Self {
            ignored: mask("SigIgn:")?,
            caught: mask("SigCgt:")?,
        })
    }

    fn handle_urgent(&self) -> bool {
        has(self.caught, Signal::SIGURG)
    }

    /// As jobs in the background do.
    fn ignore_interrupts(&self) -> bool {
        has(self.ignored, Signal::SIGINT)
    }

    /// Whether the process has been forked by the shell and has not removed all its handlers yet.
    fn are_copied_from(&self, shell: &Self) -> bool {
        self.handle_urgent() && has(self.caught, Signal::SIGINT) && self.caught & !shell.caught == 0
    }
}

fn has(mask: u64, signal: Signal) -> bool {
    mask >> (signal as i32 - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_the_shell_waits_for_gets_the_signal() {
        let script = "trap 'echo urgent' URG; trap 'echo signal' INT; sleep 1000; echo $?";
        let mut shell = Command::new("/bin/bash");
        shell.args(["-c", script]).process_group(0);
        // A shell cannot trap a signal that it was started to ignore, as nohup(1) and jobs in the
        // background are.
        // SAFETY: only system calls.
        unsafe {
            shell.pre_exec(|| {
                sys::process::default_signal_dispositions();
                Ok(())
            });
        }
        let mut shell = shell.stdout(Stdio::piped()).spawn().unwrap();
        let program = Pid::from_raw(shell.id() as i32);
        while shell.try_wait().unwrap().is_none() {
            // Not before it has its handlers, and again for a child that has not been executed yet.
            if Masks::of(program).is_some_and(|masks| masks.handle_urgent()) {
                interrupt(program, Signal::SIGINT);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut shown = String::new();
        let mut stdout = shell.stdout.take().unwrap();
        stdout.read_to_string(&mut shown).unwrap();
        assert!(
            shown.contains("urgent\n") && shown.ends_with("130\n"),
            "{shown}"
        );
        assert!(!shown.contains("signal"), "{shown}");
    }

    fn masks(ignored: &str, caught: &str) -> Masks {
        let status = format!("Name:\tSigIgn: 0\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n");
        Masks::parse(status.as_bytes()).unwrap()
    }

    #[test]
    fn a_copy_of_the_shell_is_told_from_what_it_executes() {
        let shell = masks("0000000000384004", "000000004bc13efb");
        assert!(shell.handle_urgent() && !shell.ignore_interrupts());
        assert!(masks("0000000000384004", "000000004bc13efb").are_copied_from(&shell));
        for (what, caught) in [
            ("an executed program", "0000000000000000"),
            ("a subshell", "0000000000010002"),
            ("a program in Go", "fffffffd7fc1feff"),
        ] {
            assert!(
                !masks("0000000000000000", caught).are_copied_from(&shell),
                "{what}"
            );
        }
        assert!(masks("0000000000001006", "0").ignore_interrupts());
    }
}
