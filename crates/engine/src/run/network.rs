//! The network in the record.

use broker::report::Ready;
use hosts::NameChecks;
use hosts::Rule;

use super::isolation::landlock_scopes;
use plan::Plan;
use record::{BrokerRecord, Denied, NetworkRecord, NetworkTotals, SecretHeaderUse};
use spec::Network;
use supervise::NetworkLog;

/// Why there is no route to an address, and the way out.
const NO_ROUTE: &str = "no rule writes the address out, as --net allow=192.0.2.7:443 does";

/// What the broker reported, for the record; `None` in a cell without one.
pub(super) fn network(plan: &Plan, log: Option<NetworkLog>) -> Option<NetworkRecord> {
    let Network::Hosts(egress) = &plan.network else {
        return None;
    };
    let log = log.unwrap_or_default();
    let texts = |rules: &[Rule]| rules.iter().map(Rule::to_string).collect();
    let listed = log.connections.len() as u64;
    Some(NetworkRecord {
        allow: texts(&egress.rules.allow),
        deny: texts(&egress.rules.deny),
        check_names: egress.check_names == NameChecks::On,
        secret_headers: (egress.secrets.iter())
            .map(|secret| SecretHeaderUse {
                host: secret.host.clone(),
                port: secret.port,
                tls: secret.tls,
                name: secret.name.clone(),
                source: secret.source.to_string(),
                requests: (log.inserted)
                    .get(&(secret.host.clone(), secret.port))
                    .copied()
                    .unwrap_or(0),
            })
            .collect(),
        totals: NetworkTotals {
            connections: log.ended,
            refused: log.refused_count,
            failed: log.failed,
            sent_bytes: log.sent,
            received_bytes: log.received,
            dns_queries: log.totals.as_ref().map(|totals| totals.queries),
            connections_not_listed: log.ended.saturating_sub(listed),
            refused_not_listed: log.refused_unlisted.saturating_add(
                log.totals
                    .as_ref()
                    .map_or(0, |totals| totals.refused_unnamed),
            ),
            unrouted: log.counts.map(|counts| counts.unrouted),
            closed_ports: log.counts.map(|counts| counts.closed_ports),
        },
        connections: log.connections,
        refused: log.refused,
        broker_failure: log.failure,
        broker: log.ready.map(broker),
    })
}

/// What holds the broker, as it said before it read anything of the cell's.
fn broker(ready: Ready) -> BrokerRecord {
    let abi = (ready.landlock_abi > 0).then_some(ready.landlock_abi);
    BrokerRecord {
        landlock_abi: abi,
        landlock_scopes: abi.map_or_else(Vec::new, |abi| {
            landlock_scopes(abi, [abi >= 4, false], abi >= 6)
        }),
        seccomp: ready.seccomp,
        memory_bytes: ready.memory_bytes,
        descriptors: ready.descriptors,
    }
}

/// What was refused, as a list of what the policy denied.
pub(super) fn denied(network: Option<&NetworkRecord>) -> impl Iterator<Item = Denied> {
    let refused = network.into_iter().flat_map(|network| &network.refused);
    let unrouted = network.and_then(|network| network.totals.unrouted);
    let unrouted = unrouted.filter(|count| *count > 0).map(|count| Denied {
        kind: "network".to_owned(),
        name: "addresses".to_owned(),
        count,
        action: "ENETUNREACH".to_owned(),
        reason: Some(NO_ROUTE.to_owned()),
    });
    let refused = refused.map(|refused| Denied {
        kind: "network".to_owned(),
        name: refused.shown(),
        count: refused.count,
        action: "refused".to_owned(),
        reason: Some(refused.reason.clone()),
    });
    refused.chain(unrouted)
}
