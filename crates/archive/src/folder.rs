//! Reads a directory as if it were an archive.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::readlinkat;
use nix::sys::stat::{SFlag, fstat};

use super::Report;
use super::sink::{Meta, Payload, Sink};
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::tree::{each, kind_of, shown};

/// Passes the content of the open directory `top` to `to`, symbolic and hard links as such,
/// but not the directory with the device and inode `except`. `from` is its path, for errors.
///
/// # Errors
/// Something cannot be read; those of `to` and `tick`.
pub fn feed_directory(
    top: &OwnedFd,
    from: &Path,
    step: Step,
    except: Option<(u64, u64)>,
    to: &mut dyn Sink,
    tick: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<()> {
    let own = fstat(top).map_err(|e| SetupError::os(step, "fstat", e).on(from.display()))?;
    // The first path of each file with several names, by device and inode.
    let mut linked: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    each(top, step, &mut |entry| {
        tick(to.report())?;
        let stat = &entry.stat;
        let identity = (stat.st_dev, stat.st_ino);
        // The store may be inside the directory that is imported.
        if except == Some(identity) {
            return Ok(false);
        }
        let meta = Meta {
            mode: stat.st_mode,
            mtime: stat.st_mtime,
        };
        let failed = |call: &str, e: &io::Error| {
            SetupError::io(step, call, e).on(from.join(shown(entry.path)).display())
        };
        let unreadable = |e: &io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                SetupError::new(step, "the file changed while it was copied")
                    .on(from.join(shown(entry.path)).display())
                    .hint("name a directory that no program writes to")
            }
            _ => failed("read", e),
        };
        let mut put = |what| to.put(entry.path, meta, what, &unreadable);
        if stat.st_dev != own.st_dev {
            put(Payload::Unwanted("is on another file system"))?;
            return Ok(false);
        }
        match kind_of(stat) {
            SFlag::S_IFDIR => put(Payload::Directory)?,
            SFlag::S_IFLNK => {
                let text =
                    readlinkat(entry.dir, entry.name).map_err(|e| failed("readlink", &e.into()))?;
                put(Payload::Link(text.as_encoded_bytes()))?;
            }
            SFlag::S_IFREG => match linked.get(&identity) {
                Some(first) => put(Payload::HardLink(first))?,
                None => {
                    let file = Beneath::new(&entry.dir).read(entry.name);
                    let mut file = file.map_err(|e| failed("openat2", &e.into()))?;
                    put(Payload::File(
                        &mut file,
                        u64::try_from(stat.st_size).unwrap_or(0),
                    ))?;
                    if stat.st_nlink > 1 {
                        to.keep(entry.path.len() as u64)?;
                        linked.insert(identity, entry.path.to_vec());
                    }
                }
            },
            SFlag::S_IFCHR | SFlag::S_IFBLK => put(Payload::Unwanted("is a device node"))?,
            SFlag::S_IFIFO => put(Payload::Unwanted("is a named pipe"))?,
            _ => put(Payload::Unwanted("is a socket"))?,
        }
        Ok(true)
    })
}
