//! What has to change for one process to have the mappings of another.

use super::maps::{Mapping, OnFork, Source, WRITE};
use super::refusal::Refusal;
use sys::memory::Span;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Unmap(Span),
    Map {
        span: Span,
        protection: u8,
        shared: bool,
        on_fork: OnFork,
        source: Source,
    },
    Protect {
        span: Span,
        protection: u8,
    },
}

/// Refuses mappings that cannot be carried.
pub(super) fn refuse_unfit(mappings: &[Mapping]) -> Result<(), Refusal> {
    let shared = |mapping: &&Mapping| mapping.shared && mapping.protection & WRITE != 0;
    if let Some(mapping) = mappings.iter().find(shared) {
        return Err(Refusal::SharedMemory(mapping.start));
    }
    let absent = |one: &&Mapping| one.on_fork == OnFork::Absent && !one.is_kernel();
    match mappings.iter().find(absent) {
        Some(mapping) => Err(Refusal::NotForked(mapping.start)),
        None => Ok(()),
    }
}

/// Refuses mappings that are not those of a sibling: what the kernel placed, and the end of
/// the stack, never move.
pub(super) fn refuse_unlike(from: &[Mapping], to: &[Mapping]) -> Result<(), Refusal> {
    let kernel = |mappings: &[Mapping]| -> Vec<Mapping> {
        let own = mappings.iter().filter(|mapping| mapping.is_kernel());
        own.cloned().collect()
    };
    if kernel(from) != kernel(to) {
        return Err(Refusal::Unlike("the place of the kernel's own mappings"));
    }
    let stack = |mappings: &[Mapping]| {
        let stack = mappings.iter().find(|one| one.source == Source::Stack);
        stack.map(|mapping| mapping.end)
    };
    if stack(from).is_none() || stack(from) != stack(to) {
        return Err(Refusal::Unlike("the place of the stack"));
    }
    Ok(())
}

/// The changes after which `to` is mapped like `from`.
pub(super) fn changes(from: &[Mapping], to: &[Mapping]) -> Vec<Change> {
    let all = from.iter().chain(to);
    let mut cuts: Vec<u64> = all.flat_map(|one| [one.start, one.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
    let mut changes = Vec::new();
    for cut in cuts.windows(2) {
        let span = Span::new(cut[0], cut[1]);
        while from.next_if(|one| one.end <= span.start).is_some() {}
        while to.next_if(|one| one.end <= span.start).is_some() {}
        let covers = |one: &&&Mapping| one.start <= span.start;
        let wanted = from.peek().copied().filter(|one| covers(&one));
        let found = to.peek().copied().filter(|one| covers(&one));
        match (wanted, found) {
            (None, None) => {}
            (None, Some(found)) if found.is_kernel() => {}
            (Some(wanted), _) if wanted.is_kernel() => {}
            (None, Some(_)) => add(&mut changes, Change::Unmap(span)),
            (Some(wanted), found) => {
                let protection = wanted.protection;
                let is_there = found.is_some_and(|found| is_same(wanted, found, span.start));
                if !is_there {
                    let change = Change::Map {
                        span,
                        protection,
                        shared: wanted.shared,
                        on_fork: wanted.on_fork,
                        source: wanted.source_at(span.start),
                    };
                    add(&mut changes, change);
                } else if found.is_some_and(|found| found.protection != protection) {
                    add(&mut changes, Change::Protect { span, protection });
                }
            }
        }
    }
    changes
}

/// Whether both map the same thing at `at`.
fn is_same(wanted: &Mapping, found: &Mapping, at: u64) -> bool {
    let is_memory = |source: &Source| matches!(source, Source::Anonymous | Source::Stack);
    if (wanted.shared, wanted.on_fork) != (found.shared, found.on_fork) {
        return false;
    }
    let both_memory = is_memory(&wanted.source) && is_memory(&found.source);
    both_memory || wanted.source_at(at) == found.source_at(at)
}

/// Appends a change, as a part of the last one where that does the same next to it.
fn add(changes: &mut Vec<Change>, change: Change) {
    match (changes.last_mut(), &change) {
        (Some(Change::Unmap(last)), Change::Unmap(span)) if last.end == span.start => {
            last.end = span.end;
        }
        (
            Some(Change::Map {
                span: last,
                protection: a,
                shared: false,
                on_fork: c,
                source: Source::Anonymous,
            }),
            Change::Map {
                span,
                protection: b,
                shared: false,
                on_fork: d,
                source: Source::Anonymous,
            },
        ) if last.end == span.start && (&*a, &*c) == (b, d) => last.end = span.end,
        (
            Some(Change::Protect {
                span: last,
                protection: a,
            }),
            Change::Protect {
                span,
                protection: b,
            },
        ) if last.end == span.start && a == b => last.end = span.end,
        _ => changes.push(change),
    }
}

#[cfg(test)]
mod tests {
    use super::super::maps::{Name, READ};
    use super::*;

    fn mapping(start: u64, end: u64, protection: u8, source: Source) -> Mapping {
        Mapping {
            start,
            end,
            protection,
            shared: false,
            on_fork: OnFork::Copied,
            source,
        }
    }

    fn name(text: &str) -> Name {
        Name::new(text.into())
    }

    fn file(offset: u64) -> Source {
        Source::File {
            path: name("/lib/x"),
            identity: (1, 2),
            offset,
        }
    }

    #[test]
    fn only_differences_are_changes() {
        let both = READ | WRITE;
        let from = [
            mapping(0x1000, 0x4000, both, Source::Anonymous),
            mapping(0x8000, 0xa000, READ, file(0)),
            mapping(0xc000, 0xd000, both, Source::Stack),
        ];
        assert_eq!(changes(&from, &from), []);
        let to = [
            mapping(0x2000, 0x3000, READ, Source::Anonymous),
            mapping(0x5000, 0x6000, both, Source::Anonymous),
            mapping(0x6000, 0x7000, both, file(0)),
            mapping(0x8000, 0x9000, READ, file(0)),
            mapping(0x9000, 0xa000, READ, file(0x5000)),
            mapping(0xb000, 0xd000, both, Source::Stack),
        ];
        let memory = |start, end| Change::Map {
            span: Span::new(start, end),
            protection: both,
            shared: false,
            on_fork: OnFork::Copied,
            source: Source::Anonymous,
        };
        let wanted = [
            memory(0x1000, 0x2000),
            Change::Protect {
                span: Span::new(0x2000, 0x3000),
                protection: both,
            },
            memory(0x3000, 0x4000),
            Change::Unmap(Span::new(0x5000, 0x7000)),
            Change::Map {
                span: Span::new(0x9000, 0xa000),
                protection: READ,
                shared: false,
                on_fork: OnFork::Copied,
                source: file(0x1000),
            },
            Change::Unmap(Span::new(0xb000, 0xc000)),
        ];
        assert_eq!(changes(&from, &to), wanted);
    }

    #[test]
    fn memory_is_mapped_anew_where_fork_treats_it_otherwise() {
        let one = |on_fork| {
            let mapping = mapping(0x1000, 0x3000, READ, Source::Anonymous);
            [Mapping { on_fork, ..mapping }]
        };
        let kinds = [OnFork::Copied, OnFork::Wiped, OnFork::Droppable];
        for (wanted, found) in kinds
            .iter()
            .flat_map(|one| kinds.map(|other| (*one, other)))
        {
            let changes = changes(&one(wanted), &one(found));
            let is_mapped = |change: &Change| matches!(change, Change::Map { on_fork, .. } if *on_fork == wanted);
            match wanted == found {
                true => assert_eq!(changes, []),
                false => assert!(changes.len() == 1 && is_mapped(&changes[0]), "{changes:?}"),
            }
        }
        let refused = refuse_unfit(&one(OnFork::Absent)).unwrap_err();
        assert_eq!(refused.name(), "not_forked", "{refused}");
    }

    #[test]
    fn a_moved_vdso_is_no_sibling() {
        let stack = mapping(0x9000, 0xa000, READ, Source::Stack);
        let vdso = |start| mapping(start, start + 0x1000, READ, Source::Kernel(name("[vdso]")));
        let one = [vdso(0x1000), stack.clone()];
        assert_eq!(refuse_unlike(&one, &one), Ok(()));
        assert!(refuse_unlike(&one, &[vdso(0x2000), stack]).is_err());
        assert!(refuse_unlike(&one, &one[..1]).is_err());
    }
}
