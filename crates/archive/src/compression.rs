//! Decompression, chosen by the first bytes.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest ratio of decompressed to compressed bytes. Archives of files shrink to a
/// twentieth at best; what grows more than this is made to fill a disk.
const MOST_GROWTH: u64 = 300;

/// Decompressed bytes that any archive may have, whatever the ratio.
const HARMLESS: u64 = 64 << 20;

/// The largest window of a zstd stream, which takes memory: that of `zstd --ultra -22`.
const LARGEST_WINDOW: u64 = 128 << 20;

/// Bytes that tell the format.
const LONGEST_MAGIC: u64 = 6;

/// A compression format, by the first bytes.
enum Format {
    Gzip,
    Zstd,
    Unsupported(&'static str),
}

impl Format {
    fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // A frame with data, or one to be skipped, with which pzstd's output starts.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Unsupported("xz")),
            [b'B', b'Z', b'h', ..] => Some(Self::Unsupported("bzip2")),
            [b'P', b'K', 3, 4, ..] => Some(Self::Unsupported("zip")),
            _ => None,
        }
    }
}

/// Whether these are the first bytes of a compression format, supported or not.
pub fn is_compressed(start: &[u8]) -> bool {
    Format::of(start).is_some()
}

/// Decompresses what `reader` gives if it is gzip or zstd, and passes it on otherwise.
///
/// # Errors
/// It cannot be read, or has another compression format.
pub fn decompress<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let read = Rc::new(Cell::new(0));
    let mut counted = Counted {
        inner: reader,
        read: Rc::clone(&read),
    };
    // A pipe may give less at once.
    let mut start = Vec::new();
    counted
        .by_ref()
        .take(LONGEST_MAGIC)
        .read_to_end(&mut start)?;
    let format = Format::of(&start);
    let whole = Cursor::new(start).chain(counted);
    let buffered = BufReader::with_capacity(128 << 10, whole);
    let content: Box<dyn Read + 'a> = match format {
        None => return Ok(Box::new(buffered)),
        Some(Format::Unsupported(name)) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("it is {name}; tar archives may be plain, or in gzip or zstd"),
            ));
        }
        Some(Format::Gzip) => Box::new(Gzip {
            member: Some(GzDecoder::new(buffered)),
        }),
        Some(Format::Zstd) => Box::new(Zstd::new(buffered)),
    };
    Ok(Box::new(Growth {
        content,
        delivered: 0,
        read,
    }))
}

/// The next bytes, which are not consumed; none at the end.
fn peek(reader: &mut impl BufRead) -> io::Result<&[u8]> {
    while let Err(error) = reader.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    reader.fill_buf()
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

/// Reads all members of a gzip stream, and passes over zeros behind them: tapes and disks
/// give whole blocks.
struct Gzip<R: BufRead> {
    /// `None` at the end of the stream.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let length = member.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            if let Some(mut source) = self.member.take().map(GzDecoder::into_inner) {
                skip_zeros(&mut source)?;
                if !peek(&mut source)?.is_empty() {
                    self.member = Some(GzDecoder::new(source));
                }
            }
        }
        Ok(0)
    }
}

fn skip_zeros(source: &mut impl BufRead) -> io::Result<()> {
    while peek(source)?.first() == Some(&0) {
        let zeros = peek(source)?.iter().take_while(|byte| **byte == 0).count();
        source.consume(zeros);
    }
    Ok(())
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
