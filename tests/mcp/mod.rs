//! `cellblock mcp`, as clients of the Model Context Protocol see it.
//!
//! The clients here are written by hand, to send what no library would. tests/mcp/clients
//! has the same with the protocol's own libraries.

mod client;
mod results;
mod sessions;
