//! Reads a directory or an archive into a [`Stage`].

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Digest;
use super::stage::{Entry, Kind, Piece, Stage, more_bytes, too_large, too_many};
use super::walk::{DEEPEST, LONGEST_PATH};
use archive::{
    Meta, NOT_EMPTY, Payload, Refusal, Report, Sink, Stream, check_link, clean, feed,
    feed_directory,
};
use record::error::{Result, SetupError, Step};
use spec::TmpfsLimit;
use sys::memory_file;

/// Bytes that an entry takes in an archive besides its content: its header, one for a long
/// name, and padding.
const OVERHEAD: u64 = 8 << 10;

/// What a stage is filled from.
pub(crate) enum Origin<'a> {
    /// An open directory, and its path.
    Directory(&'a OwnedFd, &'a Path),
    /// The same, with what an earlier cell left there. Its links are taken as they are,
    /// since they lead somewhere only in a cell.
    Kept(&'a OwnedFd, &'a Path),
    /// A tar archive, plain or compressed, and its name.
    Archive(&'a mut dyn Read, &'a str),
}

impl Stage {
    /// Adds the content of `origin` on top of what is there. No more is read than a
    /// workspace with this limit has room for.
    ///
    /// # Errors
    /// It cannot be read, is damaged or too large.
    pub(crate) fn fill(&mut self, origin: Origin<'_>, limit: TmpfsLimit) -> Result<Report> {
        let more = more_bytes(self.scratch);
        let mut filling = Filling {
            stage: self,
            limit,
            takes_all_links: matches!(origin, Origin::Kept(..)),
            report: Report::default(),
        };
        let name = match origin {
            Origin::Directory(top, path) | Origin::Kept(top, path) => {
                feed_directory(top, path, Step::Inputs, None, &mut filling, &mut |_| Ok(()))
                    .map_err(|error| named(error, &path.display().to_string()))?;
                return Ok(filling.report);
            }
            Origin::Archive(reader, name) => {
                let overhead = limit.inodes.saturating_mul(OVERHEAD);
                let stream = Stream {
                    step: Step::Inputs,
                    max_bytes: limit.size.0.saturating_add(overhead),
                    hint: &more,
                };
                feed(reader, &mut filling, &stream, &mut |_| Ok(())).map_err(|e| named(e, name))?;
                name
            }
        };
        if filling.report.entries == 0 {
            return Err(SetupError::new(Step::Inputs, "the archive has no entries")
                .on(name)
                .hint("give a directory, or a tar archive with something in it"));
        }
        Ok(filling.report)
    }
}

/// Names the directory or archive in errors about it as a whole.
fn named(mut error: SetupError, name: &str) -> SetupError {
    match error.operand.as_deref() {
        None | Some("archive") => error.operand = Some(name.to_owned()),
        Some(_) => {}
    }
    error
}

struct Filling<'a> {
    stage: &'a mut Stage,
    limit: TmpfsLimit,
    /// Whether links that lead outside are taken too.
    takes_all_links: bool,
    report: Report,
}

impl Sink for Filling<'_> {
    fn place(&mut self, name: &[u8], meta: Meta, what: Payload<'_>) -> Result<(), Refusal> {
        let path = clean(name, DEEPEST + 1)?;
        if path.len() > LONGEST_PATH {
            return Err(format!("has a path of more than {LONGEST_PATH} bytes").into());
        }
        if path.is_empty() {
            return match what {
                Payload::Directory => Ok(()),
                _ => Err("would replace the whole workspace".into()),
            };
        }
        if let Payload::Unwanted(reason) | Payload::Unknown(reason) = what {
            return Err(reason.into());
        }
        self.make_parents(&path)?;
        if !matches!(what, Payload::Directory) && self.stage.has_content(&path) {
            return Err(NOT_EMPTY.into());
        }
        let kind = match what {
            Payload::Unwanted(_) | Payload::Unknown(_) | Payload::Directory => Kind::Directory,
            Payload::File(content, size) => Kind::File(self.content(content, size)?),
            Payload::Link(text) if self.takes_all_links => Kind::Link(text.to_vec()),
            Payload::Link(text) => {
                check_link(&path, text)?;
                if text.starts_with(b"/") {
                    return Err("is a link to an absolute path".into());
                }
                Kind::Link(text.to_vec())
            }
            Payload::HardLink(target) => {
                let target = clean(target, DEEPEST + 1)
                    .map_err(|reason| format!("is a hard link whose target {reason}"))?;
                match self.stage.entries.get(&target).map(|entry| &entry.kind) {
                    Some(kind @ (Kind::File(_) | Kind::Link(_))) => kind.clone(),
                    _ => return Err("is a hard link to no earlier file".into()),
                }
            }
        };
        let mode = match kind {
            // Its owner can fill it and empty it.
            Kind::Directory => meta.mode & 0o777 | 0o700,
            _ => meta.mode & 0o777,
        };
        self.insert(path, kind, mode, meta.mtime)
    }

    fn admit(&self, entries: u64) -> Result<()> {
        match self.limit.inodes {
            most if entries > most => Err(too_many(self.stage.scratch, most)),
            _ => Ok(()),
        }
    }

    fn report(&mut self) -> &mut Report {
        &mut self.report
    }
}

impl Filling<'_> {
    fn insert(&mut self, path: Vec<u8>, kind: Kind, mode: u32, mtime: i64) -> Result<(), Refusal> {
        let entry = Entry { kind, mode, mtime };
        self.stage.entries.insert(path, entry);
        // Directories that an archive does not list count as well.
        match self.stage.entries.len() as u64 > self.limit.inodes {
            true => Err(too_many(self.stage.scratch, self.limit.inodes).into()),
            false => Ok(()),
        }
    }

    fn make_parents(&mut self, path: &[u8]) -> Result<(), Refusal> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in slashes {
            let parent = &path[..end];
            match self.stage.entries.get(parent).map(|entry| &entry.kind) {
                Some(Kind::Directory) => {}
                Some(Kind::Link(_)) => return Err("has a link in its path".into()),
                Some(Kind::File(_)) => {
                    return Err("has something other than a directory in its path".into());
                }
                None => self.insert(parent.to_vec(), Kind::Directory, 0o755, 0)?,
            }
        }
        Ok(())
    }

    /// Copies a file's content. Runs of zeros take no memory.
    fn content(&mut self, from: &mut dyn Read, size: u64) -> Result<Piece, Refusal> {
        let stage = &mut *self.stage;
        let all = self.report.bytes.saturating_add(size);
        if all > self.limit.size.0 {
            return Err(too_large(stage.scratch, self.limit.size, all).into());
        }
        self.report.bytes = all;
        let at = stage.end;
        let mut end = at;
        let digest = Digest::of(from.take(size), |piece| {
            if piece.iter().any(|byte| *byte != 0) {
                let written = stage.memory()?.write_all_at(piece, end);
                written.map_err(|e| memory_error("write", &e))?;
            }
            end += piece.len() as u64;
            Ok::<_, Refusal>(())
        })?;
        if digest.size != size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if size > 0 {
            // Zeros at the end have a length only.
            let set = stage.memory()?.set_len(end);
            set.map_err(|e| memory_error("ftruncate", &e))?;
        }
        stage.end = end;
        Ok(Piece { at, digest })
    }
}

impl Stage {
    /// The file in memory that the content goes to.
    fn memory(&mut self) -> Result<&File> {
        match self.content {
            Some(ref file) => Ok(file),
            None => Ok(self.content.insert(memory_file(c"cellblock-stage")?)),
        }
    }
}

fn memory_error(call: &str, error: &io::Error) -> SetupError {
    SetupError::io(Step::Inputs, call, error)
        .on("the files put in")
        .hint(
            "they are held in memory until the cell has them: put less in, or allow cellblock more",
        )
}
