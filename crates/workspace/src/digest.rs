//! What identifies a file's content.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// Bytes read at once.
const BUFFER: usize = 64 << 10;

/// Size and SHA-256 of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// In bytes.
    pub size: u64,
    pub(crate) sha256: [u8; 32],
}

impl Digest {
    /// Of these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut begun = Digesting::default();
        begun.add(bytes);
        begun.finish()
    }

    /// Reads `source` to its end and passes each piece of it to `each`.
    ///
    /// # Errors
    /// Those of reading, and of `each`.
    pub(crate) fn of<E: From<io::Error>>(
        mut source: impl Read,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut buffer = vec![0; BUFFER];
        let mut begun = Digesting::default();
        loop {
            let length = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let piece = &buffer[..length];
            begun.add(piece);
            each(piece)?;
        }
        Ok(begun.finish())
    }
}

/// The digest of content that comes in pieces.
#[derive(Debug, Default)]
pub struct Digesting {
    size: u64,
    hasher: Sha256,
}

impl Digesting {
    /// Adds the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.size += piece.len() as u64;
        self.hasher.update(piece);
    }

    /// The bytes of all pieces so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Digest {
        Digest {
            size: self.size,
            sha256: self.hasher.finalize().into(),
        }
    }
}
