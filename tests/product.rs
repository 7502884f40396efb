//! What cellblock is to those who use it: its commands, record, pages, root file systems, system
//! call policies and drivers, each in a module of its own (`cargo test --test product -- man::`).
//!
//! One executable, since each takes long to link, and a few slow tests at its end leave
//! processors without work.

mod architecture;
mod completions;
#[path = "support/dispositions.rs"]
mod dispositions;
mod doctor;
mod drivers;
#[path = "support/events.rs"]
mod events;
mod examples;
mod formats;
#[path = "support/long.rs"]
mod long;
mod man;
mod mcp;
mod page;
mod record;
mod rootfs;
#[path = "support/schema.rs"]
mod schema;
mod seccomp;
mod servers;
#[path = "support/skip.rs"]
mod skip;
#[path = "support/validate.rs"]
mod validate;
