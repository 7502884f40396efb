//! The network, when the spec grants none.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::cells::cell::Cell;
use crate::cells::host::landlock_abi;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "network",
    covers: &[35],
    attacks: &[],
    scenes: &[
        scene("nothing-is-reached", nothing_is_reached),
        scene("the-host-s-loopback", the_hosts_loopback),
        scene("ports-by-landlock", ports_by_landlock).needs(&[Need::Landlock(4)]),
        scene("udp-ports-by-landlock", udp_ports_by_landlock).needs(&[Need::Landlock(4)]),
        scene("own-loopback-works", own_loopback_works),
    ],
    actors: ACTORS,
};

const ACTORS: &[Actor] = &[
    Actor {
        name: "connect",
        run: |args| {
            for address in args {
                println!("{address} {:?}", reach(address));
            }
            0
        },
    },
    Actor {
        name: "interfaces",
        run: |_| {
            let interfaces = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
            for line in interfaces.lines().skip(2) {
                println!("{}", line.split(':').next().unwrap_or("").trim());
            }
            0
        },
    },
    Actor {
        name: "talk-to-itself",
        run: |_| {
            let talk = || -> io::Result<()> {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let _stream = TcpStream::connect(listener.local_addr()?)?;
                listener.accept().map(drop)
            };
            println!("{:?}", talk().map_err(errno));
            0
        },
    },
];

fn errno(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::ETIMEDOUT))
}

/// `tcp:ADDRESS:PORT` or `udp:ADDRESS:PORT`.
fn reach(address: &str) -> Attempt {
    let (protocol, address) = address.split_once(':').ok_or(Errno::EINVAL)?;
    let address: SocketAddr = address.parse().map_err(|_| Errno::EINVAL)?;
    match protocol {
        "tcp" => TcpStream::connect_timeout(&address, Duration::from_secs(10)).map(drop),
        _ => UdpSocket::bind(if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        })
        .and_then(|socket| socket.send_to(b"?", address))
        .map(drop),
    }
    .map_err(errno)
}

/// Public, private, link-local (a cloud's metadata), multicast, broadcast.
const FAR: [&str; 8] = [
    "tcp:1.1.1.1:443",
    "tcp:10.0.0.1:80",
    "tcp:169.254.169.254:80",
    "udp:8.8.8.8:53",
    "udp:224.0.0.251:5353",
    "udp:255.255.255.255:67",
    "tcp:[2606:4700:4700::1111]:443",
    "udp:[ff02::1]:5353",
];

fn nothing_is_reached(stage: &Stage) -> Check {
    let interfaces = stage
        .probe("network/interfaces", [])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(interfaces.stdout(), "lo\n");

    let run = stage
        .probe("network/connect", FAR)
        .run()?
        .ended(Outcome::Ok)?;
    for (line, address) in run.stdout().lines().zip(FAR) {
        // The last one is the answer when IPv6 is absent.
        let unreachable = ["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EACCES"]
            .iter()
            .any(|errno| line == format!("{address} Err({errno})"));
        assert!(unreachable, "{line}");
    }
    assert_eq!(run.stdout().lines().count(), FAR.len());
    Ok(())
}

fn the_hosts_loopback(stage: &Stage) -> Check {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = format!("tcp:{}", listener.local_addr()?);
    let cell = stage.probe("network/connect", [&address]);

    let live = cell
        .clone()
        .option(["--net", "host"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(live.stdout(), format!("{address} Ok(())\n"), "not live");
    for cell in [cell.clone(), cell.without("landlock").without("seccomp")] {
        assert_eq!(
            cell.run()?.stdout(),
            format!("{address} Err(ECONNREFUSED)\n")
        );
    }
    Ok(())
}

/// Even with the host's network, ports that were not listed are out of reach.
fn ports_by_landlock(stage: &Stage) -> Check {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let port = address.port().to_string();
    let address = format!("tcp:{address}");
    let cell = stage
        .probe("network/connect", [&address])
        .option(["--net", "host"]);

    let named = cell.clone().option(["--tcp-connect", &port]).run()?;
    assert_eq!(named.stdout(), format!("{address} Ok(())\n"));
    let unnamed = cell.clone().option(["--tcp-connect", "1"]).run()?;
    assert_eq!(unnamed.stdout(), format!("{address} Err(EACCES)\n"));
    a_kernel_without_the_rights_is_refused(&cell, "tcp", "3")
}

fn udp_ports_by_landlock(stage: &Stage) -> Check {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = receiver.local_addr()?;
    let port = address.port().to_string();
    let address = format!("udp:{address}");
    let cell = stage
        .probe("network/connect", [&address])
        .option(["--net", "host"]);

    let open = cell.clone().run()?;
    assert_eq!(open.stdout(), format!("{address} Ok(())\n"));
    a_kernel_without_the_rights_is_refused(&cell, "udp", "9")?;
    if landlock_abi() < 10 {
        return Ok(());
    }
    let named = cell.clone().option(["--udp-connect", &port]).run()?;
    assert_eq!(named.stdout(), format!("{address} Ok(())\n"));
    let isolation = named.record.isolation.as_ref();
    let scopes = isolation.map(|isolation| &isolation.landlock_scopes);
    assert!(scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope == "udp")));
    for options in [["--udp-connect", "1"], ["--udp-bind", "1"]] {
        let unnamed = cell.clone().option(options).run()?;
        assert_eq!(
            unnamed.stdout(),
            format!("{address} Err(EACCES)\n"),
            "{options:?}"
        );
    }
    Ok(())
}

/// With an ABI that lacks them, by the hook that caps it.
fn a_kernel_without_the_rights_is_refused(cell: &Cell<'_>, protocol: &str, abi: &str) -> Check {
    let ports = format!("--{protocol}-connect");
    let old = cell.clone().option(["--landlock-max-abi", abi]);
    let old = old.option([ports.as_str(), "1"]);
    let refused = old.run()?.ended(Outcome::Setup)?;
    let error = refused.record.setup_error;
    let error = error.map_or_else(String::new, |error| error.to_string());
    assert!(error.contains(&format!("landlock.{protocol}")), "{error}");
    old.without("landlock").run()?.ended(Outcome::Ok)?;
    Ok(())
}

fn own_loopback_works(stage: &Stage) -> Check {
    let run = stage
        .probe("network/talk-to-itself", [])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "Ok(())\n");
    Ok(())
}
