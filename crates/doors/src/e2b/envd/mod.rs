//! envd, the server inside of E2B's sandboxes: files, and programs.

mod call;
mod entry;
mod files;
mod filesystem;
mod form;
mod path;
mod process;
mod watch;

#[cfg(any(test, fuzzing))]
pub use form::upload_form;
#[cfg(any(test, fuzzing))]
pub use path::sandbox_path;
use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::http::StatusCode;
use axum::routing::{get, post};

use super::answers;
use super::sandboxes::Sandbox;
use crate::answer::{self, Answer};
use crate::front::Guarded;
use call::{server_stream, unary};
pub(super) use path::inside;
pub(super) use watch::Watchers;

pub(super) fn router() -> Router<Guarded> {
    let filesystem = Router::new()
        .route("/Stat", unary(filesystem::stat))
        .route("/MakeDir", unary(filesystem::make_directory))
        .route("/Move", unary(filesystem::rename))
        .route("/ListDir", unary(filesystem::list))
        .route("/Remove", unary(filesystem::remove))
        .route("/WatchDir", server_stream(watch::stream))
        .route("/CreateWatcher", unary(watch::create))
        .route("/GetWatcherEvents", unary(watch::events))
        .route("/RemoveWatcher", unary(watch::remove));
    let process = Router::new()
        .route("/Start", server_stream(process::start))
        .route("/Connect", server_stream(process::connect))
        .route("/List", unary(process::list))
        .route("/SendInput", unary(process::send_input))
        .route("/StreamInput", post(process::stream_input))
        .route("/CloseStdin", unary(process::close_input))
        .route("/SendSignal", unary(process::send_signal))
        .route("/Update", unary(process::update));
    Router::new()
        .route("/health", get(|| async { answers::empty() }))
        .route("/envs", get(envs))
        .route("/files", get(files::download).post(files::upload))
        .nest("/filesystem.Filesystem", filesystem)
        .nest("/process.Process", process)
}

/// The variables that the sandbox was created with.
async fn envs(Extension(sandbox): Extension<Arc<Sandbox>>) -> Answer {
    answer::json(StatusCode::OK, &sandbox.creation.envs)
}
