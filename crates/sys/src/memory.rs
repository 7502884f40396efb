//! Which pages of another process's memory have content of its own (pagemap(5)).

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::unistd::Pid;

/// Bytes of a page, the unit of everything here.
pub const PAGE: u64 = 4096;

/// A range of addresses, its end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
}

impl Span {
    /// From `start` up to `end`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// In bytes.
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// What both have.
    pub fn overlap(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self::new(start, self.end.min(other.end).max(start))
    }
}

/// Keeps memory out of swap (mlock(2)); its whole pages, until it is unmapped.
///
/// # Errors
/// ENOMEM or EPERM beyond RLIMIT_MEMLOCK.
pub fn lock(bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the range is mapped, and nothing is written to it.
    Errno::result(unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) }).map(drop)
}

/// Appends `span` to `list`, as a part of the last one where it follows directly.
pub fn push_span(list: &mut Vec<Span>, span: Span) {
    match list.last_mut() {
        _ if span.is_empty() => {}
        Some(last) if last.end == span.start => last.end = span.end,
        _ => list.push(span),
    }
}

/// What `from` has and `other` has not. Both are in order.
pub fn without(from: &[Span], other: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    let mut others = other.iter().peekable();
    for span in from {
        let mut start = span.start;
        while others.next_if(|one| one.end <= start).is_some() {}
        // One of the others may reach into the next span, too.
        let mut inside = others.clone();
        while let Some(one) = inside.next_if(|one| one.start < span.end) {
            push_span(&mut left, Span::new(start, one.start));
            start = start.max(one.end);
        }
        push_span(&mut left, Span::new(start, span.end));
    }
    left
}

/// What both have. Both are in order.
pub fn common(one: &[Span], other: &[Span]) -> Vec<Span> {
    without(one, &without(one, other))
}

/// The pagemap of one process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// Whether the kernel searches by itself (PAGEMAP_SCAN, Linux 6.7).
    scans: bool,
}

const ENTRY_EXCLUSIVE: u64 = 1 << 56;
const ENTRY_FILE: u64 = 1 << 61;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_PRESENT: u64 = 1 << 63;

/// Entries that are read at once.
const BATCH: usize = 16 * 1024;
/// Ranges that the kernel reports at once.
const REGIONS: usize = 1024;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Which pages the kernel looks for, in categories.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// Those that a page must have.
    all: u64,
    /// Those that it must not have.
    none: u64,
    /// Those of which it must have one.
    any: u64,
    /// The most pages that are looked for; 0 is all.
    most: u64,
}

const PAGEMAP_SCAN: u64 = 0xc060_6610;
/// In a mapping that is watched ([`crate::watched`]).
const IS_WATCHED: u64 = 1 << 0;
const IS_WRITTEN: u64 = 1 << 1;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO_PAGE: u64 = 1 << 5;

impl Pagemap {
    /// Opens that of `pid`. `searching` is whether the kernel may search by itself where
    /// it can; tests switch that off.
    ///
    /// # Errors
    /// That of open(2); EACCES or EPERM where tracing the process is not allowed.
    pub fn open(pid: Pid, searching: bool) -> Result<Self, Errno> {
        let path = format!("/proc/{pid}/pagemap");
        let file = File::open(path).map_err(errno_of)?;
        let mut map = Self { file, scans: false };
        let nothing = Span::new(0, 0);
        map.scans = searching && map.scan(nothing, Wanted::default(), &mut |_| {}).is_ok();
        Ok(map)
    }

    /// The file, for a process that is forked: an inherited descriptor needs no permission.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The most address space that can be searched in reasonable time, in bytes: without
    /// the kernel's own search each page takes an entry, whether there is one or not.
    pub fn searches(&self) -> u64 {
        if self.scans { u64::MAX } else { 64 << 30 }
    }

    /// The pages of `within` that have content of this process: anonymous ones, also those
    /// that it has together with the process that it was forked from, and changed ones of
    /// private files.
    ///
    /// # Errors
    /// That of ioctl(2) or pread(2).
    pub fn pages(&self, within: Span) -> Result<Vec<Span>, Errno> {
        let mut found = Vec::new();
        if self.scans {
            let content = Wanted {
                all: 0,
                none: IS_FILE | IS_ZERO_PAGE,
                any: IS_PRESENT | IS_SWAPPED,
                most: 0,
            };
            self.scan(within, content, &mut |span| push_span(&mut found, span))?;
        } else {
            self.entries(within, &mut |span, entry| {
                if has_content(entry) {
                    push_span(&mut found, span);
                }
            })?;
        }
        Ok(found)
    }

    /// The pages of `within` that the process has not written to since its memory is
    /// watched. Where it is not, or the process has ended, none.
    ///
    /// # Errors
    /// That of ioctl(2).
    pub fn unwritten(&self, within: &[Span]) -> Result<Vec<Span>, Errno> {
        let mut found = Vec::new();
        let unwritten = Wanted {
            all: IS_WATCHED | IS_PRESENT,
            none: IS_WRITTEN,
            ..Wanted::default()
        };
        for span in within.iter().filter(|_| self.scans) {
            self.scan(*span, unwritten, &mut |span| push_span(&mut found, span))?;
        }
        Ok(found)
    }

    /// The pages of `within` that the process has together with others.
    ///
    /// # Errors
    /// That of pread(2).
    pub fn shared(&self, within: &[Span]) -> Result<Vec<Span>, Errno> {
        const MASK: u64 = ENTRY_PRESENT | ENTRY_SWAPPED | ENTRY_FILE | ENTRY_EXCLUSIVE;
        let mut found = Vec::new();
        for span in within {
            self.entries(*span, &mut |page, entry| {
                if entry & MASK == ENTRY_PRESENT {
                    push_span(&mut found, page);
                }
            })?;
        }
        Ok(found)
    }

    /// Whether the mapping that `within` is a part of is watched. False where it has no page
    /// there.
    ///
    /// # Errors
    /// That of ioctl(2).
    pub fn is_watched(&self, within: &[Span]) -> Result<bool, Errno> {
        let first = Wanted {
            all: IS_WATCHED | IS_PRESENT,
            most: 1,
            ..Wanted::default()
        };
        let mut is_found = false;
        for span in within.iter().filter(|_| self.scans) {
            self.scan(*span, first, &mut |_| is_found = true)?;
            if is_found {
                break;
            }
        }
        Ok(is_found)
    }

    /// Has the kernel search `within`.
    fn scan(&self, within: Span, wanted: Wanted, found: &mut dyn FnMut(Span)) -> Result<(), Errno> {
        let mut regions = [Region::default(); REGIONS];
        let mut start = within.start;
        loop {
            let mut argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                start,
                end: within.end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: REGIONS as u64,
                max_pages: wanted.most,
                category_inverted: wanted.none,
                category_mask: wanted.all | wanted.none,
                category_anyof_mask: wanted.any,
                return_mask: IS_PRESENT,
                ..ScanArgument::default()
            };
            let request = PAGEMAP_SCAN as libc::Ioctl;
            // SAFETY: it reads and writes a pm_scan_arg, and writes as many regions to
            // `vec` as `vec_len` has room for.
            let count = Errno::result(unsafe {
                libc::ioctl(self.file.as_raw_fd(), request, &raw mut argument)
            })?;
            for region in regions.iter().take(count as usize) {
                found(Span::new(region.start, region.end));
            }
            // The kernel searches in pieces. If the last one was not full, `walk_end` is still
            // that of the one before, and what was found behind it would be found again.
            let found = regions.iter().take(count as usize);
            let next = found
                .map(|region| region.end)
                .fold(argument.walk_end, u64::max);
            if next >= within.end || next <= start || (wanted.most > 0 && count > 0) {
                return Ok(());
            }
            start = next;
        }
    }

    /// Reads the entries of `within`, one for each page.
    fn entries(&self, within: Span, each: &mut dyn FnMut(Span, u64)) -> Result<(), Errno> {
        let mut bytes = vec![0; BATCH.min((within.len() / PAGE) as usize) * 8];
        let mut at = within.start;
        while at < within.end {
            let count = (((within.end - at) / PAGE) as usize).min(BATCH);
            if count == 0 {
                break;
            }
            let bytes = &mut bytes[..count * 8];
            (self.file.read_exact_at(bytes, at / PAGE * 8)).map_err(errno_of)?;
            for entry in bytes.chunks_exact(8) {
                let entry = entry.try_into().map(u64::from_ne_bytes).unwrap_or(0);
                each(Span::new(at, at + PAGE), entry);
                at += PAGE;
            }
        }
        Ok(())
    }
}

/// Whether an entry is an anonymous page, or a changed one of a private file.
fn has_content(entry: u64) -> bool {
    let is_anonymous = entry & ENTRY_PRESENT != 0 && entry & ENTRY_FILE == 0;
    is_anonymous || entry & ENTRY_SWAPPED != 0
}

pub(crate) fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Has the kernel refuse, in this process and in those that it starts, to make memory executable
/// that is or was writable (PR_SET_MDWE, prctl(2)), as `MemoryDenyWriteExecute=` of systemd does.
///
/// # Errors
/// The error number of prctl(2): EINVAL before Linux 6.3.
pub fn deny_write_execute() -> Result<(), Errno> {
    let refuse = libc::c_ulong::from(libc::PR_MDWE_REFUSE_EXEC_GAIN);
    let none: libc::c_ulong = 0;
    // SAFETY: numbers only.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_MDWE, refuse, none, none, none) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(searching: bool) -> (Span, Vec<Span>) {
        let size = 64 * PAGE;
        let mut memory = vec![0_u8; size as usize + PAGE as usize];
        let start = (memory.as_mut_ptr() as u64).next_multiple_of(PAGE);
        let first = (start - memory.as_ptr() as u64) as usize;
        for page in [3, 4, 60] {
            memory[first + page * PAGE as usize] = 7;
        }
        let map = Pagemap::open(Pid::this(), searching).unwrap();
        let pages = map.pages(Span::new(start, start + size)).unwrap();
        std::hint::black_box(&memory);
        (Span::new(start, start + size), pages)
    }

    #[test]
    fn touched_pages_are_found_by_either_search() {
        for searching in [true, false] {
            let (within, pages) = touched(searching);
            let page = |number: u64| within.start + number * PAGE;
            for number in [3, 4, 60] {
                let has = |span: &Span| span.start <= page(number) && page(number) < span.end;
                assert!(pages.iter().any(has), "{number} {pages:?}");
            }
            assert!(pages.iter().all(|span| span.start >= within.start));
        }
    }

    #[test]
    fn each_of_many_pages_is_found_once() {
        const MOST: usize = 3000;
        let mut memory = vec![0_u8; (2 * MOST + 1) * PAGE as usize];
        let start = (memory.as_mut_ptr() as u64).next_multiple_of(PAGE);
        let first = (start - memory.as_ptr() as u64) as usize;
        // SAFETY: the range is that of `memory`, whose content stays.
        unsafe {
            libc::madvise(
                start as *mut _,
                2 * MOST * PAGE as usize,
                libc::MADV_NOHUGEPAGE,
            )
        };
        let map = Pagemap::open(Pid::this(), true).unwrap();
        let within = Span::new(start, start + 2 * MOST as u64 * PAGE);
        let mut touched = 0;
        for count in [300, 511, 513, 700, 1000, 1024, 1025, 1600, 2100, MOST] {
            for page in touched..count {
                memory[first + 2 * page * PAGE as usize] = 7;
            }
            touched = count;
            let page = |number: u64| start + 2 * number * PAGE;
            let all = (0..count as u64).map(|one| Span::new(page(one), page(one) + PAGE));
            assert_eq!(
                map.pages(within).unwrap(),
                all.collect::<Vec<_>>(),
                "{count}"
            );
        }
        std::hint::black_box(&memory);
    }

    #[test]
    fn spans_are_subtracted() {
        let spans = |list: &[(u64, u64)]| -> Vec<Span> {
            list.iter().map(|(a, b)| Span::new(*a, *b)).collect()
        };
        let from = spans(&[(0, 10), (20, 30), (40, 50)]);
        for (other, left, both) in [
            (vec![], vec![(0, 10), (20, 30), (40, 50)], vec![]),
            (vec![(0, 60)], vec![], vec![(0, 10), (20, 30), (40, 50)]),
            (
                vec![(2, 3), (5, 25), (45, 46)],
                vec![(0, 2), (3, 5), (25, 30), (40, 45), (46, 50)],
                vec![(2, 3), (5, 10), (20, 25), (45, 46)],
            ),
        ] {
            let other = spans(&other);
            assert_eq!(without(&from, &other), spans(&left), "{other:?}");
            assert_eq!(common(&from, &other), spans(&both), "{other:?}");
        }
    }

    #[test]
    fn spans_that_touch_become_one() {
        let mut list = Vec::new();
        for (start, end) in [(0, 1), (1, 3), (5, 5), (6, 7)] {
            push_span(&mut list, Span::new(start, end));
        }
        assert_eq!(list, [Span::new(0, 3), Span::new(6, 7)]);
    }
}
