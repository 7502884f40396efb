//! Files that go in: read, opened and digested before anything is started.

use std::fs::File;
use std::io::Seek as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::plan::{Plan, ScratchDir};
use crate::spec::{FileSource, FilesFrom, InputFile, Scratch, TmpfsLimit};
use crate::stage::{Kind, Source, Stage};
use crate::supervise::outputs::{Baseline, Content, Kept};
use archive::Report;
use record::bytes::RawText;
use record::error::{Result, SetupError, Step};

/// Names of things left out that a record's warnings tell; the rest is counted.
const MOST_NAMED: usize = 20;

/// The way out when `--files-from` names something else.
const TAKES: &str = "--files-from takes a directory or a tar archive that you may read, or - for \
                     one on standard input";

/// What the cell's own places begin with, besides the plan's files.
#[derive(Default)]
pub(super) struct Trees {
    pub(super) stages: Vec<Stage>,
    /// The directories that places are kept in.
    pub(super) kept: Vec<Kept>,
    /// What was left out of the stages.
    pub(super) warnings: Vec<String>,
}

impl Trees {
    /// Reads the kept directories, and on top of the workspace's what `--files-from`
    /// names.
    ///
    /// This may wait for standard input or for another run, so it is done while the
    /// caller's signals still end this process: there is nothing to undo yet.
    pub(super) fn read(plan: &Plan) -> Result<Self> {
        let mut trees = Self::default();
        for scratch in plan.own_scratch() {
            let from = match scratch.name {
                Scratch::Workspace => plan.files_from.as_ref(),
                Scratch::Tmp | Scratch::Shm => None,
            };
            if scratch.kept_in().is_some() || from.is_some() {
                trees.read_one(plan, scratch, from)?;
            }
        }
        Ok(trees)
    }

    fn read_one(
        &mut self,
        plan: &Plan,
        scratch: &ScratchDir,
        from: Option<&FilesFrom>,
    ) -> Result<()> {
        let limit = scratch.limit;
        let mut stage = Stage::new(scratch.name);
        let kept = match scratch.kept_in() {
            Some(path) => {
                let option = keeping(scratch.name);
                let mut kept = Kept::open(path, option, &self.kept, plan.watch.kept_wait)?;
                let report = stage.fill(Source::Kept(kept.dir(), path), limit)?;
                self.warn(option, &report);
                self.leave_to_binds(option, &mut stage, scratch);
                kept.note(&stage);
                Some(kept)
            }
            None => None,
        };
        if let Some(from) = from {
            let report = files_from(&mut stage, from, limit)?;
            self.warn("--files-from", &report);
            self.leave_to_binds("--files-from", &mut stage, scratch);
        }
        if scratch.name == Scratch::Workspace {
            for file in &plan.files {
                stage.give_way(&file.target)?;
            }
        }
        stage.check(limit, plan.limits.memory)?;
        self.stages.push(stage);
        self.kept.extend(kept);
        Ok(())
    }

    /// Nothing is copied into the host's directories.
    fn leave_to_binds(&mut self, option: &str, stage: &mut Stage, scratch: &ScratchDir) {
        let taken_out = stage.give_way_to_binds(&scratch.covered);
        for path in taken_out.iter().take(MOST_NAMED) {
            let path = path.display();
            self.warnings.push(format!(
                "{option}: {path} is left out: a bind is in its place"
            ));
        }
        self.count_more(option, taken_out.len() as u64);
    }

    fn warn(&mut self, option: &str, report: &Report) {
        for skipped in report.skipped.iter().take(MOST_NAMED) {
            let (path, reason) = (&skipped.path, &skipped.reason);
            self.warnings
                .push(format!("{option}: {path} is left out: it {reason}"));
        }
        self.count_more(option, report.skipped_in_all);
    }

    fn count_more(&mut self, option: &str, in_all: u64) {
        let more = in_all.saturating_sub(MOST_NAMED as u64);
        if more > 0 {
            self.warnings
                .push(format!("{option}: {more} more are left out"));
        }
    }
}

/// The option that keeps a place.
fn keeping(name: Scratch) -> &'static str {
    match name {
        Scratch::Workspace => "--workspace",
        Scratch::Tmp | Scratch::Shm => "--keep-tmp",
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
    files: &[InputFile],
    stages: &[Stage],
) -> Result<(Vec<Option<OwnedFd>>, Baseline)> {
    let mut open = Vec::with_capacity(files.len());
    let mut baseline = staged(stages);
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

fn staged(stages: &[Stage]) -> Baseline {
    let mut baseline = Baseline::default();
    let workspace = stages
        .iter()
        .filter(|stage| stage.place() == Scratch::Workspace);
    for (path, entry) in workspace.flat_map(Stage::entries) {
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
