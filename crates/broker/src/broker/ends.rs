//! Deadlines, and the ends of connections.

use std::time::Instant;

use super::Broker;
use crate::connection::{Connection, Phase};
use crate::relay::Turn;
use crate::report::{Closed, Reason, Report, Verdict};

impl Broker {
    /// Reports the end of a connection.
    pub(super) fn closed(&mut self, connection: &Connection, reason: Option<Reason>) {
        let verdict = match reason {
            None => Verdict::Allowed,
            Some(Reason::CellEnded) if connection.established => Verdict::Allowed,
            Some(reason) => Verdict::from(reason),
        };
        let totals = &mut self.log.totals;
        match verdict {
            Verdict::Allowed => totals.allowed += 1,
            Verdict::Refused => totals.refused += 1,
            Verdict::Failed => totals.failed += 1,
        }
        let host = connection.host_shown();
        if let (Verdict::Refused, Some(reason)) = (verdict, reason) {
            self.log
                .refused(&host, Some(connection.port), connection.via, reason);
        }
        let duration = connection.begun.elapsed().as_millis();
        self.log.report(&Report::Closed(Closed {
            id: connection.id,
            host,
            port: connection.port,
            via: connection.via,
            dialled: connection.dialled,
            sent: connection.sent,
            received: connection.received,
            inserted: connection.inserted(),
            duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
            verdict,
            reason,
        }));
    }

    /// Looks at all deadlines.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        for index in 0..self.connections.len() {
            let Some(Some(connection)) = self.connections.get(index) else {
                continue;
            };
            if connection.deadline <= now {
                self.expire(index);
                continue;
            }
            match &connection.phase {
                Phase::Resolve(lookup) if lookup.deadline() <= now => self.step_lookup(index, true),
                Phase::Dial if connection.next_address <= now => self.step_dial(index),
                _ => {}
            }
        }
        self.expire_dns_clients(now);
    }

    fn expire(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        let result = match connection.phase {
            Phase::Request | Phase::Inspect => {
                self.log.limit("first_bytes_ms");
                Err(Reason::TooSlow)
            }
            Phase::Resolve(_) => Err(Reason::NoResolver),
            Phase::Dial => Err(Reason::DialTimeout),
            Phase::Relay => {
                self.log.limit("idle_ms");
                Err(Reason::Idle)
            }
            Phase::Linger => Ok(Turn::Over),
        };
        self.put_back(index, connection, result);
    }

    /// Ends all connections, and reports the rest.
    pub(super) fn end(mut self) {
        for index in 0..self.connections.len() {
            if let Some(connection) = self.connections.get_mut(index).and_then(Option::take)
                && !matches!(connection.phase, Phase::Linger)
            {
                connection.reset();
                self.closed(&connection, Some(Reason::CellEnded));
            }
        }
        self.log.finish();
    }
}
