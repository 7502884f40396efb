//! Counters, in Prometheus's text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use wire::PoolStatus;

use super::Party;
use super::status::is_of;

/// Calls that were answered.
#[derive(Debug, Default)]
pub struct Metrics {
    /// By party, method and outcome: how many, and how long they took.
    calls: BTreeMap<(Party, &'static str, String), (u64, Duration)>,
}

impl Metrics {
    /// A call was answered.
    pub(super) fn count(
        &mut self,
        party: Party,
        method: &'static str,
        outcome: &str,
        took: Duration,
    ) {
        let key = (party, method, outcome.to_owned());
        let entry = self.calls.entry(key).or_default();
        entry.0 += 1;
        entry.1 += took;
    }

    /// How long calls of a method took that had a result.
    pub(super) fn average(&self, method: &'static str) -> Option<Duration> {
        let all = self.by_call(None);
        let (count, took) = all.get(&(method, "ok"))?;
        took.checked_div(u32::try_from(*count).unwrap_or(u32::MAX))
    }

    /// By method and outcome, of all parties or of one.
    fn by_call(&self, of: Option<Party>) -> BTreeMap<(&'static str, &str), (u64, Duration)> {
        let mut all: BTreeMap<_, (u64, Duration)> = BTreeMap::new();
        let own = self.calls.iter();
        for ((_, method, outcome), (count, took)) in
            own.filter(|((party, ..), _)| is_of(of, Some(*party)))
        {
            let sum = all.entry((*method, outcome.as_str())).or_default();
            *sum = (sum.0 + count, sum.1 + *took);
        }
        all
    }

    pub(super) fn text(
        &self,
        of: Option<Party>,
        gauges: &[(&str, &str, f64)],
        pools: &[PoolStatus],
    ) -> String {
        let calls = self.by_call(of);
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
        for ((method, outcome), (count, _)) in &calls {
            let labels = format!("method=\"{method}\",outcome=\"{outcome}\"");
            let _ = writeln!(text, "cellblock_calls_total{{{labels}}} {count}");
        }
        let help = "Time from calls to their answers";
        head(&mut text, "call_seconds_total", "counter", help);
        for ((method, outcome), (_, took)) in &calls {
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
