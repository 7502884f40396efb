//! cellblock's own interface: the methods of docs/PROTOCOL.md as resources.

mod forms;
mod openapi;
mod stream;
mod table;

use axum::Extension;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::on;
use serde_json::{Map, Value};
use serve::Party;
use serve::protocol::{Code, Failure, MetricsText};

use crate::answer::{self, Answer};
use crate::body;
use crate::files;
use crate::front::Guarded;
use crate::upload::{Blocks, Parts, to_the_end, write_parts};
pub use openapi::openapi;
use table::{Reply, Route, TABLE};

/// Names and values, from a path or a query.
type Pairs = Vec<(String, String)>;

/// `docs/openapi.json`, packed.
const DOCUMENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.deflate"));

/// All of its resources.
pub(crate) fn router() -> Router<Guarded> {
    let mut router = Router::new().route(
        "/v1/openapi.json",
        axum::routing::get(|| async {
            let document = packed::unpack(DOCUMENT).unwrap_or_default();
            answer::of(StatusCode::OK, "application/json", document)
        }),
    );
    for route in TABLE {
        let handler = move |State(guarded): State<Guarded>,
                            Extension(party): Extension<Party>,
                            Path(path): Path<Pairs>,
                            Query(query): Query<Pairs>,
                            request: Request<Body>| async move {
            let asked = Asked { route, path, query };
            let answered = serve(&guarded, party, asked, request).await;
            answered.unwrap_or_else(|failure| answer::failed(&failure))
        };
        router = router.route(route.path, on(route.verb.filter(), handler));
    }
    router
}

/// A request, apart from its body.
struct Asked {
    route: &'static Route,
    path: Pairs,
    query: Pairs,
}

async fn serve(
    guarded: &Guarded,
    party: Party,
    asked: Asked,
    request: Request<Body>,
) -> Result<Answer, Failure> {
    let route = asked.route;
    let (head, body) = request.into_parts();
    if route.reply == Reply::Upload {
        return to_the_end(upload(guarded.clone(), party, asked, body)).await;
    }
    let body = body::read(body).await?;
    let mut params = match route.has_object() {
        true => object(&body)?,
        false => Map::new(),
    };
    asked.add_to(&mut params)?;
    let mut client = guarded.client(party)?;
    let streams = match route.reply {
        Reply::Watches => true,
        Reply::Streams | Reply::Starts => wants_events(&head.headers, &mut params),
        _ => false,
    };
    if streams {
        client.begin(route.call, &params).await?;
        let goes_on = matches!(route.reply, Reply::Watches | Reply::Starts);
        return stream::events(client, goes_on).await;
    }
    match route.reply {
        Reply::Content => files::answer(client, params).await,
        Reply::Text => {
            let MetricsText { text } = client.ask_for(route.call, &params).await?;
            Ok(answer::of(
                StatusCode::OK,
                "text/plain; version=0.0.4",
                text,
            ))
        }
        Reply::Created => {
            let result = client.ask(route.call, &params).await?;
            Ok(answer::json(StatusCode::CREATED, &result))
        }
        _ => {
            let result = client.ask(route.call, &params).await?;
            Ok(answer::json(StatusCode::OK, &result))
        }
    }
}

/// Writes a file part by part.
async fn upload(
    guarded: Guarded,
    party: Party,
    asked: Asked,
    body: Body,
) -> Result<Answer, Failure> {
    let mut params = Map::new();
    asked.add_to(&mut params)?;
    let mut parts = Parts::of(Blocks::of(body));
    let mut next = parts.next().await?;
    // The request becomes a client of the hub only when there is something to write.
    let mut client = guarded.client(party)?;
    let is_added = params.get("append") == Some(&Value::Bool(true));
    if !is_added && !parts.is_over() {
        params.extend(next.map(|content| ("content".to_owned(), content)));
        let written = write_parts(&mut client, params, parts).await?;
        return Ok(answer::json(StatusCode::OK, &written));
    }
    let mut written = None;
    while let Some(content) = next {
        params.insert("content".to_owned(), content);
        written = Some(client.ask(asked.route.call, &params).await?);
        next = parts.next().await?;
    }
    Ok(answer::json(StatusCode::OK, &written))
}

impl Asked {
    /// Adds what the path and the query say to the parameters of the call.
    fn add_to(&self, params: &mut Map<String, Value>) -> Result<(), Failure> {
        for (name, text) in self.path.iter().chain(&self.query) {
            let Some(kind) = self.route.kind(name) else {
                let allowed: Vec<_> = self.route.fields.iter().map(|(name, _)| *name).collect();
                let message = format!("the query: unknown parameter {name:?}");
                return Err(match allowed.is_empty() {
                    true => Failure::new(Code::BadParams, message),
                    false => Failure::new(Code::BadParams, message)
                        .hint(format!("it may have {}", allowed.join(", "))),
                });
            };
            let value = kind.read(text).ok_or_else(|| {
                let message = format!("{name}: is {text:?}, but wants {}", kind.wanted());
                Failure::new(Code::BadParams, message)
            })?;
            if params.insert(name.clone(), value).is_some() {
                let message = format!("{name}: is given twice");
                return Err(Failure::new(Code::BadParams, message));
            }
        }
        for name in self.route.fixed {
            if params
                .insert((*name).to_owned(), Value::Bool(true))
                .is_some()
            {
                let message = format!("{name}: is always true here, and cannot be given");
                return Err(Failure::new(Code::BadParams, message));
            }
        }
        Ok(())
    }
}

/// A body with parameters; an empty one has none.
fn object(body: &[u8]) -> Result<Map<String, Value>, Failure> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    record::json::from_slice(body).map_err(|error| {
        let message = format!("the body is not a JSON object: {error}");
        Failure::new(Code::BadRequest, message)
    })
}

/// Whether events are wanted, by the body or by what the client accepts.
fn wants_events(headers: &HeaderMap, params: &mut Map<String, Value>) -> bool {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    if accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) {
        params.insert("events".to_owned(), Value::Bool(true));
    }
    params.get("events") == Some(&Value::Bool(true))
}
