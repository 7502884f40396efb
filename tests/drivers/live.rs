//! A driver that serves executions, one after the other.

use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use languages::frames::{Displayed, Frame, FrameReader, Request, Work};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use record::bytes::RawText;
use record::{CodeError, Variables};

use super::harness::Bench;

/// No answer takes longer.
const DEADLINE: Duration = Duration::from_secs(120);
/// After this time, an interrupt is repeated for a shell.
const AGAIN: Duration = Duration::from_millis(50);

pub(crate) struct Live<'a> {
    bench: &'a Bench,
    child: Child,
    requests: Option<ChildStdin>,
    frames: Receiver<(u64, Frame)>,
    output: Vec<JoinHandle<String>>,
    execution: u64,
    /// Whether the last execution was interrupted.
    is_interrupted: bool,
}

/// What became of an execution.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) texts: Vec<String>,
    pub(crate) error: Option<CodeError>,
    pub(crate) variables: Option<Variables>,
    pub(crate) status: Option<u8>,
}

impl Ended {
    /// The text of the last result, or the name of the error.
    pub(crate) fn outcome(&self) -> Result<Option<&str>, &str> {
        match &self.error {
            Some(error) => Err(&error.name),
            None => Ok(self.texts.last().map(String::as_str)),
        }
    }
}

impl<'a> Live<'a> {
    pub(crate) fn new(bench: &'a Bench) -> Self {
        let (mut child, mut pipe) = bench.launch(&RawText::default(), &[]);
        let (send, frames) = channel();
        thread::spawn(move || {
            let mut reader = FrameReader::new();
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                let take = |execution, frame| drop(send.send((execution, frame)));
                reader.feed(&chunk[..count], take).unwrap();
            }
        });
        let stdout = child.stdout.take().map(drained);
        let stderr = child.stderr.take().map(drained);
        Self {
            bench,
            requests: child.stdin.take(),
            child,
            frames,
            output: stdout.into_iter().chain(stderr).collect(),
            execution: 0,
            is_interrupted: false,
        }
    }

    /// Sends code; the driver has not necessarily seen it.
    pub(crate) fn begin(&mut self, code: &str) {
        self.execution += 1;
        let is_interrupted = std::mem::take(&mut self.is_interrupted);
        let bench = self.bench;
        let request = bench.request(self.execution, is_interrupted, false, &code.into(), &[]);
        self.send(&request);
    }

    fn send(&mut self, request: &[u8]) {
        let requests = self.requests.as_mut().unwrap();
        requests.write_all(request).unwrap();
    }

    fn frame(&mut self) -> Option<Frame> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.frames.recv_timeout(AGAIN) {
                Ok((execution, frame)) => {
                    assert_eq!(execution, self.execution, "{frame:?}");
                    return Some(frame);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => return None,
            }
            // As the supervisor does: a shell may have started a command after the interrupt.
            if self.is_interrupted && self.bench.is_shell() {
                self.signal();
            }
        }
    }

    /// Waits until the code begins.
    pub(crate) fn started(&mut self) {
        let frame = self.frame();
        assert!(matches!(frame, Some(Frame::Started)), "{frame:?}");
    }

    /// Waits until the code has ended.
    pub(crate) fn ended(&mut self) -> Ended {
        let mut ended = Ended::default();
        loop {
            match self.frame() {
                Some(Frame::Done { status }) => {
                    ended.status = status;
                    return ended;
                }
                Some(Frame::Result(Displayed { item, .. })) => ended.texts.extend(item.text),
                Some(Frame::Error { error, .. }) => ended.error = Some(error),
                Some(Frame::Variables(list)) => ended.variables = Some(list),
                Some(_) => {}
                None => panic!("no end after {ended:?}: {:?}", self.child.try_wait()),
            }
        }
    }

    pub(crate) fn run(&mut self, code: &str) -> Ended {
        self.begin(code);
        self.started();
        self.ended()
    }

    /// Runs code that is to succeed.
    pub(crate) fn ok(&mut self, code: &str) -> Ended {
        let ended = self.run(code);
        assert!(ended.error.is_none(), "{code}: {ended:?}");
        ended
    }

    pub(crate) fn describe(&mut self) -> Variables {
        self.execution += 1;
        let request = Request {
            execution: self.execution,
            follows_interrupt: std::mem::take(&mut self.is_interrupted),
            is_restored: false,
            work: Work::Describe,
        };
        self.send(&request.encode().unwrap());
        self.started();
        self.ended().variables.unwrap()
    }

    /// Interrupts the execution.
    pub(crate) fn interrupt(&mut self) {
        assert!(!std::mem::replace(&mut self.is_interrupted, true));
        self.signal();
    }

    /// Sends what the cell's init sends.
    fn signal(&self) {
        let group = self.group();
        if !self.bench.is_shell() {
            return killpg(group, Signal::SIGINT).unwrap();
        }
        kill(group, Signal::SIGURG).unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in pids.map(Pid::from_raw).filter(|pid| *pid != group) {
            if getpgid(Some(pid)) == Ok(group) {
                let _ = kill(pid, Signal::SIGINT);
            }
        }
    }

    fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Interrupts code once it has written a file of this name, after a moment in which
    /// it can come to rest; it is to end by that.
    pub(crate) fn interrupted(&mut self, code: &str, sign: Option<&str>) -> Ended {
        self.begin(code);
        self.started();
        let deadline = Instant::now() + DEADLINE;
        while let Some(sign) = sign
            && !self.bench.workspace().join(sign).exists()
        {
            assert!(Instant::now() < deadline, "{code}: never came to {sign}");
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(50));
        self.interrupt();
        let ended = self.ended();
        if let Some(sign) = sign {
            std::fs::remove_file(self.bench.workspace().join(sign)).unwrap();
        }
        ended
    }

    /// Ends the channel: how the process ended, and what it wrote to stdout and stderr.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        drop(self.requests.take());
        let deadline = Instant::now() + DEADLINE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the driver does not end");
            thread::sleep(Duration::from_millis(5));
        }
        let status = self.child.wait().unwrap();
        let output = self.output.drain(..).map(|thread| thread.join().unwrap());
        (status, output.collect())
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn drained(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
