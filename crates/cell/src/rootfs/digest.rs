//! Lists a tree with the digests of its files.

use std::io::Read as _;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{iter, thread};

use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::sys::stat::{FileStat, fstat};

use super::listing::{Item, Kind, Listing};
use super::{FILE, LISTING};
use record::error::{Result, SetupError, Step};
use sys::beneath::Beneath;
use sys::process::has_one_thread;
use sys::tree::{Entry, each, open_top, shown};

/// Bytes read at once: a multiple of what BLAKE3 digests side by side, and small
/// enough to stay in a core's own cache.
const CHUNK: usize = 256 << 10;

/// More threads than this wait for memory only.
const MOST_THREADS: usize = 8;

/// Lists the tree in `directory`, without the manifest and the listing at its
/// top, and digests its files on all processors. The threads have ended when
/// this returns.
///
/// # Errors
/// What cannot be read, by its path.
pub fn list(directory: &Path) -> Result<Listing> {
    let was_alone = has_one_thread().unwrap_or(false);
    let top = open_top(directory, Step::Store)?;
    let mut items = vec![Item {
        path: Vec::new(),
        kind: Kind::Directory {
            mode: mode_of(&fstat(&top).map_err(|e| failed("fstat", e, b""))?),
        },
    }];
    each(&top, Step::Store, &mut |entry| {
        if !is_ours(entry.path) {
            items.push(item(entry)?);
        }
        Ok(true)
    })?;
    items.sort_by(|a, b| a.path.cmp(&b.path));
    for (index, digest) in digests(&top, &items)? {
        if let Some(Item {
            kind: Kind::File { digest: place, .. },
            ..
        }) = items.get_mut(index)
        {
            *place = digest;
        }
    }
    if was_alone {
        await_the_threads_ends();
    }
    Ok(Listing { items })
}

/// Whether this is cellblock's own description of the tree.
fn is_ours(path: &[u8]) -> bool {
    path == FILE.as_bytes() || path == LISTING.as_bytes()
}

fn item(entry: &Entry<'_>) -> Result<Item> {
    let mode = mode_of(&entry.stat);
    let kind = match entry.stat.st_mode & libc::S_IFMT {
        libc::S_IFDIR => Kind::Directory { mode },
        libc::S_IFREG => Kind::File {
            mode,
            size: u64::try_from(entry.stat.st_size).unwrap_or(0),
            digest: [0; 32],
        },
        libc::S_IFLNK => {
            let text =
                readlinkat(entry.dir, entry.name).map_err(|e| failed("readlink", e, entry.path))?;
            Kind::Link {
                text: text.into_encoded_bytes(),
            }
        }
        _ => Kind::Other,
    };
    Ok(Item {
        path: entry.path.to_vec(),
        kind,
    })
}

const fn mode_of(stat: &FileStat) -> u32 {
    stat.st_mode & 0o7777
}

fn failed(call: &str, errno: Errno, path: &[u8]) -> SetupError {
    let error = SetupError::os(Step::Store, call, errno).on(shown(path));
    match errno {
        Errno::EACCES | Errno::EPERM => {
            error.hint("only who may read all of a rootfs can check it: its owner, or root")
        }
        _ => error,
    }
}

/// The digest of every file among `items`, by its index.
fn digests(top: &OwnedFd, items: &[Item]) -> Result<Vec<(usize, [u8; 32])>> {
    let mut files: Vec<(u64, usize)> = items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| match item.kind {
            Kind::File { size, .. } => Some((size, index)),
            _ => None,
        })
        .collect();
    // The largest first, so that none of them is left to one thread at the end.
    files.sort_unstable_by(|a, b| b.cmp(a));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut buffer = vec![0; CHUNK];
        let mut done = Vec::new();
        while let Some((_, index)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*index, digest(top, &items[*index].path, &mut buffer)?));
        }
        Ok(done)
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.min(MOST_THREADS).min(files.len() / 8);
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let own = work();
        let lost = || SetupError::new(Step::Store, "a thread that digests files ended early");
        let others = helpers
            .into_iter()
            .map(|helper| helper.join().unwrap_or_else(|_| Err(lost())));
        let all: Result<Vec<Vec<_>>> = iter::once(own).chain(others).collect();
        all.map(|parts| parts.into_iter().flatten().collect())
    })
}

fn digest(top: &OwnedFd, path: &[u8], buffer: &mut [u8]) -> Result<[u8; 32]> {
    let file = Beneath::new(top).read(path);
    let mut file = file.map_err(|e| failed("openat2", e, path))?;
    let mut hasher = blake3::Hasher::new();
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(length) => {
                hasher.update(&buffer[..length]);
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(SetupError::io(Step::Store, "read", &e).on(shown(path))),
        }
    }
}

/// A joined thread is still counted for a moment, and a process that starts
/// cells must have only one.
fn await_the_threads_ends() {
    let deadline = Instant::now() + Duration::from_secs(1);
    while !has_one_thread().unwrap_or(true) && Instant::now() < deadline {
        thread::sleep(Duration::from_micros(50));
    }
}
