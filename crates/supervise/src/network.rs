//! What the broker reports of a cell's connections.
//!
//! The broker reads what comes from the cell and from its peers, so it may be taken over,
//! and its reports are hostile input: bounded in length, checked, read in turns, and never
//! waited for without a deadline.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use broker::report::{Closed, MAX_LINE, Ready, Reason, Refused, Report, Totals, Verdict, Via};
use broker::{Config, Sockets};
use nix::errno::Errno;
use nix::unistd::Pid;

use super::Observer;
use super::counters::Counters;
use super::turn::{Pace, Turn};
use jail::child::report::{Role, SocketRole};
use jail::launch::{BrokerProcess, Signed, wait_for};
use plan::Plan;
use record::error::Result;
use record::{Connection, RefusedHost};
use spec::Network;
use verdict::Counts;

/// Connections that are listed, and names and hosts that were refused.
const LISTED: usize = 1000;
/// Names and hosts whose counts are kept from one execution to the next.
const KNOWN: usize = 4096;
/// How long the broker gets for its last reports when the cell has ended. On a busy host, it waits
/// for a processor.
const LAST_REPORTS: Duration = Duration::from_secs(2);

/// How long the broker gets to report what happened in an execution that has ended. A
/// broker that was taken over can delay each answer by as much.
pub(super) const CATCH_UP_DEADLINE: Duration = Duration::from_secs(2);

/// Who asked for what, and why it was refused.
type RefusalKey = (String, Option<u16>, &'static str, &'static str);

/// The broker of a cell, and what it reported.
#[derive(Debug)]
pub(super) struct CellBroker {
    process: Option<BrokerProcess>,
    line: Vec<u8>,
    pub(super) pace: Pace,
    /// How often each was refused before this execution and in it.
    refusals: BTreeMap<RefusalKey, u64>,
    log: NetworkLog,
    /// `None` where the kernel's counters cannot be read.
    counters: Option<Counters>,
    /// Marks that it was asked for, and the last one that came.
    marks_asked: u64,
    marked: u64,
    /// It was told to end.
    is_finishing: bool,
}

/// What was reported during one execution.
#[derive(Clone, Debug, Default)]
pub struct NetworkLog {
    /// Connections that have ended.
    pub connections: Vec<Connection>,
    /// Names and hosts that were refused.
    pub refused: Vec<RefusedHost>,
    /// Connections that ended.
    pub ended: u64,
    /// Connections that were refused.
    pub refused_count: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Bytes from the cell.
    pub sent: u64,
    /// Bytes to the cell.
    pub received: u64,
    /// Refusals of names and hosts that are not listed.
    pub refused_unlisted: u64,
    /// What the kernel refused in the cell's network; `None` where that is not known.
    pub counts: Option<Counts>,
    /// Requests that got secret fields, by host and port.
    pub inserted: BTreeMap<(String, u16), u64>,
    /// The broker's last report, at the cell's end.
    pub totals: Option<Totals>,
    /// What the broker said when it began to serve.
    pub ready: Option<Ready>,
    /// Why the broker ended before the cell.
    pub failure: Option<String>,
}

impl CellBroker {
    /// Starts the broker for sockets from `init`.
    pub(super) fn start(fds: Vec<(Role, OwnedFd)>, plan: &Plan, init: Pid) -> Result<Self> {
        let mut sockets = Sockets::default();
        for (role, fd) in fds {
            match role {
                Role::Socket(SocketRole::Port, port, _) => sockets.tcp.push((port, fd)),
                Role::Socket(SocketRole::Dns, ..) => sockets.dns_tcp.push(fd),
                Role::Socket(SocketRole::DnsDatagrams, ..) => sockets.dns_udp.push(fd),
                Role::Socket(SocketRole::Proxy, ..) => sockets.proxy.push(fd),
                Role::Socket(SocketRole::Socks, ..) => sockets.socks.push(fd),
                // Not from an init of this version.
                _ => {}
            }
        }
        Ok(Self {
            process: Some(BrokerProcess::start(sockets, &plan.ids)?),
            line: Vec::new(),
            pace: Pace::of_calls(),
            refusals: BTreeMap::new(),
            log: NetworkLog::default(),
            counters: Counters::of(init).ok(),
            marks_asked: 0,
            marked: 0,
            is_finishing: false,
        })
    }

    /// Tells the broker what the cell may reach.
    pub(super) fn configure(
        &self,
        config: &Config,
        plan: &Plan,
        signed: Option<&Signed>,
    ) -> Result<()> {
        let secrets = match &plan.network {
            Network::Hosts(egress) => &egress.secrets[..],
            Network::None | Network::Host => &[],
        };
        match &self.process {
            Some(process) => process.configure(config, secrets, signed),
            // Why it has ended is in the log.
            None => Ok(()),
        }
    }

    /// What to wait for, unless it rests or has ended.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        let rests = self.pace.resumes_at().is_some();
        self.process.as_ref().filter(|_| !rests).map(AsFd::as_fd)
    }

    /// Reads reports for one turn.
    pub(super) fn read(&mut self, observer: Option<&dyn Observer>) {
        let mut pace = std::mem::replace(&mut self.pace, Pace::of_calls());
        pace.turn(|turn| while self.read_some(observer, turn) {});
        self.pace = pace;
    }

    /// Reads what has come; returns whether there may be more in this turn.
    fn read_some(&mut self, observer: Option<&dyn Observer>, turn: &mut Turn) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        let mut buffer = [0; 16 << 10];
        match nix::unistd::read(process, &mut buffer) {
            Ok(0) => {
                self.end("it ended");
                false
            }
            Ok(count) => self.take(&buffer[..count], observer) && turn.goes_on(count),
            Err(Errno::EINTR) => true,
            Err(Errno::EAGAIN) => false,
            Err(errno) => {
                self.end(&format!("its reports cannot be read: {}", errno.desc()));
                false
            }
        }
    }

    /// Takes bytes of reports. Returns false, and ends the broker, if they are not reports.
    fn take(&mut self, mut bytes: &[u8], observer: Option<&dyn Observer>) -> bool {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            match Report::read(&line) {
                Some(report) if !self.is_untimely(&report) => self.note(report, observer),
                _ => {
                    self.end("it sent something that is not a report");
                    return false;
                }
            }
        }
        self.line.extend(bytes);
        if self.line.len() > MAX_LINE {
            self.end("it sent something that is not a report");
            return false;
        }
        true
    }

    /// Whether a broker sends this only if it was taken over: its last report before it is
    /// told to end, or a mark that it was not asked for.
    fn is_untimely(&self, report: &Report) -> bool {
        match report {
            Report::Totals(_) => !self.is_finishing,
            Report::Mark(mark) => mark.number > self.marks_asked,
            _ => false,
        }
    }

    /// Ends the broker; from then on the cell reaches nothing. Without a last report, this
    /// is a failure.
    fn end(&mut self, why: &str) {
        self.process = None;
        if self.log.totals.is_none() {
            self.log.failure.get_or_insert_with(|| why.to_owned());
        }
    }

    fn note(&mut self, report: Report, observer: Option<&dyn Observer>) {
        match report {
            // The first one: nothing of the cell's had been read by then.
            Report::Ready(ready) => drop(self.log.ready.get_or_insert(ready)),
            Report::Opened(_) => {}
            Report::Mark(mark) => self.marked = mark.number,
            Report::Failed(failed) => {
                let why = format!("it could not begin: {}", failed.error);
                self.log.failure.get_or_insert(why);
            }
            Report::Closed(closed) => self.closed(closed, observer),
            Report::Refused(refused) => self.refused(refused, observer),
            Report::Totals(totals) => self.log.totals = Some(totals),
        }
    }

    fn closed(&mut self, closed: Closed, observer: Option<&dyn Observer>) {
        let log = &mut self.log;
        log.ended = log.ended.saturating_add(1);
        log.sent = log.sent.saturating_add(closed.sent);
        log.received = log.received.saturating_add(closed.received);
        match closed.verdict {
            Verdict::Allowed => {}
            Verdict::Refused => log.refused_count += 1,
            Verdict::Failed => log.failed += 1,
        }
        if closed.inserted > 0 {
            log.add_inserted((closed.host.clone(), closed.port), closed.inserted);
        }
        let connection = connection(closed);
        if let Some(observer) = observer {
            observer.connection(&connection);
        }
        if log.connections.len() < LISTED {
            log.connections.push(connection);
        }
    }

    fn refused(&mut self, refused: Refused, observer: Option<&dyn Observer>) {
        let Refused {
            host,
            port,
            via,
            reason,
            count,
        } = refused;
        let key = (host, port, shown(via), reason.explain());
        let before = self.refusals.get(&key).copied();
        let new = count.saturating_sub(before.unwrap_or(0));
        if new == 0 {
            return;
        }
        if before.is_none() && self.refusals.len() >= KNOWN {
            // Without a count of what came before, a report stands for one refusal.
            self.log.refused_unlisted = self.log.refused_unlisted.saturating_add(1);
            return;
        }
        self.refusals.insert(key.clone(), count);
        let (host, port, via, reason) = key;
        let refused = RefusedHost {
            host,
            port,
            via: via.to_owned(),
            reason: reason.to_owned(),
            count: new,
        };
        if let Some(added) = self.log.add_refused(refused)
            && let Some(observer) = observer
        {
            observer.refused(added);
        }
    }

    /// Asks the broker to say when it has reported all that happened until now.
    pub(super) fn ask_mark(&mut self) {
        if self.process.as_ref().is_some_and(BrokerProcess::ask_mark) {
            self.marks_asked += 1;
        }
    }

    /// Whether it has not said so yet, and can.
    pub(super) const fn is_behind(&self) -> bool {
        self.process.is_some() && self.marked < self.marks_asked
    }

    /// Waits for reports until then, and reads some.
    pub(super) fn wait(&mut self, until: Instant, observer: Option<&dyn Observer>) {
        if (self.process.as_ref()).is_some_and(|process| wait_for(process.as_fd(), until)) {
            let mut turn = Turn::begin();
            while self.read_some(observer, &mut turn) {}
        }
    }

    /// What was reported since the last call.
    pub(super) fn take_log(&mut self) -> NetworkLog {
        self.log.counts = self.counters.as_mut().and_then(Counters::take);
        let next = NetworkLog {
            ready: self.log.ready.clone(),
            failure: self.log.failure.clone(),
            ..NetworkLog::default()
        };
        std::mem::replace(&mut self.log, next)
    }

    /// Ends the broker when its cell has ended, and takes its last reports.
    pub(super) fn finish(mut self, observer: Option<&dyn Observer>) -> NetworkLog {
        let until = Instant::now() + LAST_REPORTS;
        self.is_finishing = true;
        if let Some(process) = &mut self.process {
            process.finish();
        }
        while let Some(process) = &self.process {
            if Instant::now() >= until || !wait_for(process.as_fd(), until) {
                self.end("it did not end with its cell");
                break;
            }
            let mut turn = Turn::begin();
            while self.read_some(observer, &mut turn) {}
        }
        self.log.counts = self.counters.as_mut().and_then(Counters::take);
        self.log
    }
}

impl NetworkLog {
    /// Adds what came later in the same execution.
    pub fn absorb(&mut self, later: Self) {
        let room = LISTED.saturating_sub(self.connections.len());
        self.connections
            .extend(later.connections.into_iter().take(room));
        for (place, count) in later.inserted {
            self.add_inserted(place, count);
        }
        for refused in later.refused {
            self.add_refused(refused);
        }
        self.ended = self.ended.saturating_add(later.ended);
        self.refused_count = self.refused_count.saturating_add(later.refused_count);
        self.failed = self.failed.saturating_add(later.failed);
        self.sent = self.sent.saturating_add(later.sent);
        self.received = self.received.saturating_add(later.received);
        self.refused_unlisted = self.refused_unlisted.saturating_add(later.refused_unlisted);
        self.counts = (self.counts.zip(later.counts)).map(|(one, two)| one.plus(two));
        self.totals = later.totals.or(self.totals.take());
        self.ready = self.ready.take().or(later.ready);
        self.failure = self.failure.take().or(later.failure);
    }

    /// How often names and hosts have been refused.
    pub fn refusals(&self) -> u64 {
        let listed = self.refused.iter().map(|refused| refused.count);
        listed.fold(self.refused_unlisted, u64::saturating_add)
    }

    /// Adds to the count of a host and port, if there is room for them.
    fn add_inserted(&mut self, place: (String, u16), count: u64) {
        if self.inserted.len() < LISTED || self.inserted.contains_key(&place) {
            let sum = self.inserted.entry(place).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds to the count of a host that is listed, or lists it if there is room. Returns
    /// what was listed anew.
    fn add_refused(&mut self, refused: RefusedHost) -> Option<&RefusedHost> {
        let is_same = |other: &&mut RefusedHost| {
            (&other.host, other.port, &other.via, &other.reason)
                == (&refused.host, refused.port, &refused.via, &refused.reason)
        };
        if let Some(listed) = self.refused.iter_mut().find(is_same) {
            listed.count = listed.count.saturating_add(refused.count);
            return None;
        }
        if self.refused.len() >= LISTED {
            self.refused_unlisted = self.refused_unlisted.saturating_add(refused.count);
            return None;
        }
        self.refused.push(refused);
        self.refused.last()
    }

    /// Connections at once, once the broker serves: it may have descriptors for fewer than
    /// it was given.
    pub fn most_connections(&self) -> Option<u32> {
        self.ready.as_ref().map(|ready| ready.connections)
    }

    /// Whether the limit of this name in [`broker::Limits`] was hit; `None` while the
    /// cell goes on.
    pub fn has_hit(&self, limit: &str) -> Option<bool> {
        let totals = self.totals.as_ref()?;
        Some(totals.limits_hit.iter().any(|hit| hit == limit))
    }
}

fn connection(closed: Closed) -> Connection {
    let verdict = match closed.verdict {
        Verdict::Allowed => "allowed",
        Verdict::Refused => "refused",
        Verdict::Failed => "failed",
    };
    Connection {
        host: closed.host,
        port: closed.port,
        via: shown(closed.via).to_owned(),
        address: closed.dialled.map(|address| address.to_string()),
        sent_bytes: closed.sent,
        received_bytes: closed.received,
        duration_ms: closed.duration_ms,
        verdict: verdict.to_owned(),
        reason: closed.reason.map(Reason::explain).map(str::to_owned),
    }
}

const fn shown(via: Via) -> &'static str {
    match via {
        Via::Direct => "direct",
        Via::Connect => "connect",
        Via::Socks5 => "socks5",
        Via::Dns => "dns",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_reports_without_end_has_a_bound() {
        let refused = |number: usize| RefusedHost {
            host: format!("{number}.example"),
            port: None,
            via: "dns".into(),
            reason: "why".into(),
            count: 1,
        };
        let mut all = NetworkLog::default();
        // Each of these is within the bounds.
        for round in 0..3 {
            let names = round * LISTED..(round + 1) * LISTED;
            let mut log = NetworkLog::default();
            for number in names {
                log.add_inserted((format!("{number}.example"), 443), 1);
                log.add_refused(refused(number));
            }
            assert_eq!((log.inserted.len(), log.refused.len()), (LISTED, LISTED));
            all.absorb(log);
        }
        assert_eq!((all.inserted.len(), all.refused.len()), (LISTED, LISTED));
        assert_eq!(all.refusals(), 3 * LISTED as u64);
        // What is listed is still counted.
        all.add_inserted(("0.example".into(), 443), 4);
        assert_eq!(all.inserted[&("0.example".into(), 443)], 5);
    }
}
