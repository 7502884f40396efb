//! How long sandboxes exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use tokio::time::Instant;
use wire::{Code, ContextListing, Failure, Party, method};

use super::create::USUAL_LIFE;
use super::state::{resume, try_pause};
use super::{access, find};
use crate::answer::{self, Answer};
use crate::body;
use crate::e2b::answers;
use crate::e2b::sandboxes::Sandbox;
use crate::front::Guarded;

/// The time between two attempts.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often the cells of a sandbox are ended where that fails.
const MOST_ATTEMPTS: usize = 60;

/// The time until a sandbox ends: as the client asks for, but at most what the server allows.
pub(super) fn within(guarded: &Guarded, seconds: Option<u64>) -> Duration {
    let asked = seconds.map_or(USUAL_LIFE, Duration::from_secs);
    asked.min(guarded.e2b().longest)
}

/// Starts the clock of a sandbox, which ends or pauses it in time.
pub(super) fn start_clock(guarded: &Guarded, sandbox: &Arc<Sandbox>) {
    let (guarded, own) = (guarded.clone(), Arc::clone(sandbox));
    let clock = tokio::spawn(async move {
        loop {
            let ends = own.ends();
            tokio::time::sleep_until(ends).await;
            if own.ends() <= ends {
                break;
            }
        }
        if own.is_paused() || (own.creation.pauses_at_end && try_pause(&guarded, &own).await) {
            return;
        }
        end(&guarded, &own);
    });
    sandbox.set_clock(Some(clock.abort_handle()));
}

/// Removes a sandbox from the list at once, and ends its cells meanwhile. Cells for which that
/// fails are left to the hub, which deletes idle contexts.
fn end(guarded: &Guarded, sandbox: &Arc<Sandbox>) {
    guarded.sandboxes().remove(sandbox);
    let (guarded, own) = (guarded.clone(), Arc::clone(sandbox));
    tokio::spawn(async move {
        for _ in 0..MOST_ATTEMPTS {
            if let Ok(mut client) = guarded.client(own.party)
                && own.end(&mut client).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    });
}

/// A sandbox that the hub still has.
///
/// # Errors
/// It does not exist, or is another party's.
pub(super) async fn existing(
    guarded: &Guarded,
    party: Party,
    id: &str,
) -> Result<Arc<Sandbox>, Failure> {
    let sandbox = find(guarded, party, id)?;
    let main = ContextListing {
        context: Some(sandbox.main.clone()),
        ..ContextListing::default()
    };
    forget_those_ended(guarded, party, vec![sandbox], &main).await?;
    find(guarded, party, id)
}

/// Removes those sandboxes of a party from the list whose cells the hub no longer has.
///
/// # Errors
/// See [`Client::ask`].
pub(super) async fn forget_ended(guarded: &Guarded, party: Party) -> Result<(), Failure> {
    let all = guarded.sandboxes().of(party);
    forget_those_ended(guarded, party, all, &ContextListing::default()).await
}

/// The same for some of them; `listing` are the parameters that list their contexts.
async fn forget_those_ended(
    guarded: &Guarded,
    party: Party,
    sandboxes: Vec<Arc<Sandbox>>,
    listing: &ContextListing,
) -> Result<(), Failure> {
    let mut client = guarded.client(party)?;
    let listed = client.ask::<method::ContextList>(listing).await?;
    let names: BTreeSet<String> = (listed.contexts.into_iter())
        .map(|context| context.context)
        .collect();
    for sandbox in sandboxes {
        if !names.contains(&sandbox.main) {
            end(guarded, &sandbox);
        }
    }
    Ok(())
}

pub(super) async fn kill(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
) -> Answer {
    let killed = async {
        let sandbox = existing(&guarded, party, &id).await?;
        // Its processes end within milliseconds; the kernel takes longer to free what they had.
        end(&guarded, &sandbox);
        Ok(())
    };
    answers::done(killed.await)
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Timeout {
    #[serde(default)]
    pub(super) timeout: Option<u64>,
    #[serde(default)]
    pub(super) count: Option<usize>,
    /// The seconds of a refresh.
    #[serde(default)]
    duration: Option<u64>,
    #[serde(default)]
    pub(super) memory: Option<bool>,
}

/// Sets the time until a sandbox ends, and keeps its cells for as long.
pub(super) async fn prolong(
    guarded: &Guarded,
    sandbox: &Sandbox,
    life: Duration,
) -> Result<(), Failure> {
    let mut client = guarded.client(sandbox.party)?;
    sandbox.touch(&mut client).await?;
    sandbox.end_after(life);
    Ok(())
}

pub(super) async fn set_timeout(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let set = async {
        let asked: Timeout = body::optional(body).await?;
        let sandbox = existing(&guarded, party, &id).await?;
        if sandbox.is_paused() {
            return Err(answers::gone(&id));
        }
        prolong(&guarded, &sandbox, within(&guarded, asked.timeout)).await?;
        start_clock(&guarded, &sandbox);
        Ok(())
    };
    answers::done(set.await)
}

/// Extends the time until a sandbox ends, and never shortens it.
pub(super) async fn refresh(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let refreshed = async {
        let asked: Timeout = body::optional(body).await?;
        let sandbox = existing(&guarded, party, &id).await?;
        let life = within(&guarded, asked.duration.or(Some(60)));
        longer(&guarded, &sandbox, life).await
    };
    answers::done(refreshed.await)
}

async fn longer(guarded: &Guarded, sandbox: &Sandbox, life: Duration) -> Result<(), Failure> {
    match Instant::now() + life > sandbox.ends() {
        true => prolong(guarded, sandbox, life).await,
        false => Ok(()),
    }
}

/// Answers with what a client needs to use a sandbox, and resumes a paused one.
pub(super) async fn connect(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let connected = async {
        let asked: Timeout = body::optional(body).await?;
        let sandbox = existing(&guarded, party, &id).await?;
        let life = within(&guarded, asked.timeout);
        if !sandbox.is_paused() {
            longer(&guarded, &sandbox, life).await?;
            return Ok((StatusCode::OK, sandbox));
        }
        if asked.memory == Some(false) {
            let message = "a sandbox that is paused goes on with its memory";
            return Err(Failure::new(Code::BadParams, message).hint("leave out on_resume"));
        }
        resume(&guarded, &sandbox, life).await?;
        Ok((StatusCode::CREATED, sandbox))
    };
    match connected.await {
        Ok((status, sandbox)) => answer::json(status, &access(&sandbox)),
        Err(failure) => answers::failed(&failure),
    }
}
