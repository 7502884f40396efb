//! envd, the server inside of E2B's sandboxes: files, and programs.

mod entry;
mod files;
mod filesystem;
mod form;
mod path;
mod process;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serve::protocol::{Code, Failure};

use super::sandboxes::Sandbox;
use super::wire;
use crate::answer::{self, Answer};
use crate::client::Client;
use crate::front::Guarded;
pub(super) use watch::Watchers;

pub(super) fn router() -> Router<Guarded> {
    let filesystem = Router::new()
        .route("/Stat", post(filesystem::stat))
        .route("/MakeDir", post(filesystem::make_directory))
        .route("/Move", post(filesystem::rename))
        .route("/ListDir", post(filesystem::list))
        .route("/Remove", post(filesystem::remove))
        .route("/WatchDir", post(watch::stream))
        .route("/CreateWatcher", post(watch::create))
        .route("/GetWatcherEvents", post(watch::events))
        .route("/RemoveWatcher", post(watch::remove));
    let process = Router::new()
        .route("/Start", post(process::start))
        .route("/Connect", post(process::connect))
        .route("/List", post(process::list))
        .route("/SendInput", post(process::send_input))
        .route("/StreamInput", post(process::stream_input))
        .route("/CloseStdin", post(process::close_input))
        .route("/SendSignal", post(process::send_signal))
        .route("/Update", post(process::update));
    Router::new()
        .route("/health", get(|| async { wire::empty() }))
        .route("/envs", get(envs))
        .route("/files", get(files::download).post(files::upload))
        .nest("/filesystem.Filesystem", filesystem)
        .nest("/process.Process", process)
}

/// The variables that the sandbox was created with.
async fn envs(Extension(sandbox): Extension<Arc<Sandbox>>) -> Answer {
    answer::json(StatusCode::OK, &sandbox.creation.envs)
}

/// Makes a call about the context that has the files, in its new cell if it has none yet.
/// Events of the call follow by [`Client::next`].
///
/// # Errors
/// See [`Client::ask`].
async fn ask<T: DeserializeOwned>(
    client: &mut Client,
    sandbox: &Sandbox,
    method: &str,
    params: impl Serialize,
) -> Result<T, Failure> {
    let params = serde_json::to_value(params);
    let mut params = params.map_err(|error| Failure::new(Code::BadParams, error.to_string()))?;
    params["context"] = json!(sandbox.main);
    match client.ask_for(method, &params).await {
        Err(failure) if is_missing(&failure) && sandbox.is_made_when_used() => {
            sandbox.open_main(client).await?;
            client.ask_for(method, &params).await
        }
        answer => answer,
    }
}

/// The same where the answer says nothing.
async fn tell(
    client: &mut Client,
    sandbox: &Sandbox,
    method: &str,
    params: impl Serialize,
) -> Result<(), Failure> {
    let _: Value = ask(client, sandbox, method, params).await?;
    Ok(())
}

/// Whether the context does not exist, and not a file.
fn is_missing(failure: &Failure) -> bool {
    failure.code == Code::NotFound && failure.errno.is_none()
}
