//! The broker: a process outside of a cell that decides about the cell's connections and
//! carries them.
//!
//! A cell with an allowlist has an empty network namespace. Its init makes local routes
//! for a synthetic network of each family ([`hosts::synthetic`]) and listening sockets for each
//! allowed port ([`Sockets`]), and hands them out. The broker answers DNS queries for
//! allowed names with synthetic addresses, accepts what connects to them, resolves the
//! name outside, and dials. Nothing that comes from the cell is ever forwarded to a
//! resolver, and no UDP is carried.

#![forbid(unsafe_code)]
// Nothing that a cell or a peer can influence may end in a panic.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod address;
pub mod authority;
mod broker;
mod config;
mod confine;
mod connection;
mod dns;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guard;
mod log;
mod rate;
mod relay;
pub mod report;
mod request;
mod resolve;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod socket;
mod synthetic;
mod terminate;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use self::broker::Broker;
use self::log::Log;
use self::report::{Failed, Report, shown};

pub use config::{
    Certificate, Config, Identity, Limits, MOST_SECRET, SecretHeader, Sockets, Upstream,
    send_secret,
};

/// Serves one cell until the control socket ends, and ends this process: with status 0
/// then, 1 when it could not begin.
///
/// For a process that was forked for it, has one thread, and has closed every descriptor
/// but its standard streams and those given here. `control` brings the [`Config`], once
/// ([`Config::send`]); its end, or the end of its writing half, ends the broker, which then
/// writes [`report::Totals`] to `reports` and exits. `reports` gets one
/// [`report::Report`] a line; it is never waited for while the cell runs. With `identity`,
/// which needs privileges, the process becomes that user. The parent's end ends it too.
pub fn serve(
    sockets: Sockets,
    control: OwnedFd,
    reports: OwnedFd,
    identity: Option<Identity>,
) -> ! {
    let mut last_words = reports.try_clone().map(File::from);
    let status = match try_serve(sockets, control, reports, identity) {
        Ok(()) => 0,
        Err(error) => {
            let failed = Report::Failed(Failed {
                error: shown(error.to_string().as_bytes()),
            });
            if let Ok(out) = &mut last_words {
                // Without a reader, the line is lost.
                let _ = writeln!(out, "{}", failed.line());
            }
            1
        }
    };
    sys::process::exit_now(status)
}

fn try_serve(
    sockets: Sockets,
    control: OwnedFd,
    reports: OwnedFd,
    identity: Option<Identity>,
) -> io::Result<()> {
    confine::drop_privileges(identity)?;
    let control = File::from(control);
    let Some(mut config) = Config::receive(&control)? else {
        // The cell ended before it was used.
        return Ok(());
    };
    let connections = confine::limit(config.limits.connections)?;
    config.limits.connections = connections;
    let needed = confine::Needed::by(&config);
    let mut broker = Broker::new(config, sockets, control.into(), Log::new(reports)?)?;
    // Nothing has been read from the cell so far.
    let ready = confine::confine(&needed, connections)?;
    broker.log().report(&Report::Ready(ready));
    broker.run();
    Ok(())
}
