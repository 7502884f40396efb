//! LibreChat's code interpreter: `/exec`, `/upload`, `/download` and `/files`.
//!
//! An execution has a cell of its own. Where it leaves files, its context is kept: it is the
//! storage session that the files are downloaded from, until it is idle for too long. So is
//! an upload. A file's id is a digest of its path, so there is nothing to remember.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, HeaderMap, HeaderValue};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use record::bytes::RawText;
use record::{Change, Outcome, Record};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use serve::Party;
use serve::protocol::{Code, Created, Deleted, Failure};
use sha2::{Digest as _, Sha256};

use crate::answer::{self, Answer};
use crate::body::{self, FormFile};
use crate::client::Client;
use crate::files;
use crate::front::Guarded;
use crate::runs::{self, Ran};

/// How long ids are: its own check of them allows nothing else.
const ID: usize = 21;
/// What labels of storage sessions are.
const LABEL: &str = "storage session";
/// The most bytes of all files that go into a session: a request has 16 MiB.
const MOST: usize = 12 << 20;
/// The last second of the year 9999, counted from 1970.
const LAST: u64 = 253_402_300_799;
/// Where code finds its files, and where `--symlink` leads.
const DIRECTORIES: [&str; 2] = ["/mnt/data/", "/workspace/"];

pub(crate) fn router() -> Router<Guarded> {
    Router::new()
        .route("/exec", post(exec))
        .route("/upload", post(upload))
        .route("/upload/batch", post(upload))
        .route("/download/{session}/{file}", get(download))
        .route("/files/{session}", get(list))
        .route("/files/{session}/{file}", delete(remove))
}

#[derive(Debug, Deserialize)]
struct Exec {
    lang: String,
    code: String,
    #[serde(default)]
    args: Args,
    #[serde(default)]
    files: Vec<Reference>,
}

/// Arguments; older clients send one text.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Args {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

/// A file of a storage session.
#[derive(Debug, Deserialize)]
struct Reference {
    id: String,
    name: String,
    #[serde(alias = "session_id")]
    storage_session_id: String,
}

/// A file that goes into a session.
struct Upload {
    path: String,
    content: Vec<u8>,
}

/// A file of a session. Those whose path is not text have no name in the protocol, and are
/// left out.
#[derive(Debug)]
struct Entry {
    path: String,
    size: u64,
    mtime: i64,
}

/// The files of a session.
#[derive(Debug)]
struct Entries {
    files: Vec<Entry>,
    /// Whether there are more, which were not listed.
    is_cut: bool,
}

impl Entries {
    /// The file with this id, if it is there.
    fn find(&self, id: &str) -> Result<Option<&Entry>, Failure> {
        let found = self.files.iter().find(|entry| id_of(&entry.path) == id);
        if found.is_none() && self.is_cut {
            let message = "this session has too many files for this one to be found";
            return Err(Failure::new(Code::TooLong, message));
        }
        Ok(found)
    }
}

async fn exec(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    body: Body,
) -> Answer {
    let done = async {
        let asked: Exec = body::json(body).await?;
        let mut client = guarded.client(party)?;
        execute(&mut client, asked).await
    };
    answered(done.await)
}

async fn execute(client: &mut Client, asked: Exec) -> Result<Value, Failure> {
    let language = language(&asked.lang)?;
    let uploads = find_all(client, &asked.files).await?;
    let session = create(client, language, &uploads).await?;
    let args = match asked.args {
        Args::None => Vec::new(),
        Args::One(one) => vec![one],
        Args::Many(many) => many,
    };
    let params = json!({"context": session, "code": asked.code, "args": args});
    let ran: Result<Ran, Failure> = client.ask_for("context.run", &params).await;
    let left_files = match &ran {
        Ok(Ran { record, .. }) => outputs(record, &session),
        Err(_) => Vec::new(),
    };
    if left_files.is_empty() {
        end(client, &session).await;
    } else {
        keep(client, &session).await?;
    }
    let Ran { record, .. } = ran?;
    if runs::is_fault(record.outcome) {
        return Err(Failure::new(Code::Failed, runs::fault(&record)));
    }
    let mut stderr = runs::stderr(&record);
    if let (Outcome::Timeout, Some(why)) = (record.outcome, &record.context) {
        runs::add_line(&mut stderr, why);
    }
    Ok(json!({
        "session_id": session,
        "stdout": runs::stdout(&record),
        "stderr": stderr,
        "files": left_files,
    }))
}

/// What an execution that succeeded has left.
fn outputs(record: &Record, session: &str) -> Vec<Value> {
    if record.outcome != Outcome::Ok {
        return Vec::new();
    }
    let left = record
        .files
        .iter()
        .filter(|file| file.change != Change::Deleted);
    let file = |path: &str| json!({"id": id_of(path), "name": path, "storage_session_id": session});
    left.filter_map(|changed| text(&changed.path).map(file))
        .collect()
}

async fn upload(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let done = async {
        let body = body::read(body).await?;
        let parts = body::form(&headers, body).await?;
        let upload = |part: FormFile| Upload {
            path: relative(&part.name).to_owned(),
            content: part.content.to_vec(),
        };
        let uploads: Vec<Upload> = parts.into_iter().map(upload).collect();
        let total: usize = uploads.iter().map(|upload| upload.content.len()).sum();
        if total > MOST {
            let message = format!("the files have more than {MOST} bytes");
            return Err(Failure::new(Code::TooLong, message));
        }
        files::check_count("the form", uploads.len())?;
        if uploads.is_empty() {
            return Err(Failure::new(Code::BadParams, "the form has no file"));
        }
        let mut client = guarded.client(party)?;
        let session = create(&mut client, "python", &uploads).await?;
        keep(&mut client, &session).await?;
        let file = |upload: &Upload| {
            let path = &upload.path;
            json!({"status": "success", "fileId": id_of(path), "filename": path})
        };
        Ok(json!({
            "message": "success",
            "session_id": session,
            "storage_session_id": session,
            "files": uploads.iter().map(file).collect::<Vec<_>>(),
            "succeeded": uploads.len(),
            "failed": 0,
        }))
    };
    answered(done.await)
}

async fn download(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path((session, file)): Path<(String, String)>,
) -> Answer {
    let done = async {
        let mut client = guarded.client(party)?;
        let path = path_of(&mut client, &session, &file).await?;
        let params = Map::from_iter([
            ("context".to_owned(), session.into()),
            ("path".to_owned(), path.as_str().into()),
        ]);
        let answer = files::answer(client, params).await?;
        Ok((path, answer))
    };
    match done.await {
        Ok((path, mut answer)) => {
            let name = path.rsplit('/').next().unwrap_or_default();
            let plain: String = name
                .chars()
                .filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'))
                .collect();
            if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{plain}\"")) {
                answer.headers_mut().insert(CONTENT_DISPOSITION, value);
            }
            answer
        }
        Err(failure) => failed(&failure),
    }
}

async fn list(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(session): Path<String>,
) -> Answer {
    let done = async {
        let mut client = guarded.client(party)?;
        let entries = entries(&mut client, &session).await?;
        let file = |entry: &Entry| {
            let id = id_of(&entry.path);
            json!({
                "id": id,
                "name": format!("{session}/{id}"),
                "storage_session_id": session,
                "session_id": session,
                "size": entry.size,
                "lastModified": time_of(entry.mtime),
                "metadata": {"original-filename": entry.path},
            })
        };
        Ok(entries.files.iter().map(file).collect::<Value>())
    };
    answered(done.await)
}

async fn remove(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path((session, file)): Path<(String, String)>,
) -> Answer {
    let done = async {
        let mut client = guarded.client(party)?;
        let path = path_of(&mut client, &session, &file).await?;
        let params = json!({"context": session, "path": path});
        client.ask("file.remove", &params).await?;
        Ok(json!({"message": "success"}))
    };
    answered(done.await)
}

/// The files that an execution is to have, without those that are gone: sessions go, and then
/// the client uploads what it has again.
async fn find_all(client: &mut Client, wanted: &[Reference]) -> Result<Vec<Upload>, Failure> {
    files::check_count("files", wanted.len())?;
    let mut sessions: HashMap<&str, Entries> = HashMap::new();
    let mut uploads = Vec::new();
    let mut left = MOST;
    for reference in wanted {
        let session = reference.storage_session_id.as_str();
        let listed = match sessions.entry(session) {
            Occupied(listed) => listed.into_mut(),
            Vacant(place) => match entries(client, session).await {
                Err(failure) if failure.code == Code::NotFound => place.insert(Entries {
                    files: Vec::new(),
                    is_cut: false,
                }),
                listed => place.insert(listed?),
            },
        };
        let Some(Entry { path, .. }) = listed.find(&reference.id)? else {
            continue;
        };
        if let Some(content) = files::whole(client, session, path, left).await? {
            left -= content.len();
            let path = match relative(&reference.name) {
                "" => path.clone(),
                name => name.to_owned(),
            };
            uploads.push(Upload { path, content });
        }
    }
    Ok(uploads)
}

/// The path of a file.
async fn path_of(client: &mut Client, session: &str, id: &str) -> Result<String, Failure> {
    let entries = entries(client, session).await?;
    let found = entries.find(id)?;
    let path = found.map(|entry| entry.path.clone());
    path.ok_or_else(|| Failure::new(Code::NotFound, "this session has no such file"))
}

/// The files of a session.
async fn entries(client: &mut Client, session: &str) -> Result<Entries, Failure> {
    #[derive(Deserialize)]
    struct Listed {
        entries: List,
    }
    #[derive(Deserialize)]
    struct List {
        entries: Vec<Any>,
        is_cut: bool,
    }
    #[derive(Deserialize)]
    struct Any {
        path: RawText,
        kind: String,
        size: u64,
        mtime: i64,
    }
    let params = json!({"context": session, "recursive": true});
    let Listed { entries } = client.ask_for("file.list", &params).await?;
    let files = entries.entries.iter().filter(|any| any.kind == "file");
    let file = |any: &Any| {
        Some(Entry {
            path: text(&any.path)?.to_owned(),
            size: any.size,
            mtime: any.mtime,
        })
    };
    Ok(Entries {
        files: files.filter_map(file).collect(),
        is_cut: entries.is_cut,
    })
}

fn text(path: &RawText) -> Option<&str> {
    std::str::from_utf8(path.as_bytes()).ok()
}

/// Makes a session with these files, which ends with its client unless it is kept.
async fn create(
    client: &mut Client,
    language: &str,
    uploads: &[Upload],
) -> Result<String, Failure> {
    let file =
        |upload: &Upload| json!({"path": upload.path, "base64": STANDARD.encode(&upload.content)});
    let files: Vec<Value> = uploads.iter().map(file).collect();
    let params = json!({
        "request": {"language": language, "files": files},
        "context": new_id()?,
    });
    let created: Created = client.ask_for("context.create", &params).await?;
    Ok(created.context)
}

/// Lets a session outlive its client.
async fn keep(client: &mut Client, session: &str) -> Result<(), Failure> {
    let params = json!({"context": session, "label": LABEL, "keep": true});
    client.ask("context.label", &params).await.map(drop)
}

/// Ends a session that has nothing to download.
async fn end(client: &mut Client, session: &str) {
    let params = json!({"context": session});
    // One that is gone is what is wanted.
    let _ = client.ask_for::<Deleted>("context.delete", &params).await;
}

/// An id that cannot be guessed.
fn new_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::getrandom(&mut bytes)
        .map_err(|error| Failure::new(Code::Failed, format!("getrandom: {error}")))?;
    Ok(short(&bytes))
}

/// The id of a file.
fn id_of(path: &str) -> String {
    short(&Sha256::digest(path))
}

fn short(bytes: &[u8]) -> String {
    let mut text = URL_SAFE_NO_PAD.encode(bytes);
    text.truncate(ID);
    text
}

/// A path as the protocol has it.
fn relative(path: &str) -> &str {
    let inside = DIRECTORIES
        .iter()
        .find_map(|directory| path.strip_prefix(directory));
    inside.unwrap_or(path).trim_start_matches('/')
}

/// The time of this many seconds after 1970. Code in a cell chooses them, and later years
/// than 9999 have no form in RFC 3339.
fn time_of(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST);
    let since = std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).to_string()
}

fn language(name: &str) -> Result<&'static str, Failure> {
    match name {
        "py" | "python" => Ok("python"),
        "js" => Ok("javascript"),
        "ts" => Ok("typescript"),
        "bash" => Ok("bash"),
        "r" => Ok("r"),
        _ => {
            let shown: String = name.chars().take(64).collect();
            let message = format!("lang: {shown:?} is not available here");
            Err(Failure::new(Code::BadParams, message).hint("py, js, ts, bash and r are"))
        }
    }
}

fn answered(done: Result<Value, Failure>) -> Answer {
    match done {
        Ok(value) => answer::json(StatusCode::OK, &value),
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> Answer {
    let message = match &failure.hint {
        Some(hint) => format!("{}; {hint}", failure.message),
        None => failure.message.clone(),
    };
    let body = json!({"error": failure.code, "message": message});
    let mut answer = answer::json(answer::status_of(failure.code), &body);
    answer::say_when(&mut answer, failure);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_pass_the_clients_check() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        for id in [
            new_id().unwrap(),
            new_id().unwrap(),
            id_of("a/b.png"),
            id_of(""),
        ] {
            assert!(id.len() == ID && id.chars().all(is_plain), "{id}");
        }
        assert_ne!(new_id().unwrap(), new_id().unwrap());
    }

    #[test]
    fn every_time_has_a_form() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1970-01-01T00:00:00Z"),
            (i64::MIN, "1970-01-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "9999-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(time_of(seconds), text);
        }
    }

    #[test]
    fn names_are_below_the_workspace() {
        for (name, path) in [
            ("a.csv", "a.csv"),
            ("/mnt/data/d/a.csv", "d/a.csv"),
            ("/workspace/a", "a"),
            ("/etc/passwd", "etc/passwd"),
        ] {
            assert_eq!(relative(name), path);
        }
    }
}
