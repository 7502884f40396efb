//! SandboxFusion: `/run_code`, `/run_jupyter` and `/v1/ping`, as verl and others call them.
//!
//! Its client tries again after status 504 only, so that is the answer when there is no room
//! or the cell was lost. All else is status 200, and the body says how it went.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use record::json::{Form, List, Pairs};
use record::{Outcome, Record, object};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use wire::{
    Code, ContextCreate, Failure, Party, Request, RequestFile, State as ContextState, method,
};

use crate::answer::{self, Answer};
use crate::body;
use crate::client::Client;
use crate::files;
use crate::front::Guarded;
use crate::runs::{self, ContextRun, JupyterError, Most};

/// Bytes of all files that an answer may have.
const MOST_FETCHED: usize = 64 << 20;
/// The most bytes that the outputs of all its cells have as JSON.
const MOST_OUTPUT: usize = 64 << 20;

pub(crate) fn router() -> Router<Guarded> {
    Router::new()
        .route("/run_code", post(run_code))
        .route("/run_jupyter", post(run_jupyter))
        .route(
            "/v1/ping",
            get(|| async { answer::json(StatusCode::OK, &"pong") }),
        )
}

record::bounds! {
    /// The cells of a notebook.
    MostCells = "cells", 1000;
    /// The files of a request.
    MostFiles = "files", 1 << 16;
    /// The files of an answer: each costs at least one call.
    MostFetched = "fetch_files", files::MOST_FILES;
}

/// What `/run_code` takes. The time limit of a compiler is not looked at: no language here
/// has a step of its own for it.
#[derive(Debug, Deserialize)]
struct RunCode {
    code: String,
    language: String,
    #[serde(default = "ten")]
    run_timeout: f64,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default, rename = "memory_limit_MB")]
    memory_limit: i64,
    #[serde(default)]
    files: Files,
    #[serde(default)]
    fetch_files: Fetched,
}

/// What `/run_jupyter` takes.
#[derive(Debug, Deserialize)]
struct RunJupyter {
    cells: List<String, MostCells>,
    #[serde(default)]
    cell_timeout: f64,
    #[serde(default = "forty_five")]
    total_timeout: f64,
    #[serde(default)]
    kernel: Option<String>,
    #[serde(default, rename = "memory_limit_MB")]
    memory_limit: i64,
    #[serde(default)]
    files: Files,
    #[serde(default)]
    fetch_files: Fetched,
}

/// Contents in base64, by their paths; paths without one are left out.
type Files = Pairs<Option<String>, MostFiles>;
/// Paths of files that the answer has.
type Fetched = List<String, MostFetched>;

const fn ten() -> f64 {
    10.0
}

const fn forty_five() -> f64 {
    45.0
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Status {
    Success,
    Failed,
    SandboxError,
}

/// How a program ended.
#[derive(Debug, Serialize)]
struct CommandResult {
    status: &'static str,
    execution_time: Option<f64>,
    cpu_time: Option<f64>,
    return_code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl CommandResult {
    fn of(record: &Record) -> Self {
        let is_timeout = record.outcome == Outcome::Timeout;
        Self {
            status: match is_timeout {
                true => "TimeLimitExceeded",
                false => "Finished",
            },
            execution_time: Some(record.execution_time),
            cpu_time: cpu_time(record),
            return_code: (!is_timeout).then_some(record.exit_code),
            stdout: runs::stdout(record),
            stderr: runs::stderr(record),
        }
    }
}

/// A request of the protocol, without code. `memory` is in megabytes; none limits it if it is not
/// positive.
fn request<'a>(
    language: &'a str,
    given: &'a Files,
    wall: Option<Duration>,
    memory: i64,
    most: &Most,
) -> Request<'a> {
    let given = given.iter().filter_map(|(path, content)| {
        Some(RequestFile {
            path,
            base64: Some(content.as_deref()?.into()),
            ..RequestFile::default()
        })
    });
    let memory = u64::try_from(memory).ok().filter(|mb| *mb > 0);
    let memory = memory.map(|mb| mb.saturating_mul(1 << 20));
    Request {
        language: Some(language),
        files: given.collect(),
        limits: most.limits(wall, memory),
        ..Request::default()
    }
}

/// The contents of files in base64, by their paths.
async fn fetched<'a>(
    client: &mut Client,
    context: &str,
    paths: &'a [String],
) -> Result<BTreeMap<&'a str, String>, Failure> {
    let mut left = MOST_FETCHED;
    let mut fetched = BTreeMap::new();
    for path in paths {
        if let Some(content) = files::whole(client, context, path, left).await? {
            left -= content.len();
            fetched.insert(path.as_str(), STANDARD.encode(content));
        }
    }
    Ok(fetched)
}

async fn run_code(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    body: Body,
) -> Answer {
    let asked: RunCode = match body::json(body).await {
        Ok(asked) => asked,
        Err(failure) => return invalid(&failure),
    };
    let done = async {
        let mut client = guarded.client(party)?;
        execute(&mut client, &asked, guarded.most()).await
    };
    match done.await {
        Ok(answer) => answer,
        Err(failure) => failed(&failure, "run_result"),
    }
}

async fn execute(client: &mut Client, asked: &RunCode, most: &Most) -> Result<Answer, Failure> {
    let language = language(&asked.language)?;
    let wall = runs::seconds(asked.run_timeout);
    let stdin = asked.stdin.as_deref().filter(|stdin| !stdin.is_empty());
    if asked.fetch_files.is_empty() {
        let request = Request {
            code: Some(&asked.code),
            stdin,
            ..request(language, &asked.files, wall, asked.memory_limit, most)
        };
        let record = runs::run(client, &request).await?;
        return Ok(ran(&record, &BTreeMap::new()));
    }
    if stdin.is_some() {
        let message = "stdin and fetch_files together are not supported";
        return Err(Failure::new(Code::BadParams, message));
    }
    // Files are there as long as their context is.
    let request = request(language, &asked.files, None, asked.memory_limit, most);
    let context = create(client, &request).await?;
    let params = ContextRun {
        wall: most.wall(wall),
        ..ContextRun::new(&context, asked.code.as_str())
    };
    let executed = runs::execute(client, &params).await?;
    let fetched = fetched(client, &context, &asked.fetch_files).await?;
    Ok(ran(&executed.record, &fetched))
}

async fn create(client: &mut Client, request: &Request<'_>) -> Result<String, Failure> {
    let params = ContextCreate::new(request.raw());
    let created = client.ask::<method::ContextCreate>(&params).await?;
    Ok(created.context)
}

fn ran(record: &Record, files: &BTreeMap<&str, String>) -> Answer {
    let is_fault = runs::is_fault(record.outcome);
    let status = match record.outcome {
        _ if is_fault => Status::SandboxError,
        Outcome::Ok => Status::Success,
        _ => Status::Failed,
    };
    let is_limit = matches!(
        record.outcome,
        Outcome::Memory | Outcome::Processes | Outcome::Disk
    );
    let message = match is_fault {
        true => runs::fault(record),
        false if is_limit => record.context.clone().unwrap_or_default(),
        false => String::new(),
    };
    let result = (!is_fault).then(|| CommandResult::of(record));
    answer::json(
        StatusCode::OK,
        &object! {
            "status": status,
            "message": message,
            "compile_result": (),
            "run_result": result,
            "executor_pod_name": (),
            "files": files,
        },
    )
}

async fn run_jupyter(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    body: Body,
) -> Answer {
    let asked: RunJupyter = match body::json(body).await {
        Ok(asked) => asked,
        Err(failure) => return invalid(&failure),
    };
    let done = async {
        let mut client = guarded.client(party)?;
        notebook(&mut client, &asked, guarded.most()).await
    };
    match done.await {
        Ok(answer) => answer,
        Err(failure) => failed(&failure, "driver"),
    }
}

/// Executes cells in one context, after exceptions too, until the time is over or the
/// interpreter ends.
async fn notebook(client: &mut Client, asked: &RunJupyter, most: &Most) -> Result<Answer, Failure> {
    if let Some(kernel) = asked
        .kernel
        .as_deref()
        .filter(|kernel| *kernel != "python3")
    {
        let message = format!("kernel: is {kernel:?}, but wants python3");
        return Err(Failure::new(Code::BadParams, message));
    }
    let began = Instant::now();
    let request = request("python", &asked.files, None, asked.memory_limit, most);
    let context = create(client, &request).await?;
    let total = runs::seconds(asked.total_timeout).or(most.wall);
    let mut cells = Cells::default();
    let mut why = None;
    for code in asked.cells.iter() {
        let left = total.map(|total| total.saturating_sub(began.elapsed()));
        let limits = [left, runs::seconds(asked.cell_timeout)];
        let wall = limits.into_iter().flatten().min();
        if wall.is_some_and(|wall| wall.is_zero()) {
            why = Some(Outcome::Timeout);
            break;
        }
        let params = ContextRun {
            wall: most.wall(wall),
            ..ContextRun::new(&context, code.as_str())
        };
        let ran = runs::execute(client, &params).await?;
        if runs::is_fault(ran.record.outcome) {
            return Err(Failure::new(Code::Failed, runs::fault(&ran.record)));
        }
        cells.add(&Cell::of(&ran.record))?;
        if ran.record.outcome == Outcome::Timeout || ran.state == ContextState::Lost {
            why = Some(ran.record.outcome);
            break;
        }
    }
    let files = fetched(client, &context, &asked.fetch_files).await?;
    let driver = CommandResult {
        status: match why {
            Some(Outcome::Timeout) => "TimeLimitExceeded",
            _ => "Finished",
        },
        execution_time: Some(began.elapsed().as_secs_f64()),
        cpu_time: None,
        return_code: match why {
            Some(Outcome::Timeout) => None,
            Some(_) => Some(1),
            None => Some(0),
        },
        stdout: String::new(),
        stderr: String::new(),
    };
    let (status, message) = match why {
        None => (Status::Success, String::new()),
        Some(outcome) => (Status::Failed, format!("the interpreter ended: {outcome}")),
    };
    let notebook = Notebook {
        status,
        message,
        driver,
        cells: cells.done,
        executor_pod_name: None,
        files,
    };
    Ok(answer::json(StatusCode::OK, &notebook))
}

/// The answer of `/run_jupyter`.
#[derive(Serialize)]
struct Notebook<'a> {
    status: Status,
    message: String,
    driver: CommandResult,
    cells: Vec<Box<RawValue>>,
    executor_pod_name: Option<&'a str>,
    files: BTreeMap<&'a str, String>,
}

/// The outputs of the executed cells as JSON text: parsed values would take many times its size.
#[derive(Default)]
struct Cells {
    done: Vec<Box<RawValue>>,
    /// Bytes of all outputs.
    size: usize,
}

impl Cells {
    fn add(&mut self, cell: &Cell<'_>) -> Result<(), Failure> {
        let text = to_raw_value(cell);
        let text = text.map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        self.size = self.size.saturating_add(text.get().len());
        if self.size > MOST_OUTPUT {
            let message = format!("the outputs of all cells have more than {MOST_OUTPUT} bytes");
            return Err(Failure::new(Code::TooLong, message));
        }
        self.done.push(text);
        Ok(())
    }
}

/// The outputs of a cell.
#[derive(Default, Serialize)]
struct Cell<'a> {
    stdout: String,
    stderr: String,
    /// The forms of each result.
    display: Vec<&'a BTreeMap<String, Form>>,
    error: Vec<JupyterError<'a>>,
}

impl<'a> Cell<'a> {
    fn of(record: &'a Record) -> Self {
        let results = record.results.iter();
        Self {
            stdout: runs::stdout(record),
            stderr: match record.outcome {
                // Its traceback is in `error`.
                Outcome::Error => record
                    .stderr
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                _ => runs::stderr(record),
            },
            display: results.map(|result| &result.formats).collect(),
            error: record.error.iter().map(JupyterError::of).collect(),
        }
    }
}

/// Seconds of all CPUs, if they were measured.
fn cpu_time(record: &Record) -> Option<f64> {
    let usage = &record.usage;
    Some((usage.cpu_user_ms? + usage.cpu_system_ms?) / 1000.0)
}

/// The language that one of SandboxFusion's is here.
fn language(name: &str) -> Result<&'static str, Failure> {
    match name {
        "python" => Ok("python"),
        "bash" => Ok("bash"),
        "nodejs" => Ok("javascript"),
        "typescript" => Ok("typescript"),
        "java" => Ok("java"),
        "R" => Ok("r"),
        _ => {
            let shown: String = name.chars().take(64).collect();
            let message = format!("language: {shown:?} is not available here");
            let hint = "python, bash, nodejs, typescript, java and R are";
            Err(Failure::new(Code::BadParams, message).hint(hint))
        }
    }
}

/// A body that is not a request, in the form of its framework.
fn invalid(failure: &Failure) -> Answer {
    let status = match failure.code {
        Code::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let detail = object! {"type": "value_error", "loc": ["body"], "msg": failure.message};
    answer::json(status, &object! {"detail": [detail]})
}

fn failed(failure: &Failure, result: &str) -> Answer {
    let status = match failure.code {
        Code::Busy | Code::ShuttingDown | Code::Lost => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::OK,
    };
    let message = match &failure.hint {
        Some(hint) => format!("{}; {hint}", failure.message),
        None => failure.message.clone(),
    };
    let mut body = object! {
        "status": Status::SandboxError,
        "message": message,
        "executor_pod_name": (),
        "files": object! {},
    };
    body.set(result.to_owned(), &());
    let mut answer = answer::json(status, &body);
    answer::say_when(&mut answer, failure);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_all_cells_are_bounded() {
        let mut cells = Cells::default();
        let cell = Cell {
            stdout: "x".repeat(MOST_OUTPUT / 4),
            ..Cell::default()
        };
        for _ in 0..3 {
            cells.add(&cell).unwrap();
        }
        let failure = cells.add(&cell).unwrap_err();
        assert_eq!(failure.code, Code::TooLong);
        assert!(failure.message.contains("the outputs"), "{failure:?}");
        assert_eq!(cells.done.len(), 3);
    }
}
