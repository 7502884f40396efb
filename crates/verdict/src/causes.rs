//! Which denied system calls a failure can come from.

use super::category;
use super::evidence::{Evidence, Held};
use super::last_words::has_words;
use record::{Category, Denied, Outcome};

/// Calls that programs try, and go on without: a probe of a runtime or a library. One is named as
/// a cause only where the program names it.
const PROBES: [&str; 12] = [
    "get_mempolicy",
    "io_setup",
    "io_uring_setup",
    "landlock_create_ruleset",
    "mbind",
    "membarrier",
    "memfd_create",
    "perf_event_open",
    "sched_setaffinity",
    "set_mempolicy",
    "shmget",
    "userfaultfd",
];

/// Calls that are denied only because no cgroup holds the memory.
const UNCOUNTED: [&str; 2] = ["landlock_create_ruleset", "memfd_create"];

/// Calls whose memory counts in full from the start where no cgroup holds the memory.
const COUNTED: [&str; 4] = ["mmap", "msgget", "semget", "shmget"];

/// What helps where memory that counts in full was refused.
pub(super) const MORE_MEMORY: &str = "`--memory SIZE` gives more; a cgroup that holds the memory counts only what is used of shared memory (`cellblock doctor` says how to get one)";

/// The denied calls that can have made a run fail that ended in this way.
pub(super) fn of<'d>(
    evidence: &Evidence<'d>,
    outcome: Outcome,
    category: Category,
) -> Vec<&'d Denied> {
    let is_programs = matches!(outcome, Outcome::Error | Outcome::Exit | Outcome::Signal);
    // What is wrong with the code itself.
    let is_codes = matches!(
        category,
        Category::Syntax | Category::Name | Category::Import | Category::Type | Category::Value
    );
    match is_programs && !is_codes {
        true => (evidence.denied.iter())
            .filter(|denied| can_be_one(denied, evidence))
            .collect(),
        false => Vec::new(),
    }
}

/// Whether a denied call can be a cause at all.
pub(super) fn can_be_one(denied: &Denied, evidence: &Evidence<'_>) -> bool {
    let names = |text: &str| has_words(&text.to_lowercase(), &denied.name);
    !PROBES.contains(&denied.name.as_str())
        || names(&evidence.stderr)
        || evidence.error.is_some_and(|error| {
            names(&error.message) || category::denial_behind(error, evidence) == Some(denied)
        })
}

/// Whether a call was denied because the limit had no room for all the memory that it makes.
pub(super) fn is_counted(denied: &Denied, held: Held) -> bool {
    !held.memory_by_cgroup && COUNTED.contains(&denied.name.as_str()) && denied.action == "ENOMEM"
}

/// What the operator can do about them.
pub(super) fn way_out(causes: &[&Denied], evidence: &Evidence<'_>) -> Option<String> {
    let first = causes.first()?;
    let name = &first.name;
    if is_counted(first, evidence.held) {
        return Some(MORE_MEMORY.to_owned());
    }
    let is_uncounted = !evidence.held.memory_by_cgroup && UNCOUNTED.contains(&name.as_str());
    Some(match name.as_str() {
        _ if is_uncounted => format!(
            "`{name}` is denied because no cgroup holds the memory: start cellblock in a delegated one (`cellblock doctor` says how), or give up the limit with `--memory none`"
        ),
        "sched_setaffinity" => format!(
            "`{name}` is denied because no cgroup holds the CPUs: start cellblock in a delegated one, or give up the limit with `--cpus none`"
        ),
        "ptrace" | "process_vm_readv" => {
            format!("`--seccomp debug` allows `{name}`, for debuggers and leak checks")
        }
        _ => format!("`--seccomp FILE` names a policy that allows `{name}` (policies/README.md)"),
    })
}
