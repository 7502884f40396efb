//! Opens a source and finds its type.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Cursor, Read, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::blobs::Blobs;
use super::{broken, docker};
use crate::errors::failed;
use crate::job::Job;
use crate::store::Draft;
use archive::Budget;
use record::error::{Result, SetupError, Step};

/// Bytes at the start of an archive that show whether it is an image.
const START: u64 = 256 << 10;

/// Bytes of an archive that are copied at once.
const PIECE: u64 = 1 << 20;

/// A source, ready to be read.
pub(super) enum Source {
    /// A directory as it is.
    Directory,
    /// One archive of all files.
    Archive(Box<dyn Read>),
    /// An OCI image layout.
    Oci(Blobs),
    /// The output of `docker save` before it wrote OCI layouts.
    Docker(Blobs),
}

/// Opens the source at `path`; `-` is standard input. An archive of an image that
/// has no random access is first copied to an unnamed file in the draft.
pub(super) fn open(path: &Path, draft: &Draft, budget: &Budget, job: &Job) -> Result<Source> {
    let failed = |call: &str, e: &io::Error| {
        SetupError::io(Step::Store, call, e)
            .on(path.display())
            .hint("name an image layout, an archive, or a directory that you may read")
    };
    if path.as_os_str() == "-" {
        let input = io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|e| failed("dup", &e))?;
        return archive_or_image(input.into(), false, path, draft, budget, job);
    }
    let file = File::open(path).map_err(|e| failed("open", &e))?;
    let kind = file.metadata().map_err(|e| failed("fstat", &e))?;
    if kind.is_dir() {
        let blobs = Blobs::directory(path)?;
        return Ok(match image_format(&blobs) {
            Some(Format::Oci) => Source::Oci(blobs),
            // A rootfs may have a file of that name too.
            Some(Format::Docker) if docker::is_manifest(&blobs) => Source::Docker(blobs),
            _ => Source::Directory,
        });
    }
    archive_or_image(file, kind.is_file(), path, draft, budget, job)
}

enum Format {
    Oci,
    Docker,
}

/// The format of an image, by the names of its files.
fn image_format(blobs: &Blobs) -> Option<Format> {
    if blobs.has("oci-layout") && blobs.has("index.json") {
        return Some(Format::Oci);
    }
    blobs.has("manifest.json").then_some(Format::Docker)
}

/// Looks into an archive. A rootfs is unpacked as it is read; only an image needs random
/// access, and so a file of its own unless the archive is a plain file, `is_file`.
fn archive_or_image(
    file: File,
    is_file: bool,
    path: &Path,
    draft: &Draft,
    budget: &Budget,
    job: &Job,
) -> Result<Source> {
    let failed = |e: io::Error| broken(path, format!("the archive cannot be read: {e}"));
    let mut first = [0; 8];
    let is_plain_file = is_file && {
        let length = file.read_at(&mut first, 0).map_err(failed)?;
        !archive::is_compressed(&first[..length])
    };
    let copy = file.try_clone().map_err(failed)?;
    let mut content = archive::decompress(copy).map_err(failed)?;
    let mut start = Vec::new();
    let read = (&mut content).take(START).read_to_end(&mut start);
    read.map_err(failed)?;
    let is_image = looks_like_an_image(&start);
    let mut content = Cursor::new(start).chain(content);
    if !is_image {
        return Ok(Source::Archive(Box::new(content)));
    }
    let mut file = match is_plain_file {
        true => file,
        false => spool(&mut content, path, draft, budget, job)?,
    };
    file.rewind().map_err(failed)?;
    let members = archive::members(BufReader::new(&file), Step::Store, &|name| {
        !is_of_an_image(name)
    })?;
    file.rewind().map_err(failed)?;
    let Some(members) = members else {
        return Ok(Source::Archive(Box::new(file)));
    };
    let blobs = Blobs::archive(file, path, members);
    match image_format(&blobs) {
        Some(Format::Oci) => Ok(Source::Oci(blobs)),
        Some(Format::Docker) => Ok(Source::Docker(blobs)),
        None => Err(broken(
            path,
            "the archive has neither files of a rootfs nor an image's index",
        )),
    }
}

/// Whether the first names in an archive, of which this is the start, are those of an image.
fn looks_like_an_image(start: &[u8]) -> bool {
    let start = Cursor::new(start);
    let members = archive::members(start, Step::Store, &|name| !is_of_an_image(name));
    !matches!(members, Ok(None))
}

/// Whether an archive of an image may have this name, from docker, podman or tools
/// that need no daemon.
fn is_of_an_image(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let id = [&b".json"[..], b".tar", b".tar.gz"]
        .into_iter()
        .find_map(|ending| first.strip_suffix(ending))
        .unwrap_or(first);
    let id = id.strip_prefix(b"sha256:").unwrap_or(id);
    let is_id = id.len() == 64 && id.iter().all(u8::is_ascii_hexdigit);
    is_id
        || matches!(
            first,
            b"" | b"oci-layout" | b"index.json" | b"manifest.json" | b"repositories" | b"blobs"
        )
}

/// Copies everything in `from` to an unnamed file, which the kernel removes when it
/// is closed.
fn spool(
    from: &mut dyn Read,
    path: &Path,
    draft: &Draft,
    budget: &Budget,
    job: &Job,
) -> Result<File> {
    let place = draft.tree();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(place)
        .map_err(failed("open", place))?;
    let mut piece = Vec::new();
    let mut bytes = 0;
    loop {
        piece.clear();
        let read = from.take(PIECE).read_to_end(&mut piece);
        let length = read.map_err(|e| broken(path, format!("the archive cannot be read: {e}")))?;
        if length == 0 {
            return Ok(file);
        }
        budget.take_disk(length as u64)?;
        file.write_all(&piece).map_err(failed("write", place))?;
        bytes += length as u64;
        job.advance("reading", bytes)?;
    }
}
