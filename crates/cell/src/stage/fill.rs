//! Reads a directory or an archive into a [`Stage`].

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use sha2::{Digest as _, Sha256};

use super::{Entry, Kind, Piece, Stage, more_bytes, too_large, too_many};
use crate::spec::{Bytes, TmpfsLimit};
use archive::{Meta, Refusal, Report, Sink, Stream, What, check_link, clean, feed, feed_directory};
use record::error::{Result, SetupError, Step};

/// As deep as changed files are looked for when the program has ended.
const DEEPEST: usize = 64;
/// As long as the paths of files that come out.
const LONGEST_PATH: usize = 1024;
/// Bytes that an archive spends on an entry, besides its content: its header,
/// one for a long name, and what fills up their last blocks.
const OVERHEAD: u64 = 8 << 10;
/// MFD_NOEXEC_SEAL (Linux 6.3), without which a host may refuse.
const NOEXEC_SEAL: u32 = 0x8;

/// What is read.
pub(crate) enum Source<'a> {
    /// An open directory, and its path.
    Directory(&'a OwnedFd, &'a Path),
    /// The same, with what an earlier cell left there: its links mean something in
    /// a cell only, so they are taken as they are.
    Kept(&'a OwnedFd, &'a Path),
    /// A tar archive, plain or compressed, and its name.
    Archive(&'a mut dyn Read, &'a str),
}

impl Stage {
    /// Puts in what `source` holds, over what is there. No more is read than a
    /// workspace with this limit could hold.
    ///
    /// # Errors
    /// It cannot be read, is damaged or too large.
    pub(crate) fn fill(&mut self, source: Source<'_>, limit: TmpfsLimit) -> Result<Report> {
        let more = more_bytes(self.place);
        let mut filling = Filling {
            stage: self,
            limit,
            takes_all_links: matches!(source, Source::Kept(..)),
            report: Report::default(),
        };
        let name = match source {
            Source::Directory(top, path) | Source::Kept(top, path) => {
                feed_directory(top, path, Step::Inputs, &mut filling)
                    .map_err(|error| named(error, &path.display().to_string()))?;
                return Ok(filling.report);
            }
            Source::Archive(reader, name) => {
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

/// Errors about the whole name it.
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
    /// Whether links are taken that lead outside.
    takes_all_links: bool,
    report: Report,
}

impl Sink for Filling<'_> {
    fn place(
        &mut self,
        name: &[u8],
        meta: Meta,
        what: What<'_>,
        unreadable: &dyn Fn(&io::Error) -> SetupError,
    ) -> Result<(), Refusal> {
        let path = clean(name, DEEPEST + 1)?;
        if path.len() > LONGEST_PATH {
            return Err(format!("has a path of more than {LONGEST_PATH} bytes").into());
        }
        if path.is_empty() {
            return match what {
                What::Directory => Ok(()),
                _ => Err("would take the place of the whole workspace".into()),
            };
        }
        if let What::Nothing(reason) = what {
            return Err(reason.into());
        }
        self.make_parents(&path)?;
        let is_directory = matches!(what, What::Directory);
        if let Some(there) = self.stage.entries.get(&path)
            && there.kind == Kind::Directory
            && !is_directory
            && self.stage.has_content(&path)
        {
            return Err("would take the place of a directory with content".into());
        }
        let kind = match what {
            What::Nothing(_) | What::Directory => Kind::Directory,
            What::File(content, size) => Kind::File(self.content(content, size, unreadable)?),
            What::Link(text) if self.takes_all_links => Kind::Link(text.to_vec()),
            What::Link(text) => {
                check_link(&path, text)?;
                if text.starts_with(b"/") {
                    return Err("is a link to an absolute path".into());
                }
                Kind::Link(text.to_vec())
            }
            What::HardLink(target) => {
                let target = clean(target, DEEPEST + 1)
                    .map_err(|reason| format!("is a hard link whose target {reason}"))?;
                match self.stage.entries.get(&target).map(|entry| &entry.kind) {
                    Some(kind @ (Kind::File(_) | Kind::Link(_))) => kind.clone(),
                    _ => return Err("is a hard link to no earlier file".into()),
                }
            }
        };
        let mode = match kind {
            // Whoever owns it can fill it, and empty it.
            Kind::Directory => meta.mode & 0o777 | 0o700,
            _ => meta.mode & 0o777,
        };
        self.insert(path, kind, mode, meta.mtime)
    }

    fn admit(&self, entries: u64) -> Result<()> {
        match self.limit.inodes {
            most if entries > most => Err(too_many(self.stage.place, most)),
            _ => Ok(()),
        }
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn report_mut(&mut self) -> &mut Report {
        &mut self.report
    }
}

impl Filling<'_> {
    fn insert(&mut self, path: Vec<u8>, kind: Kind, mode: u32, mtime: u64) -> Result<(), Refusal> {
        let entry = Entry { kind, mode, mtime };
        self.stage.entries.insert(path, entry);
        // Directories that an archive does not list count as well.
        match self.stage.entries.len() as u64 > self.limit.inodes {
            true => Err(too_many(self.stage.place, self.limit.inodes).into()),
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

    /// Copies a file's content; runs of zeros cost no memory here.
    fn content(
        &mut self,
        from: &mut dyn Read,
        size: u64,
        unreadable: &dyn Fn(&io::Error) -> SetupError,
    ) -> Result<Piece, Refusal> {
        let all = self.report.bytes.saturating_add(size);
        if all > self.limit.size.0 {
            let what = "the files put in have";
            return Err(too_large(self.stage.place, self.limit.size, what, Bytes(all)).into());
        }
        self.report.bytes = all;
        let at = self.stage.end;
        let mut hasher = Sha256::new();
        let mut from = from.take(size);
        let mut buffer = vec![0; usize::try_from(size.clamp(1, 128 << 10)).unwrap_or(1)];
        let mut copied = 0;
        loop {
            let got = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(&error).into()),
            };
            let bytes = &buffer[..got];
            hasher.update(bytes);
            if bytes.iter().any(|byte| *byte != 0) {
                self.write(bytes, at + copied)?;
            }
            copied += got as u64;
        }
        if copied != size {
            return Err(unreadable(&io::ErrorKind::UnexpectedEof.into()).into());
        }
        if size > 0 {
            let file = self.file()?;
            // Zeros at the end have a length only.
            file.set_len(at + size)
                .map_err(|e| memory_error("ftruncate", &e))?;
        }
        self.stage.end = at + size;
        Ok(Piece {
            at,
            size,
            sha256: hasher.finalize().into(),
        })
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        self.file()?
            .write_all_at(bytes, at)
            .map_err(|e| memory_error("write", &e))
    }

    fn file(&mut self) -> Result<&File> {
        if self.stage.content.is_none() {
            let sealed = MFdFlags::MFD_CLOEXEC | MFdFlags::from_bits_retain(NOEXEC_SEAL);
            let made = match memfd_create(c"cellblock-stage", sealed) {
                Err(Errno::EINVAL) => memfd_create(c"cellblock-stage", MFdFlags::MFD_CLOEXEC),
                other => other,
            };
            let made = made.map_err(|e| SetupError::os(Step::Inputs, "memfd_create", e))?;
            self.stage.content = Some(made.into());
        }
        self.stage
            .content
            .as_ref()
            .ok_or_else(|| SetupError::os(Step::Inputs, "memfd_create", Errno::ENOMEM))
    }
}

fn memory_error(call: &str, error: &io::Error) -> SetupError {
    SetupError::io(Step::Inputs, call, error)
        .on("the files put in")
        .hint(
            "they are held in memory until the cell has them: put less in, or allow cellblock more",
        )
}
