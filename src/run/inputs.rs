//! Files that go in: opened and digested before anything is started.

use std::fs::File;
use std::io::Seek as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::error::{Result, SetupError, Step};
use crate::plan::FileCopy;
use crate::spec::FileSource;
use crate::supervise::outputs::{Baseline, Content};

/// Opens every input file, and notes what the workspace will begin with.
pub(super) fn open(files: &[FileCopy]) -> Result<(Vec<Option<OwnedFd>>, Baseline)> {
    let mut open = Vec::with_capacity(files.len());
    let mut baseline = Baseline::default();
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
            .hint("--file copies one file in; show a directory with --ro or --rw"))
    }
}
