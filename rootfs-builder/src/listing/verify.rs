//! Compares a tree with its listing and manifest.

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{HEADER, Kind, Listing, of_tree};
use crate::errors::failed;
use plan::rootfs::{LISTING, Manifest};
use record::bytes::{RawText, hex};
use record::error::Result;

/// No line is longer: each byte of a path and of a link's text takes four at most.
const LONGEST_LINE: u64 = 64 << 10;

/// A path of a tree that has changed since the tree was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Relative to the tree; `.` for its top.
    pub path: RawText,
    /// How it differs.
    pub change: Change,
    /// The old value, if it is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// The present value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// How something differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The path is new.
    Added,
    /// The path is missing.
    Removed,
    /// A file has other bytes.
    Content,
    /// A file has another length.
    Size,
    /// The mode bits differ.
    Mode,
    /// A link has another target.
    Target,
    /// The type differs, such as a link in place of a file.
    Kind,
    /// The listing is missing or does not have the digest in the manifest.
    Listing,
}

/// The word for it, as in JSON.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Reads all of the tree in `directory` and lists the changes since `manifest` was
/// written: none when every byte, mode and link is the same.
///
/// # Errors
/// A file or directory cannot be read.
pub(crate) fn verify(directory: &Path, manifest: &Manifest) -> Result<Vec<Difference>> {
    let found = of_tree(directory)?;
    let is_same = found.digest()? == manifest.digest;
    let mut wanted = Wanted::open(directory)?;
    // A damaged listing may still show changes; the tree's digest may show that
    // there are none.
    let differences = match is_same {
        true => None,
        false => compare(&mut wanted, &found)?,
    };
    let digest = wanted.digest()?;
    let listing = (digest != manifest.digest).then(|| Difference {
        path: LISTING.into(),
        change: Change::Listing,
        wanted: Some(manifest.digest.clone()),
        found: Some(digest),
    });
    let differences = differences.into_iter().flatten();
    Ok(listing.into_iter().chain(differences).collect())
}

/// What comes next in a listing.
enum Next {
    Entry(Vec<u8>, Kind),
    End,
    Nonsense,
}

/// The listing of a tree as it was made, line by line.
struct Wanted {
    path: PathBuf,
    /// `None` if it is missing.
    file: Option<BufReader<File>>,
    hasher: Sha256,
    line: Vec<u8>,
}

impl Wanted {
    fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(LISTING);
        let file = match File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            other => Some(BufReader::new(other.map_err(failed("open", &path))?)),
        };
        Ok(Self {
            path,
            file,
            hasher: Sha256::new(),
            line: Vec::new(),
        })
    }

    /// The next line with its end; empty at the end of the listing.
    fn next(&mut self) -> Result<&[u8]> {
        self.line.clear();
        if let Some(file) = &mut self.file {
            let mut file = file.take(LONGEST_LINE);
            let read = file.read_until(b'\n', &mut self.line);
            read.map_err(failed("read", &self.path))?;
        }
        self.hasher.update(&self.line);
        Ok(&self.line)
    }

    fn entry(&mut self) -> Result<Next> {
        let line = self.next()?;
        if line.is_empty() {
            return Ok(Next::End);
        }
        let parsed = line.strip_suffix(b"\n").and_then(Kind::parse);
        Ok(parsed.map_or(Next::Nonsense, |(path, kind)| Next::Entry(path, kind)))
    }

    /// Reads the rest, and returns the digest of all of it.
    fn digest(mut self) -> Result<String> {
        while !self.next()?.is_empty() {}
        Ok(hex(&self.hasher.finalize()))
    }
}

/// The changes since the listing `wanted`; `None` when it is not a listing.
fn compare(wanted: &mut Wanted, found: &Listing) -> Result<Option<Vec<Difference>>> {
    let mut differences = Vec::new();
    if wanted.next()? != HEADER.as_bytes() {
        return Ok(None);
    }
    let mut found = found.in_order().peekable();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let was = match wanted.entry()? {
            Next::Entry(path, kind) => Some((path, kind)),
            Next::End => None,
            Next::Nonsense => return Ok(None),
        };
        // What is before it in the tree, or behind the last one, is new.
        let is_new = |path: &[u8]| was.as_ref().is_none_or(|(was, _)| path < was.as_slice());
        while let Some((path, is)) = found.next_if(|(path, _)| is_new(path)) {
            let name = Some(is.name().to_owned());
            differences.push(difference(&path, Change::Added, None, name));
        }
        let Some((path, was)) = was else {
            return Ok(Some(differences));
        };
        if last.as_ref().is_some_and(|last| *last >= path) {
            return Ok(None);
        }
        match found.next_if(|(found, _)| *found == path) {
            Some((_, is)) => compare_kinds(&was, is, &mut |change, wanted, found| {
                differences.push(difference(&path, change, wanted, found));
            }),
            None => {
                let name = Some(was.name().to_owned());
                differences.push(difference(&path, Change::Removed, name, None));
            }
        }
        last = Some(path);
    }
}

fn difference(
    path: &[u8],
    change: Change,
    wanted: Option<String>,
    found: Option<String>,
) -> Difference {
    Difference {
        path: match path {
            [] => ".".into(),
            path => path.to_vec().into(),
        },
        change,
        wanted,
        found,
    }
}

fn compare_kinds(
    was: &Kind,
    is: &Kind,
    differs: &mut impl FnMut(Change, Option<String>, Option<String>),
) {
    let text = |text: &[u8]| Some(String::from_utf8_lossy(text).into_owned());
    let octal = |mode: u32| Some(format!("{mode:o}"));
    match (was, is) {
        (Kind::Directory { .. }, Kind::Directory { .. }) | (Kind::Special, Kind::Special) => {}
        (
            Kind::File { size, digest, .. },
            Kind::File {
                size: new_size,
                digest: new_digest,
                ..
            },
        ) => {
            if size != new_size {
                let (old, new) = (size.to_string(), new_size.to_string());
                differs(Change::Size, Some(old), Some(new));
            } else if digest != new_digest {
                differs(Change::Content, None, None);
            }
        }
        (Kind::Link { text: old }, Kind::Link { text: new }) => {
            if old != new {
                differs(Change::Target, text(old), text(new));
            }
        }
        (was, is) => {
            let (old, new) = (was.name().to_owned(), is.name().to_owned());
            differs(Change::Kind, Some(old), Some(new));
            return;
        }
    }
    if let (Some(old), Some(new)) = (was.mode(), is.mode())
        && old != new
    {
        differs(Change::Mode, octal(old), octal(new));
    }
}

impl Kind {
    const fn name(&self) -> &'static str {
        match self {
            Self::Directory { .. } => "directory",
            Self::File { .. } => "file",
            Self::Link { .. } => "link",
            Self::Special => "special file",
        }
    }

    const fn mode(&self) -> Option<u32> {
        match self {
            Self::Directory { mode } | Self::File { mode, .. } => Some(*mode),
            Self::Link { .. } | Self::Special => None,
        }
    }
}
