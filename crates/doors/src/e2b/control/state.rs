//! Sandboxes whose state is kept: pausing, resuming and forking.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use record::json::Object;
use record::object;
use tokio::time::Instant;
use wire::{Branch, Code, ContextFork, ContextName, Failure, Party, Reason, method};

use super::access;
use super::life::{Timeout, existing, prolong, start_clock, within};
use crate::answer::{self, Answer};
use crate::body;
use crate::e2b::sandboxes::{Sandbox, delete};
use crate::e2b::{answers, detached};
use crate::front::Guarded;

/// The most forks of one request.
const MOST_FORKS: usize = 20;
/// How long a sandbox that is to be paused waits for a server that is busy.
const PAUSE_DEADLINE: Duration = Duration::from_secs(600);
/// The time between two attempts, unless the server says how long to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Pauses a sandbox; returns whether that was possible. While the server is busy, this is tried
/// again, because the state would be lost otherwise.
pub(super) async fn try_pause(guarded: &Guarded, sandbox: &Sandbox) -> bool {
    let until = Instant::now() + PAUSE_DEADLINE;
    loop {
        let Err(failure) = suspend(guarded, sandbox).await else {
            return true;
        };
        let wait = failure.retry_after_ms.map(Duration::from_millis);
        let wait = wait.unwrap_or_default().max(RETRY_AFTER);
        if failure.code != Code::Busy || Instant::now() + wait > until {
            return false;
        }
        tokio::time::sleep(wait).await;
    }
}

pub(super) async fn resume(
    guarded: &Guarded,
    sandbox: &Arc<Sandbox>,
    life: Duration,
) -> Result<(), Failure> {
    let mut client = guarded.client(sandbox.party)?;
    let params = ContextName::new(&sandbox.main);
    client.ask::<method::ContextResume>(&params).await?;
    prolong(guarded, sandbox, life).await?;
    sandbox.set_paused(false);
    start_clock(guarded, sandbox);
    Ok(())
}

/// Resumes a paused sandbox that is used, and starts its clock again.
///
/// # Errors
/// Its state is lost, or the server has no room for it.
pub(in crate::e2b) async fn wake(guarded: &Guarded, sandbox: &Arc<Sandbox>) -> Result<(), Failure> {
    resume(guarded, sandbox, within(guarded, None)).await
}

/// Suspends the cells of a sandbox.
async fn suspend(guarded: &Guarded, sandbox: &Sandbox) -> Result<(), Failure> {
    let mut client = guarded.client(sandbox.party)?;
    let main = &sandbox.main;
    for context in sandbox.contexts() {
        if context.id != *main {
            // A cell with several interpreters cannot be suspended.
            delete(&mut client, &context.id).await?;
        }
    }
    let params = ContextName::new(main);
    client.ask::<method::ContextSuspend>(&params).await?;
    sandbox.set_paused(true);
    Ok(())
}

/// Pauses a sandbox, and stops its clock meanwhile.
async fn pause_now(guarded: &Guarded, sandbox: &Arc<Sandbox>) -> Result<(), Failure> {
    check_state(sandbox)?;
    sandbox.set_clock(None);
    let suspended = suspend(guarded, sandbox).await;
    if suspended.is_err() {
        start_clock(guarded, sandbox);
    }
    suspended.map_err(carried)
}

pub(super) async fn pause(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let paused = async {
        let asked: Timeout = body::optional(body).await?;
        let sandbox = existing(&guarded, party, &id).await?;
        if sandbox.is_paused() {
            return Ok(Some(sandbox));
        }
        if asked.memory == Some(false) {
            let message = "memory: wants true, since a sandbox is always paused with its memory";
            return Err(Failure::new(Code::BadParams, message));
        }
        detached(async move { pause_now(&guarded, &sandbox).await }).await?;
        Ok(None)
    };
    match paused.await {
        Ok(None) => answers::empty(),
        Ok(Some(sandbox)) => {
            let message = format!("sandbox {} is already paused", sandbox.id);
            answers::error(StatusCode::CONFLICT, message)
        }
        Err(failure) => answers::failed(&failure),
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

/// Reports a state that cannot be carried as the client's error, not the server's.
fn carried(failure: Failure) -> Failure {
    match failure.code {
        Code::Failed => {
            let hint = match failure.reason {
                Some(Reason::RandomLayout) => Some(
                    "start the server with --e2b-pause, or create the sandbox with \
                     lifecycle on_timeout \"pause\""
                        .to_owned(),
                ),
                Some(Reason::SharedCell) => {
                    Some("remove the sandbox's other contexts first".to_owned())
                }
                _ => failure.hint,
            };
            Failure {
                code: Code::BadParams,
                hint,
                ..failure
            }
        }
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
        let asked: Timeout = body::optional(body).await?;
        let count = asked.count.unwrap_or(1);
        if !(1..=MOST_FORKS).contains(&count) {
            let message = format!("count: wants 1 to {MOST_FORKS}");
            return Err(Failure::new(Code::BadParams, message));
        }
        let sandbox = existing(&guarded, party, &id).await?;
        check_state(&sandbox)?;
        let life = within(&guarded, asked.timeout);
        detached(async move { fork_now(&guarded, &sandbox, count, life).await }).await
    };
    match forked.await {
        Ok(all) => answer::json(StatusCode::CREATED, &all),
        Err(failure) => answers::failed(&failure),
    }
}

async fn fork_now(
    guarded: &Guarded,
    sandbox: &Sandbox,
    count: usize,
    life: Duration,
) -> Result<Vec<Object<'static>>, Failure> {
    let mut client = guarded.client(sandbox.party)?;
    let params = ContextFork {
        context: sandbox.main.clone(),
        n: count,
    };
    let forked = client.ask::<method::ContextFork>(&params).await;
    let forked = forked.map_err(carried)?;
    let branches = forked.branches.into_iter();
    branches
        .map(|branch| adopt(guarded, sandbox, branch, life))
        .collect()
}

/// Makes a sandbox of a context that goes on from another one's state.
fn adopt(
    guarded: &Guarded,
    from: &Sandbox,
    branch: Branch,
    life: Duration,
) -> Result<Object<'static>, Failure> {
    let Some(context) = branch.context else {
        let failure = branch.error.unwrap_or_else(|| answers::gone(&from.id));
        let status = answer::status_of(failure.code).as_u16();
        let error = object! {"code": status, "message": failure.message};
        return Ok(object! {"error": error});
    };
    let sandbox = Arc::new(Sandbox::of_fork(from, context, life)?);
    guarded.sandboxes().add(Arc::clone(&sandbox));
    start_clock(guarded, &sandbox);
    Ok(object! {"sandbox": access(&sandbox)})
}
