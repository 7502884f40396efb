//! What init makes in an empty network namespace, so that connections to allowed hosts
//! end at the broker.

use std::net::IpAddr;

use hosts::Network;
use hosts::synthetic;
use serde::Serialize;

use record::error::{Result, SetupError, Step};
use spec::{Egress, Network as Chosen, SecretSource, Spec};

/// Where the cell's name server is.
pub const NAME_SERVERS: [IpAddr; 2] = [
    IpAddr::V4(synthetic::DNS_IPV4),
    IpAddr::V6(synthetic::DNS_IPV6),
];

/// A network whose addresses are local inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Its first address.
    pub address: IpAddr,
    /// The length of its prefix, in bits.
    pub prefix: u8,
}

/// Routes and listening sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EgressPlan {
    /// Networks that are local to `lo`.
    pub routes: Vec<Route>,
    /// TCP ports that are listened at, at every address.
    pub ports: Vec<u16>,
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
    /// What leads to these hosts.
    pub fn new(egress: &Egress) -> Self {
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
    pub fn most_sockets(&self) -> usize {
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

/// What resolv.conf(5) of such a cell contains. A refused name is refused at once, so
/// nothing is tried twice.
pub(super) fn resolv_conf() -> String {
    let servers = NAME_SERVERS.map(|server| format!("nameserver {server}\n"));
    format!("{}options timeout:5 attempts:1\n", servers.concat())
}
