//! E2B's wire: control plane, code interpreter and envd, as E2B's own SDKs use them.
//!
//! A *sandbox* is a context of the hub with an id that cannot be guessed, a deadline, and what
//! a client said about it. The SDKs send everything to one port; `E2b-Sandbox-Id` and
//! `E2b-Sandbox-Port` say which server of which sandbox is meant:
//!
//! ```text
//!   neither                 ──► control   creates, lists, pauses and ends sandboxes
//!   port 49999 of a sandbox ──► code      executes code, in contexts
//!   port 49983 of a sandbox ──► envd      files and programs
//! ```

mod access;
mod answers;
mod code;
mod connect;
mod control;
mod envd;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod links;
mod sandboxes;
mod settings;

use wire::{Code, Failure};

pub(crate) use access::{Ports, dispatch};
pub(crate) use control::router;
pub(crate) use sandboxes::Sandboxes;
pub use settings::{Settings, Size};

/// The version of envd that clients are shown, and by which they choose features: later ones have
/// metadata of files, and entries in events.
const ENVD_VERSION: &str = "0.6.1";
/// Where the SDKs expect a user's files: here, the workspace.
pub const HOME: &str = "/home/user";
/// Where the workspace is.
const WORKSPACE: &str = "/workspace";

/// Runs work that must not be left half done: it goes on even if its client goes.
///
/// # Errors
/// Those of the work; the server is ending.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let done = crate::front::held::spawn(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(Code::ShuttingDown, error.to_string())))
}

/// A port of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Code,
    Envd,
}

impl Port {
    fn of(number: &str) -> Option<Self> {
        match number {
            "49999" => Some(Self::Code),
            "49983" => Some(Self::Envd),
            _ => None,
        }
    }
}
