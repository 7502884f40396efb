//! Compressed archives, told by their first bytes.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Archives of files shrink to a twentieth at best. What grows more than this is
/// made to fill a disk.
const MOST_GROWTH: u64 = 300;

/// Nor does a small one do harm: so much may come out of anything.
const HARMLESS: u64 = 64 << 20;

/// The largest window that a zstd stream may ask memory for: that of `zstd
/// --ultra -22`.
const LARGEST_WINDOW: u64 = 128 << 20;

/// The first bytes of compressions, and their names; `None` for those that are
/// read.
const KNOWN: [(&[u8], Option<&str>); 5] = [
    (b"\x1f\x8b", None),
    (b"\x28\xb5\x2f\xfd", None),
    (b"\xfd7zXZ\0", Some("xz")),
    (b"BZh", Some("bzip2")),
    (b"PK\x03\x04", Some("zip")),
];

/// Whether what begins with these bytes is compressed, in a way that is read
/// here or not.
pub fn is_compressed(start: &[u8]) -> bool {
    KNOWN.iter().any(|(magic, _)| start.starts_with(magic))
}

/// The content of what `reader` delivers: decompressed if it is gzip or zstd,
/// as it is otherwise.
///
/// # Errors
/// It cannot be read, or is compressed in another way.
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

/// The first bytes, which stay.
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

/// Compares what comes out with what went in.
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

/// All frames of a zstd stream, one after the other.
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
                // Notes for other programs, such as an index of the layer.
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
