//! What kind of source a path leads to.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Cursor, Read, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::blobs::Blobs;
use super::{Tick, broken};
use archive::{self, Report};
use cell::rootfs::Draft;
use record::error::{Result, SetupError, Step};

/// A source, ready to be read.
pub(super) enum Source {
    /// A directory as it is.
    Directory,
    /// One archive of all files.
    Archive(Box<dyn Read>),
    /// An OCI image layout.
    Oci(Blobs),
    /// What `docker save` wrote before it wrote OCI layouts.
    Docker(Blobs),
}

/// Opens the source at `path`; `-` is standard input. An archive of an image
/// that cannot be read in any order is first put, without a name, beside
/// `draft`.
pub(super) fn open(path: &Path, draft: &Draft, tick: Tick<'_>) -> Result<Source> {
    let failed = |call: &str, e: &io::Error| {
        SetupError::io(Step::Store, call, e)
            .on(path.display())
            .hint("name an image layout, an archive, or a directory that you may read")
    };
    if path.as_os_str() == "-" {
        let spooled = spool(&mut io::stdin().lock(), draft, tick)?;
        return archive_or_image(spooled, path, draft, tick);
    }
    let file = File::open(path).map_err(|e| failed("open", &e))?;
    let kind = file.metadata().map_err(|e| failed("fstat", &e))?;
    if kind.is_dir() {
        let blobs = Blobs::directory(path)?;
        return Ok(match image_kind(|name| blobs.has(name)) {
            Some(Kind::Oci) => Source::Oci(blobs),
            // A rootfs may have a file of that name; an image's lists layers.
            Some(Kind::Docker) if super::docker::is_manifest(&blobs) => Source::Docker(blobs),
            _ => Source::Directory,
        });
    }
    if !kind.is_file() {
        let spooled = spool(&mut &file, draft, tick)?;
        return archive_or_image(spooled, path, draft, tick);
    }
    archive_or_image(file, path, draft, tick)
}

/// The kind of image whose archive or directory has such names.
enum Kind {
    Oci,
    Docker,
}

fn image_kind(has: impl Fn(&str) -> bool) -> Option<Kind> {
    if has("oci-layout") && has("index.json") {
        return Some(Kind::Oci);
    }
    has("manifest.json").then_some(Kind::Docker)
}

fn archive_or_image(mut file: File, path: &Path, draft: &Draft, tick: Tick<'_>) -> Result<Source> {
    let failed = |e: &io::Error| broken(path, format!("the archive cannot be read: {e}"));
    let mut start = [0; 8];
    let length = file.read_at(&mut start, 0).map_err(|e| failed(&e))?;
    let is_compressed = archive::is_compressed(&start[..length]);
    // Of a compressed archive, the names are looked at first: a rootfs is then
    // unpacked as it is read, and only an image needs its content in a file.
    if is_compressed {
        if !looks_like_an_image(&file).map_err(|e| failed(&e))? {
            file.rewind().map_err(|e| failed(&e))?;
            return Ok(Source::Archive(Box::new(file)));
        }
        file.rewind().map_err(|e| failed(&e))?;
        let mut content = archive::decompress(&file).map_err(|e| failed(&e))?;
        let spooled = spool(&mut content, draft, tick)?;
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
    match image_kind(|name| blobs.has(name)) {
        Some(Kind::Oci) => Ok(Source::Oci(blobs)),
        Some(Kind::Docker) => Ok(Source::Docker(blobs)),
        None => Err(broken(
            path,
            "this is an archive with neither files of a rootfs nor an image's index",
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

/// Whether an archive of an image may have this name: docker's and podman's, or
/// those of the tools that write such archives without a daemon.
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

/// Puts all that `from` delivers into a file without a name, which goes with the
/// process.
fn spool(from: &mut dyn Read, draft: &Draft, tick: Tick<'_>) -> Result<File> {
    let place = draft.tree();
    let failed = |call: &str, e: &io::Error| {
        SetupError::io(Step::Store, call, e)
            .on(place.display())
            .hint("make room there, or name a store on another file system with --store")
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(place)
        .map_err(|e| failed("open", &e))?;
    let mut report = Report::default();
    loop {
        let piece =
            io::copy(&mut from.take(8 << 20), &mut file).map_err(|e| failed("write", &e))?;
        if piece == 0 {
            break;
        }
        report.bytes += piece;
        tick("reading", &report)?;
    }
    file.rewind().map_err(|e| failed("lseek", &e))?;
    Ok(file)
}
