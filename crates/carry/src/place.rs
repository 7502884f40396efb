//! Mappings and descriptors of an image, made by calls of the process that gets them.

use std::borrow::Cow;

use nix::errno::Errno;

use super::calls::{Caller, answered};
use super::descriptors::{self, Change as Descriptors, Descriptor, What};
use super::image::Image;
use super::layout::{self, Change};
use super::maps::{self, Mapping, OnFork, Source};
use super::refusal::Refusal;
use record::bytes::RawText;
use sys::memory::Span;

/// Gives the process the image's mappings. `found` are its present mappings, without the caller's
/// room. The caller passes them because the kernel takes a millisecond to list hundreds of them.
pub(super) fn set_layout(
    caller: &mut Caller<'_>,
    image: &Image,
    found: &[Mapping],
) -> Result<(), Refusal> {
    let rest = &image.rest;
    let mut now = Cow::Borrowed(found);
    let heap_end = answered("brk", caller.call(libc::SYS_brk, &[0]))?;
    if heap_end != rest.heap_end {
        let set = answered("brk", caller.call(libc::SYS_brk, &[rest.heap_end]))?;
        if set != rest.heap_end {
            return Err(Refusal::System("brk", Errno::ENOMEM));
        }
        let mut moved = maps::without_flags(caller.tracee.pid())?;
        let room = caller.room();
        moved.retain(|mapping| mapping.span() != room);
        for mapping in &mut moved {
            // Only the end of the heap is another one.
            if let Ok(place) = found.binary_search_by_key(&mapping.start, |one| one.start) {
                mapping.on_fork = found[place].on_fork;
            }
        }
        now = Cow::Owned(moved);
    }
    for change in layout::changes(&rest.mappings, &now) {
        match change {
            Change::Unmap(span) => {
                let args = [span.start, span.len()];
                answered("munmap", caller.call(libc::SYS_munmap, &args))?;
            }
            Change::Protect { span, protection } => {
                let args = [span.start, span.len(), protection.into()];
                answered("mprotect", caller.call(libc::SYS_mprotect, &args))?;
            }
            Change::Map {
                span,
                protection,
                shared,
                on_fork,
                source,
            } => {
                map(caller, span, protection, shared, on_fork, &source)?;
                if on_fork == OnFork::Wiped {
                    let args = [span.start, span.len(), libc::MADV_WIPEONFORK as u64];
                    answered("madvise", caller.call(libc::SYS_madvise, &args))?;
                }
            }
        }
    }
    Ok(())
}

fn map(
    caller: &mut Caller<'_>,
    span: Span,
    protection: u8,
    shared: bool,
    on_fork: OnFork,
    source: &Source,
) -> Result<(), Refusal> {
    const MEMORY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    /// Linux 6.11.
    const MAP_DROPPABLE: i32 = 8;
    let (flags, file, offset) = match source {
        Source::Anonymous if on_fork == OnFork::Droppable => {
            (MAP_DROPPABLE | libc::MAP_ANONYMOUS, None, 0)
        }
        Source::Anonymous => (MEMORY, None, 0),
        Source::Stack => (MEMORY | libc::MAP_GROWSDOWN, None, 0),
        Source::File { path, offset, .. } => {
            let sharing = if shared {
                libc::MAP_SHARED
            } else {
                libc::MAP_PRIVATE
            };
            (sharing, Some(open(caller, path, libc::O_RDONLY)?), *offset)
        }
        Source::Kernel(_) => return Ok(()),
    };
    let args = [
        span.start,
        span.len(),
        protection.into(),
        (flags | libc::MAP_FIXED) as u64,
        file.unwrap_or(u64::MAX),
        offset,
    ];
    let mapped = answered("mmap", caller.call(libc::SYS_mmap, &args))?;
    if mapped != span.start {
        return Err(Refusal::System("mmap", Errno::EEXIST));
    }
    match file {
        Some(file) => answered("close", caller.call(libc::SYS_close, &[file])).map(drop),
        None => Ok(()),
    }
}

/// Has the process open a file in its own root. Its kind was looked at; should it be a
/// FIFO all the same, opening it does not wait.
fn open(caller: &mut Caller<'_>, path: &RawText, flags: i32) -> Result<u64, Refusal> {
    let path = [path.as_bytes(), b"\0"].concat();
    let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = caller.with(libc::SYS_openat, &path, |at, _| {
        vec![libc::AT_FDCWD as u64, at, flags as u64, 0]
    });
    answered("openat", opened)
}

/// Gives the process the image's descriptors.
pub(super) fn set_descriptors(
    caller: &mut Caller<'_>,
    image: &Image,
    now: &descriptors::Descriptors,
) -> Result<(), Refusal> {
    let copy = |caller: &mut Caller<'_>, from: i32, to: i32, close_on_exec: bool| {
        let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let args = [from as u64, to as u64, flags as u64];
        answered("dup3", caller.call(libc::SYS_dup3, &args)).map(drop)
    };
    for change in descriptors::changes(&image.rest.descriptors, now)? {
        match change {
            Descriptors::Save { from, to } => copy(caller, from, to, true)?,
            Descriptors::Close(number) => {
                answered("close", caller.call(libc::SYS_close, &[number as u64]))?;
            }
            Descriptors::Copy {
                from,
                to,
                close_on_exec,
            } => copy(caller, from, to, close_on_exec)?,
            Descriptors::Open(number, descriptor) => {
                open_at(caller, number, descriptor)?;
            }
        }
    }
    Ok(())
}

fn open_at(caller: &mut Caller<'_>, number: i32, descriptor: &Descriptor) -> Result<(), Refusal> {
    /// Flags that do something at the time of opening only.
    const ONCE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
    let (path, offset) = match &descriptor.what {
        What::File { path, offset } | What::Directory { path, offset } => (path, Some(*offset)),
        What::Device { path } => (path, None),
        What::Own(_) | What::Same(_) | What::Other(_) => return Ok(()),
    };
    let flags = descriptor.flags & !ONCE;
    let opened = open(caller, path, flags)?;
    let args = [opened, libc::F_SETFL as u64, flags as u64];
    answered("fcntl", caller.call(libc::SYS_fcntl, &args))?;
    if let Some(offset) = offset {
        let args = [opened, offset, libc::SEEK_SET as u64];
        answered("lseek", caller.call(libc::SYS_lseek, &args))?;
    }
    if opened != number as u64 {
        let close_on_exec = if descriptor.close_on_exec {
            libc::O_CLOEXEC
        } else {
            0
        };
        let args = [opened, number as u64, close_on_exec as u64];
        answered("dup3", caller.call(libc::SYS_dup3, &args))?;
        answered("close", caller.call(libc::SYS_close, &[opened]))?;
    } else if !descriptor.close_on_exec {
        let args = [opened, libc::F_SETFD as u64, 0];
        answered("fcntl", caller.call(libc::SYS_fcntl, &args))?;
    }
    Ok(())
}
