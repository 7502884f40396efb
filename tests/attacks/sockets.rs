//! Sockets that reach past the network namespace, or load kernel modules that
//! nobody else uses.

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "sockets",
    covers: &[13, 16],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

/// Families and protocols are kernel modules, which a host may lack.
const ABSENT: &[Errno] = &[
    Errno::EAFNOSUPPORT,
    Errno::EPROTONOSUPPORT,
    Errno::ESOCKTNOSUPPORT,
];

const ATTACKS: &[Attack] = &[
    // The hypervisor, which vsock reaches whatever the network namespace is.
    family("vsock", || socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)).live(bare().unless(ABSENT)),
    family("packet", || socket(libc::AF_PACKET, libc::SOCK_RAW, 0)).live(naive().unless(ABSENT)),
    family("kernel-crypto", || {
        socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    })
    .live(bare().unless(ABSENT)),
    family("bluetooth", || {
        socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1)
    })
    .live(bare().unless(ABSENT)),
    family("xdp", || socket(libc::AF_XDP, libc::SOCK_RAW, 0)).live(naive().unless(ABSENT)),
    family("can", || socket(libc::AF_CAN, libc::SOCK_RAW, 1)).live(bare().unless(ABSENT)),
    family("tipc", || socket(libc::AF_TIPC, libc::SOCK_STREAM, 0)).live(bare().unless(ABSENT)),
    family("rds", || socket(libc::AF_RDS, libc::SOCK_SEQPACKET, 0)).live(bare().unless(ABSENT)),
    family("netlink-audit", || {
        socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT)
    })
    .live(bare().unless(ABSENT)),
    family("netlink-uevents", || {
        socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW,
            libc::NETLINK_KOBJECT_UEVENT,
        )
    })
    .live(bare().unless(ABSENT)),
    family("netlink-with-high-bits", || {
        let family = libc::AF_NETLINK as u64 | 1 << 32;
        let protocol = libc::NETLINK_NETFILTER as u64 | 1 << 32;
        call!(SYS_socket, family, libc::SOCK_RAW, protocol).map(drop)
    })
    .live(bare().unless(ABSENT)),
    // A high bit must not turn a refused family into an unknown one.
    family("vsock-with-high-bits", || {
        call!(
            SYS_socket,
            libc::AF_VSOCK as u64 | 1 << 32,
            libc::SOCK_STREAM,
            0
        )
        .map(drop)
    })
    .live(bare().unless(ABSENT)),
    family("raw-icmp", || {
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    })
    .live(naive()),
    family("raw-ip", || {
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)
    })
    .live(naive()),
    family("sctp", || {
        socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)
    })
    .live(bare().unless(ABSENT)),
    family("mptcp", || {
        socket(libc::AF_INET, libc::SOCK_STREAM, IPPROTO_MPTCP)
    })
    .live(bare().unless(&[Errno::EPROTONOSUPPORT, Errno::ENOPROTOOPT])),
    // Type 6 without a protocol loads DCCP where the kernel has it.
    family("dccp-by-type", || socket(libc::AF_INET, SOCK_DCCP, 0)).live(bare().unless(ABSENT)),
    family("sctp-by-type", || {
        socket(libc::AF_INET, libc::SOCK_SEQPACKET, 0)
    })
    .live(bare().unless(ABSENT)),
    // TLS in the kernel.
    attack("upper-layer-protocol", || {
        const TCP_ULP: i32 = 31;
        let socket = call!(SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)?;
        call!(
            SYS_setsockopt,
            socket,
            libc::IPPROTO_TCP,
            TCP_ULP,
            c"tls",
            3
        )
        .map(drop)
    })
    .live(
        bare()
            .behind(Errno::ENOTCONN)
            .unless(&[Errno::ENOENT, Errno::ENOPROTOOPT]),
    )
    .refused(&[Errno::ENOPROTOOPT]),
];

const IPPROTO_MPTCP: i32 = 262;
const SOCK_DCCP: i32 = 6;

const fn family(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    attack(name, attempt).refused(&[Errno::EAFNOSUPPORT])
}

fn socket(family: i32, kind: i32, protocol: i32) -> Attempt {
    call!(SYS_socket, family, kind, protocol).map(drop)
}
