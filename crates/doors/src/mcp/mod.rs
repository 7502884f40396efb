//! The Model Context Protocol in front of a server: tools for models.
//!
//! A [`Door`] is a client of the server like any other: it makes the server's own calls and
//! launches nothing. It does no input or output, so that tests drive it without a process;
//! [`speak`] is the loop on standard input and output. Over HTTP ([`http`]), each request
//! has a door of its own, and those of one party share a [`Memory`].
//!
//! ```text
//!   MCP client ──JSON-RPC──► Door ──the server's calls──► hub
//!              ◄─────────────     ◄──answers, events─────
//! ```
//!
//! Revision 2026-07-28 has no sessions: a client says with every request which revision it
//! speaks. Older clients begin with `initialize`. Both are served by the same process, since
//! clients try the one and then the other. In either, a context is an argument of the tool
//! (`context_id`) and never the connection's own: several conversations share a connection.

mod command;
mod door;
pub(crate) mod http;
mod instructions;
mod kept;
mod memory;
mod output;
mod pending;
mod resource;
mod revision;
mod rpc;
mod stdio;
mod tools;

pub(crate) use door::{Door, Line};
pub use instructions::{About, Interpreter};
pub(crate) use memory::Memory;
pub(crate) use revision::{STATELESS, WITH_HANDSHAKE as REVISIONS};
pub use stdio::speak;
pub use tools::schemas;
