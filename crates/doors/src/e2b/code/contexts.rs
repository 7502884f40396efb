//! Contexts of a sandbox: interpreters that stay.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use record::json::Object;
use record::object;
use serde::Deserialize;
use wire::{Code, ContextName, Failure, method};

use super::{failed, language};
use crate::answer::{self, Answer};
use crate::body;
use crate::e2b::sandboxes::{CodeContext, Sandbox, delete};
use crate::e2b::{HOME, detached};
use crate::front::Guarded;

/// The most bytes of a directory's path: the kernel's PATH_MAX.
const LONGEST_PATH: usize = 4096;

/// A context as clients see it.
fn shown(context: &CodeContext) -> Object<'static> {
    object! {"id": context.id, "language": context.language, "cwd": context.cwd}
}

/// A context of this sandbox.
///
/// # Errors
/// It has no such context.
pub(super) fn find(sandbox: &Sandbox, id: &str) -> Result<CodeContext, Failure> {
    sandbox.context(|context| context.id == id).ok_or_else(|| {
        let shown: String = id.chars().take(64).collect();
        Failure::new(Code::NotFound, format!("Context {shown} not found"))
    })
}

pub(super) async fn list(Extension(sandbox): Extension<Arc<Sandbox>>) -> Answer {
    let all: Vec<_> = sandbox.contexts().iter().map(shown).collect();
    answer::json(StatusCode::OK, &all)
}

#[derive(Debug, Deserialize)]
struct New {
    #[serde(default)]
    language: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
}

pub(super) async fn create(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    body: Body,
) -> Answer {
    let created = async {
        let new: New = body::json(body).await?;
        let language = language(&guarded, new.language.as_deref().unwrap_or_default())?;
        let cwd = new.cwd.unwrap_or_else(|| HOME.to_owned());
        if cwd.len() > LONGEST_PATH {
            let message = format!("cwd: wants at most {LONGEST_PATH} bytes");
            return Err(Failure::new(Code::BadParams, message));
        }
        detached(async move { add(&guarded, &sandbox, language, &cwd, false).await }).await
    };
    match created.await {
        Ok(context) => answer::json(StatusCode::OK, &shown(&context)),
        Err(failure) => failed(&failure),
    }
}

/// Adds a context and makes its cell; if that fails, the context is removed again.
///
/// # Errors
/// There are too many; see [`Sandbox::open`].
pub(super) async fn add(
    guarded: &Guarded,
    sandbox: &Sandbox,
    language: &str,
    cwd: &str,
    is_default: bool,
) -> Result<CodeContext, Failure> {
    let mut client = guarded.client(sandbox.party)?;
    sandbox.make_room(&mut client).await?;
    let context = sandbox.add_context(language, cwd, is_default)?;
    match sandbox.open(&mut client, &context).await {
        Ok(()) => Ok(context),
        Err(failure) => {
            sandbox.remove_context(&context.id);
            delete(&mut client, &context.id).await?;
            Err(failure)
        }
    }
}

pub(super) async fn remove(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Path(id): Path<String>,
) -> Answer {
    let removed = async {
        let context = find(&sandbox, &id)?;
        if context.id == sandbox.main {
            let message = "the sandbox's own context cannot be removed: its files are there";
            return Err(Failure::new(Code::BadParams, message));
        }
        sandbox.remove_context(&id);
        let mut client = guarded.client(sandbox.party)?;
        delete(&mut client, &id).await
    };
    done(removed.await)
}

pub(super) async fn restart(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Path(id): Path<String>,
) -> Answer {
    let restarted = async {
        let context = find(&sandbox, &id)?;
        let mut client = guarded.client(sandbox.party)?;
        let params = ContextName::new(id);
        match client.ask::<method::ContextRestart>(&params).await {
            // Its cell is made when it is used.
            Err(failure) if failure.code == Code::NotFound => return Ok(()),
            answer => drop(answer?),
        }
        match context.cwd == HOME {
            true => Ok(()),
            false => sandbox.enter(&mut client, &context).await,
        }
    };
    done(restarted.await)
}

fn done(done: Result<(), Failure>) -> Answer {
    match done {
        Ok(()) => answer::json(StatusCode::OK, &()),
        Err(failure) => failed(&failure),
    }
}
