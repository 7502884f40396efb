//! The sandbox of NeMo-Skills: `/execute`, `/sessions` and `/health`.
//!
//! A session is a context with a name that follows from the client's and its party. The
//! client tries again after status 502, so that is the answer when there is no room.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use record::json::Object;
use record::{Outcome, Record, object};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wire::{
    Code, ContextCreate, ContextListing, ContextName, Failure, Party, Request,
    State as ContextState, method,
};

use crate::answer::{self, Answer};
use crate::body;
use crate::client::Client;
use crate::front::Guarded;
use crate::runs::{self, ContextRun, Most};

/// What labels of sessions begin with; the client's own name follows.
const LABEL: &str = "session ";
/// Longer names of sessions are refused: a label has 128 bytes.
const LONGEST_NAME: usize = 100;
/// The time that interrupted code gets.
const GRACE: Duration = Duration::from_secs(2);
/// Without it, another client could compute the name of a session's context, and take that name
/// first.
static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));

pub(crate) fn router() -> Router<Guarded> {
    Router::new()
        .route("/execute", post(execute))
        .route("/sessions", get(list))
        .route("/sessions/{session}", delete(end))
        .route("/health", get(health))
}

async fn health() -> Answer {
    let body = object! {"status": "healthy", "worker": "cellblock"};
    answer::json(StatusCode::OK, &body)
}

#[derive(Debug, Deserialize)]
struct Execution {
    generated_code: String,
    timeout: f64,
    #[serde(default = "ipython")]
    language: String,
    #[serde(default)]
    std_input: Option<String>,
    #[serde(default = "thousand")]
    max_output_characters: usize,
}

fn ipython() -> String {
    "ipython".to_owned()
}

const fn thousand() -> usize {
    1000
}

async fn execute(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let asked: Execution = match body::json(body).await {
        Ok(asked) => asked,
        Err(failure) => return failed(&failure),
    };
    let session = headers.get("x-session-id");
    let session = session.map(|name| std::str::from_utf8(name.as_bytes()));
    let done = async {
        let session = session.transpose().map_err(|_| {
            let message = "X-Session-ID: wants UTF-8";
            Failure::new(Code::BadParams, message)
        })?;
        let mut client = guarded.client(party)?;
        match (asked.language.as_str(), session) {
            ("ipython", None) => {
                let message = "X-Session-ID header required for ipython sessions";
                Err(Failure::new(Code::BadParams, message))
            }
            ("ipython", Some(session)) => {
                let session = Session::of(party, session)?;
                in_session(&mut client, &session, &asked, guarded.most()).await
            }
            ("python" | "python3", _) => once(&mut client, "python", &asked, guarded.most()).await,
            ("shell", _) => once(&mut client, "bash", &asked, guarded.most()).await,
            (other, _) => {
                let shown: String = other.chars().take(64).collect();
                let message = format!("{shown:?} is not available here\n");
                Ok(Executed::new("error", String::new(), message))
            }
        }
    };
    match done.await {
        Ok(mut answer) => {
            for stream in [&mut answer.stdout, &mut answer.stderr] {
                cut(stream, asked.max_output_characters);
            }
            answer::json(StatusCode::OK, &answer)
        }
        Err(failure) => failed(&failure),
    }
}

/// The answer to an execution.
#[derive(Debug, Serialize)]
struct Executed {
    process_status: &'static str,
    stdout: String,
    stderr: String,
    #[serde(
        rename = "new_session_created",
        skip_serializing_if = "Option::is_none"
    )]
    is_new_session: Option<bool>,
}

impl Executed {
    fn new(process_status: &'static str, stdout: String, stderr: String) -> Self {
        Self {
            process_status,
            stdout,
            stderr,
            is_new_session: None,
        }
    }
}

/// A session's name, and that of its context.
struct Session {
    name: String,
    context: String,
}

impl Session {
    fn of(party: Party, name: &str) -> Result<Self, Failure> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            let message = format!("X-Session-ID: wants 1 to {LONGEST_NAME} bytes");
            return Err(Failure::new(Code::BadParams, message));
        }
        // Names of contexts are unique among all parties.
        let digest = Sha256::digest(format!("{} {party:?} {name}", *SECRET));
        let digest = record::bytes::hex(&digest[..16]);
        Ok(Self {
            name: name.to_owned(),
            context: format!("session-{digest}"),
        })
    }
}

/// Executes code in a session, which is created if it does not exist.
async fn in_session(
    client: &mut Client,
    session: &Session,
    asked: &Execution,
    most: &Most,
) -> Result<Executed, Failure> {
    let mut is_new = false;
    let params = ContextRun {
        grace: Some(runs::span(GRACE)),
        wall: most.wall(runs::seconds(asked.timeout)),
        ..ContextRun::new(&session.context, asked.generated_code.as_str())
    };
    let ran = match runs::execute(client, &params).await {
        Err(failure) if failure.code == Code::NotFound => {
            is_new = create(client, session).await?;
            runs::execute(client, &params).await?
        }
        ran => ran?,
    };
    let (state, record) = (ran.state, ran.record);
    let (status, mut stdout, stderr) = match record.outcome {
        Outcome::Ok => ("completed", runs::stdout(&record), stream(&record)),
        Outcome::Timeout => ("timeout", runs::stdout(&record), late(&record, asked)),
        // As IPython does, which writes tracebacks to its output.
        Outcome::Error => ("error", runs::stdout(&record), stream(&record)),
        _ if runs::is_fault(record.outcome) => ("error", String::new(), runs::fault(&record)),
        _ => ("error", runs::stdout(&record), runs::stderr(&record)),
    };
    let shown = record
        .results
        .iter()
        .filter_map(|result| result.text.as_deref());
    shown.for_each(|text| runs::add_line(&mut stdout, text));
    if let (Outcome::Error, Some(error)) = (record.outcome, &record.error) {
        runs::add_line(&mut stdout, &error.text());
    }
    Ok(Executed {
        is_new_session: Some(is_new || state == ContextState::Lost),
        ..Executed::new(status, stdout, stderr)
    })
}

/// Creates the context of a session; says whether another request has not done so meanwhile.
async fn create(client: &mut Client, session: &Session) -> Result<bool, Failure> {
    let request = Request {
        language: Some("python"),
        ..Request::default()
    };
    let params = ContextCreate {
        context: Some(session.context.clone()),
        label: Some(format!("{LABEL}{}", session.name)),
        keep: true,
        ..ContextCreate::new(request.raw())
    };
    match client.ask::<method::ContextCreate>(&params).await {
        Err(failure) if failure.code == Code::BadParams => Ok(false),
        created => created.map(|_| true),
    }
}

/// Runs code by itself. Its exit status is not looked at in Python, as there.
async fn once(
    client: &mut Client,
    language: &str,
    asked: &Execution,
    most: &Most,
) -> Result<Executed, Failure> {
    let request = Request {
        language: Some(language),
        code: Some(&asked.generated_code),
        stdin: asked.std_input.as_deref().filter(|stdin| !stdin.is_empty()),
        limits: most.limits(runs::seconds(asked.timeout), None),
        ..Request::default()
    };
    let record = runs::run(client, &request).await?;
    let (status, stdout, stderr) = match record.outcome {
        Outcome::Timeout => ("timeout", runs::stdout(&record), late(&record, asked)),
        _ if runs::is_fault(record.outcome) => ("error", String::new(), runs::fault(&record)),
        Outcome::Ok | Outcome::Error | Outcome::Exit | Outcome::Signal
            if language == "python" || record.outcome == Outcome::Ok =>
        {
            ("completed", runs::stdout(&record), runs::stderr(&record))
        }
        _ => ("error", runs::stdout(&record), runs::stderr(&record)),
    };
    Ok(Executed::new(status, stdout, stderr))
}

fn stream(record: &Record) -> String {
    record
        .stderr
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn late(record: &Record, asked: &Execution) -> String {
    let mut stderr = stream(record);
    let line = format!("Execution timed out after {} seconds", asked.timeout);
    runs::add_line(&mut stderr, &line);
    stderr
}

/// Cuts a text to so many characters.
fn cut(text: &mut String, most: usize) {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push_str("<output cut>");
    }
}

async fn list(State(guarded): State<Guarded>, Extension(party): Extension<Party>) -> Answer {
    let listed = async {
        let mut client = guarded.client(party)?;
        let all = ContextListing::default();
        client.ask::<method::ContextList>(&all).await
    };
    let listed = match listed.await {
        Ok(listed) => listed,
        Err(failure) => return failed(&failure),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs_f64();
    let before = |ms: u64| now - ms as f64 / 1000.0;
    let sessions: BTreeMap<&str, Object<'_>> = listed
        .contexts
        .iter()
        .filter_map(|context| {
            let name = context.label.as_deref()?.strip_prefix(LABEL)?;
            let about = object! {
                "backend": "ipython",
                "created": before(context.age_ms),
                "last_used": before(context.idle_ms),
                "alive": true,
            };
            Some((name, about))
        })
        .collect();
    let body = object! {"sessions": sessions, "backend": "ipython"};
    answer::json(StatusCode::OK, &body)
}

async fn end(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(name): Path<String>,
) -> Answer {
    let ended = async {
        let session = Session::of(party, &name)?;
        let mut client = guarded.client(party)?;
        let params = ContextName::new(session.context);
        client.ask::<method::ContextDelete>(&params).await
    };
    match ended.await {
        Ok(_) => {
            let message = format!("IPython session {name} deleted successfully");
            answer::json(StatusCode::OK, &object! {"message": message})
        }
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> Answer {
    let status = match failure.code {
        Code::Busy | Code::ShuttingDown | Code::Lost => StatusCode::BAD_GATEWAY,
        other => answer::status_of(other),
    };
    let mut answer = answer::json(status, &object! {"error": failure.message});
    answer::say_when(&mut answer, failure);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_contexts_stay_and_cannot_be_computed() {
        let context = |party, name| Session::of(party, name).unwrap().context;
        let own = context(Party::Door(0), "a");
        assert_eq!(own, context(Party::Door(0), "a"));
        assert_ne!(own, context(Party::Door(1), "a"));
        let digest = Sha256::digest(format!("{:?} a", Party::Door(0)));
        let computed = record::bytes::hex(&digest[..16]);
        assert_ne!(own, format!("session-{computed}"));
    }
}
