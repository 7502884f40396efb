//! Decompression, chosen by the first bytes.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest ratio of decompressed to compressed bytes. Archives of files shrink to a
/// twentieth at best; what grows more than this is made to fill a disk.
const MOST_GROWTH: u64 = 300;

/// Decompressed bytes that any archive may have, whatever the ratio.
const HARMLESS: u64 = 64 << 20;

/// The largest window of a zstd stream, which takes memory: that of `zstd --ultra -22`.
const LARGEST_WINDOW: u64 = 128 << 20;

/// The first bytes of compression formats, and the names of those that are not supported.
const KNOWN: [(&[u8], Option<&str>); 5] = [
    (b"\x1f\x8b", None),
    (b"\x28\xb5\x2f\xfd", None),
    (b"\xfd7zXZ\0", Some("xz")),
    (b"BZh", Some("bzip2")),
    (b"PK\x03\x04", Some("zip")),
];

/// Whether these are the first bytes of a compression format, supported or not.
pub fn is_compressed(start: &[u8]) -> bool {
    KNOWN.iter().any(|(magic, _)| start.starts_with(magic))
}

/// Decompresses what `reader` gives if it is gzip or zstd, and passes it on otherwise.
///
/// # Errors
/// It cannot be read, or has another compression format.
pub fn decompress<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let read = Rc::new(Cell::new(0));
    let counted = Counted {
        inner: reader,
        read: Rc::clone(&read),
    };
    let mut buffered = BufReader::with_capacity(128 << 10, counted);
    let start = peek(&mut buffered)?;
    let known = KNOWN.iter().find(|(magic, _)| start.starts_with(magic));
    let content: Box<dyn Read + 'a> = match known {
        None => return Ok(Box::new(buffered)),
        Some((_, Some(name))) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("it is {name}; tar archives may be plain, or in gzip or zstd"),
            ));
        }
        Some((b"\x1f\x8b", None)) => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
        Some(_) => Box::new(Zstd::new(buffered)),
    };
    Ok(Box::new(Growth {
        content,
        delivered: 0,
        read,
    }))
}

/// The first bytes, which are not consumed.
fn peek(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    loop {
        match reader.fill_buf() {
            Ok(start) => return Ok(start[..start.len().min(6)].to_vec()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Counts compressed bytes.
struct Counted<R> {
    inner: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.read.set(self.read.get() + length as u64);
        Ok(length)
    }
}

/// Limits the ratio of decompressed to compressed bytes.
struct Growth<'a> {
    content: Box<dyn Read + 'a>,
    delivered: u64,
    read: Rc<Cell<u64>>,
}

impl Read for Growth<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.content.read(buffer)?;
        self.delivered += length as u64;
        if self.delivered > HARMLESS && self.delivered / MOST_GROWTH > self.read.get() {
            return Err(io::Error::other(format!(
                "it grows to more than {MOST_GROWTH} times its size, which only archives made to \
                 fill disks do"
            )));
        }
        Ok(length)
    }
}

/// Reads all frames of a zstd stream.
struct Zstd<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(LARGEST_WINDOW);
        Self {
            source,
            decoder,
            is_in_frame: false,
        }
    }

    /// Begins the next frame; `false` at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.is_in_frame {
            if peek(&mut self.source)?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => self.is_in_frame = true,
                // Data of other programs, such as an index of the layer.
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let note = &mut (&mut self.source).take(u64::from(length));
                    io::copy(note, &mut io::sink())?;
                }
                Err(error) => return Err(damaged(&error)),
            }
        }
        Ok(true)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() && self.begin()? {
            let decoder = &mut self.decoder;
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| damaged(&error))?;
            }
            let length = decoder.read(buffer)?;
            if length > 0 {
                return Ok(length);
            }
            let stated = decoder.get_checksum_from_data();
            if stated.is_some() && stated != decoder.get_calculated_checksum() {
                return Err(damaged(&"a checksum does not match"));
            }
            self.is_in_frame = false;
        }
        Ok(0)
    }
}

fn damaged(error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {error}"))
}
