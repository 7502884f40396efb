//! Keeps the head and the tail of an output stream in bounded memory.

use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nix::errno::Errno;
use nix::sys::uio::readv;

use crate::record::Truncation;
use crate::spec::Bytes;

/// The first buffer; it doubles from there.
const FIRST_BUFFER: usize = 8 << 10;
/// The ring becomes at least this long, so that a small cap does not turn a
/// flood into as many small reads.
const SHORTEST_RING: usize = 64 << 10;
/// One [`Capture::read_from`] stops after this many reads: a stream that never
/// runs dry, a byte at a time or a megabyte, must not keep its reader from
/// limits and other streams.
const READS_PER_TURN: usize = 16;

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

/// A captured stream in the record's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The kept text, with a line saying how much is missing where it was cut;
    /// invalid UTF-8 is shown as U+FFFD.
    pub text: String,
    /// The kept bytes, head and tail with nothing between them; only when they
    /// are not valid UTF-8.
    pub base64: Option<String>,
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
    /// only a turn of a few milliseconds.
    ///
    /// # Errors
    /// Those of readv(2), except EAGAIN and EINTR.
    pub fn read_from(&mut self, fd: BorrowedFd<'_>) -> io::Result<ReadStatus> {
        // A short read does not mean that the pipe is empty: the program can
        // put its end into packet mode (O_DIRECT). Only EAGAIN means that.
        for _ in 0..READS_PER_TURN {
            let [first, second] = self.room();
            match readv(fd, &mut [IoSliceMut::new(first), IoSliceMut::new(second)]) {
                Ok(0) => return Ok(ReadStatus::Closed),
                Ok(got) => self.total += got as u64,
                Err(Errno::EAGAIN) => return Ok(ReadStatus::Drained),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(ReadStatus::More)
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

    /// The stream in the record's form.
    pub fn finish(mut self) -> Captured {
        self.head.truncate(self.head_len());
        if self.over_cap() {
            return cut(&self.head, &self.tail(), self.total);
        }
        let mut kept = self.head;
        // Within the cap the ring has not wrapped.
        let rest = self.total as usize - kept.len();
        kept.extend_from_slice(&self.ring[..rest]);
        match String::from_utf8(kept) {
            Ok(text) => Captured {
                text,
                base64: None,
                truncation: None,
            },
            Err(error) => Captured {
                text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                base64: Some(BASE64.encode(error.as_bytes())),
                truncation: None,
            },
        }
    }

    /// The last `tail_cap` bytes of a stream over the cap.
    fn tail(&self) -> Vec<u8> {
        let beyond = self.beyond_head();
        let end = position(beyond, self.ring.len());
        let mut tail = Vec::with_capacity(self.tail_cap);
        if let Some(wrapped) = self.tail_cap.checked_sub(end) {
            tail.extend_from_slice(&self.ring[self.ring.len() - wrapped..]);
            tail.extend_from_slice(&self.ring[..end]);
        } else {
            tail.extend_from_slice(&self.ring[end - self.tail_cap..end]);
        }
        tail
    }

    fn head_len(&self) -> usize {
        self.total.min(self.head_cap as u64) as usize
    }

    fn beyond_head(&self) -> u64 {
        self.total.saturating_sub(self.head_cap as u64)
    }
}

/// Doubles `buffer` up to `cap` when all of it has been `filled`. The new room
/// is zeroed, which a stream pays once and only as far as it is long.
fn grow_when_full(buffer: &mut Vec<u8>, filled: usize, cap: usize) {
    let len = buffer.len();
    if filled >= len && len < cap {
        let wanted = len.saturating_mul(2).max(FIRST_BUFFER).min(cap);
        buffer.reserve_exact(wanted - len);
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

/// Puts the two ends of a longer stream together.
fn cut(head: &[u8], tail: &[u8], total: u64) -> Captured {
    let captured = |head_len: usize, kept: usize, text: [&str; 2], base64| {
        let kept = kept as u64;
        Captured {
            text: format!("{}{}{}", text[0], gap_line(total - kept), text[1]),
            base64,
            truncation: Some(Truncation {
                total,
                kept,
                part: "head+tail".to_owned(),
                head: Some(head_len as u64),
            }),
        }
    };
    // Text that was cut within a character is still text: drop what is left of
    // that character on either side.
    let whole_head = without_cut_end(head);
    let whole_tail = without_cut_start(tail);
    match (
        std::str::from_utf8(whole_head),
        std::str::from_utf8(whole_tail),
    ) {
        (Ok(before), Ok(after)) => captured(
            before.len(),
            before.len() + after.len(),
            [before, after],
            None,
        ),
        _ => captured(
            head.len(),
            head.len() + tail.len(),
            [
                &String::from_utf8_lossy(head),
                &String::from_utf8_lossy(tail),
            ],
            Some(BASE64.encode([head, tail].concat())),
        ),
    }
}

/// The line that stands for what was cut.
pub fn gap_line(bytes: u64) -> String {
    format!("\n[… {} bytes cut …]\n", grouped(bytes))
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Without the start of a UTF-8 sequence that the end cuts off.
fn without_cut_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Without the end of a UTF-8 sequence that the start cuts off.
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let continuation = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000)
        .count();
    &bytes[continuation..]
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

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
        loop {
            match capture.read_from(read.as_fd()).unwrap() {
                ReadStatus::More => {}
                status => return status,
            }
        }
    }

    /// What a capture should keep, told without any buffers.
    fn model(cap: usize, stream: &[u8]) -> Captured {
        if stream.len() <= cap {
            let text = String::from_utf8_lossy(stream);
            return Captured {
                base64: std::str::from_utf8(stream)
                    .is_err()
                    .then(|| BASE64.encode(stream)),
                text: text.into_owned(),
                truncation: None,
            };
        }
        let tail = cap / 2;
        cut(
            &stream[..cap - tail],
            &stream[stream.len() - tail..],
            stream.len() as u64,
        )
    }

    /// The bytes that a reader of the record gets back.
    fn recovered(captured: &Captured) -> Vec<u8> {
        if let Some(base64) = &captured.base64 {
            return BASE64.decode(base64).unwrap();
        }
        let Some(truncation) = &captured.truncation else {
            return captured.text.clone().into_bytes();
        };
        let head = truncation.head.unwrap() as usize;
        let tail = truncation.kept as usize - head;
        let text = captured.text.as_bytes();
        let gap = &text[head..text.len() - tail];
        assert_eq!(gap, gap_line(truncation.total - truncation.kept).as_bytes());
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
            prop_assert_eq!(capture.finish(), model(cap as usize, &stream));
        }

        #[test]
        fn kept_bytes_are_recoverable_from_json(cap in 0u64..100, chunks in proptest::collection::vec(stream_chunk(), 0..12)) {
            let stream = chunks.concat();
            let captured = captured(cap, &chunks).0.finish();
            let json = serde_json::to_string(&captured.text).unwrap();
            prop_assert_eq!(&serde_json::from_str::<String>(&json).unwrap(), &captured.text);
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
        #![proptest_config(ProptestConfig::with_cases(24))]

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
                captured(cap, &chunks).0.finish(),
                model(cap as usize, &chunks.concat())
            );
        }
    }

    #[test]
    fn a_cut_stream_says_where_and_how_much() {
        let (capture, _) = captured(10, &[b"0123456789".repeat(200)]);
        let captured = capture.finish();
        assert_eq!(captured.text, "01234\n[… 1,990 bytes cut …]\n56789");
        assert_eq!(captured.base64, None);
        assert_eq!(
            captured.truncation,
            Some(Truncation {
                total: 2000,
                kept: 10,
                part: "head+tail".into(),
                head: Some(5)
            })
        );
    }

    #[test]
    fn text_is_cut_between_characters() {
        let captured = captured(10, &["€".repeat(9).into_bytes()]).0.finish();
        assert_eq!(captured.text, "€\n[… 21 bytes cut …]\n€");
        assert_eq!(captured.base64, None);
        assert_eq!(captured.truncation.unwrap().kept, 6);
    }

    #[test]
    fn memory_is_what_the_stream_needs_and_never_above_the_cap() {
        let memory = |capture: &Capture| capture.head.capacity() + capture.ring.capacity();
        assert_eq!(memory(&Capture::new(Bytes::mib(1))), 0);
        let (little, _) = captured(1 << 20, &[b"hello".to_vec()]);
        assert_eq!(memory(&little), FIRST_BUFFER);
        let (flood, _) = captured(1 << 20, &vec![vec![b'x'; 1 << 20]; 5]);
        assert_eq!(memory(&flood), 1 << 20);
        let (small_cap, _) = captured(100, &vec![vec![b'x'; 1 << 20]; 2]);
        assert_eq!(memory(&small_cap), 50 + SHORTEST_RING);
    }

    #[test]
    fn a_stream_that_never_runs_dry_yields_the_turn() {
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let mut capture = Capture::new(Bytes::mib(1));
        assert_eq!(capture.read_from(zero.as_fd()).unwrap(), ReadStatus::More);
        assert!(capture.total() <= (READS_PER_TURN as u64) << 20);
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
