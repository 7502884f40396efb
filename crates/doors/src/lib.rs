//! Doors: protocols over HTTP, for clients that exist already.
//!
//! A door decides nothing about cells. Each request becomes a client of the server's hub
//! ([`client::Client`]), makes the calls of docs/PROTOCOL.md, and its answer is theirs in
//! another form. So a connection that vanishes cancels what it asked for, and a client that
//! does not read is not worked for.
//!
//! ```text
//!   HTTP client ──► front ──► a door ──► client ──JSON Lines──► serve::net ──► hub
//!                   one thread, tokio               socket pair   the main thread
//! ```
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

mod answer;
mod body;
mod client;
pub mod e2b;
mod files;
mod front;
mod fusion;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod librechat;
pub mod mcp;
mod nemo;
mod page;
mod random;
mod runs;
mod unzip;
mod upload;
mod v1;

pub use front::{Front, Listening, Settings};
pub use runs::Most;
pub use v1::openapi;
