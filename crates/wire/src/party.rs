//! Whom clients belong to.

/// The party that a client belongs to. It has contexts of its own, with names of its own, which
/// other parties cannot see. Parties take turns at cells, however many clients each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Party {
    /// A user of this host, by the credentials of its socket.
    User(u32),
    /// A party of a door inside of this process, by a number that the door chose.
    Door(u32),
}
