//! A page that the supervisor and the cell's init share.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use nix::errno::Errno;

use record::error::Step;

/// How far a cell's set-up has come and how long each step took. Init writes it,
/// the supervisor reads it, also after init's silent death. The program never
/// sees it: its memory is its own from execve(2) on.
#[derive(Debug)]
pub struct Progress(Shared<Page>);

#[repr(C)]
#[derive(Debug)]
struct Page {
    step: AtomicU16,
    /// When the present step was entered.
    since_ns: AtomicU64,
    /// When each step was entered first.
    began_ns: [AtomicU64; Step::ALL.len()],
    /// How long each step took, all its parts together.
    spent_ns: [AtomicU64; Step::ALL.len()],
    /// Whether init has killed everything, and only waits for the kernel.
    all_killed: AtomicBool,
    /// Whether the program got all limits of the plan.
    limits_hold: AtomicBool,
}

impl Progress {
    /// Maps a new page, shared with processes forked from here on.
    ///
    /// # Errors
    /// The error number of mmap(2).
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: a zeroed Page is valid, and consists of atomics.
        unsafe { Shared::zeroed() }.map(Self)
    }

    fn page(&self) -> &Page {
        self.0.get()
    }

    /// Notes that `step` begins now, or goes on.
    pub fn enter(&self, step: Step) {
        let page = self.page();
        let now = super::process::monotonic_ns();
        let since = page.since_ns.swap(now, Ordering::Relaxed);
        if let Some(before) = self.step() {
            page.spent_ns[before as usize - 1].fetch_add(now - since, Ordering::Relaxed);
        }
        let began = &page.began_ns[step as usize - 1];
        let _ = began.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        page.step.store(step as u16, Ordering::Release);
    }

    /// Forgets the steps so far, while init takes none: those that follow are counted
    /// alone.
    pub fn forget_steps(&self) {
        let page = self.page();
        page.step.store(0, Ordering::Release);
        for times in [&page.began_ns, &page.spent_ns] {
            times.iter().for_each(|ns| ns.store(0, Ordering::Relaxed));
        }
    }

    /// Notes that everything in the cell but init is killed.
    pub fn note_all_killed(&self) {
        self.page().all_killed.store(true, Ordering::Release);
    }

    /// Whether everything in the cell but init is killed, and only its memory
    /// remains to be freed.
    pub fn are_all_killed(&self) -> bool {
        self.page().all_killed.load(Ordering::Acquire)
    }

    /// Notes that the program got all limits of the plan: no limit of the caller's is lower.
    pub fn note_limits_hold(&self) {
        self.page().limits_hold.store(true, Ordering::Release);
    }

    /// Whether that was noted.
    pub fn limits_hold(&self) -> bool {
        self.page().limits_hold.load(Ordering::Acquire)
    }

    /// The step entered last.
    pub fn step(&self) -> Option<Step> {
        Step::from_number(self.page().step.load(Ordering::Acquire))
    }

    /// When the step entered last was entered, on the monotonic clock.
    pub fn since_ns(&self) -> u64 {
        self.page().since_ns.load(Ordering::Relaxed)
    }

    /// Nanoseconds that `step` took before others were entered.
    pub fn spent_ns(&self, step: Step) -> u64 {
        self.page().spent_ns[step as usize - 1].load(Ordering::Relaxed)
    }

    /// Nanoseconds on the monotonic clock at which `step` first began, if it did.
    pub fn began_ns(&self, step: Step) -> Option<u64> {
        match self.page().began_ns[step as usize - 1].load(Ordering::Relaxed) {
            0 => None,
            ns => Some(ns),
        }
    }
}

/// Zeroed memory that is shared with processes forked from here on.
#[derive(Debug)]
pub(crate) struct Shared<T>(NonNull<T>);

impl<T> Shared<T> {
    /// Maps it.
    ///
    /// # Safety
    /// Zeroes must be a valid `T`, and `T` must consist of atomics.
    ///
    /// # Errors
    /// The error number of mmap(2).
    pub(crate) unsafe fn zeroed() -> Result<Self, Errno> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice
        // touches no memory in use.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        NonNull::new(page.cast()).map(Self).ok_or(Errno::ENOMEM)
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: the mapping lives as long as `self`, and `zeroed` has made it valid.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}
