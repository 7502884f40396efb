//! A server in front of cells.
//!
//! A server's front end is one process, whose one thread that decides waits for nothing. It speaks with clients
//! ([`wire`]) and with the supervisors of its cells ([`supervisor`]), and launches
//! nothing itself:
//!
//! ```text
//!   client ──JSON Lines──► net ──calls──► hub ──orders──► net ──JSON Lines──► supervisor
//!          ◄─────────────      ◄─answers─     ◄─reports──     ◄─────────────
//! ```
//!
//! [`Hub`] decides and does no input or output, so that tests drive it without a process;
//! [`net`] is the loop that reads and writes.
#![forbid(unsafe_code)]
// Nothing that input, the kernel or a cell can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    any(test, fuzzing),
    allow(
        clippy::disallowed_types,
        reason = "tests look into small values of their own"
    )
)]

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hub;
pub mod net;
mod settings;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod store;

pub use hub::{Action, ClientId, Hub, LinkId, Metrics};
pub use settings::{Settings, Warm};
pub use store::Store;

/// The canonical name of a language, also for an alias; `None` for an unknown language.
fn language(name: &str) -> Option<&'static str> {
    languages::find(name).map(|driver| driver.name)
}
