//! Carries the state of an interpreter from one cell into another.
//!
//! A context cannot be forked: it has no right to make namespaces, and must not get it.
//! Instead a *sibling* of it, which waits in a cell of its own, is given its state: the
//! layout of its memory, the pages that are its own, its registers, signals, directory
//! and descriptors. Both processes wait in read(2) for their next request, and both go on
//! from where the first one waits.
//!
//! ```text
//!   take   stops a process ─► checks ─► Image ─► the process goes on
//!   put    stops a sibling ─► checks ─► layout, pages, registers ─► the sibling goes on
//! ```
//!
//! An [`Image`] is a file. So the same two verbs are *fork* (take, put into a sibling),
//! *checkpoint* (take), *rewind* (put into the same process), *branch* (put into several),
//! and *suspend* (take, end the process, put into a sibling later).
//!
//! Siblings are processes whose memory is laid out alike: forked from the same template,
//! or started alike without address space randomisation. Where a template shares pages
//! with them, an image holds what changed since ([`Extent::Since`]).
//!
//! Each side is done by the supervisor of its own cell, an ancestor of the process, as
//! yama's `ptrace_scope` 1 demands. Whatever comes from the process is hostile. It cannot
//! harm the supervisor: reads are bounded, waits have deadlines, nothing that was read is
//! followed. It cannot reach beyond the sibling's cell either: every change is a system
//! call that the sibling makes itself, with its own root, filter and Landlock domain, or
//! a write to memory that is the sibling's own.
//!
//! What cannot be carried is refused by name before anything is changed ([`Refusal`]).
//! Not carried, and not noticed: Landlock rules that the code gave itself, scheduling
//! priorities, protection keys, and most advice given to madvise(2).
//!
//! Memory is carried as fork(2) would give it to a child ([`maps::OnFork`]): the kernel's generator of
//! random numbers, and others that ask for it, keep their state in memory that is wiped. Whatever
//! else code holds in memory is shared by construction; docs/RANDOMNESS.md has the list.

#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use nix::unistd::Pid;
use sys::identity::Identity;

mod base;
mod calls;
mod descriptors;
mod image;
mod layout;
mod maps;
mod pages;
mod place;
mod put;
mod refusal;
mod signals;
mod status;
mod stored;
mod take;

pub use base::Base;
pub use image::Image;
pub use put::{Failure, fits, put};
pub use refusal::{REPLAY, Refusal};
pub use take::{take, waits};

/// Bytes of pages that are transferred at once: they fit a processor's cache.
const BUFFER: usize = 256 << 10;

/// A process whose state is taken or replaced.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its pid, as this process sees it.
    pub pid: Pid,
    /// Its cell's init, which then must have no other child.
    pub init: Option<Pid>,
    /// The pipes of its driver, in an order that all siblings have.
    pub own: &'a [Identity],
}

/// Which pages an image holds.
#[derive(Clone, Copy, Debug)]
pub enum Extent<'a> {
    /// All that are not those of a file.
    Whole,
    /// Those that differ from this base.
    Since(&'a Base),
}
