//! The Model Context Protocol at `/mcp`: streamable HTTP of both its revisions.
//!
//! Each POST has one message. It gets a [`Door`] and a client of the hub of its own; state that
//! later requests of the same party need is in that party's [`Memory`]. Contexts are kept, since
//! their client is gone with the answer.
//!
//! A tool is answered by a stream of events, so that progress gets through and silence does not end
//! the connection; everything else by one JSON document. Closing a stream cancels its request. In
//! revisions before 2026-07-28, a client can also cancel by another request: a session lists the
//! requests that are pending.

mod exchange;
mod headers;
mod sessions;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use crate::mcp::{About, Door};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::post;
use axum::{Extension, Router};
use futures_util::stream::unfold;
use serde::Deserialize;
use wire::{Code, Failure, Party};

use crate::answer::{self, Answer};
use crate::body;
use crate::front::Guarded;
use exchange::{Exchange, Piece};
use headers::Envelope;
use sessions::Sessions;

/// Names a session, before revision 2026-07-28.
const SESSION: &str = "mcp-session-id";

pub(crate) fn router() -> Router<Guarded> {
    Router::new().route("/mcp", post(message).delete(end))
}

/// What requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    about: Arc<About>,
    sessions: Sessions,
}

impl Shared {
    pub(crate) fn new(about: About) -> Self {
        Self {
            about: Arc::new(about),
            sessions: Sessions::default(),
        }
    }
}

async fn message(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    fields: HeaderMap,
    body: Body,
) -> Answer {
    let body = match body::read(body).await {
        Ok(body) => body,
        Err(failure) => return answer::failed(&failure),
    };
    if let Err(failure) = headers::check_media_types(&fields) {
        let mut answer = answer::failed(&failure.1);
        *answer.status_mut() = failure.0;
        return answer;
    }
    let envelope = Envelope::of(&body);
    if let Err(fault) = headers::check(&fields, &envelope) {
        return answer::of(StatusCode::BAD_REQUEST, "application/json", fault);
    }
    let shared = guarded.mcp();
    let session = match (envelope.is_stateless(), fields.get(SESSION)) {
        (true, _) | (_, None) => None,
        (false, Some(id)) => match shared.sessions.touch(party, id.as_bytes()) {
            Some(session) => Some(session),
            None => return no_session(),
        },
    };
    if let (Some(session), Some(request)) = (&session, envelope.cancelled()) {
        shared.sessions.cancel(session, request);
        return accepted();
    }
    let door = Door::of_many(shared.about.clone(), shared.sessions.memory(party));
    let going_on = session.zip(envelope.id());
    let going_on = going_on.map(|(session, id)| shared.sessions.begin(&session, id));
    let mut exchange = Exchange::new(door, guarded.clone(), party, going_on);
    exchange.take(&body);
    let is_greeting = envelope.is("initialize");
    if envelope.is("tools/call") && exchange.is_waiting() {
        return match exchange.connect() {
            Ok(()) => streamed(exchange),
            Err(failure) => answer::failed(&failure),
        };
    }
    loop {
        match exchange.next().await {
            Ok(Some(Piece::Line(line))) => {
                let status = headers::status(&envelope, &line);
                let mut answer = answer::of(status, "application/json", line);
                if is_greeting && status == StatusCode::OK {
                    begin_session(&mut answer, &shared.sessions, party);
                }
                return answer;
            }
            Ok(Some(Piece::Quiet)) => {}
            Ok(None) => return accepted(),
            Err(failure) => return answer::failed(&failure),
        }
    }
}

/// Ends a session. Its contexts stay until they are idle: others may use them.
async fn end(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    fields: HeaderMap,
) -> Answer {
    let id = fields.get(SESSION).map(HeaderValue::as_bytes);
    match guarded.mcp().sessions.end(party, id.unwrap_or_default()) {
        true => answer::of(StatusCode::NO_CONTENT, "text/plain", ""),
        false => no_session(),
    }
}

/// Sends the answer as events, each a message of the protocol.
fn streamed(exchange: Exchange) -> Answer {
    let stream = unfold(exchange, |mut exchange| async {
        let text = match exchange.next().await {
            Ok(Some(Piece::Line(line))) => format!("event: message\ndata: {line}\n\n"),
            Ok(Some(Piece::Quiet)) => ":\n\n".to_owned(),
            Ok(None) | Err(_) => return None,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), exchange))
    });
    let body = Body::from_stream(stream);
    let mut answer = answer::of(StatusCode::OK, "text/event-stream", body);
    let value = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, value);
    answer
}

/// Begins a session. A client without one only lacks the way to cancel.
fn begin_session(answer: &mut Answer, sessions: &Sessions, party: Party) {
    let id = sessions.open(party, Instant::now());
    if let Some(value) = id.and_then(|id| HeaderValue::try_from(id).ok()) {
        answer.headers_mut().insert(SESSION, value);
    }
}

/// The answer to a message that needs none, such as a notification.
fn accepted() -> Answer {
    answer::of(StatusCode::ACCEPTED, "text/plain", "")
}

fn no_session() -> Answer {
    let failure = Failure::new(Code::NotFound, "there is no session of this name");
    answer::failed(&failure.hint("begin with `initialize`"))
}

/// The error of an answer, as far as the HTTP status depends on it.
#[derive(Deserialize)]
struct Answered {
    #[serde(default)]
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    code: i64,
}
