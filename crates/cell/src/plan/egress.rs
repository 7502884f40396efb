//! What init makes in an empty network namespace, so that connections to allowed hosts
//! end at the broker.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

/// Addresses that stand for allowed names inside a cell. 198.18.0.0/15 is set apart for
/// tests of networks (RFC 2544), so no host has them, and no program treats them as its
/// own machine.
const NAMES: [Route; 2] = [
    Route {
        address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)),
        prefix: 15,
    },
    Route {
        address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0xcb, 0, 0, 0, 0, 0, 0)),
        prefix: 64,
    },
];

/// Where the cell's name server is.
pub(crate) const NAME_SERVERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xcb, 0, 0, 0, 0, 0, 1)),
];

/// The port of the name server.
pub(crate) const DNS_PORT: u16 = 53;

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

impl EgressPlan {
    /// For these ports, and the networks that the caller wrote out.
    pub(crate) fn new(ports: Vec<u16>, networks: impl IntoIterator<Item = Route>) -> Self {
        Self {
            routes: NAMES.into_iter().chain(networks).collect(),
            ports,
        }
    }
}

/// What resolv.conf(5) of such a cell contains. A refused name is refused at once, so
/// nothing is tried twice.
pub(super) fn resolv_conf() -> String {
    let servers = NAME_SERVERS.map(|server| format!("nameserver {server}\n"));
    format!("{}options timeout:5 attempts:1\n", servers.concat())
}
