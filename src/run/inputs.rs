//! Files that go in: read, opened and digested before anything is started.

use std::fs::File;
use std::io::Seek as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::archive::Report;
use crate::bytes::RawText;
use crate::error::{Result, SetupError, Step};
use crate::plan::{FileCopy, Plan};
use crate::spec::{FileSource, FilesFrom, TmpfsLimit};
use crate::stage::{Kind, Source, Stage};
use crate::supervise::outputs::{Baseline, Content, Kept};

/// Names of things left out that a record's warnings tell; the rest is counted.
const MOST_NAMED: usize = 20;

/// The way out when `--files-from` names something else.
const TAKES: &str = "--files-from takes a directory or a tar archive that you may read, or - for \
                     one on standard input";

/// What the workspace begins with, besides the plan's files.
#[derive(Default)]
pub(super) struct Trees {
    pub(super) stage: Option<Stage>,
    /// The directory that the workspace is kept in.
    pub(super) kept: Option<Kept>,
    /// What was left out of the stage.
    pub(super) warnings: Vec<String>,
}

impl Trees {
    /// Reads the kept workspace, and on top of it what `--files-from` names.
    ///
    /// This may wait for standard input, so it is done while the caller's
    /// signals still end this process: there is nothing to undo yet.
    pub(super) fn read(plan: &Plan) -> Result<Self> {
        let limit = plan.limits.workspace;
        let mut trees = Self::default();
        if plan.watch.workspace.is_none() && plan.files_from.is_none() {
            return Ok(trees);
        }
        let mut stage = Stage::default();
        if let Some(path) = &plan.watch.workspace {
            let mut kept = Kept::open(path)?;
            let source = Source::Directory(kept.dir(), path);
            let report = stage.fill(source, limit)?;
            kept.note(&stage);
            trees.warn("--workspace", &report);
            trees.kept = Some(kept);
        }
        if let Some(from) = &plan.files_from {
            let report = files_from(&mut stage, from, limit)?;
            trees.warn("--files-from", &report);
        }
        for file in &plan.files {
            stage.give_way(&file.target)?;
        }
        stage.check(limit, plan.limits.memory)?;
        trees.stage = Some(stage);
        Ok(trees)
    }

    fn warn(&mut self, option: &str, report: &Report) {
        for skipped in report.skipped.iter().take(MOST_NAMED) {
            let (path, reason) = (&skipped.path, &skipped.reason);
            self.warnings
                .push(format!("{option}: {path} is left out: it {reason}"));
        }
        let more = report.skipped_in_all.saturating_sub(MOST_NAMED as u64);
        if more > 0 {
            self.warnings
                .push(format!("{option}: {more} more are left out"));
        }
    }
}

fn files_from(stage: &mut Stage, from: &FilesFrom, limit: TmpfsLimit) -> Result<Report> {
    let path = match from {
        FilesFrom::Stdin => {
            let mut input = std::io::stdin().lock();
            return stage.fill(Source::Archive(&mut input, "standard input"), limit);
        }
        FilesFrom::Path(path) => path,
    };
    let failed = |call: &str, e: &std::io::Error| {
        SetupError::io(Step::Inputs, call, e)
            .on(path.display())
            .hint(TAKES)
    };
    let kind = std::fs::metadata(path)
        .map_err(|e| failed("stat", &e))?
        .file_type();
    // A FIFO is waited for, as in --files-from <(tar c …).
    if !(kind.is_dir() || kind.is_file() || kind.is_fifo()) {
        let message = "neither a directory nor a file";
        return Err(SetupError::new(Step::Inputs, message)
            .on(path.display())
            .hint(TAKES));
    }
    let mut file = File::open(path).map_err(|e| failed("open", &e))?;
    if kind.is_dir() {
        return stage.fill(Source::Directory(&OwnedFd::from(file), path), limit);
    }
    let name = path.display().to_string();
    stage.fill(Source::Archive(&mut file, &name), limit)
}

/// Opens every input file, and notes what the workspace will begin with.
pub(super) fn open(
    files: &[FileCopy],
    stage: Option<&Stage>,
) -> Result<(Vec<Option<OwnedFd>>, Baseline)> {
    let mut open = Vec::with_capacity(files.len());
    let mut baseline = staged(stage);
    for file in files {
        let (content, fd) = match &file.source {
            FileSource::Inline(bytes) => (Content::of(bytes.as_bytes()), None),
            FileSource::Host(path) => {
                let mut source = regular_file(path)?;
                let content =
                    Content::of(&source).and_then(|content| source.rewind().map(|()| content));
                (content, Some(source.into()))
            }
        };
        let content = content
            .map_err(|e| SetupError::io(Step::Inputs, "read", &e).on(file.target.display()))?;
        baseline.insert(file.target.as_os_str().as_bytes().to_vec(), content);
        open.push(fd);
    }
    Ok((open, baseline))
}

fn staged(stage: Option<&Stage>) -> Baseline {
    let mut baseline = Baseline::default();
    for (path, entry) in stage.into_iter().flat_map(Stage::entries) {
        let path = RawText::from(path.to_vec());
        match &entry.kind {
            Kind::Directory => {}
            Kind::Link(text) => baseline.insert_link(path, text.clone()),
            Kind::File(piece) => {
                let (size, sha256) = (piece.size, piece.sha256);
                baseline.insert(path, Content { size, sha256 });
            }
        }
    }
    baseline
}

fn regular_file(path: &Path) -> Result<File> {
    let failed = |call: &str, e: &std::io::Error| {
        SetupError::io(Step::Inputs, call, e)
            .on(path.display())
            .hint("name a regular file that you may read")
    };
    // Not blocking, for a FIFO that nobody writes to.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| failed("open", &e))?;
    let is_file = file.metadata().map_err(|e| failed("fstat", &e))?.is_file();
    if is_file {
        Ok(file)
    } else {
        Err(SetupError::new(Step::Inputs, "not a regular file")
            .on(path.display())
            .hint("--file copies one file in; --files-from copies a directory, and --ro or --rw shows one"))
    }
}
