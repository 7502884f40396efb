//! Orders to a supervisor that a real spawner forked.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Base, Spawner};
use jail::launch::wait_for;

mod blank;
mod carry;
mod contexts;
mod ends;
mod floods;
mod guests;
mod interpreters;
mod processes;
mod watches;

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
        while ["event", "interrupted"]
            .iter()
            .any(|skipped| report.get(skipped).is_some() && kind != *skipped)
        {
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

    /// Waits until the code, which is executed with events, has written to standard output.
    fn await_output(&mut self) -> Tested {
        while self.report("event")?["event"]["event"] != "stdout" {}
        Ok(())
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

/// Waits until a supervisor and these processes of its cell have ended.
fn until_gone(supervisor: Pid, processes: &[Pid]) -> Tested {
    until("the supervisor ends", || !exists(supervisor))?;
    for pid in processes {
        until("the cell ends", || !exists(*pid))?;
    }
    Ok(())
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

/// A record without what differs from run to run.
fn comparable(mut record: Value) -> Value {
    let measured = [
        "id",
        "started_at",
        "timing",
        "usage",
        "execution_time",
        "warnings",
    ];
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
