//! The files of an image, in a directory or in an archive.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256, Sha512};

use super::broken;
use archive::{Member, MemberKind};
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::tree::open_top;

/// Indexes, manifests and configurations are no larger.
const LARGEST_DOCUMENT: u64 = 8 << 20;

/// Links from one name in an archive to the next.
const MOST_LINKS: usize = 8;

/// The files of an image.
pub(super) struct Blobs {
    path: PathBuf,
    place: Place,
}

enum Place {
    Directory(std::os::fd::OwnedFd),
    Archive {
        file: File,
        members: BTreeMap<Vec<u8>, MemberKind>,
    },
}

impl Blobs {
    /// Those in a directory.
    pub(super) fn directory(path: &Path) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            place: Place::Directory(open_top(path, Step::Store)?),
        })
    }

    /// Those in a plain tar archive, as listed.
    pub(super) fn archive(file: File, path: &Path, members: Vec<Member>) -> Self {
        let plain = |name: &[u8]| name.strip_prefix(b"./").unwrap_or(name).to_vec();
        let members = members
            .into_iter()
            .map(|member| (plain(&member.name), member.kind));
        Self {
            path: path.to_owned(),
            place: Place::Archive {
                file,
                members: members.collect(),
            },
        }
    }

    /// Whether there is a file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.open(name).is_ok()
    }

    /// What is wrong with the image.
    pub(super) fn broken(&self, message: impl Into<String>) -> SetupError {
        broken(&self.path, message)
    }

    /// The file of this name, and its size.
    pub(super) fn open(&self, name: &str) -> Result<(Box<dyn Read + '_>, u64)> {
        match &self.place {
            Place::Directory(dir) => self.open_file(dir, name),
            Place::Archive { file, members } => {
                let (at, size) = self.find(members, name)?;
                let end = at.saturating_add(size);
                Ok((Box::new(Part { file, at, end }), size))
            }
        }
    }

    fn open_file(
        &self,
        dir: &std::os::fd::OwnedFd,
        name: &str,
    ) -> Result<(Box<dyn Read + '_>, u64)> {
        // A layout may share blobs by links, but not with what is outside.
        let file = match Beneath::new(dir).following_links().read(name) {
            Err(Errno::ENOENT) => return Err(self.missing(name)),
            other => other.map_err(|e| self.failed("openat2", name, e.into()))?,
        };
        let kind = file.metadata().map_err(|e| self.failed("fstat", name, e))?;
        match kind.is_file() {
            true => Ok((Box::new(file), kind.len())),
            false => Err(self.missing(name)),
        }
    }

    fn find(&self, members: &BTreeMap<Vec<u8>, MemberKind>, name: &str) -> Result<(u64, u64)> {
        let mut name = name.as_bytes().to_vec();
        for _ in 0..MOST_LINKS {
            match members.get(&name) {
                Some(MemberKind::File { at, size }) => return Ok((*at, *size)),
                // Older versions of docker link layers that two images share.
                Some(MemberKind::Link(text)) => name = beside(&name, text),
                _ => break,
            }
        }
        Err(self.missing(&String::from_utf8_lossy(&name)))
    }

    fn missing(&self, name: &str) -> SetupError {
        self.broken(format!("the image has no file `{name}`"))
    }

    fn failed(&self, call: &str, name: &str, error: io::Error) -> SetupError {
        SetupError::io(Step::Store, call, &error).on(self.path.join(name).display())
    }

    /// A small document, checked against `digest` if there is one.
    pub(super) fn document<T: DeserializeOwned>(
        &self,
        name: &str,
        digest: Option<&str>,
    ) -> Result<T> {
        let (reader, size) = self.open(name)?;
        if size > LARGEST_DOCUMENT {
            return Err(self.broken(format!(
                "`{name}` has {size} bytes, where at most {LARGEST_DOCUMENT} are read"
            )));
        }
        let mut text = Vec::new();
        let mut reader: Box<dyn Read> = match digest {
            Some(digest) => Box::new(self.checked(reader, digest)?),
            None => reader,
        };
        reader
            .read_to_end(&mut text)
            .map_err(|e| self.broken(format!("`{name}`: {e}")))?;
        serde_json::from_slice(&text)
            .map_err(|e| self.broken(format!("`{name}` is not what an image has there: {e}")))
    }

    /// A reader whose end is an error unless the content has this digest, such
    /// as `sha256:…`.
    pub(super) fn checked<R: Read>(&self, inner: R, digest: &str) -> Result<Checked<R>> {
        let (algorithm, wanted) = digest.split_once(':').unwrap_or_default();
        let hasher = match (algorithm, wanted.len()) {
            ("sha256", 64) => Hasher::Sha256(Sha256::new()),
            ("sha512", 128) => Hasher::Sha512(Sha512::new()),
            _ => {
                return Err(self.broken(format!(
                    "the digest `{}` is neither sha256 nor sha512",
                    digest.chars().take(200).collect::<String>()
                )));
            }
        };
        Ok(Checked {
            inner,
            hasher,
            wanted: wanted.to_ascii_lowercase(),
            is_over: false,
        })
    }
}

/// The name of a blob in an OCI layout.
pub(super) fn blob_name(digest: &str) -> Option<String> {
    let (algorithm, value) = digest.split_once(':')?;
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_plain(algorithm) && is_plain(value)).then(|| format!("blobs/{algorithm}/{value}"))
}

/// Where a link at `name` leads within an archive.
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

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let most = left.min(buffer.len());
        let got = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn hexadecimal(&self) -> String {
        let bytes = match self {
            Self::Sha256(hasher) => hasher.clone().finalize().to_vec(),
            Self::Sha512(hasher) => hasher.clone().finalize().to_vec(),
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Content that must have a certain digest.
pub(super) struct Checked<R> {
    inner: R,
    hasher: Hasher,
    wanted: String,
    is_over: bool,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..got]);
        if got == 0 && !buffer.is_empty() && !self.is_over {
            self.is_over = true;
            let found = self.hasher.hexadecimal();
            if found != self.wanted {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("its digest is {found}, but should be {}", self.wanted),
                ));
            }
        }
        Ok(got)
    }
}
