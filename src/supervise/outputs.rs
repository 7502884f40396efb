//! What a run left in its workspace: listed, digested, and copied out.
//!
//! The workspace is a tmpfs that a hostile program filled. Nothing in it is
//! followed, only regular files are read, and count, depth and bytes are
//! capped. Directories are not listed: one that matters has a file in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use sha2::{Digest as _, Sha256};

use crate::bytes::RawText;
use crate::error::{SetupError, Step};
use crate::record::{Change, FileChange, FileSkipped, Truncation};
use crate::spec::{Bytes, TmpfsLimit};
use walk::{Found, Walk};

pub use copy_out::OutDir;

mod copy_out;
mod media;
#[cfg(test)]
mod tests;
mod walk;

/// What was put into the workspace before the run.
#[derive(Clone, Debug, Default)]
pub struct Baseline(BTreeMap<RawText, Content>);

/// Identifies a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: [u8; 32],
}

impl Baseline {
    /// Notes a file: its path below the workspace, and its content.
    pub fn insert(&mut self, path: impl Into<RawText>, content: Content) {
        self.0.insert(path.into(), content);
    }
}

impl Content {
    /// Digests what `source` gives.
    ///
    /// # Errors
    /// Those of reading.
    pub fn of(source: impl Read) -> io::Result<Self> {
        digest(source, None).map(|digested| digested.content)
    }
}

/// How much is looked at, listed and copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Changes listed, and entries listed as skipped.
    pub listed: usize,
    /// Directory entries looked at.
    pub entries: u64,
    /// Directories within directories.
    pub depth: usize,
    /// Size of one file.
    pub file_bytes: Bytes,
    /// Bytes digested, all files together.
    pub total_bytes: Bytes,
}

impl Caps {
    /// The caps for a workspace with this limit. Plain files within the limit
    /// pass all of them; sparse files and hard links, which look larger than
    /// they are, can exceed them.
    pub fn of(limit: TmpfsLimit) -> Self {
        Self {
            listed: 1000,
            entries: limit.inodes,
            depth: 64,
            file_bytes: limit.size,
            total_bytes: limit.size,
        }
    }
}

/// What a run left in its workspace, in the record's form.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Files created, modified and deleted, sorted by path.
    pub files: Vec<FileChange>,
    /// What was not listed or not copied out, and why, sorted by path.
    pub skipped: Vec<FileSkipped>,
    /// For the record's `truncated`: `files` and `files_skipped`, when there are
    /// more than were listed. What is not listed is not copied out.
    pub truncated: BTreeMap<String, Truncation>,
    /// What stopped the collection or the copying out.
    pub error: Option<SetupError>,
}

/// Compares a workspace with what was put in, and copies created and modified
/// files to `out`.
///
/// No process may be left that can reach the workspace. Files and directories
/// that their owner may not read are made readable.
pub fn collect(
    workspace: BorrowedFd<'_>,
    baseline: &Baseline,
    out: Option<&OutDir>,
    caps: &Caps,
) -> Outputs {
    let mut collector = Collector {
        baseline,
        out,
        caps,
        budget: caps.total_bytes.0,
        kept: BTreeSet::new(),
        changes: 0,
        skips: 0,
        outputs: Outputs::default(),
    };
    match Walk::new(workspace, caps) {
        Ok(walk) => walk.for_each(|found| collector.take(found)),
        Err(errno) => {
            collector.outputs.error =
                Some(SetupError::os(Step::Outputs, "openat2", errno).on("/workspace"));
            return collector.outputs;
        }
    }
    collector.deletions(workspace);
    collector.finish()
}

struct Collector<'a> {
    baseline: &'a Baseline,
    out: Option<&'a OutDir>,
    caps: &'a Caps,
    /// Bytes that may still be digested.
    budget: u64,
    /// Files of the baseline that are still files.
    kept: BTreeSet<RawText>,
    changes: u64,
    skips: u64,
    outputs: Outputs,
}

impl Collector<'_> {
    fn take(&mut self, found: Found) {
        match found {
            Found::Skipped { path, reason } => self.skip(path, reason),
            Found::File {
                path,
                mut file,
                size,
                allocated,
            } => {
                let taken = self.file(&path, &mut file, size, allocated);
                if let Err(reason) = taken {
                    self.skip(path, reason);
                }
            }
        }
    }

    /// Compares, lists and copies one file; or says why that cannot be done.
    fn file(
        &mut self,
        path: &RawText,
        file: &mut File,
        size: u64,
        allocated: u64,
    ) -> Result<(), String> {
        let before = self.baseline.0.get(path);
        if before.is_some() {
            self.kept.insert(path.clone());
        }
        let is_listed = self.changes < self.caps.listed as u64;
        if before.is_none() && !is_listed {
            self.changes += 1;
            return Ok(());
        }
        self.spend(size, allocated)?;
        if let Some(before) = before.filter(|before| before.size == size) {
            let digested = digest(&mut *file, None).map_err(unreadable)?;
            if digested.content == *before {
                return Ok(());
            }
            io::Seek::rewind(file).map_err(unreadable)?;
        }
        self.changes += 1;
        if !is_listed {
            return Ok(());
        }
        let (digested, copied) = self.digest_and_copy(path, file)?;
        self.outputs.files.push(FileChange {
            path: path.clone(),
            change: match before {
                Some(_) => Change::Modified,
                None => Change::Created,
            },
            size: Some(digested.content.size),
            sha256: Some(hex(&digested.content.sha256)),
            media_type: Some(media::type_of(path.as_bytes(), &digested.start).to_owned()),
        });
        copied
    }

    /// Takes a file's bytes out of the budget.
    fn spend(&mut self, size: u64, allocated: u64) -> Result<(), String> {
        let cap = self.caps.file_bytes;
        if size > cap.0 {
            return Err(format!(
                "its size of {size} bytes is over the cap of {cap} ({allocated} bytes of it are not holes)"
            ));
        }
        self.budget = self.budget.checked_sub(size).ok_or_else(|| {
            format!(
                "with its {size} bytes, all files together are over the cap of {}",
                self.caps.total_bytes
            )
        })?;
        Ok(())
    }

    /// Reads a file once, into the digest and into its copy. The inner result
    /// is that of the copy.
    fn digest_and_copy(
        &mut self,
        path: &RawText,
        file: &mut File,
    ) -> Result<(Digested, Result<(), String>), String> {
        let Some(out) = self.out else {
            return Ok((digest(file, None).map_err(unreadable)?, Ok(())));
        };
        if self.outputs.error.is_some() {
            let digested = digest(file, None).map_err(unreadable)?;
            let reason = "not copied out: an earlier failure ended the copying";
            return Ok((digested, Err(reason.to_owned())));
        }
        let (digested, copied) = match out.begin(path) {
            Ok(mut copy) => {
                let mut digested = digest(file, Some(&mut copy.file)).map_err(unreadable)?;
                let written = match digested.write_error.take() {
                    Some(error) => Err(out.error("write", &error, path)),
                    None => copy
                        .commit()
                        .map_err(|error| out.error("rename", &error, path)),
                };
                (digested, written)
            }
            Err(error) => (digest(file, None).map_err(unreadable)?, Err(error)),
        };
        let copied = copied.map_err(|error| {
            let reason = format!("not copied out: {error}");
            if !copy_out::concerns_one_name(&error) {
                self.outputs.error = Some(error);
            }
            reason
        });
        Ok((digested, copied))
    }

    fn skip(&mut self, path: RawText, reason: String) {
        self.skips += 1;
        if self.outputs.skipped.len() < self.caps.listed {
            self.outputs.skipped.push(FileSkipped { path, reason });
        }
    }

    /// Lists what was put in and is a file no more. What the walk did not see,
    /// a cap may have hidden: each is looked up by its name.
    fn deletions(&mut self, workspace: BorrowedFd<'_>) {
        for path in self.baseline.0.keys() {
            if self.kept.contains(path) || walk::is_file(workspace, path) != Ok(false) {
                continue;
            }
            self.changes += 1;
            if self.outputs.files.len() < self.caps.listed {
                self.outputs.files.push(FileChange {
                    path: path.clone(),
                    change: Change::Deleted,
                    size: None,
                    sha256: None,
                    media_type: None,
                });
            }
        }
    }

    fn finish(mut self) -> Outputs {
        let lists = [
            ("files", self.changes, self.outputs.files.len()),
            ("files_skipped", self.skips, self.outputs.skipped.len()),
        ];
        for (name, total, listed) in lists {
            let kept = listed as u64;
            if total > kept {
                let cut = Truncation {
                    total,
                    kept,
                    part: "head".to_owned(),
                    head: None,
                };
                self.outputs.truncated.insert(name.to_owned(), cut);
            }
        }
        self.outputs.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.outputs.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        self.outputs
    }
}

/// What one pass over a file's content gives.
struct Digested {
    content: Content,
    /// Its first bytes, for the media type.
    start: Vec<u8>,
    /// Why the copy is not complete.
    write_error: Option<io::Error>,
}

/// Digests everything that `source` gives, and copies it. A copy that fails
/// does not end the digest.
fn digest(mut source: impl Read, mut copy: Option<&mut File>) -> io::Result<Digested> {
    let mut buffer = vec![0; 128 << 10];
    let mut hasher = Sha256::new();
    let mut size = 0;
    let mut start = Vec::new();
    let mut write_error = None;
    loop {
        let got = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = &buffer[..got];
        if size == 0 {
            start.extend_from_slice(&bytes[..got.min(media::START)]);
        }
        size += got as u64;
        hasher.update(bytes);
        if let Some(file) = &mut copy
            && let Err(error) = file.write_all(bytes)
        {
            write_error = Some(error);
            copy = None;
        }
    }
    Ok(Digested {
        content: Content {
            size,
            sha256: hasher.finalize().into(),
        },
        start,
        write_error,
    })
}

fn unreadable(error: io::Error) -> String {
    format!("reading it failed: {error}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
