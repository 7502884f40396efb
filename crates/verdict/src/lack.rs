//! What the record says about memory that was lacking: how much was in use, by what, and which
//! limit refused more.

use super::causes;
use super::evidence::Evidence;
use super::explain::Advice;
use record::Category;
use spec::Bytes;

/// Files below this size are not worth a word.
const WORTH_NAMING: u64 = 1 << 20;

/// What interpreters write whose own heap is full: it follows the memory limit, and no limit of the
/// cell has refused anything.
const OWN_HEAP: [&str; 3] = [
    "JavaScript heap out of memory",
    "java.lang.OutOfMemoryError",
    "Heap exhausted",
];

/// Which limit acts on what a process maps, used or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapped {
    Data(Bytes),
    AddressSpace(Bytes),
}

/// The context where memory ran out.
pub(super) fn ran_out(evidence: &Evidence<'_>) -> String {
    let files = files(evidence);
    let less = match files {
        Some(_) => "delete files that are no longer needed, hold less at a time",
        None => "hold less at a time",
    };
    let files = files.unwrap_or_default();
    match evidence.limits.memory {
        Some(limit) => format!(
            "the code needed more memory than its limit of {limit}{files}; {less}, or ask for more memory"
        ),
        None => format!("the code needed more memory than there is{files}; {less}"),
    }
}

/// How much of the memory files were, if it was an eighth of the limit or more.
fn files(evidence: &Evidence<'_>) -> Option<String> {
    let held = evidence.measured.files.iter();
    let held: Vec<_> = held.filter(|files| files.used.0 >= WORTH_NAMING).collect();
    let sum = held.iter().map(|files| files.used.0).sum::<u64>();
    let least = evidence.limits.memory.map_or(0, |limit| limit.0 / 8);
    let places: Vec<&str> = held.iter().map(|files| files.name.as_str()).collect();
    (sum > 0 && sum >= least).then(|| {
        let (sum, places) = (about(Bytes(sum)), places.join(" and "));
        format!("; {sum} of it were files in {places}, which are memory here")
    })
}

/// The tmpfs in which a larger write than it has room for may have been refused.
pub(super) fn nearly_full(evidence: &Evidence<'_>) -> Option<String> {
    let held = evidence.measured.files.iter();
    let nearly = held.filter(|files| files.was_nearly_full());
    let shown: Vec<String> = nearly
        .map(|files| {
            format!(
                "{} {} {} of {}",
                files.name,
                if files.used == files.most {
                    "holds"
                } else {
                    "held"
                },
                about(files.most),
                files.size
            )
        })
        .collect();
    (!shown.is_empty()).then(|| shown.join(" and "))
}

/// What the code reports that it lacked, where the measurements do not show that memory ran out.
pub(super) fn claimed(evidence: &Evidence<'_>) -> String {
    let seen = (evidence.measured.memory_peak).map_or_else(String::new, |peak| {
        format!(", and at most {} was measured in use", about(peak))
    });
    let Some(limit) = evidence.limits.memory else {
        return format!("it reports a lack of memory{seen}; ask for less at a time");
    };
    // Why shared memory was refused is said with the denied call.
    let refused = match acting(evidence).filter(|_| !refused_shared(evidence)) {
        _ if is_own_heap(evidence) => {
            "its interpreter's own heap is full, which is smaller than that unless the program sets it"
                .to_owned()
        }
        Some(Mapped::Data(data)) => format!(
            "it may have asked for too much at once: what a process maps counts, used or not, up to {data} (`data`)"
        ),
        Some(Mapped::AddressSpace(size)) => format!(
            "it may have asked for too much at once: the address space of a process has at most {size} (`address_space`)"
        ),
        None => "it may have asked for too much at once".to_owned(),
    };
    format!(
        "it reports a lack of memory; the limit is {limit}{seen}, so {refused}; ask for less at a time, or for a higher limit"
    )
}

/// What only the operator can do about such a claim.
pub(super) fn way_out(category: Category, evidence: &Evidence<'_>) -> Option<String> {
    if category == Category::Memory && refused_shared(evidence) {
        return Some(causes::MORE_MEMORY.to_owned());
    }
    let acting = acting(evidence).filter(|_| category == Category::Memory)?;
    let follows_memory = |data: Bytes| evidence.limits.memory.is_some_and(|memory| data <= memory);
    match acting {
        _ if is_own_heap(evidence) => Some("`--memory SIZE` gives more".to_owned()),
        Mapped::Data(data) if follows_memory(data) => Some(
            "`--memory SIZE` gives more, and what the code may map follows it".to_owned(),
        ),
        Mapped::Data(_) => Some(
            "`--data SIZE` sets how much memory a process may map without using it, and `--data none` lifts that limit, as sanitizers need it; a cgroup that holds the memory makes it unnecessary"
                .to_owned(),
        ),
        Mapped::AddressSpace(_) => {
            Some("`--address-space SIZE` sets the address space of a process".to_owned())
        }
    }
}

/// Whether shared memory was refused for want of room.
fn refused_shared(evidence: &Evidence<'_>) -> bool {
    let mut denied = evidence.denied.iter();
    denied.any(|denied| causes::is_counted(denied, evidence.held))
}

fn is_own_heap(evidence: &Evidence<'_>) -> bool {
    let words = evidence.last_words.map(|(_, phrase)| phrase);
    words.is_some_and(|phrase| OWN_HEAP.contains(&phrase))
}

/// The smaller of the two limits that a reservation meets.
fn acting(evidence: &Evidence<'_>) -> Option<Mapped> {
    let held = evidence.held;
    match (held.data, held.address_space) {
        (data, Some(size)) if data.is_none_or(|data| size <= data) => {
            Some(Mapped::AddressSpace(size))
        }
        (data, _) => data.map(Mapped::Data),
    }
}

/// A claim, as a context of its own.
pub(super) fn advice(evidence: &Evidence<'_>) -> Advice {
    Advice {
        author: claimed(evidence),
        operator: way_out(Category::Memory, evidence),
    }
}

/// Bytes in whole MiB.
fn about(bytes: Bytes) -> String {
    format!("{}M", bytes.0.div_ceil(1 << 20))
}
