//! `cellblock context exec`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::terminal::{Size, open_peer};

use crate::harness::{executable, patience, until};
use crate::shell::Shell;
use crate::skip::skip;

/// A context that is deleted in the end.
struct Context {
    shell: Shell,
    id: String,
}

impl Context {
    fn new() -> Self {
        let shell = Shell::new();
        let id = shell.create();
        Self { shell, id }
    }

    fn exec(&self, options: &[&str], argv: &[&str]) -> Command {
        let words = [&["exec", &self.id], options, &["--"], argv].concat();
        let mut command = self.shell.command(&words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn sh(&self, script: &str) -> Child {
        self.exec(&[], &["sh", "-c", script]).spawn().unwrap()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.shell.context(&["delete", &self.id]);
    }
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut byte = [0];
    while !line.ends_with('\n') {
        let count = child.stdout.as_mut().unwrap().read(&mut byte).unwrap();
        assert_eq!(count, 1, "{line}");
        line.push(char::from(byte[0]));
    }
    line.trim_end().to_owned()
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

#[test]
fn streams_environment_directory_and_status_are_passed() {
    let context = Context::new();
    let options = ["--cwd", "/tmp", "--env", "A=b"];
    let script = "cat; echo \"$A\"; pwd; echo no >&2; exit 7";
    let mut command = context.exec(&options, &["sh", "-c", script]);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "in\nb\n/tmp\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "no\n");
    assert_eq!(output.status.code(), Some(7));

    let bytes: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    let mut child = context.exec(&[], &["cat"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let written = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&written).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.stdout == bytes, "{} bytes", output.stdout.len());

    let output = context.exec(&[], &["no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaint.contains("no such program in the cell"),
        "{complaint}"
    );
    let output = context.exec(&["--tty"], &["true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("not a terminal"), "{complaint}");
}

#[test]
fn a_command_runs_beside_code_that_waits_for_it() {
    let context = Context::new();
    let code = "import os, time\nopen('begun', 'w').close()\n\
        while not os.path.exists('go'): time.sleep(0.01)";
    let words = ["run", context.id.as_str(), "--json", "-c", code];
    let mut run = context.shell.command(&words);
    let mut run = run.stdout(Stdio::null()).spawn().unwrap();
    let script = "until [ -e begun ]; do sleep 0.01; done; touch go";
    assert!(context.sh(script).wait().unwrap().success());
    assert!(run.wait().unwrap().success());
}

#[test]
fn signals_are_passed_and_its_end_is_the_commands() {
    let context = Context::new();
    let script = "trap 'exit 5' TERM; echo ready; sleep 1000 & wait";
    let mut trapped = context.sh(script);
    assert_eq!(line(&mut trapped), "ready");
    send(&trapped, Signal::SIGTERM);
    assert_eq!(trapped.wait().unwrap().code(), Some(5));

    let mut ended = context.sh("echo ready; exec sleep 1000");
    assert_eq!(line(&mut ended), "ready");
    send(&ended, Signal::SIGINT);
    assert_eq!(ended.wait().unwrap().code(), Some(130));

    let mut killed = context.sh("echo $$; exec sleep 1000");
    let pid = line(&mut killed);
    let is_there = || {
        let test = ["test", "-d", &format!("/proc/{pid}")];
        let output = context.exec(&[], &test).stdin(Stdio::null()).output();
        output.unwrap().status.success()
    };
    assert!(is_there());
    send(&killed, Signal::SIGKILL);
    killed.wait().unwrap();
    until("the command's end", || !is_there());
}

#[test]
fn a_terminal_is_passed_with_its_size_and_gets_its_settings_back() {
    if Command::new("setsid").arg("true").status().is_err() {
        return skip("no setsid(1)");
    }
    let context = Context::new();
    let mut screen = File::options()
        .read(true)
        .write(true)
        .open("/dev/ptmx")
        .unwrap();
    let keyboard = File::from(open_peer(screen.as_fd()).unwrap());
    let side = || Stdio::from(keyboard.try_clone().unwrap());
    let settings = || {
        let stty = Command::new("stty").arg("-a").stdin(side()).output();
        String::from_utf8(stty.unwrap().stdout).unwrap()
    };
    Size::new(5, 60).apply(screen.as_fd()).unwrap();
    let before = settings();
    let mut command = Command::new("setsid");
    // The signal for a new size goes to processes whose controlling terminal it is.
    command.args(["--ctty", "--wait"]).arg(executable());
    command.args(["context", "exec", &context.id, "--tty", "--", "sh"]);
    context.shell.aim(command.env("TERM", "vt100"));
    let mut child = command
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
    let mut reader = screen.try_clone().unwrap();
    let (to, shown) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if to.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut text = String::new();
    let mut wait_for = |what: &str| {
        let end = Instant::now() + patience();
        while !text.contains(what) {
            let left = end.saturating_duration_since(Instant::now());
            let piece = shown.recv_timeout(left);
            let piece = piece.unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
            text.push_str(&String::from_utf8_lossy(&piece));
        }
    };
    screen
        .write_all(b"stty size; echo $TERM is the kind\n")
        .unwrap();
    wait_for("5 60\r\n");
    wait_for("vt100 is the kind");
    assert_ne!(settings(), before);
    Size::new(7, 50).apply(screen.as_fd()).unwrap();
    let script = "until [ \"$(stty size)\" = '7 50' ]; do sleep 0.1; done; echo larg'e'r\n";
    screen.write_all(script.as_bytes()).unwrap();
    wait_for("larger");
    // Control characters are handled by the inner terminal.
    let script =
        r#"sh -c 'trap "echo caught; exit" INT; echo rea"d"y; while :; do sleep 0.1; done'"#;
    let script = format!("{script}\n");
    screen.write_all(script.as_bytes()).unwrap();
    wait_for("ready");
    screen.write_all(b"\x03").unwrap();
    wait_for("caught\r\n");
    screen.write_all(b"exit 9\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    Size::new(5, 60).apply(screen.as_fd()).unwrap();
    assert_eq!(settings(), before);
}
