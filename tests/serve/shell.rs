//! `cellblock context`, by shells that know nothing of each other.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::{cellblock, directory, until};
use crate::skip::skip;

pub(crate) struct Shell(tempfile::TempDir);

impl Shell {
    pub(crate) fn new() -> Self {
        // A runtime directory with another mode is not used.
        Self(directory(0o700))
    }

    pub(crate) fn context(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = cellblock();
        self.aim(command.arg("context").args(words));
        command
    }

    /// Has a command use this shell's contexts.
    pub(crate) fn aim(&self, command: &mut Command) {
        command.env("XDG_RUNTIME_DIR", self.0.path());
    }

    /// A context of Python.
    pub(crate) fn create(&self) -> String {
        let created = self.json(&["create", "--lang", "python", "--rootfs", "host", "--json"]);
        created["context"].as_str().unwrap().to_owned()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.context(words);
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}: {said}"))
    }

    fn sockets(&self) -> usize {
        let entries = std::fs::read_dir(self.0.path().join("cellblock/contexts"));
        entries.map_or(0, Iterator::count)
    }
}

#[test]
fn a_context_goes_on_from_call_to_call() {
    let shell = Shell::new();
    let words = [
        "create", "--lang", "python", "--rootfs", "host", "--label", "mine", "--json",
    ];
    let created = shell.json(&words);
    let id = created["context"].as_str().unwrap();
    assert_eq!(shell.sockets(), 1);
    let first = shell.context(&["run", id, "-c", "x = 20"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let second = shell.json(&["run", id, "--json", "-c", "x + 1"]);
    assert_eq!(second["record"]["results"][0]["text"], "21", "{second}");
    let list = shell.json(&["list", "--json"]);
    assert_eq!(
        (&list[0]["context"], &list[0]["label"]),
        (&json!(id), &json!("mine"))
    );
    let restarted = shell.json(&["restart", id, "--json"]);
    assert_eq!(restarted["state"], "lost");
    let third = shell.context(&["run", id, "-c", "x"]);
    assert_eq!(third.status.code(), Some(1), "{third:?}");
    shell.json(&["describe", id]);
    let deleted = shell.context(&["delete", id]);
    assert_eq!(deleted.status.code(), Some(0));
    let gone = shell.context(&["run", id, "-c", "x"]);
    assert_eq!(gone.status.code(), Some(125));
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    // Its server takes a moment to end.
    assert!(said.contains("no such context"), "{said}");
    until("the server's end", || shell.sockets() == 0);
}

/// The answer of `context run --json` to a signal while its code runs, and the exit status.
fn interrupted(shell: &Shell, id: &str, code: &str, signal: Signal) -> (Value, Option<i32>) {
    let mut run = shell.command(&["run", id, "--json", "--grace", "300ms", "-c", code]);
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    until("the code runs", || {
        shell.json(&["list", "--json"])[0]["doing"] == "busy"
    });
    kill(Pid::from_raw(run.id().try_into().unwrap()), signal).unwrap();
    let mut said = String::new();
    let mut stdout = run.stdout.take().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    let answer = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    (answer, run.wait().unwrap().code())
}

#[test]
fn a_signal_interrupts_the_code_and_the_answer_comes() {
    let shell = Shell::new();
    let id = &shell.create();
    shell.json(&["run", id, "--json", "-c", "x = 20"]);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (answer, status) = interrupted(&shell, id, "import time; time.sleep(1000)", signal);
        assert_eq!(
            (&answer["record"]["outcome"], &answer["state"], status),
            (&json!("cancelled"), &json!("kept"), Some(130)),
            "{answer}"
        );
    }
    let kept = shell.json(&["run", id, "--json", "-c", "x"]);
    assert_eq!(kept["record"]["results"][0]["text"], "20", "{kept}");
    let deaf =
        "import time\nwhile True:\n  try: time.sleep(1000)\n  except KeyboardInterrupt: pass";
    let (answer, _) = interrupted(&shell, id, deaf, Signal::SIGINT);
    assert_eq!(answer["state"], "lost", "{answer}");
    assert!(answer["why"].is_string(), "{answer}");
}

#[test]
fn a_context_that_cannot_be_made_leaves_no_server() {
    let shell = Shell::new();
    let output = shell.context(&["create", "--lang", "cobol"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(!output.stderr.is_empty());
    until("the server's end", || shell.sockets() == 0);
}

#[test]
fn an_idle_context_ends_with_its_server() {
    let shell = Shell::new();
    let words = [
        "create", "--lang", "python", "--rootfs", "host", "--idle", "1s",
    ];
    let output = shell.context(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    until("the server's end", || shell.sockets() == 0);
}

#[test]
fn a_context_is_forked_taken_back_and_suspended() {
    let shell = Shell::new();
    let words = [
        "create",
        "--lang",
        "python",
        "--rootfs",
        "host",
        "--branches",
        "--json",
    ];
    let created = shell.json(&words);
    let id = created["context"].as_str().unwrap();
    shell.context(&["run", id, "-c", "x = 1"]);
    let made = shell.context(&["checkpoint", id]);
    if made.status.code() != Some(0) {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        let skips = said.contains("to be traced") || said.contains("whose registers are known");
        assert!(skips, "{said}");
        shell.context(&["delete", id]);
        return skip(said);
    }
    let number = String::from_utf8(made.stdout).unwrap();
    assert!(number.trim().parse::<u64>().is_ok(), "{number}");
    shell.context(&["run", id, "-c", "x = 2"]);
    let forked = shell.context(&["fork", id, "-n", "2"]);
    assert_eq!(forked.status.code(), Some(0), "{forked:?}");
    let forked = String::from_utf8(forked.stdout).unwrap();
    let branches: Vec<&str> = forked.lines().collect();
    assert_eq!(branches.len(), 2, "{forked}");
    let back = shell.json(&["rewind", id, "--checkpoint", number.trim(), "--json"]);
    assert_eq!(back["state"], "restored", "{back}");
    let suspended = shell.json(&["suspend", id, "--json"]);
    assert_eq!(suspended["context"], id, "{suspended}");
    let list = shell.json(&["list", "--json"]);
    assert_eq!(list.as_array().map(Vec::len), Some(3), "{list}");
    let one = |id: &str| {
        let all = list.as_array().unwrap().iter();
        all.clone()
            .find(|info| info["context"] == id)
            .unwrap()
            .clone()
    };
    assert_eq!(one(id)["doing"], "suspended", "{list}");
    for (id, value) in [(id, "1"), (branches[0], "2"), (branches[1], "2")] {
        let look = shell.json(&["run", id, "--json", "-c", "x"]);
        assert_eq!(look["state"], "restored", "{look}");
        assert_eq!(look["record"]["results"][0]["text"], value, "{look}");
        let deleted = shell.context(&["delete", id]);
        assert_eq!(deleted.status.code(), Some(0), "{deleted:?}");
    }
    until("the server's end", || shell.sockets() == 0);
}

#[test]
fn files_pictures_and_records_go_in_and_out_of_a_context() {
    let shell = Shell::new();
    let id = shell.create();
    let place = directory(0o700);
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("in.txt"), "hello").unwrap();
    let code = "text = open('data/in.txt').read()\n\
        open('out.txt', 'w').write(text * 2_000_000)\n\
        open('empty', 'w').close()\n\
        class Picture:\n  def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\n\
        Picture()";
    let file = format!("{}:data/in.txt", path("in.txt"));
    let output = shell.context(&[
        "run",
        &id,
        "--file",
        &file,
        "--out",
        &path("out"),
        "--plots",
        &path("plots"),
        "--record",
        &path("record.json"),
        "-c",
        code,
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    // Longer than one answer of the server.
    let copied = std::fs::read_to_string(path("out/out.txt")).unwrap();
    assert_eq!(copied, "hello".repeat(2_000_000));
    assert_eq!(std::fs::read(path("out/empty")).unwrap(), b"");
    assert_eq!(std::fs::read(path("plots/result-1.png")).unwrap().len(), 8);
    let record = std::fs::read(path("record.json")).unwrap();
    let first: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(first["outcome"], "ok", "{first}");

    let tool = shell.json(&["run", &id, "--format", "tool", "-c", "6 * 7"]);
    assert_eq!(tool["result"], "42", "{tool}");

    // Each execution has an id of its own.
    let second = shell.json(&["run", &id, "--json", "-c", "1"]);
    let [one, other] = [&first, &second["record"]].map(|record| record["id"].as_str().unwrap());
    assert_ne!(one, other);
    shell.context(&["delete", &id]);
}

#[test]
fn errors_of_contexts_are_json_where_answers_are() {
    let shell = Shell::new();
    let answer = shell.json(&["run", "nope", "--json", "-c", "1"]);
    assert_eq!(answer["record"]["outcome"], "setup", "{answer}");
    let error = &answer["record"]["setup_error"];
    assert_eq!(error["operand"], "nope", "{answer}");
    assert!(!answer["record"]["id"].as_str().unwrap().is_empty());
    for action in ["describe", "restart", "delete", "fork", "suspend"] {
        let answer = shell.json(&[action, "nope", "--json"]);
        assert_eq!(answer["error"]["operand"], "nope", "{action}: {answer}");
    }
    let output = shell.context(&["run", "nope", "-c", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("cellblock: nope: there is no such context"),
        "{said}"
    );
}

#[test]
fn a_context_without_branches_says_so_when_it_is_forked() {
    let shell = Shell::new();
    let id = shell.create();
    let output = shell.context(&["fork", &id]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(said.contains("it was created without --branches"), "{said}");
    let output = shell.context(&["exec", &id, "--cwd", "/nope", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/nope"), "{said}");
    shell.context(&["delete", &id]);
}

#[test]
fn an_execution_is_shown_on_a_terminal_while_it_goes_on() {
    let shell = Shell::new();
    let id = shell.create();
    let mut screen = File::options()
        .read(true)
        .write(true)
        .open("/dev/ptmx")
        .unwrap();
    let line = File::from(sys::terminal::open_peer(screen.as_fd()).unwrap());
    let code = "import os, time\nprint('begun', end='', flush=True)\n\
        while not os.path.exists('go'): time.sleep(0.01)\nprint(' and done')\n6 * 7";
    let mut command = shell.command(&["run", &id, "-c", code]);
    command
        .env("NO_COLOR", "1")
        .stdout(line.try_clone().unwrap());
    let mut run = command.spawn().unwrap();
    drop((line, command));
    let mut text = String::new();
    let mut buffer = [0; 4096];
    let mut read_to = |what: &str| {
        while !text.contains(what) {
            // The terminal's other side is gone when the command has ended.
            match screen.read(&mut buffer) {
                Ok(count @ 1..) => text.push_str(&String::from_utf8_lossy(&buffer[..count])),
                _ => break,
            }
        }
        text.clone()
    };
    assert!(read_to("begun").ends_with("begun"));
    let touched = shell.context(&["exec", &id, "--", "touch", "go"]);
    assert_eq!(touched.status.code(), Some(0), "{touched:?}");
    let shown = read_to("── ok");
    assert!(shown.contains("begun and done\r\n42\r\n"), "{shown}");
    assert_eq!(run.wait().unwrap().code(), Some(0));
    shell.context(&["delete", &id]);
}

#[test]
fn a_list_and_a_description_agree_on_whether_the_interpreter_is_there() {
    let shell = Shell::new();
    let id = shell.create();
    let both = || {
        let list = shell.json(&["list", "--json"]);
        let described = shell.json(&["describe", &id, "--json"]);
        [&list[0]["is_alive"], &described["is_alive"]].map(|it| it.as_bool().unwrap())
    };
    assert_eq!(both(), [true, true]);
    shell.context(&["run", &id, "-c", "import os; os._exit(3)"]);
    assert_eq!(both(), [false, false]);
    shell.context(&["run", &id, "-c", "1"]);
    assert_eq!(both(), [true, true]);
    shell.context(&["delete", &id]);
}
