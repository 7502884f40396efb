//! The cell's side of connections to allowed hosts: routes, and the sockets at which the
//! broker listens.
//!
//! They are made in the cell's network namespace and handed out; init closes its own
//! copies. Ports below 1024 need a capability, which init still has, and which the
//! program has not. A port that is listened at cannot be bound again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use hosts::synthetic;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind, setsockopt, socket, sockopt,
};

use super::fail::{At, Call, Fail, Site};
use super::report::{Reporter, Role, SocketRole};
use plan::{EgressPlan, NAME_SERVERS};
use record::error::Step;
use sys::net::listen;
use sys::route::Routes;

/// Connections that wait for the broker, for each port and family. The kernel lowers it
/// to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Proxies on loopback, for clients that are configured with one. A port that a rule allows
/// is left to that rule.
const PROXIES: [(SocketRole, u16); 2] = [
    (SocketRole::Proxy, synthetic::PROXY_PORT),
    (SocketRole::Socks, synthetic::SOCKS_PORT),
];

/// Makes the routes and the sockets, and hands them to the supervisor.
pub(super) fn open(plan: Option<&EgressPlan>, report: &Reporter<'_>) -> Result<(), Fail> {
    let Some(plan) = plan else {
        return Ok(());
    };
    let site = report.enter(Step::Egress);
    let routes = Routes::open().at(site, Call::Socket)?;
    let mut has_v6 = true;
    for (index, route) in plan.routes.iter().enumerate() {
        match routes.add_local(route.address, route.prefix) {
            Ok(()) => {}
            // A host without IPv6.
            Err(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP | Errno::EACCES | Errno::ENODEV)
                if route.address.is_ipv6() =>
            {
                has_v6 = false;
            }
            Err(errno) => return Err(site.on(index).failed(Call::Send, errno)),
        }
    }
    let sockets = plan
        .ports
        .iter()
        .flat_map(|port| {
            let any = [
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                Ipv6Addr::UNSPECIFIED.into(),
            ];
            any.map(|address| (SocketRole::Port, SocketAddr::new(address, *port)))
        })
        .chain(NAME_SERVERS.into_iter().flat_map(|server| {
            let address = SocketAddr::new(server, synthetic::DNS_PORT);
            [SocketRole::DnsDatagrams, SocketRole::Dns].map(|role| (role, address))
        }))
        .chain(PROXIES.into_iter().filter_map(|(role, port)| {
            let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            (!plan.ports.contains(&port)).then_some((role, address))
        }))
        .filter(|(_, address)| has_v6 || address.is_ipv4());
    let made: Vec<(Role, OwnedFd)> = sockets
        .map(|(role, address)| {
            let made = listen_at(role, address, site)?;
            let role = Role::Socket(role, address.port(), address.is_ipv6());
            Ok((role, made))
        })
        .collect::<Result<_, Fail>>()?;
    report.sockets(&made)
}

fn listen_at(role: SocketRole, address: SocketAddr, site: Site) -> Result<OwnedFd, Fail> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let kind = match role {
        SocketRole::DnsDatagrams => SockType::Datagram,
        _ => SockType::Stream,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(family, kind, flags, None).at(site, Call::Socket)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&made.as_fd(), sockopt::Ipv6V6Only, &true).at(site, Call::Setsockopt)?;
        // For IPv6, a local route is not enough for bind(2) to accept an address.
        setsockopt(&made.as_fd(), sockopt::IpFreebind, &true).at(site, Call::Setsockopt)?;
    }
    let bound = match address {
        SocketAddr::V4(address) => bind(made.as_raw_fd(), &SockaddrIn::from(address)),
        SocketAddr::V6(address) => bind(made.as_raw_fd(), &SockaddrIn6::from(address)),
    };
    bound.at(site, Call::Bind)?;
    if kind == SockType::Stream {
        listen(made.as_fd(), BACKLOG).at(site, Call::Listen)?;
    }
    Ok(made)
}
