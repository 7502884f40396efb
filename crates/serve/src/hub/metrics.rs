//! Counters, in Prometheus's text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::protocol::PoolStatus;

/// Calls that were answered.
#[derive(Debug, Default)]
pub struct Metrics {
    /// By method and outcome: how many, and how long they took.
    calls: BTreeMap<(&'static str, String), (u64, Duration)>,
}

impl Metrics {
    /// A call was answered.
    pub(super) fn count(&mut self, method: &'static str, outcome: &str, took: Duration) {
        let entry = self.calls.entry((method, outcome.to_owned())).or_default();
        entry.0 += 1;
        entry.1 += took;
    }

    /// How long calls of a method took that had a result.
    pub(super) fn average(&self, method: &'static str) -> Option<Duration> {
        let (count, took) = self.calls.get(&(method, "ok".to_owned()))?;
        took.checked_div(u32::try_from(*count).unwrap_or(u32::MAX))
    }

    pub(super) fn text(&self, gauges: &[(&str, &str, f64)], pools: &[PoolStatus]) -> String {
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(text, "# HELP cellblock_{name} {help}.");
            let _ = writeln!(text, "# TYPE cellblock_{name} {kind}");
        };
        head(
            &mut text,
            "calls_total",
            "counter",
            "Calls that were answered",
        );
        for ((method, outcome), (count, _)) in &self.calls {
            let labels = format!("method=\"{method}\",outcome=\"{outcome}\"");
            let _ = writeln!(text, "cellblock_calls_total{{{labels}}} {count}");
        }
        let help = "Time from calls to their answers";
        head(&mut text, "call_seconds_total", "counter", help);
        for ((method, outcome), (_, took)) in &self.calls {
            let labels = format!("method=\"{method}\",outcome=\"{outcome}\"");
            let took = took.as_secs_f64();
            let _ = writeln!(text, "cellblock_call_seconds_total{{{labels}}} {took}");
        }
        for (name, help, value) in gauges {
            head(&mut text, name, "gauge", help);
            let _ = writeln!(text, "cellblock_{name} {value}");
        }
        type Figure = (
            &'static str,
            &'static str,
            &'static str,
            fn(&PoolStatus) -> u64,
        );
        let figures: [Figure; 4] = [
            ("pool_ready", "gauge", "Cells that wait", |pool| {
                pool.ready as u64
            }),
            (
                "pool_opening",
                "gauge",
                "Cells that are being opened",
                |pool| pool.opening as u64,
            ),
            (
                "pool_hits_total",
                "counter",
                "Calls that got a waiting cell",
                |pool| pool.hits,
            ),
            (
                "pool_misses_total",
                "counter",
                "Calls for which no cell waited",
                |pool| pool.misses,
            ),
        ];
        for (name, kind, help, value) in figures.into_iter().filter(|_| !pools.is_empty()) {
            head(&mut text, name, kind, help);
            for pool in pools {
                let value = value(pool);
                let _ = writeln!(text, "cellblock_{name}{{pool=\"{}\"}} {value}", pool.name);
            }
        }
        text
    }
}
