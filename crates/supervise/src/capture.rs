//! Keeps the head and the tail of an output stream in bounded memory.

use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::uio::readv;

use super::turn::Turn;
use record::Truncation;
use record::stream::{Base64, Kept, Text};
use spec::Bytes;

/// The first buffer; it doubles from there.
const FIRST_BUFFER: usize = 8 << 10;
/// Room for this much is set aside at once: unused it costs address space, while
/// a buffer that moves leaves holes in the heap.
const FIRST_ROOM: usize = 512 << 10;
/// The ring becomes at least this long, so that a small cap does not turn a
/// flood into as many small reads.
const SHORTEST_RING: usize = 64 << 10;

/// One captured stream.
///
/// Of a stream within the cap everything is kept, of a longer one the first and
/// the last half of the cap. Memory grows with the stream up to the cap (for a
/// small cap, 64 KiB above it) and stays there. Every byte is read to its final
/// place: what is not kept has been overwritten, never copied.
#[derive(Debug)]
pub struct Capture {
    /// The stream's first bytes.
    head: Vec<u8>,
    head_cap: usize,
    /// What follows the head; once `ring_cap` long, newer bytes replace the
    /// oldest.
    ring: Vec<u8>,
    ring_cap: usize,
    /// How much of the ring counts.
    tail_cap: usize,
    total: u64,
}

/// What [`Capture::read_from`] left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// Nothing more for now.
    Drained,
    /// There may be more: call again when other work is done.
    More,
    /// Every writer has closed its end.
    Closed,
}

/// A captured stream in the record's form; the texts share the kept bytes.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The kept text, with a line saying how much is missing where it was cut;
    /// invalid UTF-8 is shown as U+FFFD.
    pub text: Text,
    /// The kept bytes, head and tail with nothing between them; only when they
    /// are not valid UTF-8.
    pub base64: Option<Base64>,
    /// How the stream was cut, if it was.
    pub truncation: Option<Truncation>,
}

impl Capture {
    /// A capture that keeps up to `cap` bytes.
    pub fn new(cap: Bytes) -> Self {
        let cap = usize::try_from(cap.0).unwrap_or(usize::MAX);
        let tail_cap = cap / 2;
        Self {
            head: Vec::new(),
            head_cap: cap - tail_cap,
            ring: Vec::new(),
            ring_cap: tail_cap.max(SHORTEST_RING),
            tail_cap,
            total: 0,
        }
    }

    /// Bytes seen so far, kept or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether the stream is longer than the cap.
    pub fn over_cap(&self) -> bool {
        self.beyond_head() > self.tail_cap as u64
    }

    /// Reads what there is from `fd`, a non-blocking pipe or socket, but takes
    /// only a [`Turn`].
    ///
    /// # Errors
    /// Those of readv(2), except EAGAIN and EINTR.
    pub fn read_from(&mut self, fd: BorrowedFd<'_>) -> io::Result<ReadStatus> {
        self.read_turn(fd, &mut Turn::begin(), |_| true)
    }

    /// The same; passes the bytes of each read to `on_bytes`, which returns whether to
    /// read on now.
    ///
    /// # Errors
    /// Those of readv(2), except EAGAIN and EINTR.
    pub fn read_turn(
        &mut self,
        fd: BorrowedFd<'_>,
        turn: &mut Turn,
        mut on_bytes: impl FnMut([&[u8]; 2]) -> bool,
    ) -> io::Result<ReadStatus> {
        // A short read does not mean that the pipe is empty: the program can
        // put its end into packet mode (O_DIRECT). Only EAGAIN means that.
        loop {
            let [first, second] = self.room();
            match readv(fd, &mut [IoSliceMut::new(first), IoSliceMut::new(second)]) {
                Ok(0) => return Ok(ReadStatus::Closed),
                Ok(got) => {
                    let at = self.total;
                    self.total += got as u64;
                    if !on_bytes(self.read_at(at, got)) || !turn.goes_on(got) {
                        return Ok(ReadStatus::More);
                    }
                }
                Err(Errno::EAGAIN) => return Ok(ReadStatus::Drained),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The places for the next bytes, never empty in total.
    fn room(&mut self) -> [&mut [u8]; 2] {
        let head_len = self.head_len();
        if head_len < self.head_cap {
            grow_when_full(&mut self.head, head_len, self.head_cap);
            return [&mut self.head[head_len..], &mut []];
        }
        let beyond = self.beyond_head();
        let filled = usize::try_from(beyond).unwrap_or(usize::MAX);
        grow_when_full(&mut self.ring, filled, self.ring_cap);
        let at = position(beyond, self.ring.len());
        let may_wrap = self.ring.len() == self.ring_cap;
        let (start, end) = self.ring.split_at_mut(at);
        [end, if may_wrap { start } else { &mut [] }]
    }

    /// The last `got` bytes, which were read behind the first `at`: one read goes
    /// to the head or to the ring.
    fn read_at(&self, at: u64, got: usize) -> [&[u8]; 2] {
        let Some(beyond) = at.checked_sub(self.head_cap as u64) else {
            let at = at as usize;
            return [&self.head[at..at + got], &[]];
        };
        let start = position(beyond, self.ring.len());
        let (before, behind) = self.ring.split_at(start);
        let first = got.min(behind.len());
        [&behind[..first], &before[..got - first]]
    }

    /// The stream in the record's form. Nothing is copied: the ring becomes the
    /// tail where it is.
    pub fn finish(mut self) -> Captured {
        let over_cap = self.over_cap();
        let beyond = self.beyond_head();
        self.head.truncate(self.head_len());
        if !over_cap {
            // Within the cap the ring has not wrapped.
            self.ring.truncate(beyond as usize);
            let (text, base64) = Kept::whole(self.head, self.ring).forms();
            return Captured {
                text,
                base64,
                truncation: None,
            };
        }
        let end = position(beyond, self.ring.len());
        self.ring.rotate_left(end);
        let surplus = self.ring.len() - self.tail_cap;
        self.ring.drain(..surplus);
        let kept = Kept::ends(self.head, self.ring, self.total);
        let (head, all) = kept.lengths();
        let (text, base64) = kept.forms();
        Captured {
            text,
            base64,
            truncation: Some(Truncation {
                total: self.total,
                kept: all,
                part: "head+tail".to_owned(),
                head: Some(head),
            }),
        }
    }

    fn head_len(&self) -> usize {
        self.total.min(self.head_cap as u64) as usize
    }

    fn beyond_head(&self) -> u64 {
        self.total.saturating_sub(self.head_cap as u64)
    }
}

/// Doubles `buffer` up to `cap` when all of it has been `filled`. The new part
/// is zeroed, which a stream pays once and only as far as it is long.
fn grow_when_full(buffer: &mut Vec<u8>, filled: usize, cap: usize) {
    let len = buffer.len();
    if filled >= len && len < cap {
        let wanted = len.saturating_mul(2).max(FIRST_BUFFER).min(cap);
        buffer.reserve_exact(wanted.max(FIRST_ROOM.min(cap)) - len);
        buffer.resize(wanted, 0);
    }
}

/// Where in a ring of `len` bytes the byte number `count` belongs.
fn position(count: u64, len: usize) -> usize {
    match len {
        0 => 0,
        _ => (count % len as u64) as usize,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use nix::fcntl::OFlag;
    use nix::unistd::{pipe2, write};
    use proptest::prelude::*;

    use super::*;

    fn captured(cap: u64, chunks: &[Vec<u8>]) -> (Capture, ReadStatus) {
        let (read, write_end) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let mut capture = Capture::new(Bytes(cap));
        for chunk in chunks {
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                rest = &rest[write(&write_end, rest).unwrap()..];
                drain(&mut capture, &read);
            }
        }
        drop(write_end);
        let status = drain(&mut capture, &read);
        (capture, status)
    }

    fn drain(capture: &mut Capture, read: &OwnedFd) -> ReadStatus {
        hear(capture, read, &mut Vec::new())
    }

    fn hear(capture: &mut Capture, read: &OwnedFd, heard: &mut Vec<u8>) -> ReadStatus {
        loop {
            let listen = |parts: [&[u8]; 2]| {
                heard.extend(parts.concat());
                heard.len().is_multiple_of(3)
            };
            match capture
                .read_turn(read.as_fd(), &mut Turn::begin(), listen)
                .unwrap()
            {
                ReadStatus::More => {}
                status => return status,
            }
        }
    }

    /// A captured stream as the record shows it.
    type Shown = (String, Option<String>, Option<Truncation>);

    fn shown(captured: &Captured) -> Shown {
        (
            captured.text.to_string(),
            captured.base64.as_ref().map(ToString::to_string),
            captured.truncation.clone(),
        )
    }

    /// What a capture should keep, without any buffers.
    fn model(cap: usize, stream: &[u8]) -> Shown {
        let lossy = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if stream.len() <= cap {
            let is_text = std::str::from_utf8(stream).is_ok();
            let base64 = (!is_text).then(|| BASE64.encode(stream));
            return (lossy(stream), base64, None);
        }
        let (mut head, mut tail) = (&stream[..cap - cap / 2], &stream[stream.len() - cap / 2..]);
        let (mut whole_head, mut whole_tail) = (head, tail);
        if let Err(error) = std::str::from_utf8(head)
            && error.error_len().is_none()
        {
            whole_head = &head[..error.valid_up_to()];
        }
        for _ in 0..3 {
            if let [0x80..=0xBF, rest @ ..] = whole_tail {
                whole_tail = rest;
            }
        }
        let is_text = |bytes| std::str::from_utf8(bytes).is_ok();
        let mut base64 = None;
        if is_text(whole_head) && is_text(whole_tail) {
            (head, tail) = (whole_head, whole_tail);
        } else {
            base64 = Some(BASE64.encode([head, tail].concat()));
        }
        let kept = head.len() + tail.len();
        let text = lossy(head) + &gap_line(stream.len() - kept) + &lossy(tail);
        let truncation = Truncation {
            total: stream.len() as u64,
            kept: kept as u64,
            part: "head+tail".into(),
            head: Some(head.len() as u64),
        };
        (text, base64, Some(truncation))
    }

    fn gap_line(bytes: usize) -> String {
        let digits: Vec<char> = bytes.to_string().chars().collect();
        let groups: Vec<String> = digits.rchunks(3).rev().map(String::from_iter).collect();
        format!("\n[… {} bytes cut …]\n", groups.join(","))
    }

    /// The bytes that a reader of the record gets back.
    fn recovered(captured: &Captured) -> Vec<u8> {
        let (text, base64, truncation) = shown(captured);
        if let Some(base64) = base64 {
            return BASE64.decode(base64).unwrap();
        }
        let Some(truncation) = truncation else {
            return text.into_bytes();
        };
        let head = truncation.head.unwrap() as usize;
        let tail = truncation.kept as usize - head;
        let text = text.as_bytes();
        let gap = &text[head..text.len() - tail];
        let missing = (truncation.total - truncation.kept) as usize;
        assert_eq!(gap, gap_line(missing).as_bytes());
        [&text[..head], &text[text.len() - tail..]].concat()
    }

    fn stream_chunk() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..64),
            "[a-zé€😀\\n]{0,40}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn equals_the_model(cap in 0u64..200, chunks in proptest::collection::vec(stream_chunk(), 0..12)) {
            let stream = chunks.concat();
            let (capture, status) = captured(cap, &chunks);
            prop_assert_eq!(status, ReadStatus::Closed);
            prop_assert_eq!(capture.total(), stream.len() as u64);
            prop_assert_eq!(capture.over_cap(), stream.len() as u64 > cap);
            prop_assert_eq!(shown(&capture.finish()), model(cap as usize, &stream));
        }

        #[test]
        fn kept_bytes_are_recoverable_from_json(cap in 0u64..100, chunks in proptest::collection::vec(stream_chunk(), 0..12)) {
            let stream = chunks.concat();
            let captured = captured(cap, &chunks).0.finish();
            let json = serde_json::to_string(&captured.text).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), captured.text.to_string());
            let kept = recovered(&captured);
            match &captured.truncation {
                None => prop_assert_eq!(kept, stream),
                Some(truncation) => {
                    let head = truncation.head.unwrap() as usize;
                    prop_assert_eq!(truncation.kept, kept.len() as u64);
                    prop_assert_eq!(truncation.total, stream.len() as u64);
                    prop_assert!(kept.len() as u64 <= cap && kept.len() as u64 + 6 >= cap);
                    prop_assert!(stream.starts_with(&kept[..head]));
                    prop_assert!(stream.ends_with(&kept[head..]));
                }
            }
        }
    }

    proptest! {
        /// Caps and chunks large enough for buffers to grow and rings to wrap.
        #[test]
        fn equals_the_model_at_size(
            cap in prop_oneof![Just(0u64), 1u64..9000, 100_000u64..400_000],
            lengths in proptest::collection::vec(1usize..200_000, 1..8),
        ) {
            let mut next = 0u32;
            let chunks: Vec<Vec<u8>> = lengths
                .iter()
                .map(|length| {
                    let numbers = (0..length / 4 + 1).flat_map(|_| {
                        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        next.to_le_bytes()
                    });
                    numbers.take(*length).collect()
                })
                .collect();
            prop_assert_eq!(
                shown(&captured(cap, &chunks).0.finish()),
                model(cap as usize, &chunks.concat())
            );
        }
    }

    #[test]
    fn every_byte_is_heard_once() {
        let (read, write_end) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        for cap in [0, 1, 10, 100_001, 300_000] {
            let (mut capture, mut heard) = (Capture::new(Bytes(cap)), Vec::new());
            let stream: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
            for chunk in stream.chunks(7_777) {
                assert_eq!(write(&write_end, chunk).unwrap(), chunk.len());
                hear(&mut capture, &read, &mut heard);
            }
            assert!(heard == stream, "cap {cap}");
        }
    }

    #[test]
    fn a_cut_stream_says_where_and_how_much() {
        let (capture, _) = captured(10, &[b"0123456789".repeat(200)]);
        let captured = capture.finish();
        let truncation = Truncation {
            total: 2000,
            kept: 10,
            part: "head+tail".into(),
            head: Some(5),
        };
        let text = "01234\n[… 1,990 bytes cut …]\n56789";
        assert_eq!(shown(&captured), (text.into(), None, Some(truncation)));
    }

    #[test]
    fn text_is_cut_between_characters() {
        let captured = captured(10, &["€".repeat(9).into_bytes()]).0.finish();
        let (text, base64, truncation) = shown(&captured);
        assert_eq!(text, "€\n[… 21 bytes cut …]\n€");
        assert_eq!((base64, truncation.unwrap().kept), (None, 6));
    }

    #[test]
    fn memory_is_what_the_stream_needs_and_never_above_the_cap() {
        let used = |capture: &Capture| capture.head.len() + capture.ring.len();
        let memory = |capture: &Capture| capture.head.capacity() + capture.ring.capacity();
        assert_eq!(memory(&Capture::new(Bytes::mib(1))), 0);
        let (little, _) = captured(1 << 20, &[b"hello".to_vec()]);
        assert_eq!((used(&little), memory(&little)), (FIRST_BUFFER, FIRST_ROOM));
        let (longer, _) = captured(8 << 20, &vec![vec![b'x'; 1 << 20]; 3]);
        assert_eq!((used(&longer), memory(&longer)), (4 << 20, 4 << 20));
        let (flood, _) = captured(1 << 20, &vec![vec![b'x'; 1 << 20]; 5]);
        assert_eq!((used(&flood), memory(&flood)), (1 << 20, 1 << 20));
        let (small_cap, _) = captured(100, &vec![vec![b'x'; 1 << 20]; 2]);
        assert_eq!(memory(&small_cap), 50 + SHORTEST_RING);
    }

    #[test]
    fn a_stream_that_never_runs_dry_yields_the_turn() {
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let mut capture = Capture::new(Bytes::mib(1));
        assert_eq!(capture.read_from(zero.as_fd()).unwrap(), ReadStatus::More);
        assert!(capture.total() <= 5 << 20);
    }

    #[test]
    fn an_open_pipe_without_data_is_drained() {
        let (read, _write) = pipe2(OFlag::O_NONBLOCK).unwrap();
        let mut capture = Capture::new(Bytes::mib(1));
        assert_eq!(
            capture.read_from(read.as_fd()).unwrap(),
            ReadStatus::Drained
        );
    }
}
