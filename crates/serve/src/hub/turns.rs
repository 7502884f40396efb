//! Whose call gets the next cell: parties take turns, and the clients of a party take turns
//! in those of their party. So neither many calls of one client nor many clients of one party
//! keep others waiting.

use std::collections::VecDeque;

use super::{ClientId, Party};

/// Parties with waiting calls, the next one first; each with its clients that have such calls.
#[derive(Debug, Default)]
pub(super) struct Turns(VecDeque<(Party, VecDeque<ClientId>)>);

impl Turns {
    /// Notes that a client has a waiting call.
    pub(super) fn join(&mut self, party: Party, client: ClientId) {
        match self.0.iter_mut().find(|(own, _)| *own == party) {
            Some((_, clients)) if clients.contains(&client) => {}
            Some((_, clients)) => clients.push_back(client),
            None => self.0.push_back((party, VecDeque::from([client]))),
        }
    }

    /// Removes a client that has gone.
    pub(super) fn leave(&mut self, party: Party, client: ClientId) {
        for (own, clients) in &mut self.0 {
            if *own == party {
                clients.retain(|waiting| *waiting != client);
            }
        }
        self.0.retain(|(_, clients)| !clients.is_empty());
    }

    /// The client whose turn it is.
    pub(super) fn next(&self) -> Option<ClientId> {
        self.0.front()?.1.front().copied()
    }

    /// Removes that client, which has no waiting call.
    pub(super) fn leave_first(&mut self) {
        if let (Some((party, _)), Some(client)) = (self.0.front(), self.next()) {
            self.leave(*party, client);
        }
    }

    /// Ends the turn of that client and of its party.
    pub(super) fn pass(&mut self) {
        if let Some((_, clients)) = self.0.front_mut() {
            clients.rotate_left(1);
            self.0.rotate_left(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(turns: &mut Turns, count: usize) -> Vec<ClientId> {
        let mut order = Vec::new();
        for _ in 0..count {
            order.extend(turns.next());
            turns.pass();
        }
        order
    }

    #[test]
    fn many_clients_of_a_party_have_its_turns() {
        let mut turns = Turns::default();
        let (many, one) = (Party::Door(1), Party::Door(2));
        for client in [1, 2, 3, 1] {
            turns.join(many, client);
        }
        turns.join(one, 9);
        assert_eq!(order(&mut turns, 6), [1, 9, 2, 9, 3, 9]);
        turns.leave(one, 9);
        turns.leave(one, 1);
        assert_eq!(order(&mut turns, 3), [1, 2, 3]);
        turns.leave_first();
        assert_eq!(order(&mut turns, 2), [2, 3]);
        turns.leave_first();
        turns.leave_first();
        turns.leave_first();
        assert_eq!(turns.next(), None);
    }
}
