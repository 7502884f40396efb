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
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self {
            size: bytes.len() as u64,
            sha256: Sha256::digest(bytes).into(),
        }
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
        let mut hasher = Sha256::new();
        let mut size = 0;
        loop {
            let length = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let piece = &buffer[..length];
            hasher.update(piece);
            size += length as u64;
            each(piece)?;
        }
        Ok(Self {
            size,
            sha256: hasher.finalize().into(),
        })
    }
}
