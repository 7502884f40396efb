//! Answers and times as E2B's servers have them.

use std::time::SystemTime;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use record::object;
use wire::{Code, Failure};

use crate::answer::{self, Answer};

/// `{"code": STATUS, "message": …}`
pub(super) fn error(status: StatusCode, message: impl AsRef<str>) -> Answer {
    let body = object! {"code": status.as_u16(), "message": message.as_ref()};
    answer::json(status, &body)
}

/// An error of the hub.
pub(super) fn failed(failure: &Failure) -> Answer {
    let mut answer = error(answer::status_of(failure.code), words(failure));
    answer::say_when(&mut answer, failure);
    answer
}

/// The message of an error, with its hint.
pub(super) fn words(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{} ({hint})", failure.message),
        None => failure.message.clone(),
    }
}

/// An answer without content.
pub(super) fn empty() -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

/// The answer to a request without a result.
pub(super) fn done(done: Result<(), Failure>) -> Answer {
    match done {
        Ok(()) => empty(),
        Err(failure) => failed(&failure),
    }
}

/// The SDKs look for these words.
pub(super) const NO_SANDBOX: &str = "The sandbox was not found";

/// A sandbox that does not exist for the client that asks for it.
pub(super) fn no_sandbox(id: &str) -> Answer {
    let shown: String = id.chars().take(64).collect();
    let body = object! {"sandboxId": shown, "message": NO_SANDBOX, "code": 502};
    answer::json(StatusCode::BAD_GATEWAY, &body)
}

/// A missing sandbox as an error of the hub.
pub(super) fn gone(id: &str) -> Failure {
    Failure::new(Code::NotFound, format!("the sandbox {id} was not found"))
}

/// RFC 3339, UTC.
pub(super) fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
