//! How long sandboxes exist, and what becomes of their state.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serve::Party;
use serve::protocol::{Branch, Code, ContextInfo, ContextList, Failure, Forked};

use super::create::USUAL_LIFE;
use super::{access, find};
use crate::answer::{self, Answer};
use crate::body;
use crate::client::Client;
use crate::e2b::sandboxes::Sandbox;
use crate::e2b::wire;
use crate::front::Guarded;

/// The most sandboxes that go on from one at once.
const MOST_FORKS: usize = 20;

/// The time until a sandbox ends: what a client asks for, at most what the server allows.
pub(super) fn within(guarded: &Guarded, seconds: Option<u64>) -> Duration {
    let asked = seconds.map_or(USUAL_LIFE, Duration::from_secs);
    asked.min(guarded.e2b().longest)
}

/// Has a sandbox end in time, or be paused.
pub(super) fn wind(guarded: &Guarded, sandbox: &Arc<Sandbox>) {
    let (guarded, own) = (guarded.clone(), Arc::clone(sandbox));
    let clock = tokio::spawn(async move {
        loop {
            let ends = own.ends();
            tokio::time::sleep_until(ends).await;
            if own.ends() <= ends {
                break;
            }
        }
        let Ok(mut client) = guarded.client(own.party) else {
            return;
        };
        let is_paused = own.creation.pauses_at_end && suspend(&mut client, &own).await.is_ok();
        if !is_paused {
            // A task that removes its sandbox ends itself at the next wait.
            tokio::spawn(async move { end(&guarded, &own).await });
        }
    });
    sandbox.set_clock(clock.abort_handle());
}

async fn end(guarded: &Guarded, sandbox: &Sandbox) -> Result<(), Failure> {
    guarded.sandboxes().remove(sandbox);
    let mut client = guarded.client(sandbox.party)?;
    sandbox.end(&mut client).await
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
    forget_ended(guarded, party).await?;
    find(guarded, party, id)?;
    Ok(sandbox)
}

/// Takes those sandboxes of a party off the list whose cell the hub does not have any more.
///
/// # Errors
/// See [`Client::ask`].
pub(super) async fn forget_ended(guarded: &Guarded, party: Party) -> Result<(), Failure> {
    let before = guarded.sandboxes().of(party);
    let mut client = guarded.client(party)?;
    let listed: ContextList = client.ask_for("context.list", &json!({})).await?;
    for sandbox in before {
        let is_main = |context: &ContextInfo| context.context == sandbox.main;
        if !listed.contexts.iter().any(is_main) {
            end(guarded, &sandbox).await?;
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
        end(&guarded, &sandbox).await
    };
    match killed.await {
        Ok(()) => wire::empty(),
        Err(failure) => wire::failed(&failure),
    }
}

#[derive(Debug, Default, Deserialize)]
struct Timeout {
    #[serde(default)]
    timeout: Option<u64>,
    #[serde(default)]
    count: Option<usize>,
    /// What a refresh asks for.
    #[serde(default)]
    duration: Option<u64>,
    #[serde(default)]
    memory: Option<bool>,
}

/// A body that may be left out.
async fn optional<T: DeserializeOwned + Default>(body: Body) -> Result<T, Failure> {
    let text = body::read(body).await?;
    if text.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&text)
        .map_err(|error| Failure::new(Code::BadParams, format!("the body: {error}")))
}

/// Has a sandbox end after this time from now on, and its cells exist as long.
async fn prolong(guarded: &Guarded, sandbox: &Sandbox, life: Duration) -> Result<(), Failure> {
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
        let asked: Timeout = optional(body).await?;
        let sandbox = existing(&guarded, party, &id).await?;
        if sandbox.is_paused() {
            return Err(wire::gone(&id));
        }
        prolong(&guarded, &sandbox, within(&guarded, asked.timeout)).await?;
        wind(&guarded, &sandbox);
        Ok(())
    };
    match set.await {
        Ok(()) => wire::empty(),
        Err(failure) => wire::failed(&failure),
    }
}

/// Adds time, if there would be less.
pub(super) async fn refresh(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let refreshed = async {
        let asked: Timeout = optional(body).await?;
        let sandbox = existing(&guarded, party, &id).await?;
        let life = within(&guarded, asked.duration.or(Some(60)));
        longer(&guarded, &sandbox, life).await
    };
    match refreshed.await {
        Ok(()) => wire::empty(),
        Err(failure) => wire::failed(&failure),
    }
}

async fn longer(guarded: &Guarded, sandbox: &Sandbox, life: Duration) -> Result<(), Failure> {
    match tokio::time::Instant::now() + life > sandbox.ends() {
        true => prolong(guarded, sandbox, life).await,
        false => Ok(()),
    }
}

/// Answers with what a client needs to use a sandbox; one that is paused goes on.
pub(super) async fn connect(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let connected = async {
        let asked: Timeout = optional(body).await?;
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
        Err(failure) => wire::failed(&failure),
    }
}

async fn resume(guarded: &Guarded, sandbox: &Arc<Sandbox>, life: Duration) -> Result<(), Failure> {
    let mut client = guarded.client(sandbox.party)?;
    let params = json!({"context": sandbox.main});
    client.ask("context.resume", &params).await?;
    prolong(guarded, sandbox, life).await?;
    sandbox.set_paused(false);
    wind(guarded, sandbox);
    Ok(())
}

/// A paused sandbox is used: the hub has it go on, and from now on it ends again in time.
pub(in crate::e2b) fn resumed(guarded: &Guarded, sandbox: &Arc<Sandbox>) {
    sandbox.set_paused(false);
    sandbox.end_after(within(guarded, None));
    wind(guarded, sandbox);
}

/// Suspends the cells of a sandbox.
async fn suspend(client: &mut Client, sandbox: &Sandbox) -> Result<(), Failure> {
    let main = &sandbox.main;
    client
        .ask("context.suspend", &json!({"context": main}))
        .await?;
    sandbox.set_paused(true);
    for context in sandbox.contexts() {
        if context.id != *main {
            crate::e2b::sandboxes::delete(client, &context.id).await?;
        }
    }
    Ok(())
}

pub(super) async fn pause(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let paused = async {
        let asked: Timeout = optional(body).await?;
        let sandbox = existing(&guarded, party, &id).await?;
        if sandbox.is_paused() {
            return Ok(Some(sandbox));
        }
        if asked.memory == Some(false) {
            let message = "a sandbox is paused with its memory";
            return Err(Failure::new(Code::BadParams, message));
        }
        check_state(&sandbox)?;
        let mut client = guarded.client(party)?;
        suspend(&mut client, &sandbox).await.map_err(carried)?;
        Ok(None)
    };
    match paused.await {
        Ok(None) => wire::empty(),
        Ok(Some(sandbox)) => {
            let message = format!("sandbox {} is already paused", sandbox.id);
            wire::error(StatusCode::CONFLICT, message)
        }
        Err(failure) => wire::failed(&failure),
    }
}

/// Only the main context's state can be carried; another one's would be lost.
fn check_state(sandbox: &Sandbox) -> Result<(), Failure> {
    let main = &sandbox.main;
    match sandbox.context(|context| context.id != *main && !context.is_default) {
        Some(context) => {
            let message = format!("context {} of the sandbox cannot be carried", context.id);
            Err(Failure::new(Code::BadParams, message).hint("remove it first"))
        }
        None => Ok(()),
    }
}

/// A state that cannot be carried is the client's business.
fn carried(failure: Failure) -> Failure {
    match failure.code {
        Code::Failed => Failure {
            code: Code::BadParams,
            hint: Some(
                "start the server with --e2b-pause, or create the sandbox with \
                 lifecycle on_timeout \"pause\""
                    .to_owned(),
            )
            .filter(|_| failure.message.contains("laid out at random"))
            .or(failure.hint),
            ..failure
        },
        _ => failure,
    }
}

pub(super) async fn fork(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let forked = async {
        let asked: Timeout = optional(body).await?;
        let count = asked.count.unwrap_or(1);
        if !(1..=MOST_FORKS).contains(&count) {
            let message = format!("count: wants 1 to {MOST_FORKS}");
            return Err(Failure::new(Code::BadParams, message));
        }
        let sandbox = existing(&guarded, party, &id).await?;
        check_state(&sandbox)?;
        let mut client = guarded.client(party)?;
        let params = json!({"context": sandbox.main, "n": count});
        let forked: Forked = client
            .ask_for("context.fork", &params)
            .await
            .map_err(carried)?;
        let life = within(&guarded, asked.timeout);
        let mut all = Vec::new();
        for branch in forked.branches {
            all.push(adopt(&guarded, &sandbox, branch, life)?);
        }
        Ok(all)
    };
    match forked.await {
        Ok(all) => answer::json(StatusCode::CREATED, &all),
        Err(failure) => wire::failed(&failure),
    }
}

/// Makes a sandbox of a context that goes on from another one's state.
fn adopt(
    guarded: &Guarded,
    from: &Sandbox,
    branch: Branch,
    life: Duration,
) -> Result<Value, Failure> {
    let Some(context) = branch.context else {
        let failure = branch.error.unwrap_or_else(|| wire::gone(&from.id));
        let status = answer::status_of(failure.code).as_u16();
        return Ok(json!({"error": {"code": status, "message": failure.message}}));
    };
    let sandbox = Arc::new(Sandbox::of_fork(from, context, life)?);
    guarded.sandboxes().add(Arc::clone(&sandbox));
    wind(guarded, &sandbox);
    Ok(json!({"sandbox": access(&sandbox)}))
}
