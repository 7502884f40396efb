//! What every call yields: the [`Record`], the [events](event) that come before it,
//! and errors that name the step, the operand and the way out; and the values that callers write:
//! quantities, lists that are counted, and what is only passed on.
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

pub mod bytes;
pub mod context;
pub mod counted;
mod document;
pub mod error;
pub mod event;
pub mod format;
pub mod json;
pub mod network;
pub mod order;
pub mod picture;
pub mod quantity;
pub mod schema;
pub mod stream;
pub mod terminal;
pub mod units;
pub mod unread;
mod variables;
pub mod words;

pub use context::{State, TerminalSize};
pub use document::*;
pub use network::{
    BrokerRecord, Connection, NetworkRecord, NetworkTotals, RefusedHost, SecretHeaderUse,
};
pub use order::Shown;
pub use variables::{Variable, Variables};
