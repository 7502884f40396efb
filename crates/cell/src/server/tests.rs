//! Orders to a supervisor that a real spawner forked.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Base, Spawner};
use crate::launch::tests::alone;
use crate::launch::wait_for;

pub(super) type Tested<T = ()> = Result<T, Box<dyn Error>>;

/// Long enough for a busy machine; no test waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(100);

/// A front end of one cell.
pub(super) struct Front {
    socket: UnixStream,
    pub(super) supervisor: Pid,
    bytes: Vec<u8>,
    reports: VecDeque<Value>,
}

impl Front {
    pub(super) fn new(spawner: &Spawner) -> Tested<Self> {
        let (socket, supervisor) = spawner.supervisor()?;
        Ok(Self {
            supervisor,
            ..Self::at(socket)
        })
    }

    /// Of a supervisor whose pid is not known.
    pub(super) fn at(socket: OwnedFd) -> Self {
        Self {
            socket: socket.into(),
            supervisor: Pid::from_raw(0),
            bytes: Vec::new(),
            reports: VecDeque::new(),
        }
    }

    /// With a context in `language` that has these limits.
    pub(super) fn open(spawner: &Spawner, request: Value, lasting: bool) -> Tested<Self> {
        let mut front = Self::new(spawner)?;
        front.order(json!({"open": {"request": request, "lasting": lasting, "ready": false}}))?;
        front.report("opened")?;
        Ok(front)
    }

    pub(super) fn python(spawner: &Spawner) -> Tested<Self> {
        Self::open(spawner, json!({"language": "python"}), true)
    }

    pub(super) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn order(&mut self, order: Value) -> Tested {
        self.send(format!("{order}\n").as_bytes())
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Tested {
        self.socket.set_nonblocking(false)?;
        self.socket.write_all(bytes)?;
        Ok(())
    }

    /// The next report; `None` at the end.
    pub(super) fn next(&mut self) -> Tested<Option<Value>> {
        if let Some(report) = self.reports.pop_front() {
            return Ok(Some(report));
        }
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if !wait_for(self.socket.as_fd(), until) {
                return Err("no report comes".into());
            }
            let mut buffer = vec![0; 64 << 10];
            match self.socket.read(&mut buffer)? {
                0 => return Ok(None),
                count => self.bytes.extend(&buffer[..count]),
            }
        }
    }

    /// The next report but for events, which is of this kind.
    pub(super) fn report(&mut self, kind: &str) -> Tested<Value> {
        let mut report = self.next()?.ok_or("the supervisor is gone")?;
        while report.get("event").is_some() && kind != "event" {
            report = self.next()?.ok_or("the supervisor is gone")?;
        }
        match report.get_mut(kind) {
            Some(found) => Ok(found.take()),
            None => Err(format!("instead of {kind}: {report}").into()),
        }
    }

    pub(super) fn begin(&mut self, number: u64, code: &str, options: Value) -> Tested {
        let mut execute = json!({"execution": number, "code": code});
        if let (Some(to), Some(from)) = (execute.as_object_mut(), options.as_object()) {
            to.extend(from.clone());
        }
        self.order(json!({ "execute": execute }))
    }

    /// Executes code that does not heed interrupts and never ends, until its wall time costs the
    /// interpreter; the answer. On a busy host, the wall time may be over before the driver has
    /// begun with the code, and then the interrupt ends it.
    fn killed_by_its_wall(&mut self, numbers: std::ops::Range<u64>, code: &str) -> Tested<Value> {
        for number in numbers {
            self.begin(number, code, json!({"wall_ms": 200, "grace_ms": 100}))?;
            let answer = self.report("answer")?;
            assert_eq!(text(&answer, "outcome"), "timeout", "{answer}");
            if answer["state"] == "lost" {
                return Ok(answer);
            }
        }
        Err("the interpreter was never lost".into())
    }

    fn describe(&mut self) -> Tested<Value> {
        self.order(json!("describe"))?;
        Ok(self.report("described")?["description"].take())
    }

    /// Executes code; the answer.
    pub(super) fn run(&mut self, number: u64, code: &str) -> Tested<Value> {
        self.begin(number, code, json!({}))?;
        self.report("answer")
    }
}

pub(super) fn spawner() -> Tested<Spawner> {
    Ok(Spawner::fork(Base {
        cwd: "/".into(),
        ..Base::default()
    })?)
}

pub(super) fn text<'v>(answer: &'v Value, field: &str) -> &'v str {
    answer["record"][field].as_str().unwrap_or("")
}

/// Waits until `condition` holds.
pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) -> Tested {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > end {
            return Err(format!("never: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(super) fn exists(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie waits for the spawner alone.
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

#[test]
fn state_is_kept_after_errors_timeouts_and_interrupts() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let first = front.run(1, "kept = 'still here'; print('one')")?;
        assert_eq!(
            (&first["state"], text(&first, "stdout")),
            (&json!("kept"), "one\n")
        );
        let raised = front.run(2, "1 / 0")?;
        assert_eq!(
            (&raised["state"], text(&raised, "outcome")),
            (&json!("kept"), "error")
        );
        front.begin(
            3,
            "while True: pass",
            json!({"wall_ms": 300, "grace_ms": 20000}),
        )?;
        let late = front.report("answer")?;
        assert_eq!(
            (&late["state"], text(&late, "outcome")),
            (&json!("kept"), "timeout"),
            "{late}"
        );
        let record = &late["record"];
        assert_eq!(
            (&record["exit_code"], &record["is_retryable"]),
            (&json!(124), &json!(true))
        );
        assert_eq!(record["error_category"], "timeout");
        front.begin(
            4,
            "print('x', flush=True)\nwhile True: pass",
            json!({"events": true}),
        )?;
        while front.report("event")?["event"]["event"] != "stdout" {}
        front.order(json!({"interrupt": {"execution": 4, "grace_ms": 20000}}))?;
        let interrupted = front.report("answer")?;
        assert_eq!(
            (&interrupted["state"], text(&interrupted, "outcome")),
            (&json!("kept"), "cancelled")
        );
        let value = front.run(5, "kept")?;
        assert_eq!(value["record"]["results"][0]["text"], "'still here'");
        Ok(())
    });
}

#[test]
fn a_lost_interpreter_is_started_again_with_its_workspace() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let made = "x = 1; import os; os.makedirs('d'); open('d/file', 'w').write('kept')";
        assert_eq!(front.run(1, made)?["record"]["files"][0]["path"], "d/file");
        let deaf = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)";
        assert_eq!(front.run(2, deaf)?["state"], "kept");
        let killed = front.killed_by_its_wall(3..104, "while True: time.sleep(1)")?;
        assert!(
            killed["why"]
                .as_str()
                .is_some_and(|why| why.contains("grace")),
            "{killed}"
        );
        let next = front.run(104, "print('x' in globals(), open('d/file').read())")?;
        assert_eq!(
            (&next["state"], text(&next, "stdout")),
            (&json!("kept"), "False kept\n")
        );
        // Nothing of what was carried over is new.
        assert_eq!(next["record"]["files"], json!([]));
        let ended = front.run(105, "import os; os._exit(3)")?;
        assert_eq!(
            (&ended["state"], &ended["record"]["exit_code"]),
            (&json!("lost"), &json!(3))
        );
        let left = front.run(106, "import sys; sys.exit(4)")?;
        assert_eq!(
            (&left["state"], &left["record"]["exit_code"]),
            (&json!("lost"), &json!(4)),
            "{left}"
        );
        let after = front.run(107, "open('d/file', 'a').write('!'); open('d/file').read()")?;
        assert_eq!(after["state"], "kept");
        let changed = &after["record"]["files"][0];
        assert_eq!(
            (&changed["path"], &changed["change"]),
            (&json!("d/file"), &json!("modified"))
        );
        Ok(())
    });
}

#[test]
fn the_limit_on_memory_ends_the_cell_and_says_so() {
    alone(|| {
        let spawner = spawner()?;
        let request = json!({"language": "python", "limits": {"memory": "200M"}});
        let mut front = Front::open(&spawner, request, true)?;
        front.run(1, "open('file', 'w').write('kept')")?;
        let eats = "import os\nfor _ in range(8):\n  if os.fork() == 0:\n    a = bytearray(b'x') * (60 << 20)\n    import time; time.sleep(100)\nos.wait()";
        let answer = front.run(2, eats)?;
        assert_eq!(
            (&answer["state"], text(&answer, "outcome")),
            (&json!("lost"), "memory"),
            "{answer}"
        );
        let next = front.run(3, "open('file').read()")?;
        assert_eq!(next["record"]["results"][0]["text"], "'kept'");
        Ok(())
    });
}

#[test]
fn an_interpreter_that_ends_between_executions_is_reported() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let thread = "import os, threading, time
def end():
  while not os.path.exists('go'): time.sleep(0.01)
  os._exit(5)
threading.Thread(target=end).start()";
        assert_eq!(front.run(1, thread)?["state"], "kept");
        let go = json!({"write": {"path": "go", "content": ""}});
        front.order(json!({"file": {"id": 7, "what": go}}))?;
        front.report("file")?;
        let until = Instant::now() + PATIENCE;
        while front.describe()?["is_running"] == true {
            assert!(Instant::now() < until, "the end is not seen");
        }
        let next = front.run(2, "print('new')")?;
        assert_eq!(text(&next, "stdout"), "new\n");
        assert_eq!(next["state"], "lost");
        assert!(
            next["why"]
                .as_str()
                .is_some_and(|why| why.contains("status 5")),
            "{next}"
        );
        assert_eq!(front.run(3, "1")?["state"], "kept");
        Ok(())
    });
}

#[test]
fn an_interpreter_that_ends_right_after_its_code_is_reported() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        // It says that the code has ended, and takes no more. The kernel closes the descriptors of a
        // process before its parent is told of its end, here long before.
        let ends = "import os, time
def field(key, value):
  return b't' + bytes([len(key)]) + len(value).to_bytes(4, 'big') + key + value
done = field(b'kind', b'done') + field(b'execution', b'1')
os.close(3)
os.write(4, len(done).to_bytes(4, 'big') + done)
time.sleep(0.3)
os._exit(5)";
        let ended = front.run(1, ends)?;
        assert_eq!(
            (&ended["state"], &ended["record"]["exit_code"]),
            (&json!("lost"), &json!(5)),
            "{ended}"
        );
        assert_eq!(front.run(2, "1")?["state"], "kept");
        // One that does not end is ended.
        let ends = ends.replace("b'1'", "b'3'").replace("0.3", "1000");
        let ended = front.run(3, &ends)?;
        assert_eq!(
            (&ended["state"], &ended["record"]["signal"]),
            (&json!("lost"), &json!("SIGKILL")),
            "{ended}"
        );
        let why = text(&ended, "context");
        assert!(why.contains("closed or damaged"), "{ended}");
        Ok(())
    });
}

#[test]
fn two_contexts_share_nothing() {
    alone(|| {
        let spawner = spawner()?;
        let (mut one, mut other) = (Front::python(&spawner)?, Front::python(&spawner)?);
        one.run(1, "token = 'd'; open('f', 'w').write('d')")?;
        let apart = other.run(
            1,
            "import os; print('token' in globals(), os.path.exists('f'))",
        )?;
        assert_eq!(text(&apart, "stdout"), "False False\n");
        // They run at the same time.
        let endless = "import time; print('on', flush=True); time.sleep(1000)";
        one.begin(2, endless, json!({"events": true}))?;
        while one.report("event")?["event"]["event"] != "stdout" {}
        assert_eq!(text(&other.run(2, "print(2)")?, "stdout"), "2\n");
        one.order(json!({"cancel": {"execution": 2}}))?;
        assert_eq!(one.report("answer")?["state"], "lost");
        Ok(())
    });
}

#[test]
fn orders_are_carried_out_in_their_sequence_and_queued_ones_can_be_cancelled() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let first = "import time
try:
  print('on', flush=True); time.sleep(1000)
except KeyboardInterrupt: order = [1]";
        front.begin(1, first, json!({"events": true}))?;
        while front.report("event")?["event"]["event"] != "stdout" {}
        front.begin(2, "order.append(2)", json!({}))?;
        front.begin(3, "order.append(3)", json!({}))?;
        front.order(json!("describe"))?;
        front.begin(4, "order", json!({}))?;
        front.order(json!({"cancel": {"execution": 2}}))?;
        front.order(json!({"interrupt": {"execution": 1, "grace_ms": 50_000}}))?;
        let first = front.report("answer")?;
        assert_eq!(
            (&first["execution"], &first["state"]),
            (&json!(1), &json!("kept")),
            "{first}"
        );
        let cancelled = front.report("answer")?;
        assert_eq!(
            (&cancelled["execution"], text(&cancelled, "outcome")),
            (&json!(2), "cancelled")
        );
        assert_eq!(cancelled["state"], "kept");
        assert_eq!(front.report("answer")?["execution"], 3);
        let described = &front.report("described")?["description"];
        assert_eq!(
            (&described["language"], &described["is_running"]),
            (&json!("python"), &json!(true))
        );
        let variables = described["variables"].as_array().ok_or("no variables")?;
        let order = variables.iter().find(|found| found["name"] == "order");
        assert_eq!(order.map(|found| &found["type"]), Some(&json!("list")));
        assert!(
            described["usage"]["memory_bytes"].as_u64() > Some(1 << 20),
            "{described}"
        );
        assert_eq!(
            front.report("answer")?["record"]["results"][0]["text"],
            "[1, 3]"
        );
        front.begin(4, "again", json!({}))?;
        assert_eq!(front.report("failed")?["id"], 4);
        Ok(())
    });
}

#[test]
fn a_restart_keeps_the_workspace_alone() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let first = front.run(1, "x = 1; open('file', 'w').write('kept')")?;
        front.order(json!("restart"))?;
        let id = front.report("restarted")?["id"].clone();
        let next = front.run(2, "print('x' in globals(), open('file').read())")?;
        assert_eq!(text(&next, "stdout"), "False kept\n");
        assert_eq!(
            (&next["state"], &next["record"]["id"]),
            (&json!("kept"), &id)
        );
        assert_ne!(first["record"]["id"], id);
        Ok(())
    });
}

#[test]
fn files_go_in_and_come_out() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let file = |front: &mut Front, what: Value| -> Tested<Value> {
            front.order(json!({"file": {"id": 7, "what": what}}))?;
            Ok(front.next()?.ok_or("the supervisor is gone")?)
        };
        let write = json!({"write": {"path": "in/data.csv", "content": "a,b\n1,2\n"}});
        let written = file(&mut front, write)?;
        assert_eq!(written["file"]["answer"]["written"]["size"], 8, "{written}");
        let answer = front.run(1, "print(open('in/data.csv').read(), end=''); open('in/data.csv', 'a').write('3,4\\n'); import os; os.symlink('/etc', 'link')")?;
        assert_eq!(text(&answer, "stdout"), "a,b\n1,2\n", "{answer}");
        let read = json!({"read": {"path": "in/data.csv", "offset": 8, "limit": 100}});
        assert_eq!(
            file(&mut front, read)?["file"]["answer"]["content"]["content"],
            "3,4\n"
        );
        let list = file(&mut front, json!({"list": {"path": "", "depth": 9}}))?;
        let entries = &list["file"]["answer"]["entries"]["entries"];
        let paths: Vec<&str> = (entries.as_array().into_iter().flatten())
            .filter_map(|entry| entry["path"].as_str())
            .collect();
        assert_eq!(paths, ["in", "in/data.csv", "link"]);
        for path in [
            "link/passwd",
            "/etc/passwd",
            "../etc/passwd",
            "in/../link/passwd",
            "",
        ] {
            let read = json!({"read": {"path": path, "offset": 0, "limit": 10}});
            assert_eq!(file(&mut front, read)?["failed"]["id"], 7, "{path}");
            let write = json!({"write": {"path": path, "content": "x"}});
            assert_eq!(file(&mut front, write)?["failed"]["id"], 7, "{path}");
        }
        let removed = file(&mut front, json!({"remove": {"path": "in"}}))?;
        assert!(
            removed["file"]["answer"]["removed"].is_object(),
            "{removed}"
        );
        let gone = front.run(2, "import os; print(os.listdir())")?;
        assert_eq!(text(&gone, "stdout"), "['link']\n");
        Ok(())
    });
}

#[test]
fn a_front_end_that_is_gone_leaves_nothing() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let busy = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint('on', flush=True)\nwhile True: pass";
        front.begin(1, busy, json!({"events": true}))?;
        while front.report("event")?["event"]["event"] != "stdout" {}
        let (supervisor, processes) = (front.supervisor, below(front.supervisor));
        assert!(processes.len() >= 3, "{processes:?}");
        drop(front);
        until("the supervisor ends", || !exists(supervisor))?;
        for pid in processes {
            until("the cell ends", || !exists(pid))?;
        }
        Ok(())
    });
}

/// All processes that descend from `pid`.
pub(super) fn below(pid: Pid) -> Vec<Pid> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = list.unwrap_or_default();
    let pids = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    pids.map(Pid::from_raw)
        .flat_map(|pid| std::iter::once(pid).chain(below(pid)))
        .collect()
}

#[test]
fn the_spawner_ends_with_its_front_end_and_supervisors_hold_nothing_else() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let supervisor = front.supervisor;
        front.run(1, "1")?;
        let fds = std::fs::read_dir(format!("/proc/{supervisor}/fd"))?;
        let open: Vec<String> = fds
            .flatten()
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .map(|path| path.display().to_string())
            .collect();
        let sockets = open
            .iter()
            .filter(|path| path.starts_with("socket:"))
            .count();
        // Its own, a copy of it for writing, and init's; standard error may be another.
        assert!(sockets <= 4, "{open:?}");
        let parent = std::fs::read_to_string(format!("/proc/{supervisor}/stat"))?;
        let parent = parent
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1));
        let parent: i32 = parent.ok_or("no parent")?.parse()?;
        drop(spawner);
        until("the spawner ends", || {
            !Path::new(&format!("/proc/{parent}")).exists() || !exists(Pid::from_raw(parent))
        })?;
        // A supervisor goes on until its own front end is gone.
        assert_eq!(text(&front.run(2, "print(2)")?, "stdout"), "2\n");
        drop(front);
        until("the supervisor ends", || !exists(supervisor))
    });
}

#[test]
fn what_is_no_order_ends_the_cell_with_a_reason() {
    alone(|| {
        let spawner = spawner()?;
        for garbage in [
            &b"hello\n"[..],
            b"{}\n",
            b"{\"execute\":{}}\n",
            b"\xff\xfe\n",
            b"[[[[\n",
        ] {
            let mut front = Front::python(&spawner)?;
            front.send(garbage)?;
            let why = front.report("ended")?["why"].clone();
            assert!(
                why.as_str().is_some_and(|why| why.starts_with("no order")),
                "{why}"
            );
            assert_eq!(front.next()?, None);
        }
        // A line may come in parts.
        let mut front = Front::python(&spawner)?;
        let order = json!({"execute": {"execution": 1, "code": "print(1)"}}).to_string() + "\n";
        for part in order.as_bytes().chunks(7) {
            front.send(part)?;
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(text(&front.report("answer")?, "stdout"), "1\n");
        front.order(json!("end"))?;
        assert_eq!(front.report("ended")?["why"], Value::Null);
        let mut early = Front::new(&spawner)?;
        early.begin(1, "1", json!({}))?;
        assert_eq!(early.report("failed")?["order"], "execute");
        early.order(
            json!({"open": {"request": {"rootfs": "/"}, "lasting": true, "ready": false}}),
        )?;
        assert_eq!(early.report("failed")?["order"], "open");
        Ok(())
    });
}

#[test]
fn an_idle_life_ends() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::new(&spawner)?;
        front.order(json!({"open": {"request": {"language": "python"}, "lasting": true, "ready": true, "idle_ms": 300}}))?;
        front.report("opened")?;
        let why = front.report("ended")?["why"].clone();
        assert!(
            why.as_str().is_some_and(|why| why.contains("idle")),
            "{why}"
        );
        Ok(())
    });
}

#[test]
fn hostile_threads_and_children_harm_no_other_execution() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let flood = r"
import os, threading, struct
def flood(fd, bytes):
    while True: os.write(fd, bytes)
def field(key, value): return b't' + struct.pack('>BI', len(key), len(value)) + key + value
def frame(kind, number):
    body = field(b'kind', kind) + field(b'execution', number)
    return struct.pack('>I', len(body)) + body
forged = frame(b'done', b'1') + frame(b'done', b'99') + frame(b'error', b'7')
for fd, bytes in (1, b'x' * 5000), (2, b'y' * 5000), (4, forged):
    threading.Thread(target=flood, args=(fd, bytes), daemon=True).start()
";
        assert_eq!(front.run(1, flood)?["state"], "kept");
        let supervisor = front.supervisor;
        let resident = || {
            let status = std::fs::read_to_string(format!("/proc/{supervisor}/status")).ok()?;
            let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        let cpu = || {
            let stat = std::fs::read_to_string(format!("/proc/{supervisor}/stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
        };
        let (before, began) = (resident().ok_or("no status")?, cpu().ok_or("no stat")?);
        std::thread::sleep(Duration::from_millis(500));
        let (after, ended) = (resident().ok_or("no status")?, cpu().ok_or("no stat")?);
        assert!(after < before + 4096, "{before} {after} KiB");
        // Of the fifty ticks, a supervisor that reads nothing needs next to none.
        assert!(ended - began < 25, "{began} {ended}");
        let next = front.run(2, "x = 7; x")?;
        assert_eq!(next["record"]["results"][0]["text"], "7");
        let warnings = next["record"]["warnings"].to_string();
        assert!(
            warnings.contains("bytes are left out that were written to stdout"),
            "{warnings}"
        );
        assert!(
            warnings.contains("an earlier execution's threads"),
            "{warnings}"
        );
        assert_eq!(next["record"]["error"], Value::Null);
        Ok(())
    });
}

#[test]
fn calls_that_are_denied_between_executions_are_named_in_the_next_record() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let thread = "import threading, os
go = threading.Event()
def later():
  while True:
    go.wait(0.01)
    try: os.chroot('/')
    except OSError: pass
threading.Thread(target=later, daemon=True).start()";
        front.run(1, thread)?;
        let mut number = 1;
        let until = Instant::now() + PATIENCE;
        loop {
            number += 1;
            let answer = front.run(number, "x = 7")?;
            let warnings = answer["record"]["warnings"].to_string();
            if warnings
                .contains("system calls were denied after the execution before had ended: chroot (")
            {
                return Ok(());
            }
            assert!(Instant::now() < until, "{answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn a_channel_that_the_code_breaks_ends_the_interpreter() {
    alone(|| {
        let spawner = spawner()?;
        for damage in ["os.close(4)", "os.write(4, b'\\xff' * 100)", "os.close(3)"] {
            let mut front = Front::python(&spawner)?;
            let code = format!("x = 1; import os; {damage}; import time; time.sleep(0.1)");
            let answer = front.run(1, &code)?;
            assert_eq!(answer["state"], "lost", "{damage}: {answer}");
            let next = front.run(2, "print('x' in globals())")?;
            assert_eq!(
                (&next["state"], text(&next, "stdout")),
                (&json!("kept"), "False\n")
            );
        }
        Ok(())
    });
}

/// Writes frames of the driver's.
const FORGED: &str = r#"
import os, time
def field(key, value):
    return b"t" + bytes([len(key)]) + len(value).to_bytes(4, "big") + key + value
def frame(kind, execution):
    fields = [(b"kind", kind), (b"execution", b"%d" % execution), (b"status", b"7")]
    fields = b"".join(field(*each) for each in fields)
    return len(fields).to_bytes(4, "big") + fields
def forge(kind, execution):
    os.write(4, frame(kind, execution))
"#;

#[test]
fn an_interpreter_that_goes_on_does_not_wait_to_be_ended() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let exit = format!("{FORGED}x = 1; forge(b'exit', 1); time.sleep(0.1); print('went on')");
        let helped = format!(
            "{FORGED}if os.fork() == 0: time.sleep(1000)\nforge(b'done', 2); forge(b'exit', 2)"
        );
        let answer = front.run(1, &exit)?;
        assert_eq!(
            (&answer["state"], text(&answer, "stdout")),
            (&json!("kept"), "went on\n"),
            "{answer}"
        );
        front.run(2, &helped)?;
        let next = front.run(3, "print(x)")?;
        assert_eq!(
            (&next["state"], text(&next, "stdout")),
            (&json!("kept"), "1\n"),
            "{next}"
        );
        Ok(())
    });
}

#[test]
fn a_channel_that_ends_with_an_execution_is_noted() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let code = format!(
            "{FORGED}print('on', flush=True); time.sleep(0.3)\n\
             forge(b'done', 1); os.close(4); time.sleep(1000)"
        );
        front.begin(1, &code, json!({"events": true}))?;
        while front.report("event")?["event"]["event"] != "stdout" {}
        // Frame and end are there when the supervisor looks.
        kill(front.supervisor, Signal::SIGSTOP)?;
        std::thread::sleep(Duration::from_millis(600));
        kill(front.supervisor, Signal::SIGCONT)?;
        front.report("answer")?;
        front.begin(2, "print(2)", json!({"wall_ms": 20000}))?;
        let next = front.report("answer")?;
        assert_ne!(text(&next, "outcome"), "timeout", "{next}");
        Ok(())
    });
}

#[test]
fn stopped_and_deaf_processes_hold_nothing_up() {
    alone(|| {
        let spawner = spawner()?;
        let mut front = Front::python(&spawner)?;
        let child = "import os, signal, time
child = os.fork()
if child == 0:
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  os.kill(os.getpid(), signal.SIGSTOP)
  time.sleep(1000)
os.waitpid(child, os.WUNTRACED)";
        assert_eq!(front.run(1, child)?["state"], "kept");
        front.begin(
            2,
            "while True: pass",
            json!({"wall_ms": 200, "grace_ms": 20000}),
        )?;
        assert_eq!(front.report("answer")?["state"], "kept");
        // The whole interpreter stops itself: only the kill ends that.
        let stop =
            "signal.signal(signal.SIGINT, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGSTOP)";
        front.killed_by_its_wall(3..104, stop)?;
        assert_eq!(front.run(104, "1")?["state"], "kept");
        Ok(())
    });
}

/// A record without what differs from run to run.
fn comparable(mut record: Value) -> Value {
    let measured = ["id", "timing", "usage", "execution_time", "warnings"];
    if let Some(record) = record.as_object_mut() {
        record.retain(|name, _| !measured.contains(&name.as_str()));
        for value in record.values_mut() {
            // Only an init that ends can count all processes that there were.
            if let Some(processes) = value.get_mut("processes") {
                processes["hit"] = Value::Null;
            }
            if let Some(cgroup) = value.get_mut("cgroup") {
                *cgroup = Value::Null;
            }
            for id in ["uid", "gid"] {
                if let Some(id) = value.get_mut(id) {
                    *id = Value::Null;
                }
            }
        }
    }
    record
}

#[test]
fn one_execution_has_the_same_record_in_a_context_and_by_itself() {
    alone(|| {
        let spawner = spawner()?;
        let request = json!({"language": "python", "files": [{"path": "in", "text": "x"}]});
        for code in [
            "print('out'); import sys; print('err', file=sys.stderr); open('new', 'w').write('1'); 6 * 7",
            "open('in', 'a').write('y'); {}['missing']",
            "def f(:",
            "import ctypes; libc = ctypes.CDLL(None); libc.ptrace(0, 0, 0, 0)",
            "print('x' * 3_000_000)",
        ] {
            let mut lasting = Front::open(&spawner, request.clone(), true)?;
            let mut alone = Front::open(&spawner, request.clone(), false)?;
            let (in_context, by_itself) = (lasting.run(1, code)?, alone.run(1, code)?);
            assert_eq!(
                (&in_context["state"], &by_itself["state"]),
                (&json!("kept"), &json!("lost"))
            );
            let [one, other] =
                [in_context, by_itself].map(|answer| comparable(answer["record"].clone()));
            assert_eq!(one, other, "{code}");
        }
        Ok(())
    });
}

/// A front end whose supervisor has a blank cell for requests like `plain`.
/// A cell that lasts has files for other interpreters, so the blank one is made to last, too.
fn with_blank(spawner: &Spawner, plain: Value, lasting: bool) -> Tested<Front> {
    let mut front = Front::new(spawner)?;
    let open = json!({"request": plain, "lasting": lasting, "ready": false, "blank": true});
    front.order(json!({ "open": open }))?;
    front.report("opened")?;
    Ok(front)
}

/// Has a program run, in the cell that there is or in a new one.
fn exec(front: &mut Front, request: Value) -> Tested<Value> {
    let open = json!({"request": request, "lasting": false, "ready": false});
    front.order(json!({ "open": open }))?;
    front.order(json!({"execute": {"execution": 1}}))?;
    front.report("opened")?;
    front.report("answer")
}

#[test]
fn any_program_of_the_plan_begins_in_a_blank_cell() {
    alone(|| {
        let spawner = spawner()?;
        let script = r#"cat; echo " $GREETING"; cat in; id -u; echo out > out"#;
        let request = json!({
            "argv": ["/bin/sh", "-c", script],
            "stdin": "input",
            "env": {"GREETING": "hello"},
            "files": [{"path": "in", "text": "file\n"}],
            "limits": {"wall": "20s"},
        });
        let mut front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
        let blank = exec(&mut front, request.clone())?;
        assert_eq!(blank["record"]["start"], "blank", "{blank}");
        assert_eq!(text(&blank, "stdout"), "input hello\nfile\n1000\n");
        let cold = exec(&mut Front::new(&spawner)?, request)?;
        assert_eq!(cold["record"]["start"], "cold");
        let [blank, cold] = [blank, cold].map(|mut answer| {
            answer["record"]["start"].take();
            comparable(answer["record"].take())
        });
        assert_eq!(blank, cold);
        Ok(())
    });
}

#[test]
fn code_and_contexts_begin_in_blank_cells() {
    alone(|| {
        let spawner = spawner()?;
        for lasting in [false, true] {
            let mut front = with_blank(&spawner, json!({"language": "python"}), lasting)?;
            let open = json!({"language": "python"});
            let open = json!({"request": open, "lasting": lasting, "ready": false});
            front.order(json!({ "open": open }))?;
            front.report("opened")?;
            let answer = front.run(1, "print(6 * 7)")?;
            assert_eq!(text(&answer, "stdout"), "42\n");
            assert_eq!(answer["record"]["start"], "blank", "{answer}");
            assert_eq!(answer["state"] == "kept", lasting);
        }
        Ok(())
    });
}

#[test]
fn a_request_of_another_plan_gets_a_cell_of_its_own() {
    alone(|| {
        let spawner = spawner()?;
        for request in [
            json!({"argv": ["/bin/echo", "x"], "limits": {"memory": "64M"}}),
            json!({"argv": ["/bin/echo", "x"], "limits": {"tmp": {"size": "1M"}}}),
        ] {
            let mut front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
            let answer = exec(&mut front, request)?;
            assert_eq!(text(&answer, "stdout"), "x\n", "{answer}");
            assert_eq!(answer["record"]["start"], "cold");
        }
        Ok(())
    });
}

#[test]
fn a_blank_cell_goes_with_its_front_end_and_may_be_lost() {
    alone(|| {
        let spawner = spawner()?;
        let front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
        let supervisor = front.supervisor;
        let cell = below(supervisor);
        assert!(!cell.is_empty());
        drop(front);
        until("the blank cell is gone", || {
            !exists(supervisor) && !cell.iter().any(|pid| exists(*pid))
        })?;
        // One that was killed before there was a program is replaced.
        let mut front = with_blank(&spawner, json!({"argv": ["true"]}), false)?;
        for pid in below(front.supervisor) {
            // The end of one may be that of the others.
            let _ = kill(pid, Signal::SIGKILL);
            until("the kill took effect", || !exists(pid))?;
        }
        let answer = exec(&mut front, json!({"argv": ["/bin/echo", "x"]}))?;
        assert_eq!(text(&answer, "stdout"), "x\n", "{answer}");
        assert_eq!(answer["record"]["start"], "cold");
        Ok(())
    });
}
