//! The files of an image in a directory or an archive.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::de::DeserializeOwned;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

use super::broken;
use crate::errors::failed;
use archive::{Member, Members};
use record::bytes::hex;
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::tree::open_top;

/// Maximum size of indexes, manifests and configurations: that of registries.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

/// Maximum number of links from one name in an archive to the next.
const MAX_LINKS: usize = 8;

/// The files of an image.
pub(super) struct Blobs {
    path: PathBuf,
    container: Container,
}

enum Container {
    Directory(OwnedFd),
    Archive {
        file: File,
        members: BTreeMap<Vec<u8>, Member>,
    },
}

impl Blobs {
    /// The files in a directory.
    pub(super) fn directory(path: &Path) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            container: Container::Directory(open_top(path, Step::Store)?),
        })
    }

    /// The files in a plain tar archive, which has these members.
    pub(super) fn archive(file: File, path: &Path, members: Members) -> Self {
        let plain = |name: &[u8]| name.strip_prefix(b"./").unwrap_or(name).to_vec();
        let members = members
            .into_iter()
            .map(|(name, member)| (plain(&name), member));
        Self {
            path: path.to_owned(),
            container: Container::Archive {
                file,
                members: members.collect(),
            },
        }
    }

    /// Whether there is a file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.open(name).is_ok()
    }

    /// The error for a damaged image.
    pub(super) fn broken(&self, message: impl Into<String>) -> SetupError {
        broken(&self.path, message)
    }

    /// The file of this name, and its size. Files of an archive share its position,
    /// so only one of them can be read at a time.
    pub(super) fn open(&self, name: &str) -> Result<(Box<dyn Read + '_>, u64)> {
        match &self.container {
            Container::Directory(dir) => self.open_file(dir, name),
            Container::Archive { file, members } => {
                let (at, size) = self.find(members, name)?;
                let mut file = file;
                file.seek(SeekFrom::Start(at))
                    .map_err(failed("lseek", &self.path))?;
                Ok((Box::new(file.take(size)), size))
            }
        }
    }

    fn open_file(&self, directory: &OwnedFd, name: &str) -> Result<(Box<dyn Read + '_>, u64)> {
        let path = self.path.join(name);
        // A layout may share blobs by links.
        let file = match Beneath::new(directory).following_links().read(name) {
            Err(Errno::ENOENT) => return Err(self.missing(name)),
            other => other.map_err(failed("openat2", &path))?,
        };
        let metadata = file.metadata().map_err(failed("fstat", &path))?;
        match metadata.is_file() {
            true => Ok((Box::new(file), metadata.len())),
            false => Err(self.missing(name)),
        }
    }

    fn find(&self, members: &BTreeMap<Vec<u8>, Member>, name: &str) -> Result<(u64, u64)> {
        let mut name = name.as_bytes().to_vec();
        for _ in 0..MAX_LINKS {
            match members.get(&name) {
                Some(Member::File { at, size }) => return Ok((*at, *size)),
                // Old versions of docker link layers that images share.
                Some(Member::Link(text)) => name = beside(&name, text),
                _ => break,
            }
        }
        Err(self.missing(&String::from_utf8_lossy(&name)))
    }

    fn missing(&self, name: &str) -> SetupError {
        self.broken(format!("the image has no file `{name}`"))
    }

    /// Parses a small file, after checking its digest if there is one.
    pub(super) fn document<T: DeserializeOwned>(
        &self,
        name: &str,
        digest: Option<&str>,
    ) -> Result<T> {
        let (reader, size) = self.open(name)?;
        if size > MAX_DOCUMENT_BYTES {
            return Err(self.broken(format!(
                "`{name}` has {size} bytes; the maximum is {MAX_DOCUMENT_BYTES}"
            )));
        }
        let mut text = Vec::new();
        let mut reader: Box<dyn Read> = match digest {
            Some(digest) => Box::new(self.checked(reader, "digest", digest)?),
            None => reader,
        };
        reader
            .read_to_end(&mut text)
            .map_err(|e| self.broken(format!("`{name}`: {e}")))?;
        record::json::from_slice(&text)
            .map_err(|e| self.broken(format!("`{name}` cannot be parsed: {e}")))
    }

    /// A reader that fails at the end unless the content has this digest, such as
    /// `sha256:…`, which errors call `name`.
    pub(super) fn checked<R: Read>(
        &self,
        inner: R,
        name: &'static str,
        digest: &str,
    ) -> Result<Checked<R>> {
        let (algorithm, wanted) = digest.split_once(':').unwrap_or_default();
        let hasher: Box<dyn DynDigest> = match (algorithm, wanted.len()) {
            ("sha256", 64) => Box::new(Sha256::default()),
            ("sha512", 128) => Box::new(Sha512::default()),
            _ => {
                let shown: String = digest.chars().take(200).collect();
                return Err(
                    self.broken(format!("the {name} `{shown}` is neither sha256 nor sha512"))
                );
            }
        };
        Ok(Checked {
            inner,
            name,
            hasher,
            wanted: wanted.to_ascii_lowercase(),
        })
    }
}

/// The target of the link at `name` in an archive.
fn beside(name: &[u8], text: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
    parts.pop();
    for part in text.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// A reader of content that must have a certain digest.
pub(super) struct Checked<R> {
    inner: R,
    name: &'static str,
    hasher: Box<dyn DynDigest>,
    wanted: String,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..got]);
        if got == 0 && !buffer.is_empty() && !self.wanted.is_empty() {
            let found = hex(&self.hasher.finalize_reset());
            // Readers may read the end again.
            let wanted = std::mem::take(&mut self.wanted);
            if found != wanted {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("its {} is {found}, but should be {wanted}", self.name),
                ));
            }
        }
        Ok(got)
    }
}
