//! What the loop waits for.

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Control,
    Reports,
    Listener(usize),
    Dns(usize),
    DnsClient(usize),
    Client(usize),
    Upstream(usize),
    Lookup(usize),
}

impl Source {
    pub(super) fn token(self) -> u64 {
        let (kind, index) = match self {
            Self::Control => (0, 0),
            Self::Reports => (1, 0),
            Self::Listener(index) => (2, index),
            Self::Dns(index) => (3, index),
            Self::DnsClient(index) => (4, index),
            Self::Client(index) => (5, index),
            Self::Upstream(index) => (6, index),
            Self::Lookup(index) => (7, index),
        };
        (index as u64) << 8 | kind
    }

    pub(super) fn of(token: u64) -> Option<Self> {
        let index = (token >> 8) as usize;
        Some(match token & 0xff {
            0 => Self::Control,
            1 => Self::Reports,
            2 => Self::Listener(index),
            3 => Self::Dns(index),
            4 => Self::DnsClient(index),
            5 => Self::Client(index),
            6 => Self::Upstream(index),
            7 => Self::Lookup(index),
            _ => return None,
        })
    }
}
