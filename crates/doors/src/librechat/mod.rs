//! LibreChat's code interpreter: `/exec`, `/upload`, `/download` and `/files`.
//!
//! An execution has a cell of its own. Where it leaves files, its context is kept: it is the
//! storage session that the files are downloaded from, until it is idle for too long. So is
//! an upload. A file's id is a digest of its path, so there is nothing to remember.

mod sessions;

use std::fmt;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, HeaderMap, HeaderValue};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use record::bytes::RawText;
use record::json::{List, Object};
use record::{Change, Outcome, Record, object};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use wire::{Code, Failure, FileRead, FileRemove, Party, method};

use crate::answer::{self, Answer};
use crate::body::{self, FormFile};
use crate::client::Client;
use crate::files;
use crate::front::Guarded;
use crate::runs::{self, ContextRun};
use sessions::{
    Entry, Reference, Upload, create, end, entries, find_all, id_of, keep, path_of, relative, text,
};

/// The most bytes of all files that go into a session: a request has 16 MiB.
const MOST: usize = 12 << 20;

record::bounds! {
    /// The arguments of a program.
    MostArgs = "args", 1 << 16;
    /// The files of an execution: each costs at least one call.
    MostFiles = "files", files::MOST_FILES;
}

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
    files: List<Reference, MostFiles>,
}

/// Arguments; older clients send one text.
#[derive(Debug, Default)]
struct Args(Vec<String>);

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Args;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_unit<E>(self) -> Result<Args, E> {
                Ok(Args::default())
            }

            fn visit_str<E>(self, one: &str) -> Result<Args, E> {
                Ok(Args(vec![one.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, many: A) -> Result<Args, A::Error> {
                let many = SeqAccessDeserializer::new(many);
                List::<String, MostArgs>::deserialize(many).map(|many| Args(many.into_inner()))
            }
        }

        deserializer.deserialize_any(Reader)
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

async fn execute(client: &mut Client, asked: Exec) -> Result<Object<'static>, Failure> {
    let language = language(&asked.lang)?;
    let uploads = find_all(client, &asked.files).await?;
    let session = create(client, language, &uploads).await?;
    let Args(args) = asked.args;
    let params = ContextRun {
        args: args.into_iter().map(RawText::from).collect(),
        ..ContextRun::new(&session, asked.code.as_str())
    };
    let ran = runs::execute(client, &params).await;
    let left_files = match &ran {
        Ok(ran) => outputs(&ran.record, &session),
        Err(_) => Vec::new(),
    };
    if left_files.is_empty() {
        end(client, &session).await;
    } else {
        keep(client, &session).await?;
    }
    let record = ran?.record;
    if runs::is_fault(record.outcome) {
        return Err(Failure::new(Code::Failed, runs::fault(&record)));
    }
    let mut stderr = runs::stderr(&record);
    if let (Outcome::Timeout, Some(why)) = (record.outcome, &record.context) {
        runs::add_line(&mut stderr, why);
    }
    Ok(object! {
        "session_id": session,
        "stdout": runs::stdout(&record),
        "stderr": stderr,
        "files": left_files,
    })
}

/// What an execution that succeeded has left.
fn outputs(record: &Record, session: &str) -> Vec<Object<'static>> {
    if record.outcome != Outcome::Ok {
        return Vec::new();
    }
    let left = record
        .files
        .iter()
        .filter(|file| file.change != Change::Deleted);
    let file = |path: &str| {
        object! {"id": id_of(path), "name": path, "storage_session_id": session}
    };
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
            object! {"status": "success", "fileId": id_of(path), "filename": path}
        };
        Ok(object! {
            "message": "success",
            "session_id": session,
            "storage_session_id": session,
            "files": uploads.iter().map(file).collect::<Vec<_>>(),
            "succeeded": uploads.len(),
            "failed": 0,
        })
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
        let answer = files::answer(client, FileRead::new(session, &path)).await?;
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
            object! {
                "id": id,
                "name": format!("{session}/{id}"),
                "storage_session_id": session,
                "session_id": session,
                "size": entry.size,
                "lastModified": time_of(entry.mtime),
                "metadata": object! {"original-filename": entry.path},
            }
        };
        Ok(entries.files.iter().map(file).collect::<Vec<_>>())
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
        let params = FileRemove::new(session, path);
        client.ask::<method::FileRemove>(&params).await?;
        Ok(object! {"message": "success"})
    };
    answered(done.await)
}

fn time_of(seconds: i64) -> String {
    humantime::format_rfc3339_seconds(files::time(seconds)).to_string()
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

fn answered(done: Result<impl Serialize, Failure>) -> Answer {
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
    let body = object! {"error": failure.code, "message": message};
    let mut answer = answer::json(answer::status_of(failure.code), &body);
    answer::say_when(&mut answer, failure);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
