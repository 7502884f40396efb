//! What the server shows of itself.

use super::client::Caller;
use super::{Hub, Party};
use crate::protocol::{Failure, MetricsText, Status, TemplateStatus, Usage};
use crate::{Budget, ONE_CALL, Shares};
use supervisor::TemplateInUse;

impl Hub {
    /// `status`
    pub(super) fn status(&mut self, caller: &Caller) -> Result<(), Failure> {
        let of = self.seen_by(caller);
        let (cells, memory) = self.used(of);
        let (checkpoints, bytes) = self.held();
        let held = |shares: &Shares| of.map_or_else(|| shares.all(), |party| shares.held(party));
        let limit = |most: usize, shares: &Shares| Some(of.map_or(most, |_| shares.limit()));
        let uptime = self.now.saturating_duration_since(self.began);
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            draining: self.draining.is_some(),
            clients: self.count_clients(of),
            contexts: self.count_contexts(of),
            suspended: self.count_suspended(of),
            cells: usage(cells, limit(self.settings.max_cells, &self.cells())),
            memory: Usage {
                used: memory,
                limit: (self.settings.max_memory)
                    .map(|most| of.map_or(most, |_| self.memory().limit() as u64)),
            },
            checkpoints: usage(
                held(&checkpoints),
                limit(self.settings.max_checkpoints, &checkpoints),
            ),
            checkpoint_bytes: Usage {
                used: held(&bytes) as u64,
                limit: Some(of.map_or(self.settings.checkpoint_bytes, |_| bytes.limit() as u64)),
            },
            queue: usage(self.queued(of), Some(self.settings.max_queue)),
            waiting: self.bytes(&self.budget, of),
            unread: self.bytes(&self.unread, of),
            pools: self.pool_status(of),
            warm_memory: Usage {
                used: self.warm_memory(),
                limit: self.settings.warm_memory,
            },
            templates: self
                .templates
                .iter()
                .map(|one| self.template(one))
                .collect(),
        };
        self.answer(caller, &status);
        Ok(())
    }

    fn template(&self, template: &TemplateInUse) -> TemplateStatus {
        let age = self.now.saturating_duration_since(template.since);
        TemplateStatus {
            generation: template.generation,
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            copies: template.copies,
            memory: template.memory,
        }
    }

    /// `metrics`
    pub(super) fn show_metrics(&mut self, caller: &Caller) -> Result<(), Failure> {
        let text = self.metrics_text(self.seen_by(caller));
        self.answer(caller, &MetricsText { text });
        Ok(())
    }

    /// Whose use of the server a client may see: its party's, or all, if it belongs to the user that
    /// runs the server or to root.
    fn seen_by(&self, caller: &Caller) -> Option<Party> {
        let party = self.party_of(caller.client);
        Some(party).filter(|party| !self.is_operator(*party))
    }

    /// Whether clients of this party are those of the user that runs the server, or of root.
    pub(super) fn is_operator(&self, party: Party) -> bool {
        matches!(party, Party::User(uid) if uid == self.uid || uid == 0)
    }

    /// The bytes of one budget that all parties use, or one.
    fn bytes(&self, budget: &Budget, of: Option<Party>) -> Usage {
        let all = self.settings.max_waiting.max(ONE_CALL as u64);
        Usage {
            used: of.map_or_else(|| budget.all(), |party| budget.held(party)) as u64,
            limit: Some(of.map_or(all, |_| budget.limit() as u64)),
        }
    }

    fn count_clients(&self, of: Option<Party>) -> usize {
        let clients = self.clients.values();
        clients.filter(|own| is_of(of, Some(own.party))).count()
    }

    fn count_contexts(&self, of: Option<Party>) -> usize {
        let contexts = self.contexts.keys();
        contexts.filter(|key| is_of(of, Some(key.party))).count()
    }

    /// Counters in Prometheus's text format, of all parties or of one.
    pub fn metrics_text(&self, of: Option<Party>) -> String {
        let (cells, memory) = self.used(of);
        let (checkpoints, space) = self.held();
        let held = |shares: &Shares| of.map_or_else(|| shares.all(), |party| shares.held(party));
        let bytes = |budget| self.bytes(budget, of).used as f64;
        let number = |count: usize| count as f64;
        let gauges = [
            (
                "clients",
                "Clients that are connected",
                number(self.count_clients(of)),
            ),
            (
                "contexts",
                "Contexts that exist",
                number(self.count_contexts(of)),
            ),
            ("cells", "Cells of runs and contexts", number(cells)),
            (
                "contexts_suspended",
                "Contexts without processes",
                number(self.count_suspended(of)),
            ),
            (
                "checkpoints",
                "Checkpoints that exist",
                number(held(&checkpoints)),
            ),
            (
                "checkpoint_bytes",
                "Their bytes and those of suspended contexts",
                number(held(&space)),
            ),
            (
                "memory_bytes",
                "Their memory limits together",
                memory as f64,
            ),
            (
                "queue",
                "Calls that wait for a cell",
                number(self.queued(of)),
            ),
            (
                "waiting_bytes",
                "Bytes of clients that wait",
                bytes(&self.budget),
            ),
            (
                "unread_bytes",
                "Bytes that clients have not read",
                bytes(&self.unread),
            ),
            (
                "warm_memory_bytes",
                "Memory limits of cells that wait, and memory of templates",
                self.warm_memory() as f64,
            ),
            (
                "templates",
                "Templates that exist",
                number(self.templates.len()),
            ),
        ];
        self.metrics.text(of, &gauges, &self.pool_status(of))
    }
}

/// Whether a party is this one, or any is.
pub(super) fn is_of(of: Option<Party>, party: Option<Party>) -> bool {
    of.is_none() || of == party
}

fn usage(used: usize, limit: Option<usize>) -> Usage {
    Usage {
        used: used as u64,
        limit: limit.map(|limit| limit as u64),
    }
}
