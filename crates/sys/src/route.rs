//! Routes that make the kernel take the addresses of a network for its own
//! (rtnetlink(7)): a process of the network namespace can then listen at them.

use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// `lo` has this number in every network namespace.
const LOOPBACK: u32 = 1;

/// Lengths of the fixed parts of a message (linux/netlink.h, linux/rtnetlink.h).
const HEADER: usize = 16;
const ROUTE: usize = 12;

/// A connection to the kernel's routing tables.
#[derive(Debug)]
pub struct Routes(OwnedFd);

impl Routes {
    /// Opens the tables of the caller's network namespace.
    ///
    /// # Errors
    /// The error number of socket(2).
    pub fn open() -> Result<Self, Errno> {
        socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )
        .map(Self)
    }

    /// Makes every address of a network, given by an address in it and the length of
    /// its prefix in bits, local to `lo`.
    ///
    /// # Errors
    /// The kernel's error number: EINVAL for bits beyond the prefix, EPERM without
    /// CAP_NET_ADMIN over the network namespace, EACCES or ENODEV where IPv6 is switched
    /// off. EBADMSG if the kernel's answer cannot be read. A route that exists already is
    /// no error.
    pub fn add_local(&self, address: IpAddr, prefix: u8) -> Result<(), Errno> {
        let message = local_route(address, prefix);
        send(self.0.as_raw_fd(), &message, MsgFlags::empty())?;
        let mut answer = [0; 1024];
        let length = loop {
            match recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                other => break other?,
            }
        };
        match acknowledged(&answer[..length])? {
            Errno::UnknownErrno | Errno::EEXIST => Ok(()),
            errno => Err(errno),
        }
    }
}

/// A message that adds the route and asks for an answer.
fn local_route(address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = vec![0; HEADER];
    message.extend([family as u8, prefix, 0, 0]);
    message.extend([
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ]);
    message.extend(0_u32.to_ne_bytes());
    debug_assert_eq!(message.len(), HEADER + ROUTE);
    attribute(&mut message, libc::RTA_DST, &octets);
    attribute(&mut message, libc::RTA_OIF, &LOOPBACK.to_ne_bytes());
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
    message[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
    message
}

/// Appends an attribute; all that are used here have a length that needs no padding.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len() as u16;
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}

/// The error number in an answer; [`Errno::UnknownErrno`] (0) means success.
fn acknowledged(answer: &[u8]) -> Result<Errno, Errno> {
    let (kind, error) = (answer.get(4..6), answer.get(HEADER..HEADER + 4));
    let (Some(&[a, b]), Some(&[c, d, e, f])) = (kind, error) else {
        return Err(Errno::EBADMSG);
    };
    if u16::from_ne_bytes([a, b]) != libc::NLMSG_ERROR as u16 {
        return Err(Errno::EBADMSG);
    }
    let error = i32::from_ne_bytes([c, d, e, f]);
    Ok(Errno::from_raw(error.checked_neg().unwrap_or(libc::EINVAL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_a_message_of_the_kernels_form() {
        let message = local_route("198.18.0.0".parse().unwrap(), 15);
        assert_eq!(message.len(), HEADER + ROUTE + 8 + 8);
        assert_eq!(message[..4], 44_u32.to_ne_bytes());
        assert_eq!(message[16..24], [2, 15, 0, 0, 255, 3, 254, 2]);
        assert_eq!(message[32..36], [198, 18, 0, 0]);
        let message = local_route("fd00:cb::".parse().unwrap(), 64);
        assert_eq!(message.len(), HEADER + ROUTE + 20 + 8);
    }

    #[test]
    fn an_answer_is_an_error_number() {
        let mut answer = vec![0; HEADER];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert_eq!(acknowledged(&answer), Err(Errno::EBADMSG));
        answer.extend((-libc::EPERM).to_ne_bytes());
        assert_eq!(acknowledged(&answer), Ok(Errno::EPERM));
        answer.truncate(HEADER);
        answer.extend([0; 4]);
        assert_eq!(acknowledged(&answer), Ok(Errno::UnknownErrno));
        answer[4] = 99;
        assert_eq!(acknowledged(&answer), Err(Errno::EBADMSG));
    }
}
