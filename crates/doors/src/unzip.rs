//! Contents that a client has compressed (gzip, RFC 1952).

use std::io::Write as _;

use axum::body::Bytes;
use flate2::write::GzDecoder;
use wire::{Code, Failure};

/// The compressed bytes that are inflated at once. Inflating yields at most about a thousand times
/// as many.
const PIECE: usize = 256;

/// Inflates piece by piece.
#[derive(Debug)]
pub(crate) struct Unzip {
    decoder: GzDecoder<Vec<u8>>,
    compressed: Bytes,
}

impl Unzip {
    pub(crate) fn new() -> Self {
        Self {
            decoder: GzDecoder::new(Vec::new()),
            compressed: Bytes::new(),
        }
    }

    /// Takes compressed bytes. All pieces of the earlier ones must have been read.
    pub(crate) fn give(&mut self, compressed: Bytes) {
        self.compressed = compressed;
    }

    /// The next piece; `None` when more must be received.
    ///
    /// # Errors
    /// It is not gzip.
    pub(crate) fn piece(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if self.compressed.is_empty() {
            return Ok(None);
        }
        let length = self.compressed.len().min(PIECE);
        let piece = self.compressed.split_to(length);
        self.decoder.write_all(&piece).map_err(|_| not_gzip())?;
        Ok(Some(std::mem::take(self.decoder.get_mut())))
    }

    /// The last piece, when nothing more is received.
    ///
    /// # Errors
    /// The content is not complete.
    pub(crate) fn end(&mut self) -> Result<Vec<u8>, Failure> {
        self.decoder.try_finish().map_err(|_| not_gzip())?;
        Ok(std::mem::take(self.decoder.get_mut()))
    }
}

fn not_gzip() -> Failure {
    let message = "Content-Encoding: the body is not gzip, or is cut off";
    Failure::new(Code::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn zipped(content: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap().into()
    }

    /// The content, and the bytes of its largest piece.
    fn read(compressed: Bytes) -> Result<(Vec<u8>, usize), Failure> {
        let mut unzip = Unzip::new();
        unzip.give(compressed);
        let (mut content, mut largest) = (Vec::new(), 0);
        while let Some(piece) = unzip.piece()? {
            largest = largest.max(piece.len());
            content.extend(piece);
        }
        content.extend(unzip.end()?);
        Ok((content, largest))
    }

    #[test]
    fn contents_are_inflated_in_small_pieces() {
        for content in [&b""[..], b"a", &[0; 4 << 20]] {
            let (found, largest) = read(zipped(content)).unwrap();
            assert!(found == content);
            assert!(largest <= 2000 * PIECE, "{largest}");
        }
    }

    #[test]
    fn what_is_no_gzip_is_refused() {
        let whole = zipped(b"content");
        let more = [&whole[..], b"more"].concat();
        let half = whole.slice(..whole.len() - 3);
        let mut other = whole.to_vec();
        other[12] ^= 0xff;
        for odd in [b"plain"[..].into(), more.into(), half, other.into()] {
            assert!(read(odd).is_err());
        }
    }
}
