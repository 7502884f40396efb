//! What a driver and the supervisor say to each other.

use crate::drivers::frames::{Frame, FrameReader};
use crate::record::CodeError;
use crate::supervise::Channel;
use crate::sys::process::monotonic_ns;

use super::results::Results;

/// One request, and what came back.
#[derive(Debug)]
pub(super) struct Conversation {
    request: Vec<u8>,
    sent: usize,
    reader: FrameReader,
    pub(super) said: Said,
}

/// What the shim said; hostile input, capped.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// When the interpreter began with the code (monotonic, ns).
    pub(super) started_ns: Option<u64>,
    pub(super) results: Results,
    pub(super) error: Option<CodeError>,
    pub(super) is_syntax: bool,
}

impl Conversation {
    pub(super) fn new(request: Vec<u8>) -> Self {
        Self {
            request,
            sent: 0,
            reader: FrameReader::new(),
            said: Said::default(),
        }
    }
}

impl Channel for Conversation {
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let said = &mut self.said;
        self.reader.feed(bytes, |frame| said.take(frame)).is_ok()
    }

    fn pending(&self) -> &[u8] {
        &self.request[self.sent..]
    }

    fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.request.len() {
            self.request = Vec::new();
            self.sent = 0;
        }
    }
}

impl Said {
    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Started => self.started_ns = self.started_ns.or_else(|| Some(monotonic_ns())),
            Frame::Result { item, notes } => self.results.add(item, notes),
            Frame::Update { item, notes } => self.results.update(item, notes),
            Frame::Clear { wait } => self.results.clear(wait),
            Frame::Error { error, is_syntax } => {
                self.error = Some(error);
                self.is_syntax = is_syntax;
            }
            Frame::Done => {}
        }
    }
}
