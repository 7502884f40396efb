//! How cells end, what they may use, and what is left of them.

use crate::cells::Suite;

mod binds;
mod callers;
mod compiled;
mod crowd;
mod disk;
mod ends;
mod event_readers;
mod events;
mod exit_codes;
mod fallback;
pub(crate) mod files;
mod kept;
mod kept_hostile;
mod languages;
mod leftovers;
mod memory;
mod migrating;
mod mix;
mod output;
mod overlays;
mod passed;
mod places;
mod probes;
mod programs_host;
mod record;
mod refusals;
mod reported;
mod reserved;
mod shares;
mod shown;
mod supervisor;
mod terminal;
mod time;
mod truth;
mod uncounted;
mod unkillable;
mod verdicts;
mod written;

/// Every suite, in the catalogue's order.
pub(crate) const SUITES: &[&Suite] = &[
    &ends::SUITE,
    &unkillable::SUITE,
    &output::SUITE,
    &memory::SUITE,
    &uncounted::SUITE,
    &fallback::SUITE,
    &shares::SUITE,
    &time::SUITE,
    &supervisor::SUITE,
    &callers::SUITE,
    &disk::SUITE,
    &exit_codes::SUITE,
    &files::SUITE,
    &kept::SUITE,
    &kept_hostile::SUITE,
    &binds::SUITE,
    &places::SUITE,
    &probes::SUITE,
    &programs_host::SUITE,
    &passed::SUITE,
    &terminal::SUITE,
    &shown::SUITE,
    &migrating::SUITE,
    &overlays::SUITE,
    &leftovers::SUITE,
    &record::SUITE,
    &refusals::SUITE,
    &reported::SUITE,
    &reserved::SUITE,
    &events::SUITE,
    &event_readers::SUITE,
    &truth::SUITE,
    &verdicts::SUITE,
    &crowd::SUITE,
    &mix::SUITE,
    &languages::SUITE,
    &compiled::SUITE,
    &written::SUITE,
];
