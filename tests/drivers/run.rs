//! What a run of a driver did.

use std::fs::File;
use std::io::Read as _;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use languages::frames::{Displayed, Frame, FrameReader};
use record::json::Json;
use record::{CodeError, ResultItem};
use serde_json::Value;

/// No run takes longer.
const DEADLINE: Duration = Duration::from_secs(120);

/// What goes with a result, parsed.
pub(crate) fn parsed(json: Option<&Json>) -> Option<Value> {
    json.map(|json| json.parse().unwrap())
}

/// What a run did.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) started: bool,
    pub(crate) done: bool,
    pub(crate) results: Vec<ResultItem>,
    pub(crate) updates: Vec<ResultItem>,
    /// For each, how many results there were, and whether it waits.
    pub(crate) clears: Vec<(usize, bool)>,
    pub(crate) notes: Vec<String>,
    pub(crate) error: Option<CodeError>,
    pub(crate) is_syntax: bool,
}

/// Waits for the end of a run and collects what it did.
pub(crate) fn finish(mut child: Child, mut channel: File) -> Run {
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let stdout = thread::spawn(move || read_all(&mut stdout));
    let stderr = thread::spawn(move || read_all(&mut stderr));
    let frames = thread::spawn(move || {
        let mut reader = FrameReader::new();
        let mut frames = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = channel.read(&mut chunk) {
            reader
                .feed(&chunk[..count], |execution, frame| {
                    assert_eq!(execution, 1);
                    frames.push(frame);
                })
                .unwrap();
        }
        frames
    });
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the run takes longer than {DEADLINE:?}");
        }
        thread::sleep(Duration::from_millis(2));
    };
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    Run::new(status, stdout, stderr, frames.join().unwrap())
}

fn read_all(stream: &mut impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Run {
    pub(super) fn new(
        status: ExitStatus,
        stdout: String,
        stderr: String,
        frames: Vec<Frame>,
    ) -> Self {
        let mut run = Self {
            status,
            stdout,
            stderr,
            started: false,
            done: false,
            results: Vec::new(),
            updates: Vec::new(),
            clears: Vec::new(),
            notes: Vec::new(),
            error: None,
            is_syntax: false,
        };
        for frame in frames {
            run.take(frame);
        }
        run
    }

    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Started => self.started = true,
            Frame::Result(Displayed { item, notes, .. }) => {
                self.results.push(item);
                self.notes.extend(notes);
            }
            Frame::Update(Displayed { item, notes, .. }) => {
                self.updates.push(item);
                self.notes.extend(notes);
            }
            Frame::Clear { wait } => self.clears.push((self.results.len(), wait)),
            Frame::Error { error, is_syntax } => {
                self.error = Some(error);
                self.is_syntax = is_syntax;
            }
            Frame::Ending | Frame::Exit { .. } => {}
            Frame::Done { .. } => self.done = true,
            Frame::Variables(_) => panic!("nobody asked for variables"),
            Frame::Unknown => panic!("a frame of an unknown kind"),
        }
    }

    /// The texts of the results, the main one marked.
    pub(crate) fn texts(&self) -> Vec<String> {
        let show = |item: &ResultItem| {
            let text = item.text.as_deref().unwrap_or("-");
            format!("{}{text}", if item.is_main_result { "=" } else { "" })
        };
        self.results.iter().map(show).collect()
    }

    /// The error; its absence fails the test.
    pub(crate) fn error(&self) -> &CodeError {
        self.error
            .as_ref()
            .unwrap_or_else(|| panic!("no error in {self:?}"))
    }

    /// The traceback without the marks below source lines, which differ
    /// between versions.
    pub(crate) fn traceback(&self) -> String {
        let is_marks =
            |line: &str| line.contains('^') && line.trim_matches([' ', '^', '~']).is_empty();
        let lines: Vec<&str> = (self.error().traceback.iter())
            .filter(|line| !is_marks(line))
            .map(String::as_str)
            .collect();
        lines.join("\n")
    }
}
