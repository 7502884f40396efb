//! What the interpreters of a template have in common: the pages that it had before any of
//! them was forked.
//!
//! An image need not have a page that is as in the base, and a process gets it from there.
//! Comparing all of them reads two processes whole. So the kernel says which pages cannot
//! differ: those that the template has not written to since, and that a copy still shares
//! with it, in a mapping that it has not moved. Only the others are compared. Where the
//! kernel does not say, all are.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Pid;

use super::image::{Image, Rest};
use super::maps::{self, Mapping, Source};
use super::refusal::Refusal;
use super::take::has_call_at;
use super::{pages, status};
use sys::memory::{PAGE, Pagemap, Span, common, push_span};
use sys::process::pidfd_open;
use sys::trace::Tracee;
use sys::watched::{self, Watched};

/// How long a template gets to wait in a system call.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pages of a template. The result is no state, and cannot be put into a process.
#[derive(Debug)]
pub struct Base {
    pub(super) image: Image,
    noted: Option<Noted>,
}

/// Where the kernel notes what the template writes.
#[derive(Debug)]
struct Noted {
    /// The template's memory that it watches.
    spans: Vec<Span>,
    pagemap: Pagemap,
    _watched: Watched,
}

impl From<Image> for Base {
    /// The base of processes that all began as the image has it, which is whole. All pages
    /// are compared.
    fn from(image: Image) -> Self {
        Self { image, noted: None }
    }
}

impl Base {
    /// Copies the pages of a template into an empty file. It goes on afterwards.
    ///
    /// # Errors
    /// Why the pages cannot be read.
    pub fn of(template: Pid, into: File) -> Result<Self, Refusal> {
        let mut tracee = stop_waiting(template)?;
        let mappings = maps::of(template)?;
        let found = pages::find(template, mappings.iter().filter(|one| one.has_content()))?;
        let noted = watch(&mut tracee, &mappings, &found).ok();
        pages::copy_out(&tracee, &mappings, &found, &into)?;
        let mut rest = Rest::empty(tracee.registers());
        rest.set_pages(&found, &[]);
        rest.mappings = mappings;
        let image = Image::complete(into, rest)?;
        Ok(Self { image, noted })
    }

    /// The memory of copies that is to be watched as soon as they exist, so that their
    /// pages need not be compared. None where the template is not.
    pub fn watched(&self) -> &[Span] {
        self.noted.as_ref().map_or(&[], |noted| &noted.spans)
    }

    /// What a process needs that uses this base and is forked.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pagemap = self
            .noted
            .as_ref()
            .map(|noted| noted.pagemap.file().as_fd());
        [self.image.file().as_fd()].into_iter().chain(pagemap)
    }

    /// Bytes of pages in it.
    pub fn size(&self) -> u64 {
        self.image.size()
    }

    /// Pages of a copy with these mappings that are as in the base for certain, while it is
    /// stopped.
    ///
    /// # Errors
    /// The pagemap of the copy cannot be read.
    pub(super) fn shared_with(
        &self,
        copy: Pid,
        mappings: &[Mapping],
    ) -> Result<Vec<Span>, Refusal> {
        let mut found = Vec::new();
        let Some(noted) = &self.noted else {
            return Ok(found);
        };
        let failed = |errno| Refusal::System("pagemap", errno);
        let unwritten = noted.pagemap.unwritten(&noted.spans).map_err(failed)?;
        let own = Pagemap::open(copy, true).map_err(failed)?;
        for mapping in mappings.iter().filter(|one| is_memory(one)) {
            let within = common(&unwritten, &[mapping.span()]);
            // A mapping that was moved is not watched, and its pages were others.
            if own.is_watched(&within).map_err(failed)? {
                found.extend(own.shared(&within).map_err(failed)?);
            }
        }
        // The kernel may also have made one of several pages that were alike (ksm).
        match is_merged(copy) {
            true => Ok(Vec::new()),
            false => Ok(found),
        }
    }

    /// How many pages of a copy in `within` are as in the base for certain: for tests.
    ///
    /// # Errors
    /// As for an image.
    pub fn count_shared(&self, copy: Pid, within: Span) -> Result<u64, Refusal> {
        let shared = self.shared_with(copy, &maps::of(copy)?)?;
        let bytes: u64 = common(&shared, &[within]).iter().map(|one| one.len()).sum();
        Ok(bytes / PAGE)
    }
}

fn is_memory(mapping: &Mapping) -> bool {
    mapping.source == Source::Anonymous && mapping.has_content()
}

/// Stops a template, where it waits in a system call if it does so in time.
fn stop_waiting(template: Pid) -> Result<Tracee, Refusal> {
    let until = Instant::now() + PATIENCE;
    loop {
        let tracee = Tracee::stop(template).map_err(Refusal::of_stop)?;
        if waits(&tracee) || Instant::now() > until {
            return Ok(tracee);
        }
        drop(tracee);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn waits(tracee: &Tracee) -> bool {
    tracee.registers().waits_in().is_some() && has_call_at(tracee, tracee.registers())
}

/// Has the kernel note from now on which of the pages `found` the template writes to. What
/// it has not used yet is left out: a note for each page of it would take room.
fn watch(tracee: &mut Tracee, mappings: &[Mapping], found: &[Span]) -> Result<Noted, Errno> {
    if !waits(tracee) {
        return Err(Errno::EBUSY);
    }
    let watched = Watched::of(userfaultfd(tracee)?)?;
    let mut spans = Vec::new();
    // Some kinds of memory cannot be watched, and are compared.
    (mappings
        .iter()
        .filter(|one| is_memory(one))
        .map(Mapping::span))
    .filter(|span| watched.add(*span).is_ok())
    .for_each(|span| push_span(&mut spans, span));
    watched.note_writes(&common(found, &spans))?;
    Ok(Noted {
        pagemap: Pagemap::open(tracee.pid(), true)?,
        spans,
        _watched: watched,
    })
}

/// Has the process make a userfaultfd(2), and takes it away from it.
fn userfaultfd(tracee: &mut Tracee) -> Result<OwnedFd, Errno> {
    let pidfd = pidfd_open(tracee.pid())?;
    let number = tracee.call(libc::SYS_userfaultfd, &[watched::FLAGS as u64])??;
    let taken = sys::other::copy_descriptor(pidfd.as_fd(), number as i32);
    tracee.call(libc::SYS_close, &[number])??;
    taken
}

/// Whether the process has pages that are one with those of others because they were
/// alike.
fn is_merged(pid: Pid) -> bool {
    match status::read(pid, "ksm_merging_pages") {
        Ok(count) => count.trim() != "0",
        // A kernel without.
        Err(Refusal::System(_, Errno::ENOENT)) => false,
        Err(_) => true,
    }
}
