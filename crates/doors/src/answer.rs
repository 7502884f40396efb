//! Answers as HTTP has them.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use wire::{Code, Failure};

/// What a handler returns.
pub(crate) type Answer = Response<Body>;

/// A body of this media type.
pub(crate) fn of(status: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    let value = HeaderValue::from_static(media_type);
    answer.headers_mut().insert(CONTENT_TYPE, value);
    // What code wrote must not become a page, whatever it looks like.
    let value = HeaderValue::from_static("nosniff");
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, value);
    answer
}

/// A value as JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(text) => of(status, "application/json", text),
        Err(error) => of(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            error.to_string(),
        ),
    }
}

/// `{"error": …}`, as the protocol's errors are.
pub(crate) fn failed(failure: &Failure) -> Answer {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a Failure,
    }
    let status = match failure.errno.as_deref() {
        Some("ENOSPC" | "EDQUOT") => StatusCode::INSUFFICIENT_STORAGE,
        _ => status_of(failure.code),
    };
    let mut answer = json(status, &Body { error: failure });
    say_when(&mut answer, failure);
    answer
}

/// Says when to try again, in whole seconds.
pub(crate) fn say_when(answer: &mut Answer, failure: &Failure) {
    if let Some(wait) = failure.retry_after_ms {
        let seconds = HeaderValue::from(wait.div_ceil(1000).max(1));
        answer.headers_mut().insert(RETRY_AFTER, seconds);
    }
}

/// The status of an error.
pub(crate) const fn status_of(code: Code) -> StatusCode {
    match code {
        Code::BadRequest | Code::BadParams | Code::DuplicateId => StatusCode::BAD_REQUEST,
        Code::NotAllowed => StatusCode::FORBIDDEN,
        Code::UnknownMethod | Code::NotFound => StatusCode::NOT_FOUND,
        Code::Cancelled => StatusCode::CONFLICT,
        Code::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
        Code::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Lost => StatusCode::BAD_GATEWAY,
        Code::Busy | Code::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
    }
}
