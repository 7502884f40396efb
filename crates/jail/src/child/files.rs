//! Copying input files into `/workspace`.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::sendfile::sendfile;
use nix::sys::stat::fstat;

use super::fail::{At, Call, Fail};
use super::mounts::{Root, create_beneath, open_in, write_all};
use super::report::Reporter;
use plan::Plan;
use record::error::Step;
use spec::{FileSource, InputFile, WORKSPACE};

/// Copies every input. The bytes count against the cell's memory, and a full tmpfs
/// fails the set-up.
pub(super) fn copy_in(
    plan: &Plan,
    inputs: &[Option<OwnedFd>],
    root: &Root,
    report: &Reporter<'_>,
) -> Result<(), Fail> {
    if plan.files.is_empty() {
        return Ok(());
    }
    let site = report.enter(Step::CopyIn);
    let top = open_in(root, Path::new(WORKSPACE)).at(site, Call::Openat2)?;
    for (index, file) in plan.files.iter().enumerate() {
        let site = site.on(index);
        let from = inputs.get(index).and_then(Option::as_ref);
        let executable = is_executable(file, from).at(site, Call::Openat2)?;
        let to = create_beneath(&top, site, &file.target, executable)?;
        match (&file.source, from) {
            (FileSource::Inline(content), _) => {
                write_all(&to, content.as_bytes()).at(site, Call::Write)?;
            }
            (FileSource::Host(_), Some(from)) => {
                send_all(&to, from).at(site, Call::Sendfile)?;
            }
            (FileSource::Host(_), None) => return Err(site.failed(Call::Sendfile, Errno::EBADF)),
        }
    }
    Ok(())
}

/// Whether an input is to be executable, as its source is.
pub(super) fn is_executable(file: &InputFile, from: Option<&OwnedFd>) -> Result<bool, Errno> {
    match from {
        Some(from) if !file.executable => Ok(fstat(from)?.st_mode & 0o111 != 0),
        _ => Ok(file.executable),
    }
}

fn send_all(to: &OwnedFd, from: &OwnedFd) -> Result<(), Errno> {
    const CHUNK: usize = 1 << 30;
    while sendfile(to.as_fd(), from.as_fd(), None, CHUNK)? > 0 {}
    Ok(())
}

/// Copies the next `size` bytes of `from`.
pub(super) fn send(to: &OwnedFd, from: impl AsFd, size: u64) -> Result<(), Errno> {
    const CHUNK: u64 = 1 << 30;
    let mut left = size;
    while left > 0 {
        let wanted = usize::try_from(left.min(CHUNK)).map_err(|_| Errno::EOVERFLOW)?;
        match sendfile(to.as_fd(), &from, None, wanted)? as u64 {
            0 => return Err(Errno::EIO),
            sent => left = left.saturating_sub(sent),
        }
    }
    Ok(())
}
