//! `/execute`: runs code, and reports what happens line by line.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use futures_util::stream::unfold;
use record::Record;
use record::json::Pairs;
use serde::Deserialize;
use wire::{Code, Executed, Failure, Said, method};

use super::{contexts, failed, language, lines, snippets};
use crate::answer::{self, Answer};
use crate::body;
use crate::client::Client;
use crate::e2b::sandboxes::{CodeContext, Sandbox};
use crate::e2b::{HOME, answers, detached};
use crate::front::Guarded;
use crate::runs::{self, ContextRun};

/// A keepalive follows after this time without a line.
const QUIET: Duration = Duration::from_secs(5);
/// How long interrupted code may go on.
const GRACE: Duration = Duration::from_secs(2);

record::bounds! {
    /// The variables of an execution.
    MostVariables = "env_vars", 4096;
}

#[derive(Debug, Deserialize)]
struct Execution {
    code: String,
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    language: Option<String>,
    #[serde(default)]
    env_vars: Option<Pairs<String, MostVariables>>,
}

pub(super) async fn execute(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    body: Body,
) -> Answer {
    let begun = async {
        let asked: Execution = body::json(body).await?;
        let context = chosen(&guarded, &sandbox, &asked).await?;
        Stream::begin(&guarded, sandbox.clone(), context, asked).await
    };
    match begun.await {
        Ok(stream) => stream.answer(),
        Err(failure) if failure.code == Code::Lost => answers::no_sandbox(&sandbox.id),
        Err(failure) => failed(&failure),
    }
}

/// The context that the code is for.
async fn chosen(
    guarded: &Guarded,
    sandbox: &Arc<Sandbox>,
    asked: &Execution,
) -> Result<CodeContext, Failure> {
    match (&asked.context_id, &asked.language) {
        (Some(_), Some(_)) => {
            let message = "Only one of context_id or language can be provided";
            Err(Failure::new(Code::BadParams, message))
        }
        (Some(id), None) => contexts::find(sandbox, id),
        (None, name) => {
            let language = language(guarded, name.as_deref().unwrap_or_default())?;
            let usual = |context: &CodeContext| context.is_default && context.language == language;
            if let Some(context) = sandbox.context(usual) {
                return Ok(context);
            }
            let (guarded, sandbox) = (guarded.clone(), Arc::clone(sandbox));
            detached(async move { contexts::add(&guarded, &sandbox, language, HOME, true).await })
                .await
        }
    }
}

/// An execution that is going on.
struct Stream {
    client: Client,
    sandbox: Arc<Sandbox>,
    context: CodeContext,
    first: Option<Said>,
    /// No other client's code is executed between setting the variables and resetting them.
    _turn: Turn,
    /// Gives the variables their usual values again.
    reset: Option<Reset>,
}

impl Stream {
    /// Begins an execution, in a new cell if the context has none yet.
    async fn begin(
        guarded: &Guarded,
        sandbox: Arc<Sandbox>,
        context: CodeContext,
        asked: Execution,
    ) -> Result<Self, Failure> {
        let turn = Arc::new(Arc::clone(&context.turn).lock_owned().await);
        let mut client = guarded.client(sandbox.party)?;
        let variables = asked.env_vars.filter(|variables| !variables.is_empty());
        let reset = match &variables {
            None => None,
            Some(variables) => {
                let set = snippets::set(&context.language, variables)?;
                let usual = &sandbox.creation.envs;
                let code = snippets::reset(&context.language, variables, usual)?;
                let reset = Reset {
                    guarded: guarded.clone(),
                    sandbox: sandbox.clone(),
                    context: context.clone(),
                    turn: Arc::clone(&turn),
                    code,
                };
                let is_set = match sandbox.prepare(&mut client, &context, &set).await {
                    Err(failure) if failure.code == Code::NotFound => {
                        open(&sandbox, &mut client, &context).await?;
                        sandbox.prepare(&mut client, &context, &set).await?
                    }
                    is_set => is_set?,
                };
                if !is_set {
                    let message = "env_vars: the interpreter does not set its variables";
                    return Err(Failure::new(Code::Failed, message));
                }
                Some(reset)
            }
        };
        let params = ContextRun {
            grace: Some(runs::span(GRACE)),
            events: true,
            ..ContextRun::new(&context.id, asked.code.as_str())
        };
        client.begin::<method::ContextRun>(&params).await?;
        let first = match client.next().await {
            Err(failure) if failure.code == Code::NotFound => {
                open(&sandbox, &mut client, &context).await?;
                client.begin::<method::ContextRun>(&params).await?;
                client.next().await?
            }
            first => first?,
        };
        Ok(Self {
            client,
            sandbox,
            context,
            first: Some(first),
            _turn: turn,
            reset,
        })
    }

    /// The lines to send next, and whether they are the last.
    ///
    /// # Errors
    /// The sandbox has ended.
    async fn next(&mut self) -> Result<(String, bool), Failure> {
        loop {
            let said = match self.first.take() {
                Some(first) => Ok(first),
                None => match tokio::time::timeout(QUIET, self.client.next()).await {
                    Ok(said) => said,
                    Err(_) => return Ok((lines::KEEPALIVE.to_owned(), false)),
                },
            };
            match said {
                Ok(Said::Event(event)) => {
                    if let Some(line) = lines::of_event(event.get()) {
                        return Ok((line, false));
                    }
                }
                Ok(Said::Result(result)) => {
                    if let Some(reset) = self.reset.take() {
                        reset.now(&mut self.client).await;
                    }
                    return Ok((self.end(result.get()), true));
                }
                Err(failure) if self.sandbox.is_gone() => return Err(failure),
                Err(failure) => {
                    let name = match failure.code {
                        Code::Lost => "ContextRestarting",
                        _ => "ExecutionAborted",
                    };
                    return Ok((lines::error(name, &answers::words(&failure)), true));
                }
            }
        }
    }

    fn end(&self, result: &str) -> String {
        let hidden = self
            .sandbox
            .context(|context| context.id == self.context.id);
        let hidden = hidden.map_or(0, |context| context.hidden);
        match serde_json::from_str::<Executed<Record>>(result) {
            Ok(done) => lines::of_end(&done.record, done.execution, hidden),
            Err(error) => lines::error("UnexpectedEndOfExecution", &error.to_string()),
        }
    }

    /// The answer as a stream. The hub is read from only when the client has taken the lines
    /// before. If the sandbox ends, the answer breaks off: clients then ask what became of it.
    fn answer(self) -> Answer {
        let lines = unfold(Some(self), |stream| async move {
            let mut stream = stream?;
            Some(match stream.next().await {
                Ok((text, is_last)) => (Ok(Bytes::from(text)), (!is_last).then_some(stream)),
                Err(failure) => (Err(io::Error::other(failure.message)), None),
            })
        });
        answer::of(
            StatusCode::OK,
            "application/x-ndjson",
            Body::from_stream(lines),
        )
    }
}

/// Held while a context executes one client's code.
type Turn = Arc<tokio::sync::OwnedMutexGuard<()>>;

/// Variables that must be reset after one execution.
struct Reset {
    guarded: Guarded,
    sandbox: Arc<Sandbox>,
    context: CodeContext,
    turn: Turn,
    code: String,
}

impl Reset {
    /// Resets the variables. If the interpreter has ended, its variables are gone anyway.
    async fn now(mut self, client: &mut Client) {
        let code = std::mem::take(&mut self.code);
        let _ = self.sandbox.prepare(client, &self.context, &code).await;
    }
}

impl Drop for Reset {
    /// The client has gone: resets the variables once its code has been interrupted.
    fn drop(&mut self) {
        let code = std::mem::take(&mut self.code);
        if code.is_empty() {
            return;
        }
        let (sandbox, context) = (Arc::clone(&self.sandbox), self.context.clone());
        let turn = Arc::clone(&self.turn);
        if let Ok(mut client) = self.guarded.client(sandbox.party) {
            tokio::spawn(async move {
                let _ = sandbox.prepare(&mut client, &context, &code).await;
                drop(turn);
            });
        }
    }
}

/// Makes the cell of a context that has none. The main context gets its cell with its sandbox; when
/// that cell is gone, so is the sandbox.
async fn open(
    sandbox: &Sandbox,
    client: &mut Client,
    context: &CodeContext,
) -> Result<(), Failure> {
    if context.id == sandbox.main && !sandbox.is_made_when_used() {
        return Err(Failure::new(Code::Lost, "the sandbox is gone"));
    }
    sandbox.open(client, context).await
}
