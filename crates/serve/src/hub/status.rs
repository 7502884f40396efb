//! What the server shows of itself.

use super::Hub;
use super::client::Caller;
use crate::protocol::{Failure, MetricsText, Status, TemplateStatus, Usage};
use cell::server::TemplateInUse;

impl Hub {
    /// `status`
    pub(super) fn status(&mut self, caller: &Caller) -> Result<(), Failure> {
        let (cells, memory) = self.used();
        let (checkpoints, bytes) = self.held();
        let uptime = self.now.saturating_duration_since(self.began);
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            draining: self.draining.is_some(),
            clients: self.clients.len(),
            contexts: self.contexts.len(),
            suspended: self.count_suspended(),
            cells: usage(cells, Some(self.settings.max_cells)),
            memory: Usage {
                used: memory,
                limit: self.settings.max_memory,
            },
            checkpoints: usage(checkpoints, Some(self.settings.max_checkpoints)),
            checkpoint_bytes: Usage {
                used: bytes,
                limit: Some(self.settings.checkpoint_bytes),
            },
            queue: usage(self.queued(), Some(self.settings.max_queue)),
            pools: self.pool_status(),
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
        let text = self.metrics_text();
        self.answer(caller, &MetricsText { text });
        Ok(())
    }

    /// Counters in Prometheus's text format.
    pub fn metrics_text(&self) -> String {
        let (cells, memory) = self.used();
        let (checkpoints, bytes) = self.held();
        let number = |count: usize| count as f64;
        let gauges = [
            (
                "clients",
                "Clients that are connected",
                number(self.clients.len()),
            ),
            (
                "contexts",
                "Contexts that exist",
                number(self.contexts.len()),
            ),
            ("cells", "Cells of runs and contexts", number(cells)),
            (
                "contexts_suspended",
                "Contexts without processes",
                number(self.count_suspended()),
            ),
            ("checkpoints", "Checkpoints that exist", number(checkpoints)),
            (
                "checkpoint_bytes",
                "Their bytes and those of suspended contexts",
                bytes as f64,
            ),
            (
                "memory_bytes",
                "Their memory limits together",
                memory as f64,
            ),
            ("queue", "Calls that wait for a cell", number(self.queued())),
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
        self.metrics.text(&gauges, &self.pool_status())
    }
}

fn usage(used: usize, limit: Option<usize>) -> Usage {
    Usage {
        used: used as u64,
        limit: limit.map(|limit| limit as u64),
    }
}
