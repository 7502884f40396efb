//! How cells end, what they may use, and what is left of them.

use crate::cells::Suite;

mod crowd;
mod disk;
mod ends;
mod event_readers;
mod events;
mod exit_codes;
mod files;
mod languages;
mod memory;
mod mix;
mod output;
mod record;
mod shares;
mod supervisor;
mod time;
mod truth;
mod unkillable;

/// Every subject, in the catalogue's order.
pub(crate) const SUITES: &[&Suite] = &[
    &ends::SUITE,
    &unkillable::SUITE,
    &output::SUITE,
    &memory::SUITE,
    &shares::SUITE,
    &time::SUITE,
    &supervisor::SUITE,
    &disk::SUITE,
    &exit_codes::SUITE,
    &files::SUITE,
    &record::SUITE,
    &events::SUITE,
    &event_readers::SUITE,
    &truth::SUITE,
    &crowd::SUITE,
    &mix::SUITE,
    &languages::SUITE,
];
