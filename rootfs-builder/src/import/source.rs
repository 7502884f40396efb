//! Opens a source and finds its type.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Cursor, Read, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::blobs::Blobs;
use super::{broken, docker};
use crate::errors::failed;
use crate::job::Job;
use crate::store::Draft;
use record::error::{Result, SetupError, Step};

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
pub(super) fn open(path: &Path, draft: &Draft, job: &Job) -> Result<Source> {
    let failed = |call: &str, e: &io::Error| {
        SetupError::io(Step::Store, call, e)
            .on(path.display())
            .hint("name an image layout, an archive, or a directory that you may read")
    };
    if path.as_os_str() == "-" {
        let file = spool(&mut io::stdin().lock(), draft, job)?;
        return archive_or_image(file, path, draft, job);
    }
    let mut file = File::open(path).map_err(|e| failed("open", &e))?;
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
    if !kind.is_file() {
        file = spool(&mut &file, draft, job)?;
    }
    archive_or_image(file, path, draft, job)
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

fn archive_or_image(mut file: File, path: &Path, draft: &Draft, job: &Job) -> Result<Source> {
    let failed = |e: &io::Error| broken(path, format!("the archive cannot be read: {e}"));
    let mut start = [0; 8];
    let length = file.read_at(&mut start, 0).map_err(|e| failed(&e))?;
    // A compressed rootfs is unpacked as it is read; only an image must be
    // decompressed to a file.
    if archive::is_compressed(&start[..length]) {
        let is_image = looks_like_an_image(&file).map_err(|e| failed(&e))?;
        file.rewind().map_err(|e| failed(&e))?;
        if !is_image {
            return Ok(Source::Archive(Box::new(file)));
        }
        let mut content = archive::decompress(&file).map_err(|e| failed(&e))?;
        let spooled = spool(&mut content, draft, job)?;
        drop(content);
        file = spooled;
    }
    let members = archive::members(BufReader::new(&file), Step::Store, &|name| {
        !is_of_an_image(name)
    })?;
    file.seek(SeekFrom::Start(0)).map_err(|e| failed(&e))?;
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

/// Whether the first names in a compressed archive are those of an image.
fn looks_like_an_image(file: &File) -> io::Result<bool> {
    let mut start = Vec::new();
    archive::decompress(file)?
        .take(256 << 10)
        .read_to_end(&mut start)?;
    let members = archive::members(Cursor::new(start), Step::Store, &|name| {
        !is_of_an_image(name)
    });
    Ok(!matches!(members, Ok(None)))
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
fn spool(from: &mut dyn Read, draft: &Draft, job: &Job) -> Result<File> {
    let place = draft.tree();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(place)
        .map_err(failed("open", place))?;
    let mut bytes = 0;
    loop {
        let piece = io::copy(&mut from.take(8 << 20), &mut file).map_err(failed("write", place))?;
        if piece == 0 {
            break;
        }
        bytes += piece;
        job.advance("reading", bytes)?;
    }
    file.rewind().map_err(failed("lseek", place))?;
    Ok(file)
}
