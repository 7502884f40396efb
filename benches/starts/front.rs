//! A front end that does nothing else: what a start costs between a server's front end and
//! the supervisor of one cell.
//!
//! It is a process of its own, since it becomes the plain user, and since the spawner of
//! supervisors is forked from a process with one thread. A line on its standard input has
//! it start `/bin/true` once; the answer is the time in nanoseconds.

use std::io::{BufRead as _, BufReader, Read as _, Write as _, stdin, stdout};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_dumpable;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use serde_json::{Value, json};
use supervisor::{Base, Spawner};

use crate::Result;
use crate::record::every_layer;
use crate::scene::Scene;

/// The process, seen from the harness.
pub(crate) struct Front {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Front {
    /// Starts it. `blank` says whether its cells are blank ones that waited.
    pub(crate) fn start(scene: &Scene, blank: bool) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--front", &scene.uid.to_string()])
            .args(blank.then_some("--blank"))
            .current_dir("/")
            .env("XDG_RUNTIME_DIR", scene.scratch.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let asks = child.stdin.take();
        let answers = child.stdout.take().ok_or("no pipe to the front end")?;
        let answers = BufReader::new(answers);
        Ok(Self {
            child,
            asks,
            answers,
        })
    }

    pub(crate) fn time(&mut self) -> Result<Duration> {
        let asks = self.asks.as_mut().ok_or("the front end has ended")?;
        asks.write_all(b"\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim().parse() {
            Ok(nanos) => Ok(Duration::from_nanos(nanos)),
            Err(_) => Err(format!("the front end: {line:?}").into()),
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.asks = None;
        let _ = self.child.wait();
    }
}

/// The process itself.
pub(crate) fn serve(uid: u32, blank: bool) -> Result<()> {
    if Uid::effective().is_root() && uid != 0 {
        setgroups(&[])?;
        setgid(Gid::from_raw(uid))?;
        setuid(Uid::from_raw(uid))?;
        // Otherwise `/proc/PID` of what is forked from here is root's, and its ids cannot be
        // mapped.
        set_dumpable(true)?;
    }
    let spawner = Spawner::fork(Base {
        cwd: "/".into(),
        ..Base::default()
    })
    .map_err(|error| error.to_string())?;
    let mut next = Link::new(&spawner, blank)?;
    for line in stdin().lines() {
        line?;
        let took = next.run(blank)?;
        next = Link::new(&spawner, blank)?;
        println!("{}", took.as_nanos());
        stdout().flush()?;
    }
    Ok(())
}

/// The socket of one supervisor.
struct Link {
    socket: UnixStream,
    bytes: Vec<u8>,
}

impl Link {
    fn new(spawner: &Spawner, blank: bool) -> Result<Self> {
        let (socket, _) = spawner.supervisor().map_err(|error| error.to_string())?;
        let mut link = Self {
            socket: socket.into(),
            bytes: Vec::new(),
        };
        if blank {
            link.order(&open(true))?;
            link.report("opened")?;
        }
        Ok(link)
    }

    /// Runs the work; from the first order to the record.
    fn run(&mut self, blank: bool) -> Result<Duration> {
        let began = Instant::now();
        self.order(&open(false))?;
        self.order(&json!({"execute": {"execution": 1}}))?;
        self.report("opened")?;
        let answer = self.report("answer")?;
        let took = began.elapsed();
        let record = every_layer(answer["record"].to_string().as_bytes())?;
        let start = json!(record.start);
        if start != json!(if blank { "blank" } else { "cold" }) {
            return Err(format!("the cell's start was {start}").into());
        }
        Ok(took)
    }

    fn order(&mut self, order: &Value) -> Result<()> {
        Ok(self.socket.write_all(format!("{order}\n").as_bytes())?)
    }

    /// The next report, which has to be of this kind.
    fn report(&mut self, kind: &str) -> Result<Value> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let mut report: Value = serde_json::from_slice(&line)?;
                return match report.get_mut(kind).map(Value::take) {
                    Some(found) => Ok(found),
                    None => Err(format!("instead of {kind}: {report}").into()),
                };
            }
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::NONE)?;
            let mut buffer = [0; 64 << 10];
            match self.socket.read(&mut buffer)? {
                0 => return Err("the supervisor has ended".into()),
                count => self.bytes.extend(&buffer[..count]),
            }
        }
    }
}

fn open(blank: bool) -> Value {
    let request = json!({"argv": ["/bin/true"]});
    json!({"open": {"request": request, "lasting": false, "ready": false, "blank": blank}})
}
