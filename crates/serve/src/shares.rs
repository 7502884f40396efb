//! Places that parties share.

use std::collections::BTreeMap;

use crate::Party;

/// A number of places. Half of them are divided evenly among the parties; any party can take the
/// other half. So each party has some places that the others cannot use up.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    /// The places of each party alone.
    each: usize,
    /// The places that any party can have besides.
    common: usize,
    held: BTreeMap<Party, usize>,
}

impl Shares {
    /// Shares `most` places among at most `parties` parties. With fewer places than parties, no
    /// party has places of its own.
    pub fn new(most: usize, parties: usize) -> Self {
        let parties = parties.max(1);
        let each = (most / parties / 2).max(usize::from(most >= parties));
        Self {
            most,
            each,
            common: most.saturating_sub(each.saturating_mul(parties)),
            held: BTreeMap::new(),
        }
    }

    /// Whether a party can have another place.
    pub fn has_room_for(&self, party: Party) -> bool {
        let all: usize = self.held.values().sum();
        let beyond = self
            .held
            .values()
            .map(|held| held.saturating_sub(self.each));
        let own = self.held.get(&party).copied().unwrap_or_default();
        all < self.most && (own < self.each || beyond.sum::<usize>() < self.common)
    }

    /// Gives a party a place.
    pub fn take(&mut self, party: Party) {
        *self.held.entry(party).or_default() += 1;
    }

    /// Takes a place back.
    pub fn leave(&mut self, party: Party) {
        if let Some(held) = self.held.get_mut(&party) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&party);
            }
        }
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

    proptest! {
        #[test]
        fn no_party_uses_up_the_places_of_another(
            most in 1..40_usize,
            parties in 1..8_u32,
            steps in prop::collection::vec((0..8_u32, any::<bool>()), 0..200),
        ) {
            let mut shares = Shares::new(most, parties as usize);
            for (party, takes) in steps {
                let party = Party::Door(party % parties);
                match takes {
                    true if shares.has_room_for(party) => shares.take(party),
                    true => {}
                    false => shares.leave(party),
                }
                let all: usize = shares.held.values().sum();
                prop_assert!(all <= most);
                for party in (0..parties).map(Party::Door) {
                    let own = shares.held.get(&party).copied().unwrap_or_default();
                    prop_assert!(own >= shares.each || shares.has_room_for(party));
                }
            }
            for party in (0..parties).map(Party::Door) {
                fill(&mut shares, party);
            }
            prop_assert_eq!(shares.held.values().sum::<usize>(), most);
        }
    }
}
