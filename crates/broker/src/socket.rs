//! Sockets that never make the broker wait.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6, connect as nix_connect,
    recv, setsockopt, socket, sockopt,
};

/// A connection to `address` that has begun. It becomes writable when it is made or has
/// failed.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    let begun = match address {
        SocketAddr::V4(address) => nix_connect(socket.as_raw_fd(), &SockaddrIn::from(address)),
        SocketAddr::V6(address) => nix_connect(socket.as_raw_fd(), &SockaddrIn6::from(address)),
    };
    match begun {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whether `address` is one of this host's own. The kernel chooses the address itself as
/// the source then; nothing is sent to find that out.
pub(crate) fn is_own(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address.ip())
}

/// Has the kernel keep so many bytes in each queue of the socket, and of those that it
/// accepts (socket(7)), instead of a number that it chooses.
pub(crate) fn set_buffers(socket: &impl AsFd, bytes: usize) {
    // Above the host's bound, it is that bound.
    let _ = setsockopt(socket, sockopt::SndBuf, &bytes);
    let _ = setsockopt(socket, sockopt::RcvBuf, &bytes);
}

/// Has the peer see a reset when the connection is closed.
pub(crate) fn reset(stream: &TcpStream) {
    let at_once = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // Without it, the peer sees an orderly end.
    let _ = setsockopt(stream, sockopt::Linger, &at_once);
}

/// Removes `count` bytes that have been looked at from the socket's queue.
pub(crate) fn discard(stream: &TcpStream, buffer: &mut [u8], count: usize) -> io::Result<()> {
    // MSG_TRUNC: nothing is copied (tcp(7)).
    let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
    match recv(stream.as_raw_fd(), &mut buffer[..count], flags)? {
        taken if taken == count => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
