//! What a run left in its workspace: listed, digested, and copied out.
//!
//! The workspace is a tmpfs that a hostile program filled. Nothing in it is
//! followed, only regular files are read, and count, depth and bytes are
//! capped. Directories are not listed: one that matters has a file in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Instant;

use crate::spec::{Bytes, TmpfsLimit};
use digest::{Digested, Timed, digest, hex};
use record::bytes::RawText;
use record::error::{SetupError, Step};
use record::stream::{Base64, Kept as KeptBytes, Text};
use record::{Change, FileChange, FileSkipped, Truncation};
use walk::{Found, Walk};

pub(crate) use copy_out::OutDir;
pub(crate) use digest::Content;
pub(crate) use keep::Kept;

mod copy_out;
mod digest;
mod keep;
mod media;
#[cfg(test)]
mod tests;
mod walk;
mod write_back;

/// Why a file was not reached.
const NO_TIME: &str = "the time for collecting files was over: a call ends at most a second after its limit on real time";

/// What was put into the workspace before the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    files: BTreeMap<RawText, Content>,
    links: BTreeMap<RawText, Vec<u8>>,
}

impl Baseline {
    /// Notes a file: its path below the workspace, and its content.
    pub(crate) fn insert(&mut self, path: impl Into<RawText>, content: Content) {
        self.files.insert(path.into(), content);
    }

    /// Notes a symbolic link: its path below the workspace, and its text.
    pub(crate) fn insert_link(&mut self, path: impl Into<RawText>, text: Vec<u8>) {
        self.links.insert(path.into(), text);
    }
}

/// A tmpfs of the cell's own, once no process is left that can reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree<'a> {
    /// Its root, open for reading.
    pub dir: BorrowedFd<'a>,
    /// What binds cover, relative to it: neither listed nor copied.
    pub covered: &'a [PathBuf],
    /// Whether its symbolic links are kept, so that none is reported as left out.
    pub keeps_links: bool,
}

#[cfg(test)]
impl<'a> Tree<'a> {
    /// A tmpfs without binds in it, whose links are reported.
    pub(crate) fn whole(dir: BorrowedFd<'a>) -> Self {
        Self {
            dir,
            covered: &[],
            keeps_links: false,
        }
    }
}

/// How much is looked at, listed and copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
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
    /// Bytes of changed files that are put into the list; `None` for none.
    pub inline_bytes: Option<Bytes>,
    /// When to stop: what is not reached by then is listed as skipped.
    pub until: Option<Instant>,
}

impl Caps {
    /// The caps for a workspace with this limit. Plain files within the limit
    /// pass all of them; sparse files and hard links, which look larger than
    /// they are, can exceed them.
    pub(crate) fn of(limit: TmpfsLimit) -> Self {
        Self {
            listed: 1000,
            entries: limit.inodes,
            depth: 64,
            file_bytes: limit.size,
            total_bytes: limit.size,
            inline_bytes: None,
            until: None,
        }
    }

    /// Whether there is time for more.
    pub(crate) fn is_in_time(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// What a run left in its workspace, in the record's form.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// Files created, modified and deleted, sorted by path.
    pub files: Vec<FileChange>,
    /// What was not listed or not copied out, and why, sorted by path.
    pub skipped: Vec<FileSkipped>,
    /// For the record's `truncated`: `files` and `files_skipped`, when there are
    /// more than were listed. What is not listed is not copied out. Besides,
    /// `inline_files`, when not all that are listed have their content.
    pub truncated: BTreeMap<String, Truncation>,
    /// What stopped the collection or the copying out.
    pub error: Option<SetupError>,
}

/// Compares a workspace with what was put in, and copies created and modified
/// files to `out`. Each change is told as soon as it is known, and its file
/// copied: in the order of the walk, deletions last.
///
/// Files and directories that their owner may not read are made readable.
pub(crate) fn collect(
    workspace: Tree<'_>,
    baseline: &Baseline,
    out: Option<&OutDir>,
    caps: &Caps,
    tell: &dyn Fn(&FileChange),
) -> Outputs {
    let mut collector = Collector {
        baseline,
        keeps_links: workspace.keeps_links,
        out,
        caps,
        tell,
        budget: caps.total_bytes.0,
        kept: BTreeSet::new(),
        inline: caps.inline_bytes.map(|left| Inline { left, held: 0 }),
        changes: 0,
        skips: 0,
        outputs: Outputs::default(),
    };
    match Walk::new(workspace, caps) {
        Ok(walk) => {
            for found in walk {
                collector.take(found);
                // There is no time, and no room in the list to say it of each.
                if !caps.is_in_time() && collector.skips > caps.listed as u64 {
                    collector.skip(RawText::from("."), NO_TIME.to_owned());
                    break;
                }
            }
        }
        Err(errno) => {
            collector.outputs.error =
                Some(SetupError::os(Step::Outputs, "openat2", errno).on("/workspace"));
            return collector.outputs;
        }
    }
    collector.deletions(workspace.dir);
    collector.finish()
}

impl Outputs {
    /// Adds what writing a kept workspace back came to.
    pub(crate) fn add(&mut self, written: Result<Vec<FileSkipped>, SetupError>, caps: &Caps) {
        let skipped = match written {
            Ok(skipped) => skipped,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        let name = "files_skipped";
        let known = (self.truncated.get(name)).map_or(self.skipped.len() as u64, |cut| cut.total);
        let total = known + skipped.len() as u64;
        self.skipped.extend(skipped);
        self.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        self.skipped.truncate(caps.listed);
        let kept = self.skipped.len() as u64;
        if total > kept {
            self.truncated.insert(name.to_owned(), head(total, kept));
        }
    }
}

fn head(total: u64, kept: u64) -> Truncation {
    Truncation {
        total,
        kept,
        part: "head".to_owned(),
        head: None,
    }
}

struct Collector<'a> {
    baseline: &'a Baseline,
    keeps_links: bool,
    out: Option<&'a OutDir>,
    caps: &'a Caps,
    tell: &'a dyn Fn(&FileChange),
    /// Bytes that may still be digested.
    budget: u64,
    /// Files of the baseline that are still files.
    kept: BTreeSet<RawText>,
    inline: Option<Inline>,
    changes: u64,
    skips: u64,
    outputs: Outputs,
}

/// What the list holds of files' content.
struct Inline {
    /// Bytes that there is room for.
    left: Bytes,
    /// Files that it holds.
    held: u64,
}

impl Collector<'_> {
    fn take(&mut self, found: Found) {
        match found {
            Found::Skipped { path, reason } => self.skip(path, reason),
            Found::Directory { .. } => {}
            Found::Link { path, text } => {
                if !self.keeps_links && self.baseline.links.get(&path) != Some(&text) {
                    self.skip(path, walk::IS_LINK.to_owned());
                }
            }
            Found::File {
                path,
                mut file,
                size,
                allocated,
                ..
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
        let before = self.baseline.files.get(path);
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
            let digested = digest(self.timed(file), None, None).map_err(unreadable)?;
            if digested.content == *before {
                return Ok(());
            }
            io::Seek::rewind(file).map_err(unreadable)?;
        }
        self.changes += 1;
        if !is_listed {
            return Ok(());
        }
        let room = self.inline.as_ref().map(|inline| inline.left.0);
        let room = room.filter(|room| size <= *room);
        let (digested, copied) = self.digest_and_copy(path, file, room)?;
        let (content, content_base64) = self.take_content(digested.bytes).unzip();
        self.list(FileChange {
            path: path.clone(),
            change: match before {
                Some(_) => Change::Modified,
                None => Change::Created,
            },
            size: Some(digested.content.size),
            sha256: Some(hex(&digested.content.sha256)),
            media_type: Some(media::type_of(path.as_bytes(), &digested.start).to_owned()),
            content: content.flatten(),
            content_base64: content_base64.flatten(),
        });
        copied
    }

    fn timed<'f>(&self, file: &'f mut File) -> Timed<'f>
    where
        Self: 'f,
    {
        Timed {
            file,
            caps: self.caps,
        }
    }

    fn list(&mut self, change: FileChange) {
        (self.tell)(&change);
        self.outputs.files.push(change);
    }

    /// A file's content in the list's form: text, or else base64.
    fn take_content(&mut self, bytes: Option<Vec<u8>>) -> Option<(Option<Text>, Option<Base64>)> {
        let (bytes, inline) = (bytes?, self.inline.as_mut()?);
        inline.left.0 = inline.left.0.saturating_sub(bytes.len() as u64);
        inline.held += 1;
        Some(match KeptBytes::whole(bytes, Vec::new()).forms() {
            (text, None) => (Some(text), None),
            (_, base64) => (None, base64),
        })
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

    /// Reads a file once, into the digest, its copy, and if there is `room` for
    /// it memory. The inner result is that of the copy.
    fn digest_and_copy(
        &mut self,
        path: &RawText,
        file: &mut File,
        room: Option<u64>,
    ) -> Result<(Digested, Result<(), String>), String> {
        let Some(out) = self.out else {
            return Ok((
                digest(self.timed(file), None, room).map_err(unreadable)?,
                Ok(()),
            ));
        };
        if self.outputs.error.is_some() {
            let digested = digest(self.timed(file), None, room).map_err(unreadable)?;
            let reason = "not copied out: an earlier failure ended the copying";
            return Ok((digested, Err(reason.to_owned())));
        }
        if copy_out::is_reserved(path.as_bytes()) {
            let digested = digest(file, None, room).map_err(unreadable)?;
            let reason = "not copied out: its name is cellblock's own in the directory of --out";
            return Ok((digested, Err(reason.to_owned())));
        }
        let (digested, copied) = match out.begin(path) {
            Ok(mut copy) => {
                let mut digested =
                    digest(self.timed(file), Some(&mut copy.file), room).map_err(unreadable)?;
                let written = match digested.write_error.take() {
                    Some(error) => Err(out.error("write", &error, path)),
                    None => copy
                        .commit()
                        .map_err(|error| out.error("rename", &error, path)),
                };
                (digested, written)
            }
            Err(error) => (
                digest(self.timed(file), None, room).map_err(unreadable)?,
                Err(error),
            ),
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
        for path in self.baseline.files.keys() {
            if self.kept.contains(path) || walk::is_file(workspace, path) != Ok(false) {
                continue;
            }
            self.changes += 1;
            if self.outputs.files.len() < self.caps.listed {
                self.list(FileChange {
                    path: path.clone(),
                    change: Change::Deleted,
                    size: None,
                    sha256: None,
                    media_type: None,
                    content: None,
                    content_base64: None,
                });
            }
        }
    }

    fn note_left_out_content(&mut self) {
        let Some(inline) = &self.inline else { return };
        let there = (self.outputs.files.iter()).filter(|file| file.change != Change::Deleted);
        let total = there.count() as u64;
        if total > inline.held {
            let cut = Truncation {
                total,
                kept: inline.held,
                part: "whole".to_owned(),
                head: None,
            };
            self.outputs
                .truncated
                .insert("inline_files".to_owned(), cut);
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
                self.outputs
                    .truncated
                    .insert(name.to_owned(), head(total, kept));
            }
        }
        self.note_left_out_content();
        self.outputs.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.outputs.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        self.outputs
    }
}

fn unreadable(error: io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut {
        return NO_TIME.to_owned();
    }
    format!("reading it failed: {error}")
}
