//! Who has an execution done, while it goes on.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::processes::{ProcessNews, ProcessOrder};
use jail::launch::SharedCell;
use record::error::{Result, SetupError, Step};

/// What is asked for about an execution that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Interrupt it: SIGINT, this much time for its end, then the cell's end.
    Interrupt(Duration),
    /// End the cell at once.
    End,
}

/// The side from which a cell is controlled. Nothing here may wait.
pub trait Control {
    /// What is readable when something is asked for; `None` while nothing more is
    /// read.
    fn reads(&self) -> Option<BorrowedFd<'_>>;
    /// What has to be written to, while something waits to be written.
    fn writes(&self) -> Option<BorrowedFd<'_>>;
    /// What is readable when there is something to report besides.
    fn watches(&self) -> Option<BorrowedFd<'_>>;
    /// When there may be something to report without it.
    fn resumes_at(&self) -> Option<Instant>;
    /// Takes in what has come, and returns what it asks for.
    fn take(&self) -> Option<Asked>;
    /// Takes in what there is to report, and writes what it can.
    fn flush(&self);
    /// Whether a cell at rest is to be left for something else.
    fn has_work(&self) -> bool;
    /// Whether there are orders about processes beside the program.
    fn has_process_orders(&self) -> bool;
    /// The next of these orders for the cell with this id, and the number for its answer.
    fn next_process_order(&self, cell: &str) -> Option<(u64, ProcessOrder)>;
    /// Whether guests wait for the cell.
    fn has_guests(&self) -> bool;
    /// Admits each of them, or refuses it with the reason.
    fn admit_guests(&self, share: &dyn Fn() -> Result<SharedCell>);
    /// Takes news of these processes.
    fn process_news(&self, news: ProcessNews<'_>);
    /// Whether it can take more of their output.
    fn has_room(&self) -> bool;
}

/// Waits without a cell until `control` has work, orders or guests, `until`, or `end` is readable.
///
/// # Errors
/// poll(2) is impossible.
pub fn wait(
    control: &dyn Control,
    until: Option<Instant>,
    end: Option<BorrowedFd<'_>>,
) -> Result<()> {
    while !control.has_work() && !control.has_process_orders() && !control.has_guests() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        let resume = control.resumes_at();
        let resume = resume.map(|resume| resume.saturating_duration_since(Instant::now()));
        let timeout = left
            .into_iter()
            .chain(resume)
            .min()
            .map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            });
        let reads = control.reads().map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let writes = control
            .writes()
            .map(|fd| PollFd::new(fd, PollFlags::POLLOUT));
        let watches = control
            .watches()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let has_end = end.is_some();
        let end = end.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let fds = end.into_iter().chain(reads).chain(writes).chain(watches);
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SetupError::os(Step::Supervise, "poll", errno)),
        }
        let first = fds.first().filter(|_| has_end);
        let is_over = first.is_some_and(|fd| fd.any().unwrap_or(false));
        // Nothing executes, so nothing can be asked for about it.
        let _ = control.take();
        control.flush();
        if is_over {
            break;
        }
    }
    Ok(())
}
