//! The everyday part of fuzzing: the corpus and damaged copies of it, without a nightly compiler.
//! Crates that have targets include this file in their tests.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

/// The name of a target, and the function that reads its inputs.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// The tests of these functions of the module `fuzz`.
macro_rules! test_targets {
    ($($name:ident),* $(,)?) => {
        const TARGETS: &[$crate::fuzz::damage::Target] =
            &[$((stringify!($name), $crate::fuzz::$name)),*];

        #[test]
        fn the_corpus_is_read() {
            $crate::fuzz::damage::read_corpus(TARGETS);
        }

        #[test]
        fn damaged_inputs_are_read() {
            $crate::fuzz::damage::read_damaged(TARGETS);
        }
    };
}
pub(crate) use test_targets;

/// The bytes of the longest input.
const LONGEST: usize = 4096;
/// The damaged copies that are tried.
const CASES: u32 = 2000;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    let files = std::fs::read_dir(fuzz.join(target)).unwrap();
    let inputs: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(!inputs.is_empty(), "{target}");
    inputs
}

/// Reads every beginning of every input of the corpus.
pub(crate) fn read_corpus(targets: &[Target]) {
    for (name, target) in targets {
        for input in corpus(name) {
            for end in 0..=input.len() {
                target(&input[..end]);
            }
        }
    }
}

/// Reads damaged copies of the corpus.
pub(crate) fn read_damaged(targets: &[Target]) {
    let inputs = (
        0..targets.len(),
        any::<Index>(),
        prop::collection::vec(change(), 1..6),
    );
    let mut runner = TestRunner::new(ProptestConfig::with_cases(CASES));
    let read = |(target, seed, changes): (usize, Index, Vec<Change>)| {
        let (name, target) = targets[target];
        let inputs = corpus(name);
        let start = seed.get(&inputs).clone();
        let changed = |input, change| changed(input, change, &inputs);
        target(&changes.into_iter().fold(start, changed));
        Ok(())
    };
    if let Err(error) = runner.run(&inputs, read) {
        panic!("{error}");
    }
}

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Repeat(Index, Index),
    /// The rest is taken from another input.
    Cross(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at(), at()).prop_map(|(from, to)| Change::Remove(from, to)),
        (at(), at()).prop_map(|(from, to)| Change::Repeat(from, to)),
        (at(), at(), at()).prop_map(|(at, other, from)| Change::Cross(at, other, from)),
    ]
}

fn changed(mut input: Vec<u8>, change: Change, others: &[Vec<u8>]) -> Vec<u8> {
    let most = input.len() + 1;
    let range = |from: Index, to: Index| {
        let (from, to) = (from.index(most), to.index(most));
        from.min(to)..from.max(to)
    };
    match change {
        Change::Set(at, byte) => {
            if let Some(place) = input.get_mut(at.index(most)) {
                *place = byte;
            }
        }
        Change::Insert(at, bytes) => {
            let at = at.index(most);
            input.splice(at..at, bytes);
        }
        Change::Remove(from, to) => drop(input.drain(range(from, to))),
        Change::Repeat(from, to) => input.extend_from_within(range(from, to)),
        Change::Cross(at, other, from) => {
            let other = other.get(others);
            input.truncate(at.index(most));
            input.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
    }
    input.truncate(LONGEST);
    input
}
