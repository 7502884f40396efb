//! Reads the entries of a tar archive, one after the other.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

use tar::{Archive, Entries, Entry, EntryType};

use super::sink::{Meta, Payload, Sink};
use super::sparse::Expanded;
use super::{Report, Stream, damaged};
use record::error::{Result, SetupError, Step};

/// Bytes that the headers of one entry may have, with long names, extended attributes and
/// maps of holes: the tar reader keeps them in memory.
const LARGEST_HEADER: u64 = 256 << 10;

/// Files and links that an archive of an image may have, and bytes of each name: all names
/// are kept in memory.
const MOST_MEMBERS: usize = 20_000;
const LONGEST_MEMBER: usize = 255;

/// The hint for an archive that begins like an image but is not one.
const NO_IMAGE: &str = "`docker save` and `skopeo copy` write smaller ones; a rootfs must not start \
                        with the files of an image";

/// Unpacks plain tar.
pub(super) fn unpack(
    reader: impl Read,
    to: &mut dyn Sink,
    stream: &Stream<'_>,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<()> {
    let reader = Meter::new(reader, stream.max_bytes);
    let allowance = Rc::clone(&reader.allowance);
    let unreadable = |e: &io::Error| unreadable(stream, &allowance, e);
    let mut archive = Archive::new(reader);
    let mut entries = archive.entries().map_err(|e| damaged(stream.step, &e))?;
    while let Some(entry) = next(&mut entries, &allowance) {
        tick(to.report())?;
        let mut entry = entry.map_err(|e| unreadable(&e))?;
        place(to, &mut entry, &unreadable)?;
        // Its remaining data would count against the next header's allowance.
        io::copy(&mut entry, &mut io::sink()).map_err(|e| unreadable(&e))?;
    }
    Ok(())
}

/// An entry of a listed archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Member {
    /// A file: the position of its content, and its size in bytes.
    File {
        /// From the archive's beginning.
        at: u64,
        /// In bytes.
        size: u64,
    },
    /// A symbolic link and its text.
    Link(Vec<u8>),
}

/// Files and symbolic links by their names in the archive.
pub type Members = Vec<(Vec<u8>, Member)>;

/// Lists the plain tar archive `reader` without unpacking it; `None` as soon as `until`
/// accepts a name.
///
/// # Errors
/// The archive is damaged, or too large.
pub fn members(
    reader: impl Read + Seek,
    step: Step,
    until: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<Members>> {
    let stream = Stream {
        step,
        max_bytes: u64::MAX,
        hint: NO_IMAGE,
    };
    let reader = Meter::new(reader, stream.max_bytes);
    let allowance = Rc::clone(&reader.allowance);
    let unreadable = |e: &io::Error| unreadable(&stream, &allowance, e);
    let mut archive = Archive::new(reader);
    let mut entries = archive.entries_with_seek().map_err(|e| damaged(step, &e))?;
    let mut members = Vec::new();
    while let Some(entry) = next(&mut entries, &allowance) {
        let entry = entry.map_err(|e| unreadable(&e))?;
        let name = entry.path_bytes().into_owned();
        if until(&name) {
            return Ok(None);
        }
        let member = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => Member::File {
                at: entry.raw_file_position(),
                size: entry.size(),
            },
            EntryType::Symlink => {
                Member::Link(entry.link_name_bytes().unwrap_or_default().into_owned())
            }
            _ => continue,
        };
        let target = match &member {
            Member::File { .. } => 0,
            Member::Link(target) => target.len(),
        };
        let limits = [
            (members.len() >= MOST_MEMBERS, MOST_MEMBERS, "files"),
            (
                name.len().max(target) > LONGEST_MEMBER,
                LONGEST_MEMBER,
                "bytes in one name",
            ),
        ];
        if let Some((_, most, what)) = limits.iter().find(|(is_exceeded, ..)| *is_exceeded) {
            let message = format!("an archive of an image has more than {most} {what}");
            return Err(SetupError::new(step, message).hint(NO_IMAGE));
        }
        members.push((name, member));
    }
    Ok(Some(members))
}

/// The next entry; its header may read [`LARGEST_HEADER`] bytes.
fn next<'a, R: Read>(
    entries: &mut Entries<'a, R>,
    allowance: &Allowance,
) -> Option<io::Result<Entry<'a, R>>> {
    let whole = allowance.left.get();
    let granted = whole.min(LARGEST_HEADER);
    allowance.left.set(granted);
    let entry = entries.next();
    allowance.left.set(whole - (granted - allowance.left.get()));
    entry
}

fn place(
    to: &mut dyn Sink,
    entry: &mut Entry<'_, impl Read>,
    unreadable: &dyn Fn(&io::Error) -> SetupError,
) -> Result<()> {
    let kind = entry.header().entry_type();
    if kind.is_pax_global_extensions() {
        return Ok(());
    }
    let sparse = gnu_sparse(entry).map_err(|e| unreadable(&e))?;
    let name = match &sparse {
        Sparse::File { name, .. } => name.clone(),
        _ => entry.path_bytes().into_owned(),
    };
    let header = entry.header();
    let meta = Meta {
        mode: header.mode().unwrap_or(0),
        mtime: (header.mtime().ok())
            .and_then(|time| i64::try_from(time).ok())
            .unwrap_or(0),
    };
    let link = entry.link_name_bytes().unwrap_or_default().into_owned();
    let size = entry.size();
    let mut expanded;
    let what = match kind {
        EntryType::Directory => Payload::Directory,
        EntryType::Symlink => Payload::Link(&link),
        EntryType::Link => Payload::HardLink(&link),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => match sparse {
            Sparse::Unknown => Payload::Unknown("is a sparse file of an old form"),
            Sparse::No => Payload::File(entry, size),
            Sparse::File { size, .. } => {
                expanded = Expanded::new(entry, size).map_err(|e| unreadable(&e))?;
                Payload::File(&mut expanded, size)
            }
        },
        EntryType::Char | EntryType::Block => Payload::Unwanted("is a device node"),
        EntryType::Fifo => Payload::Unwanted("is a named pipe"),
        _ => Payload::Unknown("is of an unsupported kind"),
    };
    to.put(&name, meta, what, unreadable)
}

fn unreadable(stream: &Stream<'_>, allowance: &Allowance, error: &io::Error) -> SetupError {
    let step = stream.step;
    if allowance.is_exceeded.get() {
        let message = match stream.max_bytes {
            u64::MAX => format!("the archive has a header of more than {LARGEST_HEADER} bytes"),
            most => format!(
                "the archive has more than {most} bytes, or a header of more than {LARGEST_HEADER}"
            ),
        };
        return SetupError::new(step, message).hint(stream.hint);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(step, &io::Error::other("it ends too early")),
        _ => damaged(step, error),
    }
}

/// How a file's holes are encoded.
enum Sparse {
    /// By no extension; the tar reader knows the older encoding in headers.
    No,
    /// A map before the data; the header has a made-up name and size.
    File { name: Vec<u8>, size: u64 },
    /// In a format that only GNU tar 1.14 and 1.15 wrote.
    Unknown,
}

fn gnu_sparse(entry: &mut Entry<'_, impl Read>) -> io::Result<Sparse> {
    let Some(extensions) = entry.pax_extensions()? else {
        return Ok(Sparse::No);
    };
    let (mut is_sparse, mut major, mut name, mut size) = (false, None, None, None);
    for extension in extensions {
        let extension = extension?;
        let value = extension.value_bytes();
        let Some(key) = extension.key_bytes().strip_prefix(b"GNU.sparse.") else {
            continue;
        };
        is_sparse = true;
        match key {
            b"major" => major = Some(value.to_vec()),
            b"name" => name = Some(value.to_vec()),
            b"realsize" => size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()),
            _ => {}
        }
    }
    match (is_sparse, major.as_deref(), name, size) {
        (false, ..) => Ok(Sparse::No),
        (true, Some(b"1"), Some(name), Some(size)) => Ok(Sparse::File { name, size }),
        _ => Ok(Sparse::Unknown),
    }
}

/// A reader that gives no more bytes than it is allowed to.
struct Meter<R> {
    inner: R,
    allowance: Rc<Allowance>,
}

#[derive(Default)]
struct Allowance {
    left: Cell<u64>,
    /// Whether more was asked for.
    is_exceeded: Cell<bool>,
}

impl<R> Meter<R> {
    fn new(inner: R, allowed: u64) -> Self {
        let allowance = Rc::<Allowance>::default();
        allowance.left.set(allowed);
        Self { inner, allowance }
    }
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.left.get();
        let most = usize::try_from(left).map_or(buffer.len(), |left| buffer.len().min(left));
        if most == 0 && !buffer.is_empty() {
            self.allowance.is_exceeded.set(true);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let length = self.inner.read(&mut buffer[..most])?;
        self.allowance.left.set(left - length as u64);
        Ok(length)
    }
}

impl<R: Seek> Seek for Meter<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
