//! Compares a tree with what its manifest says.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::listing::{Item, Kind, Listing, digest_of};
use super::manifest::Manifest;
use super::{LISTING, digest};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

/// Something in a tree that is not as it was when the tree was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Relative to the tree; `.` for its top.
    pub path: RawText,
    /// How it differs.
    pub change: Change,
    /// What was there when the tree was made, where that can be said in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// What is there now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// How something differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It was not there.
    Added,
    /// It is no longer there.
    Removed,
    /// A file has other bytes.
    Content,
    /// A file has another length.
    Size,
    /// It has other mode bits.
    Mode,
    /// A link leads elsewhere.
    Target,
    /// It is something else, such as a link in place of a file.
    Kind,
    /// The listing is not the one that the manifest was written with, or is
    /// missing.
    Listing,
}

impl Change {
    /// The word for it, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Content => "content",
            Self::Size => "size",
            Self::Mode => "mode",
            Self::Target => "target",
            Self::Kind => "kind",
            Self::Listing => "listing",
        }
    }
}

/// Reads all of the tree in `directory` and says what differs from when
/// `manifest` was written: nothing, when every byte, mode and link is the same.
///
/// # Errors
/// What cannot be read.
pub fn verify(directory: &Path, manifest: &Manifest) -> Result<Vec<Difference>> {
    let path = directory.join(LISTING);
    let text = match fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(|e| SetupError::io(Step::Store, "open", &e).on(path.display()))?,
    };
    let found = digest::list(directory)?;
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
    // A damaged listing may still tell something; the tree's own digest may say
    // that nothing else is wrong.
    if found.digest() != manifest.digest
        && let Some(wanted) = Listing::parse(&text)
    {
        differences.extend(compare(&wanted.items, &found.items));
    }
    Ok(differences)
}

/// Both are ordered by path.
fn compare(wanted: &[Item], found: &[Item]) -> Vec<Difference> {
    let (mut wanted, mut found) = (wanted.iter().peekable(), found.iter().peekable());
    let mut differences = Vec::new();
    loop {
        let order = match (wanted.peek(), found.peek()) {
            (Some(wanted), Some(found)) => wanted.path.cmp(&found.path),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return differences,
        };
        let old = order.is_le().then(|| wanted.next()).flatten();
        let new = order.is_ge().then(|| found.next()).flatten();
        match (old, new) {
            (Some(old), Some(new)) => changes(old, new, &mut differences),
            (Some(old), None) => differences.push(lone(old, Change::Removed)),
            (None, Some(new)) => differences.push(lone(new, Change::Added)),
            (None, None) => {}
        }
    }
}

fn changes(wanted: &Item, found: &Item, differences: &mut Vec<Difference>) {
    let mut differs = |change, wanted_is: Option<String>, found_is: Option<String>| {
        differences.push(Difference {
            path: path_of(wanted),
            change,
            wanted: wanted_is,
            found: found_is,
        });
    };
    let octal = |mode: &u32| Some(format!("{mode:o}"));
    let mode = match (&wanted.kind, &found.kind) {
        (Kind::Directory { mode: was }, Kind::Directory { mode: is }) => Some((was, is)),
        (
            Kind::File {
                mode: was,
                size,
                digest,
            },
            Kind::File {
                mode: is,
                size: now,
                digest: new,
            },
        ) => {
            if size != now {
                differs(Change::Size, Some(size.to_string()), Some(now.to_string()));
            } else if digest != new {
                differs(Change::Content, None, None);
            }
            Some((was, is))
        }
        (Kind::Link { text: was }, Kind::Link { text: is }) => {
            if was != is {
                let shown = |text: &[u8]| Some(String::from_utf8_lossy(text).into_owned());
                differs(Change::Target, shown(was), shown(is));
            }
            None
        }
        (was, is) => {
            let named = |kind: &Kind| Some(word(kind).to_owned());
            differs(Change::Kind, named(was), named(is));
            None
        }
    };
    if let Some((was, is)) = mode
        && was != is
    {
        differs(Change::Mode, octal(was), octal(is));
    }
}

fn lone(item: &Item, change: Change) -> Difference {
    let kind = Some(word(&item.kind).to_owned());
    let (wanted, found) = match change {
        Change::Added => (None, kind),
        _ => (kind, None),
    };
    Difference {
        path: path_of(item),
        change,
        wanted,
        found,
    }
}

fn path_of(item: &Item) -> RawText {
    match item.path.as_slice() {
        [] => ".".into(),
        path => path.to_vec().into(),
    }
}

const fn word(kind: &Kind) -> &'static str {
    match kind {
        Kind::Directory { .. } => "directory",
        Kind::File { .. } => "file",
        Kind::Link { .. } => "link",
        Kind::Other => "special file",
    }
}
