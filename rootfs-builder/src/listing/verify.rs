//! Compares a tree with its listing and manifest.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs};

use serde::Serialize;

use super::{Kind, Listing, of_tree};
use crate::errors::failed;
use crate::packages::digest_of;
use cell::rootfs::{LISTING, Manifest};
use record::bytes::RawText;
use record::error::Result;

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
    let path = directory.join(LISTING);
    let text = match fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(failed("open", &path))?,
    };
    let found = of_tree(directory)?;
    let digest = digest_of(&text);
    let mut differences = Vec::new();
    if digest != manifest.digest {
        differences.push(Difference {
            path: LISTING.into(),
            change: Change::Listing,
            wanted: Some(manifest.digest.clone()),
            found: Some(digest),
        });
    }
    // A damaged listing may still show changes; the tree's digest may show that
    // there are none.
    if found.digest() != manifest.digest
        && let Some(wanted) = Listing::parse(&text)
    {
        compare(&wanted, &found, &mut differences);
    }
    Ok(differences)
}

fn compare(wanted: &Listing, found: &Listing, differences: &mut Vec<Difference>) {
    let mut paths: BTreeMap<&[u8], (Option<&Kind>, Option<&Kind>)> = BTreeMap::new();
    for line in &wanted.lines {
        paths.entry(&line.path).or_default().0 = Some(&line.kind);
    }
    for line in &found.lines {
        paths.entry(&line.path).or_default().1 = Some(&line.kind);
    }
    for (path, (was, is)) in paths {
        let mut differs = |change, wanted: Option<String>, found: Option<String>| {
            differences.push(Difference {
                path: match path {
                    [] => ".".into(),
                    path => path.to_vec().into(),
                },
                change,
                wanted,
                found,
            });
        };
        match (was, is) {
            (Some(was), Some(is)) => compare_kinds(was, is, &mut differs),
            (Some(was), None) => differs(Change::Removed, Some(was.name().to_owned()), None),
            (None, is) => differs(Change::Added, None, is.map(|is| is.name().to_owned())),
        }
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
