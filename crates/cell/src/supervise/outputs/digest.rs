//! What a file holds, in short.

use std::fs::File;
use std::io::{self, Read, Write as _};

use sha2::{Digest as _, Sha256};

use super::{Caps, media};

/// Identifies a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: [u8; 32],
}

impl Content {
    /// Digests what `source` gives.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn of(source: impl Read) -> io::Result<Self> {
        digest(source, None, None).map(|digested| digested.content)
    }
}

/// What one pass over a file's content gives.
pub(super) struct Digested {
    pub(super) content: Content,
    /// Its first bytes, for the media type.
    pub(super) start: Vec<u8>,
    /// Why the copy is not complete.
    pub(super) write_error: Option<io::Error>,
    /// All of them, if that was wanted and possible.
    pub(super) bytes: Option<Vec<u8>>,
}

/// A file that is read until its time is over.
pub(super) struct Timed<'a> {
    pub(super) file: &'a mut File,
    pub(super) caps: &'a Caps,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.caps.is_in_time() {
            true => self.file.read(buffer),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Digests everything that `source` gives, copies it, and keeps it if it is no
/// more than `room`. A copy that fails does not end the digest.
pub(super) fn digest(
    mut source: impl Read,
    mut copy: Option<&mut File>,
    room: Option<u64>,
) -> io::Result<Digested> {
    let mut kept = room.map(|_| Vec::new());
    let mut buffer = vec![0; 128 << 10];
    let mut hasher = Sha256::new();
    let mut size = 0;
    let mut start = Vec::new();
    let mut write_error = None;
    loop {
        let got = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = &buffer[..got];
        if size == 0 {
            start.extend_from_slice(&bytes[..got.min(media::START)]);
        }
        size += got as u64;
        hasher.update(bytes);
        kept = kept.filter(|_| room.is_some_and(|room| size <= room));
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(bytes);
        }
        if let Some(file) = &mut copy
            && let Err(error) = file.write_all(bytes)
        {
            write_error = Some(error);
            copy = None;
        }
    }
    Ok(Digested {
        content: Content {
            size,
            sha256: hasher.finalize().into(),
        },
        start,
        write_error,
        bytes: kept,
    })
}

/// In hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
