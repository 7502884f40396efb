//! One message of a client, and the answers to it.

use std::time::{Duration, Instant};

use wire::{Failure, Party};

use crate::mcp::{Door, Line};

use super::sessions::GoingOn;
use crate::client::Client;
use crate::front::Guarded;

/// After how long without a message a comment shows that the server is there.
const QUIET: Duration = Duration::from_secs(15);

/// A door between a request and a client of the hub. The client is created when it is needed.
#[derive(Debug)]
pub(super) struct Exchange {
    door: Door,
    guarded: Guarded,
    party: Party,
    client: Option<Client>,
    going_on: Option<GoingOn>,
    /// A line for the hub that was not sent yet.
    next: Option<Line>,
}

/// A part of the answer.
#[derive(Debug)]
pub(super) enum Piece {
    /// A message.
    Line(String),
    /// Nothing has happened for a while.
    Quiet,
}

impl Exchange {
    pub(super) fn new(
        door: Door,
        guarded: Guarded,
        party: Party,
        going_on: Option<GoingOn>,
    ) -> Self {
        Self {
            door,
            guarded,
            party,
            client: None,
            going_on,
            next: None,
        }
    }

    /// Takes the message.
    pub(super) fn take(&mut self, message: &[u8]) {
        self.door.take_from_client(message, Instant::now());
        self.next = self.door.next_line();
    }

    /// Whether the answer must come from the hub.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.next, Some(Line::Server(_)))
    }

    /// # Errors
    /// The hub accepts no client.
    pub(super) fn connect(&mut self) -> Result<(), Failure> {
        if self.client.is_none() {
            self.client = Some(self.guarded.client(self.party)?);
        }
        Ok(())
    }

    /// The next part of the answer; `None` when all is answered.
    ///
    /// # Errors
    /// The hub accepts no client.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>, Failure> {
        loop {
            while let Some(line) = self.next.take().or_else(|| self.door.next_line()) {
                match line {
                    Line::Client(line) => return Ok(Some(Piece::Line(line))),
                    Line::Server(line) => {
                        self.connect()?;
                        if let Some(client) = &mut self.client {
                            client.send(line).await;
                        }
                    }
                }
            }
            let Some(client) = self.client.as_mut().filter(|_| !self.door.is_idle()) else {
                return Ok(None);
            };
            let quiet = Instant::now() + QUIET;
            let until = self.door.next_tick().map_or(quiet, |tick| tick.min(quiet));
            tokio::select! {
                line = client.line() => match line {
                    Ok(line) => self.door.take_from_server(&line, Instant::now()),
                    Err(failure) => self.door.fail(&failure),
                },
                () = cancelled(&mut self.going_on) => {
                    // Other exchanges may have calls in the same context, of which this door has no
                    // record. The hub has: when its client goes, a call that executes is
                    // interrupted, and one that waits is dropped.
                    self.client = None;
                    return Ok(None);
                }
                () = tokio::time::sleep_until(until.into()) => {
                    self.door.tick(Instant::now());
                    if until == quiet {
                        return Ok(Some(Piece::Quiet));
                    }
                }
            }
        }
    }
}

/// Waits until the request is cancelled, which happens at most once.
async fn cancelled(going_on: &mut Option<GoingOn>) {
    if let Some(one) = going_on
        && (&mut one.cancelled).await.is_ok()
    {
        *going_on = None;
        return;
    }
    *going_on = None;
    std::future::pending().await
}
