//! Reports on their way to the supervisor, which is never waited for, and totals.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::rate::Rate;
use crate::report::{Reason, Refused, Report, Totals, Via};

/// The most bytes that wait to be read.
const MOST_WAITING: usize = 256 << 10;

/// The most hosts and names whose refusals are counted one by one.
const MOST_REFUSED: usize = 512;

/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The most counts of one host that are reported in a second, besides those at powers of two.
const COUNTS_PER_SECOND: u32 = 64;

type What = (String, Option<u16>, Via, Reason);

/// How often a host or a name was refused.
#[derive(Default)]
struct Count {
    all: u64,
    reported: u64,
}

/// The reports of a broker.
pub(crate) struct Log {
    out: File,
    waiting: Vec<u8>,
    refused: HashMap<What, Count>,
    counts: Rate,
    limits_hit: BTreeSet<&'static str>,
    pub(crate) totals: Totals,
}

impl Log {
    pub(crate) fn new(out: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_truncate(fcntl(&out, FcntlArg::F_GETFL)?);
        fcntl(&out, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self {
            out: out.into(),
            waiting: Vec::new(),
            refused: HashMap::new(),
            counts: Rate::new(COUNTS_PER_SECOND),
            limits_hit: BTreeSet::new(),
            totals: Totals::default(),
        })
    }

    /// Reports something, or counts that it is missing.
    pub(crate) fn report(&mut self, report: &Report) {
        let line = report.line();
        if self.waiting.len() + line.len() >= MOST_WAITING {
            self.flush();
        }
        if self.waiting.len() + line.len() >= MOST_WAITING {
            self.totals.lines_dropped += 1;
            return;
        }
        self.waiting.extend_from_slice(line.as_bytes());
        self.waiting.push(b'\n');
    }

    /// Counts a refusal, and reports the count: in a flood, at each power of two.
    pub(crate) fn refused(&mut self, host: &str, port: Option<u16>, via: Via, reason: Reason) {
        let full = self.refused.len() >= MOST_REFUSED;
        let what = (host.to_owned(), port, via, reason);
        if full && !self.refused.contains_key(&what) {
            self.totals.refused_unnamed += 1;
            return;
        }
        let count = self.refused.entry(what.clone()).or_default();
        count.all += 1;
        if count.all.is_power_of_two() || self.counts.take() {
            count.reported = count.all;
            let report = refusal(what, count.all);
            self.report(&report);
        }
    }

    /// Reports the counts that a flood has held back.
    pub(crate) fn report_counts(&mut self) {
        let late = (self.refused.iter_mut()).filter(|(_, count)| count.reported != count.all);
        let reports: Vec<Report> = late
            .map(|(what, count)| {
                count.reported = count.all;
                refusal(what.clone(), count.all)
            })
            .collect();
        for report in &reports {
            self.report(report);
        }
    }

    /// Notes that a limit was reached.
    pub(crate) fn limit(&mut self, name: &'static str) {
        self.limits_hit.insert(name);
    }

    /// Where reports go.
    pub(crate) fn out(&self) -> &File {
        &self.out
    }

    /// Writes what can be written now.
    pub(crate) fn flush(&mut self) {
        while !self.waiting.is_empty() {
            match self.out.write(&self.waiting) {
                Ok(count) if count > 0 => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// Whether lines wait for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes the counts and the totals, and waits for room, but not for ever.
    pub(crate) fn finish(mut self) {
        let last = Instant::now() + LAST_LINES;
        for (what, count) in std::mem::take(&mut self.refused) {
            if count.reported != count.all {
                self.report(&refusal(what, count.all));
                self.wait_for_room(MOST_WAITING / 2, last);
            }
        }
        self.wait_for_room(MOST_WAITING / 2, last);
        let hit = self.limits_hit.iter().map(|name| (*name).to_owned());
        self.totals.limits_hit = hit.collect();
        let totals = Report::Totals(self.totals.clone());
        self.report(&totals);
        self.wait_for_room(0, last);
    }

    fn wait_for_room(&mut self, most: usize, last: Instant) {
        self.flush();
        while self.waiting.len() > most {
            let left = last.saturating_duration_since(Instant::now()).as_millis();
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.out.as_fd(), PollFlags::POLLOUT)];
            let ready = poll(&mut fds, left);
            let broken = fds[0]
                .revents()
                .is_some_and(|events| events.contains(PollFlags::POLLERR));
            if broken || !matches!(ready, Ok(1..) | Err(nix::errno::Errno::EINTR)) {
                return;
            }
            self.flush();
        }
    }
}

fn refusal((host, port, via, reason): What, count: u64) -> Report {
    Report::Refused(Refused {
        host,
        port,
        via,
        reason,
        count,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn refusals_are_counted_and_bounded() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Log::new(writer.into()).unwrap();
        log.counts = Rate::new(0);
        for _ in 0..1000 {
            log.refused("evil.example", None, Via::Dns, Reason::NotAllowed);
        }
        for number in 0..1000 {
            log.refused(
                &format!("n{number}.example"),
                None,
                Via::Dns,
                Reason::NotAllowed,
            );
        }
        log.limit("queries");
        let end = std::thread::spawn(move || log.finish());
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        end.join().unwrap();
        let reports: Vec<Report> = text
            .lines()
            .map(|line| Report::read(line.as_bytes()).unwrap())
            .collect();
        // At 1, 2, 4 … 512 and at the end; the others once; the totals.
        assert_eq!(reports.len(), 11 + 511 + 1);
        let Some(Report::Totals(totals)) = reports.last() else {
            panic!("{text}");
        };
        assert_eq!(totals.refused_unnamed, 489);
        assert_eq!(totals.limits_hit, ["queries"]);
        let counted = reports
            .iter()
            .any(|report| matches!(report, Report::Refused(refused) if refused.count == 1000));
        assert!(counted);
    }

    #[test]
    fn counts_that_were_held_back_are_reported_when_asked_for() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Log::new(writer.into()).unwrap();
        log.counts = Rate::new(0);
        for _ in 0..7 {
            log.refused("evil.example", None, Via::Dns, Reason::NotAllowed);
        }
        log.report_counts();
        log.report_counts();
        log.flush();
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        // At 1, 2 and 4, and when asked for.
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains(r#""count":7"#), "{text}");
    }

    #[test]
    fn counts_are_reported_at_once_but_in_a_flood() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Log::new(writer.into()).unwrap();
        for _ in 0..7 {
            log.refused("evil.example", None, Via::Dns, Reason::NotAllowed);
        }
        log.flush();
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 7, "{text}");
    }

    #[test]
    fn a_supervisor_that_does_not_read_is_not_waited_for() {
        let (reader, writer) = io::pipe().unwrap();
        let mut log = Log::new(writer.into()).unwrap();
        for _ in 0..5000 {
            log.report(&refusal(
                ("x".repeat(200), None, Via::Dns, Reason::NotAllowed),
                1,
            ));
        }
        assert!(log.totals.lines_dropped > 0);
        assert!(log.waiting.len() <= MOST_WAITING);
        drop(reader);
        log.finish();
    }
}
