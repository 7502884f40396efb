//! Files that are in the executable in compressed form, because few calls read them.
//!
//! A build script packs them; the program unpacks one when it needs it.

#![forbid(unsafe_code)]

use std::io::{self, Read as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};

/// Writes the content of a file to another as a DEFLATE stream (RFC 1951). For build scripts.
///
/// # Errors
/// A file cannot be read or written: the path, and why.
pub fn pack(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    let content = std::fs::read(from).map_err(failed(from))?;
    let mut packed = Vec::new();
    let mut encoder = DeflateEncoder::new(&content[..], Compression::best());
    encoder.read_to_end(&mut packed).map_err(failed(from))?;
    std::fs::write(to, packed).map_err(failed(to))
}

/// The content of a packed file.
///
/// # Errors
/// It was not written by [`pack`].
pub fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    DeflateDecoder::new(packed).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out_again() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let to = std::env::temp_dir().join(format!("packed-{}", std::process::id()));
        pack(&own, &to).unwrap();
        let packed = std::fs::read(&to).unwrap();
        std::fs::remove_file(&to).unwrap();
        let content = std::fs::read(&own).unwrap();
        assert!(packed.len() < content.len());
        assert_eq!(unpack(&packed).unwrap(), content);
        assert!(unpack(&packed[..packed.len() / 2]).is_err());
        assert!(unpack(b"no stream").is_err());
    }
}
