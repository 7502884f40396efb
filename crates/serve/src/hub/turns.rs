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

    /// The first client whose call can have a cell, of those that are next in their parties.
    pub(super) fn next(
        &self,
        mut can: impl FnMut(Party, ClientId) -> bool,
    ) -> Option<(Party, ClientId)> {
        let firsts = self.0.iter();
        let mut firsts = firsts.filter_map(|(party, clients)| Some((*party, *clients.front()?)));
        firsts.find(|(party, client)| can(*party, *client))
    }

    /// Ends the turn of a party and of its client.
    pub(super) fn pass(&mut self, party: Party) {
        let at = self.0.iter().position(|(own, _)| *own == party);
        if let Some((party, mut clients)) = at.and_then(|at| self.0.remove(at)) {
            clients.rotate_left(1);
            self.0.push_back((party, clients));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(turns: &mut Turns, count: usize) -> Vec<ClientId> {
        let mut order = Vec::new();
        for _ in 0..count {
            if let Some((party, client)) = turns.next(|_, _| true) {
                order.push(client);
                turns.pass(party);
            }
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
        turns.leave(many, 1);
        assert_eq!(order(&mut turns, 2), [2, 3]);
        turns.leave(many, 2);
        turns.leave(many, 3);
        assert_eq!(turns.next(|_, _| true), None);
    }

    #[test]
    fn a_party_that_can_have_no_cell_keeps_its_turn() {
        let mut turns = Turns::default();
        let (full, other) = (Party::Door(1), Party::Door(2));
        turns.join(full, 1);
        turns.join(other, 9);
        for _ in 0..2 {
            assert_eq!(turns.next(|party, _| party != full), Some((other, 9)));
            turns.pass(other);
        }
        assert_eq!(turns.next(|_, _| true), Some((full, 1)));
    }
}
