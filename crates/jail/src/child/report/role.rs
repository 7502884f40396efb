//! What init's descriptors are for, as numbers in its messages.

use plan::Namespace;

/// What a descriptor from init is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The filter's listener.
    Listener,
    /// The directory of one of the plan's own scratch places, by its index
    /// ([`plan::Plan::writable_tmpfs`]).
    Scratch(usize),
    /// The Landlock rules that a copy's program is to apply to itself.
    Ruleset,
    /// One of the cell's namespaces.
    Namespace(Namespace),
    /// The supervisor's side of the cell's terminal.
    Terminal,
    /// A socket of the broker's, its port, and whether it is one of IPv6.
    Socket(SocketRole, u16, bool),
}

/// What a socket of the broker's is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRole {
    /// It listens at an allowed port.
    Port,
    /// DNS over TCP.
    Dns,
    /// DNS over UDP.
    DnsDatagrams,
    /// The HTTP proxy.
    Proxy,
    /// The SOCKS5 proxy.
    Socks,
}

/// Namespaces by the numbers of their roles.
const NAMESPACES: [Namespace; 7] = [
    Namespace::User,
    Namespace::Pid,
    Namespace::Mount,
    Namespace::Net,
    Namespace::Ipc,
    Namespace::Uts,
    Namespace::Cgroup,
];
/// The number of the terminal, after those of the namespaces.
const TERMINAL: i64 = 3 + NAMESPACES.len() as i64;
/// The first number of a scratch place.
const SCRATCH: i64 = 16;
/// The first number of a socket. Its purpose, family and port follow in these bits.
const SOCKET: i64 = 1 << 32;
const SOCKET_ROLES: [SocketRole; 5] = [
    SocketRole::Port,
    SocketRole::Dns,
    SocketRole::DnsDatagrams,
    SocketRole::Proxy,
    SocketRole::Socks,
];
const IPV6: i64 = 1 << 16;

impl Role {
    /// Its number in a message; 0 stands for no descriptor.
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Listener => 1,
            Self::Ruleset => 2,
            Self::Namespace(namespace) => 3 + namespace as i64,
            Self::Terminal => TERMINAL,
            Self::Scratch(index) => SCRATCH + index as i64,
            Self::Socket(role, port, is_v6) => {
                let family = if is_v6 { IPV6 } else { 0 };
                SOCKET + ((role as i64) << 17) + family + port as i64
            }
        }
    }

    pub(super) fn from_number(number: i64) -> Option<Self> {
        match number {
            1 => Some(Self::Listener),
            2 => Some(Self::Ruleset),
            TERMINAL => Some(Self::Terminal),
            SOCKET.. => {
                let role = usize::try_from((number - SOCKET) >> 17).ok()?;
                let role = *SOCKET_ROLES.get(role)?;
                Some(Self::Socket(role, number as u16, number & IPV6 != 0))
            }
            SCRATCH.. => usize::try_from(number - SCRATCH).ok().map(Self::Scratch),
            number => {
                let namespace = NAMESPACES.get(usize::try_from(number - 3).ok()?)?;
                Some(Self::Namespace(*namespace))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_its_number() {
        let every = NAMESPACES.map(Role::Namespace);
        for role in every
            .into_iter()
            .chain([Role::Ruleset, Role::Terminal, Role::Scratch(0)])
        {
            assert_eq!(Role::from_number(role.number()), Some(role));
        }
        for role in SOCKET_ROLES {
            for (port, is_v6) in [(1, false), (443, true), (65535, true)] {
                let role = Role::Socket(role, port, is_v6);
                assert_eq!(Role::from_number(role.number()), Some(role));
            }
        }
    }
}
