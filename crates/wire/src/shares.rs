//! Places and bytes that parties share.

use std::collections::BTreeMap;

use crate::Party;

/// An amount that is shared. Half of it is divided evenly among the parties; any party can take of
/// the other half. So each party has a part that the others cannot use up.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    /// The part of each party alone.
    each: usize,
    /// The part that any party can take of besides.
    common: usize,
    /// The most of one party.
    most_each: usize,
    held: BTreeMap<Party, usize>,
}

impl Shares {
    /// Shares `most` among at most `parties` parties. With less than one for each party, no party
    /// has a part of its own.
    pub fn new(most: usize, parties: usize) -> Self {
        let parties = parties.max(1);
        let each = (most / parties / 2).max(usize::from(most >= parties));
        Self {
            most,
            each,
            common: most.saturating_sub(each.saturating_mul(parties)),
            most_each: most,
            held: BTreeMap::new(),
        }
    }

    /// Shares `most` so that no party has more than `most_each`, and each has at least `least` of
    /// its own where `most` is enough for that. Neither bound is less than `least`.
    pub fn within(most: usize, parties: usize, most_each: usize, least: usize) -> Self {
        let (parties, most) = (parties.max(1), most.max(least));
        let most_each = most_each.max(least);
        let each = (most / parties / 2).max(least).min(most / parties);
        let each = each.min(most_each);
        Self {
            // What one party has beyond its most must not take from the parts of others.
            most: usize::MAX,
            each,
            common: most.saturating_sub(each.saturating_mul(parties)),
            most_each,
            held: BTreeMap::new(),
        }
    }

    /// Whether a party can have one more.
    pub fn has_room_for(&self, party: Party) -> bool {
        self.has_room(party, 1)
    }

    /// Whether a party can have this much more.
    pub fn has_room(&self, party: Party, amount: usize) -> bool {
        amount <= self.room(party)
    }

    /// How much more a party can have.
    pub fn room(&self, party: Party) -> usize {
        let own = self.held(party);
        let beyond = self
            .held
            .values()
            .map(|held| held.saturating_sub(self.each));
        let common = self.common.saturating_sub(beyond.sum());
        let room = self.each.saturating_sub(own).saturating_add(common);
        room.min(self.most_each.saturating_sub(own))
            .min(self.most.saturating_sub(self.all()))
    }

    /// How much more a party can have of the part that is its alone.
    pub fn room_alone(&self, party: Party) -> usize {
        let alone = self.each.saturating_sub(self.held(party));
        alone.min(self.room(party))
    }

    /// The most that a party can have.
    pub fn limit(&self) -> usize {
        self.each.saturating_add(self.common).min(self.most_each)
    }

    /// Gives a party one more.
    pub fn take(&mut self, party: Party) {
        self.add(party, 1);
    }

    /// Gives a party this much more.
    pub fn add(&mut self, party: Party, amount: usize) {
        self.set(party, self.held(party).saturating_add(amount));
    }

    /// Takes one back.
    pub fn leave(&mut self, party: Party) {
        self.set(party, self.held(party).saturating_sub(1));
    }

    /// Notes how much a party has.
    pub fn set(&mut self, party: Party, amount: usize) {
        match amount {
            0 => drop(self.held.remove(&party)),
            _ => drop(self.held.insert(party, amount)),
        }
    }

    /// What a party has.
    pub fn held(&self, party: Party) -> usize {
        self.held.get(&party).copied().unwrap_or_default()
    }

    /// What all parties have together.
    pub fn all(&self) -> usize {
        self.held.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes places until there are none; returns their number.
    fn fill(shares: &mut Shares, party: Party) -> usize {
        let mut taken = 0;
        while shares.has_room_for(party) {
            shares.take(party);
            taken += 1;
        }
        taken
    }

    #[test]
    fn half_of_the_places_are_divided() {
        let mut shares = Shares::new(256, 1);
        assert_eq!(fill(&mut shares, Party::Door(0)), 256);
        let mut shares = Shares::new(256, 4);
        assert_eq!(fill(&mut shares, Party::Door(0)), 160);
        assert_eq!(fill(&mut shares, Party::Door(1)), 32);
        shares.leave(Party::Door(0));
        assert!(shares.has_room_for(Party::Door(1)));
        shares.take(Party::Door(1));
        assert!(!shares.has_room_for(Party::Door(0)));
        assert_eq!(fill(&mut shares, Party::User(7)), 32);
        let mut many = Shares::new(3, 4);
        assert_eq!(fill(&mut many, Party::Door(0)), 3);
    }

    #[test]
    fn a_party_has_its_least_and_not_more_than_its_most() {
        let mut shares = Shares::within(256, 2, 64, 51);
        assert_eq!(fill(&mut shares, Party::Door(0)), 64);
        assert!(shares.has_room(Party::Door(1), 64) && !shares.has_room(Party::Door(1), 65));
        for (most, each) in [(200, 20), (100, 10)] {
            let mut shares = Shares::within(most, 10, 64, 20);
            for party in (0..10).map(Party::Door) {
                assert_eq!(fill(&mut shares, party), each);
            }
        }
    }

    proptest! {
        #[test]
        fn no_party_uses_up_the_places_of_another(
            most in 1..40_usize,
            parties in 1..8_u32,
            steps in prop::collection::vec((0..8_u32, 0..4_usize), 0..200),
        ) {
            let mut shares = Shares::new(most, parties as usize);
            for (party, amount) in steps {
                let party = Party::Door(party % parties);
                match amount {
                    0 => shares.leave(party),
                    _ if shares.has_room(party, amount) => shares.add(party, amount),
                    _ => {}
                }
                prop_assert!(shares.all() <= most);
                for party in (0..parties).map(Party::Door) {
                    let left = shares.each.saturating_sub(shares.held(party));
                    prop_assert!(left == 0 || shares.has_room(party, left));
                }
            }
            for party in (0..parties).map(Party::Door) {
                fill(&mut shares, party);
            }
            prop_assert_eq!(shares.all(), most);
        }
    }
}
