//! The listing of a tree: one line for each directory, file and link, in the
//! byte order of their paths.
//!
//! ```text
//! cellblock.listing.v1 blake3
//! d 755 .
//! d 755 usr/bin
//! f 755 6831736 <64 hexadecimal digits> usr/bin/python3.13
//! l usr/bin/python3 python3.13
//! ```
//!
//! Mode bits are octal; a link has none. Blanks, control characters and
//! backslashes in names are written as `\xNN`. Owners and times are left out,
//! and hard links are ordinary files, so that the same content has the same
//! listing wherever it was unpacked. The tree's digest is the SHA-256 of this
//! text, as `sha256sum manifest.listing` prints it. Content is digested with
//! BLAKE3, since SHA-256 without processor support is slower than the page cache.

use std::cmp::Ordering;

use blake3::Hash;
use sha2::{Digest as _, Sha256};

use record::bytes::hex;
use record::error::Result;

mod digest;
mod line;
mod verify;

pub(crate) use digest::of_tree;
pub(crate) use verify::verify;
pub use verify::{Change, Difference};

/// The first line.
const HEADER: &str = "cellblock.listing.v1 blake3\n";

/// The content of a tree. Each entry has only its own name, since paths may be long.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The top first, each directory before what is in it.
    entries: Vec<Entry>,
    /// Their positions in the order of their paths.
    order: Vec<u32>,
}

/// A directory, file or link of a tree.
#[derive(Debug)]
struct Entry {
    /// The position of its directory.
    parent: u32,
    /// The number of directories above it.
    depth: u16,
    /// Empty for the top.
    name: Box<[u8]>,
    kind: Kind,
}

/// The type of an entry and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Directory {
        mode: u32,
    },
    File {
        mode: u32,
        size: u64,
        digest: Hash,
    },
    Link {
        text: Box<[u8]>,
    },
    /// A special file, which no prepared tree has.
    Special,
}

impl Listing {
    /// Orders these entries.
    fn new(entries: Vec<Entry>) -> Self {
        let mut listing = Self {
            order: (0..).take(entries.len()).collect(),
            entries,
        };
        let mut order = std::mem::take(&mut listing.order);
        order.sort_unstable_by(|a, b| listing.compare(*a, *b));
        listing.order = order;
        listing
    }

    fn entry(&self, position: u32) -> &Entry {
        &self.entries[position as usize]
    }

    /// Compares the paths of two entries, byte by byte.
    fn compare(&self, mut one: u32, mut other: u32) -> Ordering {
        let above = |position: &mut u32, goes_on: &mut bool| {
            *position = self.entry(*position).parent;
            *goes_on = true;
        };
        // Whether a slash and more follow the names that are compared.
        let (mut one_goes_on, mut other_goes_on) = (false, false);
        while self.entry(one).depth > self.entry(other).depth {
            above(&mut one, &mut one_goes_on);
        }
        while self.entry(other).depth > self.entry(one).depth {
            above(&mut other, &mut other_goes_on);
        }
        if one == other {
            return one_goes_on.cmp(&other_goes_on);
        }
        while self.entry(one).parent != self.entry(other).parent {
            above(&mut one, &mut one_goes_on);
            above(&mut other, &mut other_goes_on);
        }
        let key = |position, goes_on: bool| {
            let name = self.entry(position).name.iter();
            name.chain(goes_on.then_some(&b'/'))
        };
        key(one, one_goes_on).cmp(key(other, other_goes_on))
    }

    /// The path of an entry relative to the tree; empty for its top.
    fn path(&self, position: u32) -> Vec<u8> {
        let mut names = Vec::new();
        let mut entry = self.entry(position);
        while entry.depth > 0 {
            names.push(&*entry.name);
            entry = self.entry(entry.parent);
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The entries with their paths, in the order of these.
    fn in_order(&self) -> impl Iterator<Item = (Vec<u8>, &Kind)> {
        let order = self.order.iter();
        order.map(|position| (self.path(*position), &self.entry(*position).kind))
    }

    /// Passes the text to `write`, line by line, and returns its digest: 64 hexadecimal
    /// digits.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn each_line(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<String> {
        let mut hasher = Sha256::new();
        let mut each = |line: &[u8]| {
            hasher.update(line);
            write(line)
        };
        each(HEADER.as_bytes())?;
        for (path, kind) in self.in_order() {
            each(&kind.line(&path))?;
        }
        Ok(hex(&hasher.finalize()))
    }

    /// The tree's digest.
    pub(crate) fn digest(&self) -> Result<String> {
        self.each_line(&mut |_| Ok(()))
    }

    /// Number of regular files.
    pub(crate) fn files(&self) -> u64 {
        self.sizes().count() as u64
    }

    /// Bytes of content of all regular files.
    pub(crate) fn size(&self) -> u64 {
        self.sizes().fold(0, u64::saturating_add)
    }

    fn sizes(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter_map(|entry| match entry.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A tree with these paths and the directories that lead to them.
    fn listing(paths: &[Vec<&str>]) -> (Listing, Vec<String>) {
        let mut positions = BTreeMap::from([(String::new(), 0)]);
        let entry = |parent, depth, name: &str| Entry {
            parent,
            depth,
            name: name.as_bytes().into(),
            kind: Kind::Special,
        };
        let mut entries = vec![entry(0, 0, "")];
        for names in paths {
            let mut parent = 0;
            for (depth, name) in (1..).zip(names) {
                let path = names[..usize::from(depth)].join("/");
                parent = *positions.entry(path).or_insert_with(|| {
                    entries.push(entry(parent, depth, name));
                    entries.len() as u32 - 1
                });
            }
        }
        (Listing::new(entries), positions.into_keys().collect())
    }

    proptest! {
        /// Paths are in the order of their bytes, as `sort` has them, though a slash comes
        /// behind some characters of names.
        #[test]
        fn paths_are_in_byte_order(
            paths in proptest::collection::vec(proptest::collection::vec(
                prop_oneof![Just("a"), Just("a-"), Just("a.b"), Just("a0"), Just("b")], 1..5,
            ), 0..20),
        ) {
            let (listing, wanted) = listing(&paths);
            let found = listing.in_order().map(|(path, _)| String::from_utf8(path).unwrap());
            prop_assert_eq!(found.collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn the_digest_is_that_of_the_text() {
        let (listing, _) = listing(&[vec!["a"]]);
        let mut text = Vec::new();
        let digest = listing.each_line(&mut |line| {
            text.extend(line);
            Ok(())
        });
        let wanted = crate::packages::digest_of(&text);
        assert_eq!(text, b"cellblock.listing.v1 blake3\no .\no a\n");
        assert_eq!(digest.unwrap(), wanted);
        assert_eq!(listing.digest().unwrap(), wanted);
    }
}
