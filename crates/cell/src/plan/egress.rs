//! What init makes in an empty network namespace, so that connections to allowed hosts
//! end at the broker.

use std::net::IpAddr;

use broker::rules::Network;
use broker::synthetic;
use broker::{Config, SecretHeader, Upstream};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::spec::{Egress, Limits, Network as Chosen, SecretSource, Spec};
use record::error::{Result, SetupError, Step};

/// Where the cell's name server is.
pub(crate) const NAME_SERVERS: [IpAddr; 2] = [
    IpAddr::V4(synthetic::DNS_IPV4),
    IpAddr::V6(synthetic::DNS_IPV6),
];

/// A network whose addresses are local inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Route {
    /// Its first address.
    pub(crate) address: IpAddr,
    /// The length of its prefix, in bits.
    pub(crate) prefix: u8,
}

/// Routes and listening sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EgressPlan {
    /// Networks that are local to `lo`.
    pub(crate) routes: Vec<Route>,
    /// TCP ports that are listened at, at every address.
    pub(crate) ports: Vec<u16>,
}

impl Route {
    fn of(network: &Network) -> Self {
        Self {
            address: network.address(),
            prefix: network.prefix(),
        }
    }
}

impl EgressPlan {
    pub(crate) fn new(egress: &Egress) -> Self {
        let networks = synthetic::networks().into_iter();
        let written_out = egress.rules.networks();
        Self {
            routes: networks
                .chain(written_out)
                .map(|network| Route::of(&network))
                .collect(),
            ports: egress.rules.ports().into_iter().collect(),
        }
    }

    /// Whether it has all routes and ports of `other`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        other.routes.iter().all(|route| self.routes.contains(route))
            && other.ports.iter().all(|port| self.ports.contains(port))
    }

    /// The most sockets that init makes: for each port one of each family, two for DNS at
    /// each name server, and two for the proxies.
    pub(crate) fn most_sockets(&self) -> usize {
        2 * self.ports.len() + 2 * NAME_SERVERS.len() + 2
    }
}

/// Refuses to give the program a variable that has a secret, and secrets that are not
/// there.
pub(super) fn keep_secrets_out(spec: &Spec) -> Result<()> {
    let Chosen::Hosts(egress) = &spec.network else {
        return Ok(());
    };
    for secret in &egress.secrets {
        let fail = |message: &str| {
            let operand = format!("secret header {} of {}", secret.name, secret.host);
            Err(SetupError::new(Step::Spec, message).on(operand))
        };
        match &secret.source {
            SecretSource::Env(name) if spec.env.contains_key(name) => {
                return fail("its variable is also given to the program: leave one out");
            }
            SecretSource::Env(name) if !sys::environment::has_variable(name) => {
                return fail("its variable is not set in the caller's environment");
            }
            SecretSource::File(path) if !path.is_file() => {
                return fail("its file does not exist");
            }
            SecretSource::Env(_) | SecretSource::File(_) => {}
        }
    }
    Ok(())
}

/// What the broker decides by.
pub(super) fn config(egress: &Egress, limits: &Limits) -> Config {
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
            certificates: super::trust::host_bundle(),
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

/// What resolv.conf(5) of such a cell contains. A refused name is refused at once, so
/// nothing is tried twice.
pub(super) fn resolv_conf() -> String {
    let servers = NAME_SERVERS.map(|server| format!("nameserver {server}\n"));
    format!("{}options timeout:5 attempts:1\n", servers.concat())
}
