//! Memory of another process that the kernel watches (userfaultfd(2), Linux 6.7).
//!
//! A mapping that is watched stops being so when it is unmapped or moved, and the process
//! that has it gets no event: the kernel notes writes by itself. What it has noted is in
//! the pagemap ([`crate::memory::Pagemap`]).

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;

use super::memory::Span;

/// The flags of the userfaultfd(2) that the process itself must make: closed on exec, and
/// for what it does in user mode, which is what an unprivileged process may watch.
pub const FLAGS: i32 = libc::O_CLOEXEC | 1;

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
/// UFFD_FEATURE_WP_UNPOPULATED and UFFD_FEATURE_WP_ASYNC.
const FEATURES: u64 = 1 << 13 | 1 << 15;
const REGISTER_WRITES: u64 = 1 << 1;
const PROTECT: u64 = 1 << 0;

/// `struct uffdio_api`, `uffdio_register` and `uffdio_writeprotect` of
/// linux/userfaultfd.h, of which the last word of the first and third is not used.
type Argument = [u64; 4];

/// Watched memory. It is watched until every copy of the descriptor is closed.
#[derive(Debug)]
pub struct Watched(OwnedFd);

impl Watched {
    /// Will watch memory of the process that has made `userfaultfd`. Nobody who is not
    /// trusted may have that descriptor.
    ///
    /// # Errors
    /// That of ioctl(2): EINVAL on a kernel that cannot.
    pub fn of(userfaultfd: OwnedFd) -> Result<Self, Errno> {
        let watched = Self(userfaultfd);
        watched.order(UFFDIO_API, [0xaa, FEATURES, 0, 0])?;
        Ok(watched)
    }

    /// Watches this span.
    ///
    /// # Errors
    /// That of ioctl(2): EINVAL where nothing is mapped, or memory of a kind that cannot be
    /// watched, such as that of `MAP_DROPPABLE`.
    pub fn add(&self, span: Span) -> Result<(), Errno> {
        self.order(
            UFFDIO_REGISTER,
            [span.start, span.len(), REGISTER_WRITES, 0],
        )
    }

    /// From now on the kernel notes which pages of these spans, all of them watched, are
    /// written to.
    ///
    /// # Errors
    /// That of ioctl(2).
    pub fn note_writes(&self, spans: &[Span]) -> Result<(), Errno> {
        (spans.iter()).try_for_each(|span| {
            let protect = [span.start, span.len(), PROTECT, 0];
            self.order(UFFDIO_WRITEPROTECT, protect)
        })
    }

    fn order(&self, request: u64, mut argument: Argument) -> Result<(), Errno> {
        let request = request as libc::Ioctl;
        // SAFETY: the kernel reads and writes at most the 32 bytes of the argument, as the
        // request's number says.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument.as_mut_ptr()) };
        Errno::result(done).map(drop)
    }
}
