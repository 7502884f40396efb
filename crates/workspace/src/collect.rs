//! What an execution left in its workspace: listed, digested, and copied out.
//!
//! Directories are not listed: one that matters has a file in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag};

use record::bytes::{RawText, hex};
use record::error::{SetupError, Step};
use record::stream::{Base64, Kept, Text};
use record::{Change, FileChange, FileSkipped, Truncation};

use super::baseline::{Baseline, Original, Stamp};
use super::out_dir::{Copy, OutDir, affects_one_name, is_reserved};
use super::walk::{self, Found, Walk, What};
use super::{Caps, CodeFile, Digest, Tree, media};
use spec::WORKSPACE;

/// Why a file was not reached.
const NO_TIME: &str = "the time for collecting files ran out: a call ends at most a second after its limit on real time";

/// What an execution left in its workspace, in the record's form.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Files created, modified and deleted, sorted by path.
    pub files: Vec<FileChange>,
    /// What was not listed or not copied out, and why, sorted by path.
    pub skipped: Vec<FileSkipped>,
    /// For the record's `truncated`: `files` and `files_skipped`, if there are more than
    /// were listed (what is not listed is not copied out), and `inline_files`, if not all
    /// that are listed have their content.
    pub truncated: BTreeMap<String, Truncation>,
    /// What stopped the collection or the copying out.
    pub error: Option<SetupError>,
    /// What else the caller should know of them.
    pub warnings: Vec<String>,
}

impl Outputs {
    /// Adds the result of writing a kept directory back.
    pub(super) fn add(&mut self, written: Result<Vec<FileSkipped>, SetupError>, caps: &Caps) {
        let skipped = match written {
            Ok(skipped) => skipped,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        let cut = self.truncated.get("files_skipped");
        let known = cut.map_or(self.skipped.len() as u64, |cut| cut.total);
        let total = known + skipped.len() as u64;
        self.skipped.extend(skipped);
        self.skipped.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.skipped.truncate(caps.listed);
        self.note_cut("files_skipped", "head", total, self.skipped.len() as u64);
    }

    /// Adds what was collected from another tree.
    pub(super) fn join(&mut self, other: Self, caps: &Caps) {
        self.files.extend(other.files);
        self.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.skipped.extend(other.skipped);
        self.skipped.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.skipped.truncate(caps.listed);
        self.warnings.extend(other.warnings);
        for (list, cut) in other.truncated {
            match self.truncated.get_mut(&list) {
                Some(known) => {
                    known.total += cut.total;
                    known.kept += cut.kept;
                }
                None => drop(self.truncated.insert(list, cut)),
            }
        }
        if let Some(error) = other.error {
            self.error.get_or_insert(error);
        }
    }

    /// The names of files beneath `--out`, sorted.
    pub(super) fn names_below_out(&self) -> Vec<RawText> {
        let files = self.files.iter();
        let mut names: Vec<RawText> = files
            .filter(|file| file.change != Change::Deleted)
            .map(|file| below_out(&file.path))
            .collect();
        names.sort_unstable();
        names
    }

    pub(super) fn note_cut(&mut self, list: &str, part: &str, total: u64, kept: u64) {
        if total > kept {
            let cut = Truncation {
                total,
                kept,
                part: part.to_owned(),
                head: None,
            };
            self.truncated.insert(list.to_owned(), cut);
        }
    }
}

/// Compares a workspace with its baseline, and copies created and modified files to
/// `out`. Each change is passed to `report` as soon as it is known and its file copied:
/// in the order of the walk, deletions last. The baseline becomes that of the next
/// execution, also by changes that were not listed.
///
/// Files and directories that their owner may not read are made readable.
pub(crate) fn collect(
    workspace: Tree<'_>,
    baseline: &mut Baseline,
    out: Option<&OutDir>,
    caps: &Caps,
    report: &dyn Fn(&FileChange),
) -> Outputs {
    let mut collector = Collector {
        baseline,
        keeps_links: workspace.keeps_links,
        prefix: workspace.prefix,
        taken: workspace.taken,
        code_file: workspace.code_file,
        out,
        caps,
        report,
        budget: caps.total_bytes.0,
        present: BTreeSet::new(),
        links: Vec::new(),
        room: caps.inline_bytes.map(|bytes| bytes.0),
        inlined: 0,
        changes: 0,
        skips: 0,
        outputs: Outputs::default(),
    };
    match Walk::new(workspace, caps) {
        Ok(walk) => {
            for found in walk {
                collector.take(found);
                // No time is left, and no room in the list to say so of each file.
                if !caps.is_in_time() && collector.skips > caps.listed as u64 {
                    collector.skip(RawText::from("."), NO_TIME.to_owned());
                    break;
                }
            }
        }
        Err(errno) => {
            let place = match workspace.is_upper {
                true => String::from_utf8_lossy(workspace.prefix).into_owned(),
                false => WORKSPACE.to_owned(),
            };
            let error = SetupError::os(Step::Outputs, "openat2", errno).on(place);
            collector.outputs.error = Some(error);
            return collector.outputs;
        }
    }
    collector.deletions(workspace.dir);
    collector.finish()
}

struct Collector<'a> {
    baseline: &'a mut Baseline,
    /// What paths begin with outside of the tree.
    prefix: &'a [u8],
    /// The names beneath `--out` of copies of other trees' files, sorted.
    taken: &'a [RawText],
    keeps_links: bool,
    code_file: Option<&'a CodeFile>,
    out: Option<&'a OutDir>,
    caps: &'a Caps,
    report: &'a dyn Fn(&FileChange),
    /// Bytes that may still be digested.
    budget: u64,
    /// Files of the baseline that the walk met as files.
    present: BTreeSet<RawText>,
    /// Links that the baseline lacks.
    links: Vec<(RawText, Original)>,
    /// Bytes that there is room for in the list, if it has content.
    room: Option<u64>,
    /// Files whose content it has.
    inlined: u64,
    changes: u64,
    skips: u64,
    outputs: Outputs,
}

/// One pass over a file's content.
struct Contents {
    digest: Digest,
    /// Its first bytes, for the media type.
    start: Vec<u8>,
    /// All of them, if there was room.
    bytes: Option<Vec<u8>>,
}

impl Collector<'_> {
    fn take(&mut self, Found { path, what }: Found) {
        match what {
            What::Skipped(reason) => self.skip(path, reason),
            What::Directory(_) => {}
            What::Link(text) => {
                let link = Original::Link { text };
                if self.baseline.get(&path) == Some(&link) {
                    return;
                }
                if !self.keeps_links {
                    self.skip(path.clone(), walk::IS_LINK.to_owned());
                }
                self.links.push((path, link));
            }
            What::File(mut file, stat) => {
                if let Err(reason) = self.file(&path, &mut file, &stat) {
                    self.skip(path, reason);
                }
            }
        }
    }

    /// Compares, lists and copies one file.
    ///
    /// # Errors
    /// Why that cannot be done.
    fn file(&mut self, path: &RawText, file: &mut File, stat: &FileStat) -> Result<(), String> {
        let size = stat.st_size.cast_unsigned();
        let stamp = Stamp::of(stat);
        let (was_there, before) = match self.baseline.get(path) {
            Some(Original::File(digest)) => (true, Some(*digest)),
            Some(Original::Unlisted(was)) => {
                self.present.insert(path.clone());
                if *was == stamp {
                    return Ok(());
                }
                (true, None)
            }
            _ => (false, None),
        };
        let is_listed = self.changes < self.caps.listed as u64;
        if before.is_none() && !is_listed {
            self.leave_unlisted(path, stamp);
            return Ok(());
        }
        if before.is_some() {
            self.present.insert(path.clone());
        }
        self.spend(size, stat.st_blocks)?;
        let code_file = self.code_file;
        if let Some(digest) = code_file.and_then(|code| code.recognize(path, file, size)) {
            self.baseline.insert(path.clone(), Original::File(digest));
            self.present.insert(path.clone());
            return Ok(());
        }
        if let Some(before) = before.filter(|before| before.size == size) {
            if self.read(file, size, None, None)?.digest == before {
                return Ok(());
            }
            file.rewind().map_err(unreadable)?;
        }
        if !is_listed {
            self.leave_unlisted(path, stamp);
            return Ok(());
        }
        self.changes += 1;
        let room = self.room.filter(|room| size <= *room);
        let mut copy = self.begin_copy(path);
        let copy_to = copy.as_mut().ok().and_then(Option::as_mut);
        let contents = self.read(file, size, copy_to, room)?;
        let copied = copy.and_then(|copy| self.finish_copy(copy, path));
        let (content, content_base64) = self.inline(contents.bytes);
        let digest = contents.digest;
        self.baseline.insert(path.clone(), Original::File(digest));
        self.list(FileChange {
            path: path.clone(),
            change: match was_there {
                true => Change::Modified,
                false => Change::Created,
            },
            size: Some(digest.size),
            sha256: Some(hex(&digest.sha256)),
            media_type: Some(media::type_of(path.as_bytes(), &contents.start).to_owned()),
            content,
            content_base64,
        });
        copied
    }

    /// Counts a changed file that the list has no room for.
    fn leave_unlisted(&mut self, path: &RawText, stamp: Stamp) {
        self.changes += 1;
        self.present.insert(path.clone());
        self.baseline
            .insert(path.clone(), Original::Unlisted(stamp));
    }

    /// A path of the tree as the record has it.
    fn full(&self, path: &RawText) -> RawText {
        [self.prefix, path.as_bytes()].concat().into()
    }

    /// The same beneath the directory of `--out`.
    fn below_out(&self, path: &RawText) -> RawText {
        below_out(&self.full(path))
    }

    fn list(&mut self, mut change: FileChange) {
        change.path = self.full(&change.path);
        (self.report)(&change);
        self.outputs.files.push(change);
    }

    /// A file's content in the list's form: text, or else base64.
    fn inline(&mut self, bytes: Option<Vec<u8>>) -> (Option<Text>, Option<Base64>) {
        let (Some(bytes), Some(room)) = (bytes, self.room.as_mut()) else {
            return (None, None);
        };
        *room = room.saturating_sub(bytes.len() as u64);
        self.inlined += 1;
        match Kept::whole(bytes, Vec::new()).forms() {
            (text, None) => (Some(text), None),
            (_, base64) => (None, base64),
        }
    }

    /// Takes a file's bytes out of the budget.
    fn spend(&mut self, size: u64, blocks: i64) -> Result<(), String> {
        let cap = self.caps.total_bytes;
        if size > cap.0 {
            let allocated = blocks.saturating_mul(512);
            return Err(format!(
                "its size of {size} bytes is over the cap of {cap} ({allocated} bytes of it are not holes)"
            ));
        }
        self.budget = self.budget.checked_sub(size).ok_or_else(|| {
            format!("with its {size} bytes, all files together are over the cap of {cap}")
        })?;
        Ok(())
    }

    /// Reads a file once, but no more than `most` bytes: into the digest, its copy, and memory if it
    /// is no larger than `room`. A program that has itself continued may make the file longer.
    fn read(
        &self,
        file: &File,
        most: u64,
        mut copy: Option<&mut Copy>,
        room: Option<u64>,
    ) -> Result<Contents, String> {
        let mut start = Vec::new();
        let mut bytes = room.map(|_| Vec::new());
        let mut size = 0;
        let digest = Digest::of(file.take(most), |piece| {
            if !self.caps.is_in_time() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if size == 0 {
                start.extend_from_slice(&piece[..piece.len().min(media::START)]);
            }
            size += piece.len() as u64;
            if room.is_some_and(|room| size > room) {
                bytes = None;
            }
            if let Some(bytes) = &mut bytes {
                bytes.extend_from_slice(piece);
            }
            if let Some(copy) = &mut copy {
                copy.write(piece);
            }
            Ok(())
        });
        let digest = digest.map_err(unreadable)?;
        Ok(Contents {
            digest,
            start,
            bytes,
        })
    }

    /// Begins the copy of a file, if files are copied out.
    fn begin_copy(&mut self, path: &RawText) -> Result<Option<Copy>, String> {
        let Some(out) = self.out else {
            return Ok(None);
        };
        if self.outputs.error.is_some() {
            return Err("not copied out: an earlier failure ended the copying".to_owned());
        }
        if is_reserved(path.as_bytes()) {
            let reason = "not copied out: cellblock reserves this name in the directory of --out";
            return Err(reason.to_owned());
        }
        let path = self.below_out(path);
        if is_taken(&path, self.taken) {
            let reason = "not copied out: another changed file has this place, one above it or one below it in the directory of --out";
            return Err(reason.to_owned());
        }
        out.begin(&path).map(Some).map_err(|e| self.not_copied(e))
    }

    fn finish_copy(&mut self, copy: Option<Copy>, path: &RawText) -> Result<(), String> {
        let (Some(copy), Some(out)) = (copy, self.out) else {
            return Ok(());
        };
        let committed = copy.commit();
        let path = self.below_out(path);
        committed.map_err(|(call, error)| self.not_copied(out.error(call, &error, &path)))
    }

    /// The reason; a failure that other files will meet too ends the copying.
    fn not_copied(&mut self, error: SetupError) -> String {
        let reason = format!("not copied out: {error}");
        if !affects_one_name(&error) {
            self.outputs.error = Some(error);
        }
        reason
    }

    fn skip(&mut self, path: RawText, reason: String) {
        self.skips += 1;
        if self.outputs.skipped.len() < self.caps.listed {
            let path = self.full(&path);
            self.outputs.skipped.push(FileSkipped { path, reason });
        }
    }

    /// Lists the files of the baseline that are gone. A cap may have hidden some from the
    /// walk, so each is looked up by its name.
    fn deletions(&mut self, workspace: BorrowedFd<'_>) {
        let files = (self.baseline.iter()).filter(|(_, was)| was.kind() == SFlag::S_IFREG);
        let missing = files.map(|(path, _)| path.clone());
        let missing: Vec<RawText> = missing
            .filter(|path| !self.present.contains(path))
            .collect();
        for path in missing {
            let is_gone = match walk::kind_at(workspace, &path) {
                Ok(kind) => kind != SFlag::S_IFREG,
                // ELOOP and ENOTDIR: a directory of the path was replaced.
                Err(errno) => matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP),
            };
            if !is_gone {
                continue;
            }
            self.changes += 1;
            self.baseline.remove(&path);
            if self.outputs.files.len() < self.caps.listed {
                self.list(FileChange {
                    path,
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

    fn finish(self) -> Outputs {
        for (path, link) in self.links {
            self.baseline.insert(path, link);
        }
        let mut outputs = self.outputs;
        let listed = outputs.files.len() as u64;
        outputs.note_cut("files", "head", self.changes, listed);
        let skipped = outputs.skipped.len() as u64;
        outputs.note_cut("files_skipped", "head", self.skips, skipped);
        if self.room.is_some() {
            let files = outputs.files.iter();
            let with_content = files.filter(|file| file.change != Change::Deleted).count();
            outputs.note_cut("inline_files", "whole", with_content as u64, self.inlined);
        }
        outputs.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        outputs.skipped.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        outputs
    }
}

/// The name of a record's path beneath the directory of `--out`.
fn below_out(path: &RawText) -> RawText {
    let bytes = path.as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec().into()
}

/// Whether a file at `path` conflicts with one of `taken`, which is sorted: they have the same
/// name, or one has a name that the other needs for a directory.
fn is_taken(path: &RawText, taken: &[RawText]) -> bool {
    let path = path.as_bytes();
    let has = |name: &[u8]| {
        let found = taken.binary_search_by(|other| other.as_bytes().cmp(name));
        found.is_ok()
    };
    let mut above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let below = [path, b"/"].concat();
    let next = taken.partition_point(|other| other.as_bytes() < below.as_slice());
    has(path)
        || above.any(|(end, _)| has(&path[..end]))
        || (taken.get(next)).is_some_and(|other| other.as_bytes().starts_with(&below))
}

fn unreadable(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => NO_TIME.to_owned(),
        _ => format!("reading it failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_by_itself_and_above_and_below() {
        let taken = ["a/b", "a/b.c", "a/d/e", "f"].map(RawText::from);
        for (path, expected) in [
            ("a/b", true),
            ("a/b/x", true),
            ("a/b/x/y", true),
            ("a/d", true),
            ("a", true),
            ("a/b.", false),
            ("a/d/f", false),
            ("f/x", true),
            ("g", false),
            ("", false),
        ] {
            assert_eq!(is_taken(&path.into(), &taken), expected, "{path}");
        }
        assert!(!is_taken(&"a".into(), &[]));
    }
}
