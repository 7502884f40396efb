//! System calls that a stopped process is made to make, under its own filter.

use nix::errno::Errno;

use super::maps::Mapping;
use super::refusal::Refusal;
use sys::memory::{PAGE, Span};
use sys::trace::Tracee;

/// Room for arguments and answers.
const ROOM: u64 = 2 * PAGE;

/// The result of a call. The error is that the process cannot be made to make calls.
pub(super) type Called<T = u64> = Result<Result<T, Errno>, Errno>;

/// A stopped process with a place in its memory for arguments and answers.
pub(super) struct Caller<'t> {
    pub(super) tracee: &'t mut Tracee,
    room: Span,
}

impl<'t> Caller<'t> {
    /// Maps the place where neither the process nor `also` has anything.
    pub(super) fn new(
        tracee: &'t mut Tracee,
        mappings: &[Mapping],
        also: &[Mapping],
    ) -> Result<Self, Refusal> {
        let gone = Refusal::TooMuch {
            what: "addresses in use",
            most: 1 << 47,
        };
        let room = gap(mappings, also).ok_or(gone)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let args = [
            room.start,
            room.len(),
            protection as u64,
            flags as u64,
            u64::MAX,
            0,
        ];
        let mapped = tracee.call(libc::SYS_mmap, &args);
        match mapped.map_err(Refusal::of_stop)? {
            Ok(at) if at == room.start => Ok(Self { tracee, room }),
            Ok(_) => Err(Refusal::System("mmap", Errno::EEXIST)),
            Err(errno) => Err(Refusal::System("mmap", errno)),
        }
    }

    /// The place.
    pub(super) fn room(&self) -> Span {
        self.room
    }

    /// Unmaps the place again.
    pub(super) fn finish(self) -> Result<(), Errno> {
        let args = [self.room.start, self.room.len()];
        self.tracee.call(libc::SYS_munmap, &args)?.map(drop)
    }

    /// A call whose arguments are numbers.
    pub(super) fn call(&mut self, number: i64, args: &[u64]) -> Called {
        self.tracee.call(number, args)
    }

    /// A call with `input` in the process's memory: `args` gets its address, and that of
    /// as much room behind it.
    pub(super) fn with(
        &mut self,
        number: i64,
        input: &[u8],
        args: impl FnOnce(u64, u64) -> Vec<u64>,
    ) -> Called {
        if input.len() as u64 > PAGE {
            return Ok(Err(Errno::ENAMETOOLONG));
        }
        let (first, second) = (self.room.start, self.room.start + PAGE);
        self.tracee.write_forced(first, input)?;
        self.tracee.call(number, &args(first, second))
    }

    /// A call that writes at most `N` bytes to the address that `args` gets.
    pub(super) fn ask<const N: usize>(
        &mut self,
        number: i64,
        args: impl FnOnce(u64) -> Vec<u64>,
    ) -> Called<[u8; N]> {
        debug_assert!(N as u64 <= ROOM);
        match self.tracee.call(number, &args(self.room.start))? {
            Err(errno) => Ok(Err(errno)),
            Ok(_) => {
                let mut answer = [0; N];
                self.tracee.read_forced(self.room.start, &mut answer)?;
                Ok(Ok(answer))
            }
        }
    }
}

/// The highest gap below the stack's end that has room and a page to spare on each side.
fn gap(mappings: &[Mapping], also: &[Mapping]) -> Option<Span> {
    let all = mappings.iter().chain(also);
    let mut spans: Vec<Span> = all
        .filter(|one| !one.is_kernel())
        .map(Mapping::span)
        .collect();
    // The kernel's own are in the way as well, but [vsyscall] is above user space.
    let kernel = mappings.iter().chain(also).filter(|one| one.is_kernel());
    spans.extend(kernel.map(Mapping::span).filter(|span| span.end < 1 << 47));
    spans.sort_unstable();
    let mut best = None;
    let mut end = spans.first()?.end;
    for span in &spans {
        // Stacks grow downwards, and the kernel keeps a distance of 256 pages from them.
        if span.start >= end + ROOM + 600 * PAGE {
            best = Some(Span::new(end + 16 * PAGE, end + 16 * PAGE + ROOM));
        }
        end = end.max(span.end);
    }
    best
}

/// The answer to `call`, or a refusal that names it.
pub(super) fn answered<T>(call: &'static str, called: Called<T>) -> Result<T, Refusal> {
    let answered = called.map_err(Refusal::of_stop)?;
    answered.map_err(|errno| Refusal::System(call, errno))
}

/// Words as the kernel writes them.
pub(super) fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    }
    words
}

/// The same as bytes.
pub(super) fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
