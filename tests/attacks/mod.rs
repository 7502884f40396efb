//! One file per technique of the attack catalogue.

use crate::cells::Suite;

mod archives;
mod bind_swap;
mod channels;
mod descriptors;
mod devices;
mod environment;
mod floods;
mod foreign_abi;
mod host_view;
mod hostile_driver;
mod io_uring;
mod kernel_calls;
mod kernel_settings;
mod keyrings;
mod mount_api;
mod mounts;
mod namespaces;
mod network;
mod no_exec;
mod output_files;
mod project;
mod raw_bytes;
mod release_agent;
mod root_inside;
mod rootfs_links;
mod self_exe;
mod setuid;
mod side_doors;
mod signals;
mod sockets;
mod system_info;
mod terminal;
mod terminal_text;

/// Every technique, in the catalogue's order.
pub(crate) const SUITES: &[&Suite] = &[
    &terminal::SUITE,
    &terminal_text::SUITE,
    &self_exe::SUITE,
    &descriptors::SUITE,
    &rootfs_links::SUITE,
    &bind_swap::SUITE,
    &release_agent::SUITE,
    &kernel_settings::SUITE,
    &namespaces::SUITE,
    &mount_api::SUITE,
    &mounts::SUITE,
    &io_uring::SUITE,
    &keyrings::SUITE,
    &sockets::SUITE,
    &channels::SUITE,
    &kernel_calls::SUITE,
    &foreign_abi::SUITE,
    &setuid::SUITE,
    &root_inside::SUITE,
    &devices::SUITE,
    &host_view::SUITE,
    &system_info::SUITE,
    &no_exec::SUITE,
    &signals::SUITE,
    &environment::SUITE,
    &hostile_driver::SUITE,
    &floods::SUITE,
    &raw_bytes::SUITE,
    &output_files::SUITE,
    &project::SUITE,
    &archives::SUITE,
    &network::SUITE,
    &side_doors::SUITE,
];
