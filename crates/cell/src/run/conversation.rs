//! What a driver and the supervisor say to each other.

use crate::drivers::frames::{Displayed, Frame, FrameReader};
use crate::spec::Bytes;
use crate::supervise::Channel;
use record::CodeError;
use sys::process::monotonic_ns;

use super::events::Teller;
use super::results::Results;

/// One request, and what came back.
pub(super) struct Conversation<'a> {
    request: Vec<u8>,
    sent: usize,
    reader: FrameReader,
    said: Said,
    /// Passes it on at once.
    teller: Option<&'a Teller<'a>>,
}

/// What the shim said; hostile input, capped.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// When the interpreter began with the code (monotonic, ns).
    pub(super) started_ns: Option<u64>,
    pub(super) results: Results,
    pub(super) error: Option<CodeError>,
    pub(super) is_syntax: bool,
    /// The channel ended within a frame.
    pub(super) is_cut_short: bool,
}

impl<'a> Conversation<'a> {
    /// `results` is the most that is kept of them.
    pub(super) fn new(request: Vec<u8>, results: Bytes, teller: Option<&'a Teller<'a>>) -> Self {
        Self {
            request,
            sent: 0,
            reader: FrameReader::new(),
            said: Said {
                results: Results::within(results),
                ..Said::default()
            },
            teller,
        }
    }

    /// What was said, once the channel has ended.
    pub(super) fn finish(self) -> Said {
        Said {
            is_cut_short: !self.reader.is_between_frames(),
            ..self.said
        }
    }
}

impl Channel for Conversation<'_> {
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let (said, teller) = (&mut self.said, self.teller);
        // One request is sent, so every frame is of its execution.
        let take = |_execution, frame| said.take(frame, teller);
        self.reader.feed(bytes, take).is_ok()
    }

    fn pending(&self) -> &[u8] {
        &self.request[self.sent..]
    }

    fn has_begun(&self) -> bool {
        self.said.started_ns.is_some()
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
    fn take(&mut self, frame: Frame, teller: Option<&Teller<'_>>) {
        match frame {
            Frame::Started => self.started_ns = self.started_ns.or_else(|| Some(monotonic_ns())),
            Frame::Result(Displayed { item, notes, size }) => {
                let kept = self.results.add(item, notes, size);
                if let (Some(teller), Some(kept)) = (teller, kept) {
                    teller.result(kept);
                }
            }
            Frame::Update(Displayed { item, notes, size }) => {
                let kept = self.results.update(item, notes, size);
                if let (Some(teller), Some(kept)) = (teller, kept) {
                    teller.update(kept);
                }
            }
            Frame::Clear { wait } => {
                self.results.clear(wait);
                if let Some(teller) = teller {
                    teller.clear(wait);
                }
            }
            Frame::Error { error, is_syntax } => {
                if let Some(teller) = teller {
                    teller.error(&error);
                }
                self.error = Some(error);
                self.is_syntax = is_syntax;
            }
            Frame::Done | Frame::Unknown => {}
        }
    }
}
