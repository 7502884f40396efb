//! Server-sent events.
//!
//! Each has the name of the kind of event, or `answer` or `failure` for the call's result, and one
//! line of JSON. Nothing is read from the hub before the HTTP client has taken what came
//! before, so a slow client slows the program in the cell.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::stream::unfold;
use serde::Deserialize;
use wire::{Failure, Said};

use crate::answer::{self, Answer};
use crate::client::Client;

/// After how long without an event a comment shows that the server is there.
const QUIET: Duration = Duration::from_secs(15);

/// What the client of the hub gets for its call, and after the result, if it is to go on.
///
/// # Errors
/// The call fails before anything happens.
pub(super) async fn events(mut client: Client, goes_on: bool) -> Result<Answer, Failure> {
    let first = client.next().await?;
    let state = Some((client, Some(first)));
    let stream = unfold(state, move |state| async move {
        let (mut client, first) = state?;
        let said = match first {
            Some(first) => Ok(first),
            None => match tokio::time::timeout(QUIET, client.next()).await {
                Ok(said) => said,
                Err(_) => {
                    let comment = Bytes::from_static(b":\n\n");
                    return Some((Ok::<_, Infallible>(comment), Some((client, None))));
                }
            },
        };
        let (text, is_last) = match said {
            Ok(Said::Event(event)) => {
                let kind = kind(event.get());
                let is_last = matches!(kind, "watch_ended" | "process_ended");
                (message(kind, event.get()), is_last)
            }
            Ok(Said::Result(result)) => (message("answer", result.get()), !goes_on),
            Err(failure) => {
                let failure = serde_json::to_string(&failure).unwrap_or_default();
                (message("failure", &failure), true)
            }
        };
        Some((Ok(Bytes::from(text)), (!is_last).then_some((client, None))))
    });
    let mut answer = answer::of(
        StatusCode::OK,
        "text/event-stream",
        Body::from_stream(stream),
    );
    let value = axum::http::HeaderValue::from_static("no-store");
    let name = axum::http::header::CACHE_CONTROL;
    answer.headers_mut().insert(name, value);
    Ok(answer)
}

/// JSON of the hub is one line.
fn message(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// The kind of an event; a name that is not plain could end the line.
fn kind(event: &str) -> &str {
    #[derive(Deserialize)]
    struct Kind<'a> {
        event: &'a str,
    }
    let is_plain = |name: &&str| {
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let kind: Option<Kind<'_>> = serde_json::from_str(event).ok();
    kind.map(|kind| kind.event)
        .filter(is_plain)
        .unwrap_or("message")
}
