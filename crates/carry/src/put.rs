//! Giving a process another's state.

use std::fs::File;

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::base::Base;
use super::calls::{Caller, answered, bytes, words};
use super::descriptors::{self, Change as Descriptors, What};
use super::image::{Image, RESOURCES, TIMERS};
use super::layout::{self, Change};
use super::maps::{self, Mapping, Source};
use super::place::{set_descriptors, set_layout};
use super::refusal::Refusal;
use super::status::{self, Status};
use super::take::{has_call_at, limits, waits_for_request};
use super::{Subject, pages, signals};
use record::bytes::RawText;
use sys::beneath::Beneath;
use sys::memory::{PAGE, Span, common, without};
use sys::trace::{Registers, Tracee};
use sys::tree::kind_of;

/// Runs of pages this long are given back to the kernel instead of filled with zeroes.
const WORTH_A_CALL: u64 = 16 * PAGE;

/// Why a state was not put into a process.
#[derive(Debug)]
pub enum Failure {
    /// Nothing was changed, and the process goes on as before.
    Refused(Refusal),
    /// It was half changed, and was killed.
    Broken(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Gives a process that waits for its next request the state of `image`. `base` is that
/// of the template that `image` was taken since.
///
/// # Errors
/// Why not, and what became of the process.
pub fn put(image: &Image, subject: Subject<'_>, base: Option<&Base>) -> Result<(), Failure> {
    let mut tracee = Tracee::stop(subject.pid).map_err(Refusal::of_stop)?;
    let mappings = maps::of(subject.pid)?;
    let target = Target::look(&tracee, image, subject, base, mappings)?;
    target.refuse_missing_files(image, subject)?;
    let private = target.mappings.iter().filter(|one| one.is_private());
    let found = pages::find(subject.pid, private)?;
    match target.change(&mut tracee, image, base, &found) {
        Ok(()) => Ok(()),
        Err(refusal) => {
            tracee.kill();
            Err(Failure::Broken(refusal))
        }
    }
}

/// Whether [`put`] would give the process the state of `image`, as far as can be said
/// before its files are there. The process goes on as before.
///
/// # Errors
/// Why not.
pub fn fits(image: &Image, subject: Subject<'_>, base: Option<&Base>) -> Result<(), Refusal> {
    let tracee = Tracee::stop(subject.pid).map_err(Refusal::of_stop)?;
    let mappings = maps::without_flags(subject.pid)?;
    Target::look(&tracee, image, subject, base, mappings).map(drop)
}

/// The process before it is changed.
struct Target {
    mappings: Vec<Mapping>,
    descriptors: descriptors::Descriptors,
    status: Status,
    limits: Vec<(u64, u64)>,
    /// The registers that it gets.
    registers: Registers,
    extended: Vec<u8>,
}

impl Target {
    /// Looks at the process, and refuses what the image does not fit.
    fn look(
        tracee: &Tracee,
        image: &Image,
        subject: Subject<'_>,
        base: Option<&Base>,
        mappings: Vec<Mapping>,
    ) -> Result<Self, Refusal> {
        let rest = &image.rest;
        waits_for_request(tracee)?;
        let registers = Registers::from_words(&rest.registers).ok_or(Refusal::Machine)?;
        let now = tracee.registers();
        let wait = |registers: &Registers| registers.waits_in().map(|(call, args)| (call, args[0]));
        // Not at the same instruction: read(2) of the C library has another one for a
        // process that once had several threads.
        if wait(now) != wait(&registers) || !has_call_at(tracee, &registers) {
            return Err(Refusal::Unlike("where it waits"));
        }
        if now.thread_pointer() != registers.thread_pointer() {
            return Err(Refusal::Unlike("the place of its thread's data"));
        }
        let status = Status::of(subject.pid)?;
        status.refuse_unfit(subject.pid)?;
        if status.filters != rest.filters {
            return Err(Refusal::Confined);
        }
        status::refuse_others(subject.pid, subject.init)?;
        layout::refuse_unfit(&rest.mappings)?;
        layout::refuse_unlike(&rest.mappings, &mappings)?;
        if rest.inherited().next().is_some() && base.is_none() {
            return Err(Refusal::Unlike("its template"));
        }
        let extended = record::bytes::decode_base64(&rest.extended)
            .map_err(|_| Refusal::Damaged("its registers make no sense"))?;
        if extended.len() != tracee.extended().map_err(Refusal::of_stop)?.len() {
            return Err(Refusal::Machine);
        }
        Ok(Self {
            descriptors: descriptors::of(subject.pid, subject.own)?,
            limits: limits(subject.pid)?,
            mappings,
            status,
            registers,
            extended,
        })
    }

    /// Refuses files that the process's own root does not have.
    fn refuse_missing_files(&self, image: &Image, subject: Subject<'_>) -> Result<(), Refusal> {
        let root = File::open(format!("/proc/{}/root", subject.pid))
            .map_err(|error| super::image::system("open", &error))?;
        let root = Beneath::new(&root).as_root();
        let kind = |path: &RawText| -> Result<SFlag, Errno> {
            Ok(kind_of(&fstat(root.find(path.as_path())?)?))
        };
        let missing = |path: &RawText| Refusal::Missing(path.to_lossy().into_owned());
        for change in layout::changes(&image.rest.mappings, &self.mappings) {
            if let Change::Map {
                source: Source::File { path, .. },
                ..
            } = change
                && kind(&path) != Ok(SFlag::S_IFREG)
            {
                return Err(missing(&path));
            }
        }
        for change in descriptors::changes(&image.rest.descriptors, &self.descriptors)? {
            if let Descriptors::Open(_, descriptor) = change {
                let (path, expected) = match &descriptor.what {
                    What::File { path, .. } => (path, SFlag::S_IFREG),
                    What::Directory { path, .. } => (path, SFlag::S_IFDIR),
                    What::Device { path } => (path, SFlag::S_IFCHR),
                    What::Own(_) | What::Same(_) | What::Other(_) => continue,
                };
                if kind(path) != Ok(expected) {
                    return Err(missing(path));
                }
            }
        }
        match kind(&image.rest.directory) {
            Ok(SFlag::S_IFDIR) => Ok(()),
            _ => Err(missing(&image.rest.directory)),
        }
    }

    /// Changes the process, which has these pages. After an error it is neither the one nor
    /// the other.
    fn change(
        self,
        tracee: &mut Tracee,
        image: &Image,
        base: Option<&Base>,
        found: &[Span],
    ) -> Result<(), Refusal> {
        let rest = &image.rest;
        let mut caller = Caller::new(tracee, &self.mappings, &rest.mappings)?;
        set_layout(&mut caller, image, &self.mappings)?;
        set_descriptors(&mut caller, image, &self.descriptors)?;
        self.set_attributes(&mut caller, image)?;
        let empty = empty_pages(found, image);
        let cleared = drop_pages(&mut caller, &rest.mappings, &empty)?;
        caller.finish().map_err(Refusal::of_stop)?;
        // From here on the process makes no call: its code may be another.
        pages::clear(tracee, &rest.mappings, &cleared)?;
        pages::copy_in(tracee, image)?;
        if let Some(base) = base {
            pages::copy_base(tracee, image, base)?;
        }
        (tracee.become_like(&self.registers, &self.extended, rest.blocked))
            .map_err(|errno| Refusal::System("ptrace", errno))
    }

    /// Directory, umask, signals, timers and limits.
    fn set_attributes(&self, caller: &mut Caller<'_>, image: &Image) -> Result<(), Refusal> {
        let rest = &image.rest;
        let path = [rest.directory.as_bytes(), b"\0"].concat();
        answered(
            "chdir",
            caller.with(libc::SYS_chdir, &path, |at, _| vec![at]),
        )?;
        if rest.umask != self.status.umask {
            answered("umask", caller.call(libc::SYS_umask, &[rest.umask.into()]))?;
        }
        let now = signals::actions(caller, self.status.caught | self.status.ignored)?;
        signals::set(caller, &now, &rest.actions)?;
        let stack = caller.ask::<24>(libc::SYS_sigaltstack, |at| vec![0, at]);
        if words::<3>(&answered("sigaltstack", stack)?) != rest.signal_stack {
            let stack = bytes(&rest.signal_stack);
            let set = caller.with(libc::SYS_sigaltstack, &stack, |at, _| vec![at, 0]);
            answered("sigaltstack", set)?;
        }
        for timer in 0..TIMERS {
            let wanted = rest.timers[timer];
            let now = caller.ask::<32>(libc::SYS_getitimer, |at| vec![timer as u64, at]);
            if words::<4>(&answered("getitimer", now)?) != wanted {
                let set = caller.with(libc::SYS_setitimer, &bytes(&wanted), |at, _| {
                    vec![timer as u64, at, 0]
                });
                answered("setitimer", set)?;
            }
        }
        for resource in 0..RESOURCES {
            let place = resource as usize;
            let (Some((soft, hard)), Some(now)) = (rest.limits.get(place), self.limits.get(place))
            else {
                continue;
            };
            // Never more than its own cell gives it.
            let wanted = ((*soft).min(now.1), (*hard).min(now.1));
            if wanted != *now {
                let limit = bytes(&[wanted.0, wanted.1]);
                let set = caller.with(libc::SYS_setrlimit, &limit, |at, _| {
                    vec![resource.into(), at]
                });
                answered("setrlimit", set)?;
            }
        }
        Ok(())
    }
}

/// Those of the pages `found` that must have no content.
fn empty_pages(found: &[Span], image: &Image) -> Vec<Span> {
    let content: Vec<Span> = image.rest.content().collect();
    let inherited: Vec<Span> = image.rest.inherited().collect();
    let private = image.rest.mappings.iter().filter(|one| one.is_private());
    let mapped: Vec<Span> = private.map(Mapping::span).collect();
    let left = common(found, &mapped);
    without(&without(&left, &content), &inherited)
}

/// Gives pages back to the kernel, after which they are as their mapping was at first;
/// returns those that are to be filled with zeroes instead, since that is faster.
fn drop_pages(
    caller: &mut Caller<'_>,
    mappings: &[Mapping],
    spans: &[Span],
) -> Result<Vec<Span>, Refusal> {
    let mut cleared = Vec::new();
    for mapping in mappings.iter().filter(|one| one.is_private()) {
        let is_file = matches!(mapping.source, Source::File { .. });
        for span in common(spans, &[mapping.span()]) {
            if is_file || span.len() >= WORTH_A_CALL {
                let args = [span.start, span.len(), libc::MADV_DONTNEED as u64];
                answered("madvise", caller.call(libc::SYS_madvise, &args))?;
            } else {
                cleared.push(span);
            }
        }
    }
    Ok(cleared)
}
