//! How often the kernel has refused something in a cell's network.

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often there was no route to an address: connect(2) or sendto(2) ended with
    /// ENETUNREACH.
    pub unrouted: u64,
    /// How often nothing listened at a port: connect(2) ended with ECONNREFUSED, or a
    /// datagram had no receiver.
    pub closed_ports: u64,
}

impl Counts {
    /// The sums of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            unrouted: self.unrouted.saturating_add(other.unrouted),
            closed_ports: self.closed_ports.saturating_add(other.closed_ports),
        }
    }

    /// What was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            unrouted: self.unrouted.saturating_sub(before.unrouted),
            closed_ports: self.closed_ports.saturating_sub(before.closed_ports),
        }
    }
}
