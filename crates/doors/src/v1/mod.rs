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
use record::json::{Object, Pairs as Bounded};
use serde_json::value::RawValue;
use wire::{Code, Failure, FileRead, FileWrite, None as NoParams, Party, method};

use crate::answer::{self, Answer};
use crate::body;
use crate::files;
use crate::front::Guarded;
use crate::upload::{Blocks, Parts, write, write_parts};
pub use openapi::openapi;
use table::{AnswerForm, Route, TABLE};

record::bounds! {
    /// The fields of a body: more than any call has.
    MostFields = "parameters", 64;
}

/// Names and values, from a path or a query.
type Pairs = Vec<(String, String)>;

const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

/// All of its resources.
pub(crate) fn router() -> Router<Guarded> {
    let mut router = Router::new().route(
        "/v1/openapi.json",
        axum::routing::get(|| async { answer::of(StatusCode::OK, "application/json", DOCUMENT) }),
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
    if route.reply == AnswerForm::Upload {
        return upload(guarded, party, asked, body).await;
    }
    let body = body::read(body).await?;
    let fields = match route.has_object() {
        true => Fields::of(&body)?,
        false => Fields::default(),
    };
    let mut params = fields.params();
    asked.add_to(&mut params)?;
    let mut client = guarded.client(party)?;
    let streams = match route.reply {
        AnswerForm::Watches => true,
        AnswerForm::Streams | AnswerForm::Starts => wants_events(&head.headers, &mut params),
        _ => false,
    };
    match route.reply {
        AnswerForm::Content => {
            let params = asked.params()?;
            let read = FileRead::new(text(&params, "context"), text(&params, "path"));
            return files::answer(client, read).await;
        }
        AnswerForm::Text => {
            let metrics = client.ask::<method::Metrics>(&NoParams {}).await?;
            return Ok(answer::of(
                StatusCode::OK,
                "text/plain; version=0.0.4",
                metrics.text,
            ));
        }
        _ => {}
    }
    let line = client.call(route.call, &params)?;
    // The line has them now, and a call may take long.
    drop(params);
    drop(fields);
    drop(body);
    client.send(line).await;
    if streams {
        let goes_on = matches!(route.reply, AnswerForm::Watches | AnswerForm::Starts);
        return stream::events(client, goes_on).await;
    }
    let status = match route.reply {
        AnswerForm::Created => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let result = Box::<str>::from(client.result().await?);
    Ok(answer::of(status, "application/json", String::from(result)))
}

/// Writes a file part by part.
async fn upload(
    guarded: &Guarded,
    party: Party,
    asked: Asked,
    body: Body,
) -> Result<Answer, Failure> {
    let params = asked.params()?;
    let mut parts = Parts::of(Blocks::of(body));
    let Some(first) = parts.next().await? else {
        return Ok(answer::json(StatusCode::OK, &()));
    };
    // The request becomes a client of the hub only when there is something to write.
    let mut client = guarded.client(party)?;
    let mut part = FileWrite {
        executable: is_true(&params, "executable"),
        append: is_true(&params, "append"),
        ..FileWrite::new(text(&params, "context"), text(&params, "path"), first)
    };
    if !part.append && !parts.is_over() {
        let written = write_parts(&mut client, part, parts).await?;
        return Ok(answer::json(StatusCode::OK, &written));
    }
    let mut written = write(&mut client, &part).await?;
    while let Some(content) = parts.next().await? {
        part.content = content;
        written = write(&mut client, &part).await?;
    }
    Ok(answer::json(StatusCode::OK, &written))
}

impl Asked {
    /// The parameters of a call whose request has none in its body.
    fn params(&self) -> Result<Object<'static>, Failure> {
        let mut params = Object::default();
        self.add_to(&mut params)?;
        Ok(params)
    }

    /// Adds what the path and the query say to the parameters of the call.
    fn add_to(&self, params: &mut Object<'_>) -> Result<(), Failure> {
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
            if params.set(name.clone(), &value) {
                let message = format!("{name}: is given twice");
                return Err(Failure::new(Code::BadParams, message));
            }
        }
        for name in self.route.fixed {
            if params.set(*name, &true) {
                let message = format!("{name}: is always true here, and cannot be given");
                return Err(Failure::new(Code::BadParams, message));
            }
        }
        Ok(())
    }
}

/// The parameters in a body, which stay text: the hub knows their types.
#[derive(Default)]
struct Fields<'a>(Bounded<&'a RawValue, MostFields>);

impl<'a> Fields<'a> {
    /// Those of a body; an empty one has none.
    fn of(body: &'a [u8]) -> Result<Self, Failure> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        record::json::from_slice(body).map(Self).map_err(|error| {
            let message = format!("the body is not a JSON object: {error}");
            Failure::new(Code::BadRequest, message)
        })
    }

    fn params(&self) -> Object<'_> {
        let mut params = Object::default();
        for (name, text) in self.0.iter() {
            params.lend(name, text);
        }
        params
    }
}

/// A parameter that is text, which those of the path are.
fn text(params: &Object<'_>, name: &str) -> String {
    let text = params
        .get(name)
        .map(|text| serde_json::from_str(text.get()));
    text.and_then(Result::ok).unwrap_or_default()
}

fn is_true(params: &Object<'_>, name: &str) -> bool {
    params.get(name).is_some_and(|text| text.get() == "true")
}

/// Whether events are wanted, by the body or by what the client accepts.
fn wants_events(headers: &HeaderMap, params: &mut Object<'_>) -> bool {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    if accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) {
        params.set("events", &true);
    }
    is_true(params, "events")
}
