//! How cells end, what they may use, and what is left of them.

use crate::cells::Suite;

mod binds;
mod crowd;
mod disk;
mod ends;
mod event_readers;
mod events;
mod exit_codes;
mod files;
mod kept;
mod kept_hostile;
mod languages;
mod leftovers;
mod memory;
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
    &kept::SUITE,
    &kept_hostile::SUITE,
    &binds::SUITE,
    &leftovers::SUITE,
    &record::SUITE,
    &events::SUITE,
    &event_readers::SUITE,
    &truth::SUITE,
    &crowd::SUITE,
    &languages::SUITE,
];
