//! Files with holes.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};

use super::sink::Refusal;

/// Bytes written at once. A block of zeros of this size becomes a hole.
const PIECE: u64 = 64 << 10;

/// The most pieces that a map of holes may have, since it is read into memory.
const MOST_PIECES: u64 = 1 << 16;

/// Copies `from` to `to` and returns the number of bytes. Runs of zeros become holes, so
/// that neither an archive's holes nor its zeros fill the disk. `failed` makes the error of
/// a write.
pub(super) fn copy(
    mut from: &mut dyn Read,
    to: &mut File,
    failed: &dyn Fn(io::Error) -> Refusal,
) -> Result<u64, Refusal> {
    let mut piece = Vec::new();
    let mut length = 0;
    let mut hole = 0;
    loop {
        piece.clear();
        let got = (&mut from).take(PIECE).read_to_end(&mut piece)? as u64;
        if got == 0 {
            break;
        }
        length += got;
        if got == PIECE && piece.iter().all(|byte| *byte == 0) {
            hole += PIECE as i64;
            continue;
        }
        if hole > 0 {
            to.seek(SeekFrom::Current(hole)).map_err(failed)?;
            hole = 0;
        }
        to.write_all(&piece).map_err(failed)?;
    }
    if hole > 0 {
        to.set_len(length).map_err(failed)?;
    }
    Ok(length)
}

/// The content of a file in GNU tar's sparse format 1.0: a map in decimal lines, padded
/// to 512 bytes, then the data between the holes.
pub(super) struct Expanded<R> {
    data: R,
    /// Offsets and lengths of the remaining pieces, the last first.
    pieces: Vec<(u64, u64)>,
    at: u64,
    end: u64,
}

impl<R: Read> Expanded<R> {
    /// Reads the map. `end` is the file's length.
    pub(super) fn new(mut data: R, end: u64) -> io::Result<Self> {
        let mut read = 0;
        let count = number(&mut data, &mut read)?;
        if count > MOST_PIECES {
            return Err(wrong());
        }
        let mut pieces = Vec::new();
        let mut at = 0;
        for _ in 0..count {
            let offset = number(&mut data, &mut read)?;
            let length = number(&mut data, &mut read)?;
            let behind = offset.checked_add(length).filter(|behind| *behind <= end);
            if offset < at {
                return Err(wrong());
            }
            at = behind.ok_or_else(wrong)?;
            pieces.push((offset, length));
        }
        let padding = (512 - read % 512) % 512;
        io::copy(&mut (&mut data).take(padding), &mut io::sink())?;
        pieces.reverse();
        Ok(Self {
            data,
            pieces,
            at: 0,
            end,
        })
    }
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a sparse file's map is wrong")
}

/// A decimal number and the end of its line.
fn number(from: &mut impl Read, read: &mut u64) -> io::Result<u64> {
    let mut value: u64 = 0;
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        *read += 1;
        match byte[0] {
            b'\n' => return Ok(value),
            digit @ b'0'..=b'9' => {
                let more = value.checked_mul(10);
                let more = more.and_then(|value| value.checked_add(u64::from(digit - b'0')));
                value = more.ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = |left: u64| usize::try_from(left).map_or(buffer.len(), |n| n.min(buffer.len()));
        while self.pieces.last().is_some_and(|(_, length)| *length == 0) {
            self.pieces.pop();
        }
        let hole_end = self.pieces.last().map_or(self.end, |(offset, _)| *offset);
        if self.at < hole_end {
            let hole = most(hole_end - self.at);
            buffer[..hole].fill(0);
            self.at += hole as u64;
            return Ok(hole);
        }
        let Some((offset, length)) = self.pieces.last_mut() else {
            return Ok(0);
        };
        let wanted = most(*length);
        let got = self.data.read(&mut buffer[..wanted])?;
        if got == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += got as u64;
        *offset += got as u64;
        *length -= got as u64;
        Ok(got)
    }
}
