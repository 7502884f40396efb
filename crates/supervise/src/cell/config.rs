//! The configuration of a cell's broker, from the plan.

use broker::{Config, SecretHeader, Upstream};
use zeroize::Zeroizing;

use plan::{Plan, host_bundle};
use spec::{Egress, Limits, Network};

/// What the broker decides by, in a cell that has one.
pub(super) fn of(plan: &Plan) -> Option<Config> {
    match &plan.network {
        Network::Hosts(egress) if plan.egress.is_some() => Some(config(egress, &plan.limits)),
        _ => None,
    }
}

fn config(egress: &Egress, limits: &Limits) -> Config {
    Config {
        rules: egress.rules.clone(),
        check_names: egress.check_names,
        secrets: (egress.secrets.iter())
            .map(|secret| SecretHeader {
                host: secret.host.clone(),
                port: secret.port,
                tls: secret.tls,
                name: secret.name.clone(),
                value: Zeroizing::default(),
            })
            .collect(),
        upstream: Upstream {
            certificates: host_bundle(),
            ..Upstream::default()
        },
        limits: broker::Limits {
            sent_bytes: limits.net_sent.map(|bytes| bytes.0),
            received_bytes: limits.net_received.map(|bytes| bytes.0),
            // The ranges of the table fit.
            connections: u32::try_from(limits.connections).unwrap_or(u32::MAX),
            connections_total: limits.connections_total,
            connections_per_second: (limits.connection_rate)
                .map(|rate| u32::try_from(rate).unwrap_or(u32::MAX)),
            queries: limits.dns_queries,
            ..broker::Limits::default()
        },
        ..Config::default()
    }
}
