//! What a driver and the supervisor say to each other.

use serde_json::Value;

use crate::drivers::frames::{Frame, FrameReader};
use crate::record::{CodeError, ResultItem};
use crate::supervise::Channel;
use crate::sys::process::monotonic_ns;

/// Results kept of one run; what comes after them is counted.
const RESULTS_CAP: usize = 1000;
/// Bytes of them.
const RESULT_BYTES_CAP: usize = 64 << 20;

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
    pub(super) results: Vec<ResultItem>,
    pub(super) results_total: u64,
    results_size: usize,
    pub(super) error: Option<CodeError>,
    pub(super) is_syntax: bool,
    pub(super) notes: Vec<String>,
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
            Frame::Result { item, notes } => {
                self.results_total += 1;
                let size = size_of_item(&item);
                if self.results.len() < RESULTS_CAP && self.results_size + size <= RESULT_BYTES_CAP
                {
                    self.results_size += size;
                    self.results.push(item);
                    self.notes.extend(notes);
                }
            }
            Frame::Error { error, is_syntax } => {
                self.error = Some(error);
                self.is_syntax = is_syntax;
            }
            Frame::Done => {}
        }
    }
}

/// About how many bytes a result takes in the record.
fn size_of_item(item: &ResultItem) -> usize {
    let text = item.text.as_ref().map_or(0, String::len);
    let format = |(name, value): (&String, &Value)| {
        name.len()
            + value
                .as_str()
                .map_or_else(|| value.to_string().len(), str::len)
    };
    text + item.formats.iter().map(format).sum::<usize>()
}
