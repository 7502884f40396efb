//! Reads, opens and digests the files that go in, before anything is started.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::baseline::{self, Baseline, Original};
use super::fill::Origin;
use super::{Digest, KeptDir, Stage};
use archive::Report;
use plan::{Plan, ScratchDir};
use record::error::{Result, SetupError, Step};
use spec::{FileSource, FilesFrom, InputFile, Scratch, TmpfsLimit};

/// Names of left-out files in a record's warnings; the rest is counted.
const MOST_NAMED: usize = 20;

/// The hint when `--files-from` names something else.
const TAKES: &str = "--files-from takes a directory or a tar archive that you may read, or - for \
                     one on standard input";

/// What the cell's own directories start with, besides the plan's files.
#[derive(Default)]
pub struct Staged {
    /// Files, directories and links.
    pub stages: Vec<Stage>,
    /// Directories that are kept, whose content is among these.
    pub kept: Vec<KeptDir>,
    /// Descriptors of the caller's, each with its number inside.
    pub passed: Vec<(i32, OwnedFd)>,
    /// What was left out of the stages.
    pub warnings: Vec<String>,
}

impl Staged {
    /// Whether nothing goes in, and nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty() && self.kept.is_empty() && self.passed.is_empty()
    }

    /// Reads the kept directories and, on top of the workspace's, what `--files-from` names.
    ///
    /// This may wait for standard input or for another run, so it is done while signals
    /// still end this process: there is nothing to undo yet.
    #[inline(never)]
    pub fn read(plan: &Plan) -> Result<Self> {
        let mut staged = Self::default();
        for scratch in plan.own_scratch() {
            let from = match scratch.name {
                Scratch::Workspace => plan.files_from.as_ref(),
                Scratch::Tmp | Scratch::Shm => None,
            };
            if scratch.kept_in().is_some() || from.is_some() {
                staged.read_one(plan, scratch, from)?;
            }
        }
        Ok(staged)
    }

    /// Reads what an ended cell left in its workspace, for the cell that follows it.
    ///
    /// # Errors
    /// It cannot be read, or there is no room for it.
    pub fn carry(plan: &Plan, workspace: &OwnedFd) -> Result<Self> {
        let mut staged = Self::default();
        let mut own = plan.own_scratch();
        if let Some(scratch) = own.find(|scratch| scratch.name == Scratch::Workspace) {
            let mut stage = Stage::new(Scratch::Workspace);
            let from = Origin::Kept(workspace, Path::new(Scratch::Workspace.path()));
            let mut report = stage.fill(from, scratch.limit)?;
            stage.give_way_to_binds(&scratch.covered, &mut report);
            staged.warn(Scratch::Workspace.path(), &report);
            stage.check(scratch.limit, plan.limits.memory)?;
            staged.stages.push(stage);
        }
        Ok(staged)
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
                let mut kept = KeptDir::open(path, option, &self.kept, plan.watch.kept_wait)?;
                let mut report = stage.fill(Origin::Kept(&kept.dir, path), limit)?;
                stage.give_way_to_binds(&scratch.covered, &mut report);
                self.warn(option, &report);
                kept.before = baseline::of(&stage);
                Some(kept)
            }
            None => None,
        };
        if let Some(from) = from {
            let mut report = files_from(&mut stage, from, limit)?;
            stage.give_way_to_binds(&scratch.covered, &mut report);
            self.warn("--files-from", &report);
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

/// The option that keeps a directory.
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
            return stage.fill(Origin::Archive(&mut input, "standard input"), limit);
        }
        FilesFrom::Path(path) => path,
    };
    let failed = |call: &str, e: &io::Error| {
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
        return stage.fill(Origin::Directory(&OwnedFd::from(file), path), limit);
    }
    let name = path.display().to_string();
    stage.fill(Origin::Archive(&mut file, &name), limit)
}

/// Opens every input file, and returns what the workspace will start with.
pub fn open(files: &[InputFile], stages: &[Stage]) -> Result<(Vec<Option<OwnedFd>>, Baseline)> {
    let mut open = Vec::with_capacity(files.len());
    let mut stages = stages.iter();
    let workspace = stages.find(|stage| stage.scratch == Scratch::Workspace);
    let mut baseline = workspace.map(baseline::of).unwrap_or_default();
    for file in files {
        let failed =
            |e: io::Error| SetupError::io(Step::Inputs, "read", &e).on(file.target.display());
        let (digest, fd) = match &file.source {
            FileSource::Inline(bytes) => (Digest::of(bytes.as_bytes(), |_| Ok(())), None),
            FileSource::Host(path) => {
                let mut source = regular_file(path)?;
                let digest = Digest::of(&source, |_| Ok(()));
                source.rewind().map_err(failed)?;
                (digest, Some(source.into()))
            }
        };
        let original = Original::File(digest.map_err(failed)?);
        baseline.insert(file.target.as_path().into(), original);
        open.push(fd);
    }
    Ok((open, baseline))
}

fn regular_file(path: &Path) -> Result<File> {
    let failed = |call: &str, e: &io::Error| {
        SetupError::io(Step::Inputs, call, e)
            .on(path.display())
            .hint("name a regular file that you may read")
    };
    // A FIFO without a writer would block the call.
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
