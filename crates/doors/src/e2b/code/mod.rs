//! The code interpreter of a sandbox.

mod contexts;
mod execute;
mod lines;
mod snippets;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use wire::{Code, Failure};

use super::answers;
use crate::answer::{self, Answer};
use crate::front::Guarded;
pub(super) use snippets::{at_start, change_directory};

pub(super) fn router() -> Router<Guarded> {
    Router::new()
        .route(
            "/health",
            get(|| async { answer::json(StatusCode::OK, &"OK") }),
        )
        .route("/execute", post(execute::execute))
        .route("/contexts", get(contexts::list).post(contexts::create))
        .route("/contexts/{id}", delete(contexts::remove))
        .route("/contexts/{id}/restart", post(contexts::restart))
}

/// The clients of the code interpreter read the text of an error, not JSON.
fn failed(failure: &Failure) -> Answer {
    let status = match failure.code {
        Code::Lost => StatusCode::INTERNAL_SERVER_ERROR,
        code => answer::status_of(code),
    };
    let mut answer = answer::of(status, "text/plain; charset=utf-8", answers::words(failure));
    answer::say_when(&mut answer, failure);
    answer
}

/// The canonical name of a language.
///
/// # Errors
/// There is no such language.
fn language(guarded: &Guarded, name: &str) -> Result<&'static str, Failure> {
    let languages = guarded.e2b().languages;
    let name = if name.is_empty() { "python" } else { name };
    (languages.canonical)(name).ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        Failure::new(Code::BadParams, format!("language: {shown:?} is unknown"))
    })
}
