//! Every line of the attack catalogue is covered.

use std::collections::BTreeSet;

use crate::cells::prelude::*;
use crate::{attacks, lifecycle};

/// The catalogue's suite.
pub(crate) const SUITES: &[&Suite] = &[&Suite {
    name: "catalogue",
    covers: &[],
    attacks: &[],
    scenes: &[
        scene("is-covered", is_covered),
        scene("names-are-unique", names_are_unique),
    ],
    actors: &[],
}];

/// Lines of the catalogue. Egress through a broker (36) is not here, since there is
/// no broker; the cgroup manager (43) is tried in virtual machines.
const LINES: [std::ops::RangeInclusive<u8>; 2] = [1..=35, 37..=42];

fn all() -> impl Iterator<Item = &'static Suite> {
    attacks::SUITES.iter().chain(lifecycle::SUITES).copied()
}

fn is_covered(_: &Stage) -> Check {
    let covered: BTreeSet<u8> = all().flat_map(|suite| suite.covers).copied().collect();
    let missing: Vec<u8> = LINES
        .into_iter()
        .flatten()
        .filter(|line| !covered.contains(line))
        .collect();
    assert!(missing.is_empty(), "nothing covers {missing:?}");
    Ok(())
}

fn names_are_unique(_: &Stage) -> Check {
    for suite in all() {
        let attacks = || suite.attacks.iter().map(|attack| attack.name);
        let scenes = suite.scenes.iter().map(|scene| scene.name);
        let actors = suite.actors.iter().map(|actor| actor.name);
        // Each attack is a test and also a probe, both of its name.
        let tests: Vec<&str> = attacks().chain(scenes).collect();
        let probes: Vec<&str> = attacks().chain(actors).collect();
        for names in [tests, probes] {
            let unique: BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(unique.len(), names.len(), "{}: {names:?}", suite.name);
        }
    }
    Ok(())
}
