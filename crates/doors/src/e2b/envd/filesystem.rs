//! The service `filesystem.Filesystem`, apart from watches.

use std::path::Path;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::entry::Entry;
use super::{ask, path, tell};
use crate::answer::Answer;
use crate::client::Client;
use crate::e2b::connect::{self, Code, Error};
use crate::e2b::sandboxes::Sandbox;
use crate::front::Guarded;

/// A unary call of a sandbox's client.
pub(super) struct Call<T> {
    pub(super) client: Client,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) asked: T,
}

/// Reads a unary call.
///
/// # Errors
/// It is not one of this form, or the server has no room for it.
pub(super) async fn read<T: DeserializeOwned>(
    guarded: &Guarded,
    sandbox: Arc<Sandbox>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Call<T>, Error> {
    let asked = connect::unary(headers, body).await?;
    let client = guarded.client(sandbox.party)?;
    Ok(Call {
        client,
        sandbox,
        asked,
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    path: String,
}

/// What has this path.
///
/// # Errors
/// It does not exist.
pub(super) async fn find(
    client: &mut Client,
    sandbox: &Sandbox,
    at: &Path,
) -> Result<Entry, Error> {
    #[derive(Deserialize)]
    struct Answer {
        found: Found,
    }
    let answer: Answer = ask(client, sandbox, "file.stat", json!({"path": at})).await?;
    Ok(answer.found.entry)
}

/// The same for a directory.
///
/// # Errors
/// It does not exist, or is something else.
pub(super) async fn directory(
    client: &mut Client,
    sandbox: &Sandbox,
    at: &Path,
) -> Result<(), Error> {
    match find(client, sandbox, at).await?.is_directory() {
        true => Ok(()),
        false => {
            let message = format!("path is not a directory: {}", at.display());
            Err(Error::new(Code::InvalidArgument, message))
        }
    }
}

#[derive(Debug, Deserialize)]
struct Found {
    entry: Entry,
}

fn shown(entry: &Entry) -> Value {
    json!({"entry": entry.info()})
}

pub(super) async fn stat(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let done = async {
        let mut call: Call<Named> = read(&guarded, sandbox, &headers, body).await?;
        let at = path::inside(&call.asked.path)?;
        let entry = find(&mut call.client, &call.sandbox, &at).await?;
        Ok(shown(&entry))
    };
    connect::answer(done.await)
}

pub(super) async fn make_directory(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let done = async {
        let mut call: Call<Named> = read(&guarded, sandbox, &headers, body).await?;
        let at = path::inside(&call.asked.path)?;
        let (client, sandbox) = (&mut call.client, &call.sandbox);
        tell(client, sandbox, "file.make_directory", json!({"path": at})).await?;
        let entry = find(client, sandbox, &at).await?;
        Ok(shown(&entry))
    };
    connect::answer(done.await)
}

#[derive(Debug, Deserialize)]
struct Moving {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destination: String,
}

pub(super) async fn rename(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    #[derive(Deserialize)]
    struct Answer {
        moved: Found,
    }
    let done = async {
        let mut call: Call<Moving> = read(&guarded, sandbox, &headers, body).await?;
        let params = json!({
            "from": path::inside(&call.asked.source)?,
            "to": path::inside(&call.asked.destination)?,
        });
        let answer: Answer = ask(&mut call.client, &call.sandbox, "file.move", params).await?;
        Ok(shown(&answer.moved.entry))
    };
    connect::answer(done.await)
}

#[derive(Debug, Deserialize)]
struct Listing {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: u32,
}

pub(super) async fn list(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    #[derive(Deserialize)]
    struct Answer {
        entries: Entries,
    }
    #[derive(Deserialize)]
    struct Entries {
        entries: Vec<Entry>,
        is_cut: bool,
    }
    let done = async {
        let mut call: Call<Listing> = read(&guarded, sandbox, &headers, body).await?;
        let at = path::inside(&call.asked.path)?;
        let (client, sandbox) = (&mut call.client, &call.sandbox);
        directory(client, sandbox, &at).await?;
        let params = json!({"path": at, "depth": call.asked.depth.max(1)});
        let Answer { entries } = ask(client, sandbox, "file.list", params).await?;
        if entries.is_cut {
            let message = format!("there are more than {} entries", entries.entries.len());
            return Err(Error::new(Code::FailedPrecondition, message));
        }
        let all: Vec<Value> = entries.entries.iter().map(Entry::info).collect();
        Ok(json!({"entries": all}))
    };
    connect::answer(done.await)
}

pub(super) async fn remove(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let done = async {
        let mut call: Call<Named> = read(&guarded, sandbox, &headers, body).await?;
        let params = json!({"path": path::inside(&call.asked.path)?});
        let removed = tell(&mut call.client, &call.sandbox, "file.remove", params).await;
        match removed.map_err(Error::from) {
            // What does not exist is removed already.
            Err(error) if error.code != Code::NotFound => Err(error),
            _ => Ok(json!({})),
        }
    };
    connect::answer(done.await)
}
