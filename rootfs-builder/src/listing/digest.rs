//! Lists a tree with the digests of its files.

use crate::errors::store_error;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{iter, thread};

use blake3::Hash;
use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::sys::stat::{FileStat, fstat};

use super::{Kind, Listing};
use plan::rootfs::{LISTING, MANIFEST};
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::process::has_one_thread;
use sys::tree::{Entry, each, open_top, shown};

/// More threads would only wait for memory.
const MAX_THREADS: usize = 8;

/// Lists the tree in `directory`, without the manifest and the listing at its top.
/// Files are digested by several threads, which end before this returns.
///
/// # Errors
/// A file or directory cannot be read.
pub(crate) fn of_tree(directory: &Path) -> Result<Listing> {
    let had_one_thread = has_one_thread().unwrap_or(false);
    let top = open_top(directory, Step::Store)?;
    let mut entries = vec![super::Entry {
        parent: 0,
        depth: 0,
        name: Box::default(),
        kind: Kind::Directory {
            mode: mode_of(&fstat(&top).map_err(|e| failed("fstat", e, b""))?),
        },
    }];
    // The positions of the directories that lead to the entry.
    let mut above: Vec<u32> = vec![0];
    each(&top, Step::Store, &mut |entry| {
        if is_description(entry.path) {
            return Ok(true);
        }
        let depth = 1 + entry.path.iter().filter(|byte| **byte == b'/').count();
        above.truncate(depth);
        let too_many = || store_error("the tree has more entries than a listing can have");
        let position = u32::try_from(entries.len()).map_err(|_| too_many())?;
        entries.push(super::Entry {
            parent: above.last().copied().unwrap_or_default(),
            depth: u16::try_from(depth).map_err(|_| too_many())?,
            name: entry.name.to_bytes().into(),
            kind: kind_of(entry)?,
        });
        above.push(position);
        Ok(true)
    })?;
    let mut listing = Listing::new(entries);
    for (position, found) in digests(&top, &listing)? {
        if let Some(entry) = listing.entries.get_mut(position as usize)
            && let Kind::File { digest, .. } = &mut entry.kind
        {
            *digest = found;
        }
    }
    if had_one_thread {
        await_threads_end();
    }
    Ok(listing)
}

/// Whether this is the manifest or the listing of the tree.
fn is_description(path: &[u8]) -> bool {
    path == MANIFEST.as_bytes() || path == LISTING.as_bytes()
}

fn kind_of(entry: &Entry<'_>) -> Result<Kind> {
    let mode = mode_of(&entry.stat);
    Ok(match entry.stat.st_mode & libc::S_IFMT {
        libc::S_IFDIR => Kind::Directory { mode },
        libc::S_IFREG => Kind::File {
            mode,
            size: u64::try_from(entry.stat.st_size).unwrap_or(0),
            digest: Hash::from([0; 32]),
        },
        libc::S_IFLNK => {
            let text =
                readlinkat(entry.dir, entry.name).map_err(|e| failed("readlink", e, entry.path))?;
            Kind::Link {
                text: text.into_encoded_bytes().into(),
            }
        }
        _ => Kind::Special,
    })
}

const fn mode_of(stat: &FileStat) -> u32 {
    stat.st_mode & 0o7777
}

fn failed(call: &str, errno: Errno, path: &[u8]) -> SetupError {
    let error = SetupError::os(Step::Store, call, errno).on(shown(path));
    match errno {
        Errno::EACCES | Errno::EPERM => {
            error.hint("only its owner and root can read all of a rootfs")
        }
        _ => error,
    }
}

/// The digest of every file of `listing`, by its position.
fn digests(top: &OwnedFd, listing: &Listing) -> Result<Vec<(u32, Hash)>> {
    let mut files: Vec<(u64, u32)> = (0..)
        .zip(&listing.entries)
        .filter_map(|(position, entry)| match entry.kind {
            Kind::File { size, .. } => Some((size, position)),
            _ => None,
        })
        .collect();
    // The largest first, so that the threads end at about the same time.
    files.sort_unstable_by(|a, b| b.cmp(a));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((_, position)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*position, digest(top, &listing.path(*position))?));
        }
        Ok(done)
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.min(MAX_THREADS).min(files.len() / 8);
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let own = work();
        let lost = || store_error("a thread that digests files ended early");
        let others = helpers
            .into_iter()
            .map(|helper| helper.join().unwrap_or_else(|_| Err(lost())));
        let all: Result<Vec<Vec<_>>> = iter::once(own).chain(others).collect();
        all.map(|parts| parts.into_iter().flatten().collect())
    })
}

fn digest(top: &OwnedFd, path: &[u8]) -> Result<Hash> {
    let file = Beneath::new(top).read(path);
    let file = file.map_err(|e| failed("openat2", e, path))?;
    let mut hasher = blake3::Hasher::new();
    let read = hasher.update_reader(file);
    read.map_err(|e| SetupError::io(Step::Store, "read", &e).on(shown(path)))?;
    Ok(hasher.finalize())
}

/// The kernel still counts a joined thread for a moment, and a process that starts
/// cells must have only one.
fn await_threads_end() {
    let deadline = Instant::now() + Duration::from_secs(1);
    while !has_one_thread().unwrap_or(true) && Instant::now() < deadline {
        thread::sleep(Duration::from_micros(50));
    }
}
