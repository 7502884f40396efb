//! Contents of files over HTTP: as they are, and compressed by clients.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use record::json::Object;
use record::object;
use serde::Deserialize;
use wire::{Code, Failure, FileList, FileName, FileRead, FileWrite, method};

use super::call::SandboxClient;
use super::form::{Form, bad, boundary};
use super::path;
use crate::answer::{self, Answer};
use crate::e2b::sandboxes::Sandbox;
use crate::e2b::{answers, connect};
use crate::files;
use crate::front::{Guarded, held};
use crate::upload::{Blocks, Chunks, Parts, write_parts};

/// The most files of a form.
const MOST_FILES: usize = 256;

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    path: Option<String>,
}

pub(super) async fn download(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Query(asked): Query<Named>,
) -> Answer {
    let given = asked.path.unwrap_or_default();
    let read = async {
        let at = path::inside(&given).map_err(refused)?;
        let mut client = SandboxClient::connect(&guarded, &sandbox)?;
        // Also makes the cell of a sandbox that has none yet.
        let stat = FileName::new(client.context(), &at);
        client.ask::<method::FileStat>(&stat).await?;
        let read = FileRead::new(client.context(), at);
        files::answer(client.client, read).await
    };
    read.await
        .unwrap_or_else(|failure| failed(&failure, &given))
}

pub(super) async fn upload(
    State(guarded): State<Guarded>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Query(asked): Query<Named>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let named = asked.path.filter(|path| !path.is_empty());
    let given = named.clone().unwrap_or_default();
    let written = async {
        let blocks = blocks(&headers, body)?;
        let mut client = SandboxClient::connect(&guarded, &sandbox)?;
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        if let Some(boundary) = boundary(kind.unwrap_or_default()) {
            return write_form(&mut client, Form::of(blocks, boundary), named).await;
        }
        let to = named.ok_or_else(|| bad("the query has no path"))?;
        Ok(vec![write(&mut client, &to, blocks).await?])
    };
    match written.await {
        Ok(files) => answer::json(StatusCode::OK, &files),
        Err(failure) => failed(&failure, &given),
    }
}

/// Writes the files of a form. A single one is named by the query, several by their parts.
async fn write_form(
    client: &mut SandboxClient,
    mut form: Form,
    named: Option<String>,
) -> Result<Vec<Object<'static>>, Failure> {
    let mut files = Vec::new();
    while let Some(mut part) = form.next().await? {
        if part.name() != Some("file") {
            while let Some(skipped) = part.next().await? {
                held::sent(skipped.len());
            }
            continue;
        }
        if files.len() >= MOST_FILES {
            return Err(bad(&format!("a form has at most {MOST_FILES} files")));
        }
        let own = || part.file_name().map(str::to_owned);
        let to = named.clone().or_else(own);
        let to = to.ok_or_else(|| bad("a part of the form has no filename"))?;
        files.push(write(client, &to, part).await?);
    }
    match files.is_empty() {
        true => Err(bad("the form has no part with the name file")),
        false => Ok(files),
    }
}

/// Writes a file part by part, so that only the workspace bounds its size.
async fn write(
    client: &mut SandboxClient,
    to: &str,
    chunks: impl Chunks,
) -> Result<Object<'static>, Failure> {
    let at = path::inside(to).map_err(refused)?;
    let mut parts = Parts::of(chunks);
    let content = parts.next().await?.unwrap_or_else(|| "".into());
    let first = FileWrite::new(client.context(), &at, content);
    if parts.is_over() {
        client.ask::<method::FileWrite>(&first).await?;
    } else {
        // Also makes the cell of a sandbox that has none yet.
        let top = FileList {
            context: client.context(),
            path: PathBuf::new(),
            recursive: false,
            depth: None,
        };
        client.ask::<method::FileList>(&top).await?;
        write_parts(&mut client.client, first, parts).await?;
    }
    let shown = path::shown(&at.to_string_lossy());
    Ok(object! {"name": path::name(&shown), "type": "file", "path": shown})
}

/// The content of a body. Refuses fields whose effect would be lost silently.
fn blocks(headers: &HeaderMap, body: Body) -> Result<Blocks, Failure> {
    let mut names = headers.keys();
    if names.any(|name| name.as_str().starts_with("x-metadata-")) {
        return Err(bad("metadata of files is not supported here"));
    }
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(Blocks::of(body)),
        Some(b"gzip") => Ok(Blocks::unzipped(body)),
        Some(_) => Err(bad(
            "Content-Encoding: only gzip and identity are supported",
        )),
    }
}

fn refused(error: connect::Error) -> Failure {
    bad(&error.message)
}

/// An error as clients of files read it.
fn failed(failure: &Failure, given: &str) -> Answer {
    let status = match (failure.code, failure.errno.as_deref()) {
        (_, Some("ENOENT")) => StatusCode::NOT_FOUND,
        (_, Some("ENOSPC" | "EDQUOT")) => StatusCode::INSUFFICIENT_STORAGE,
        (Code::NotFound, None) => {
            return answers::error(StatusCode::BAD_GATEWAY, answers::NO_SANDBOX);
        }
        // An entry that is not a regular file has no error number.
        (_, Some(_)) | (Code::Failed, None) => StatusCode::BAD_REQUEST,
        (code, None) => answer::status_of(code),
    };
    let shown: String = given.chars().take(256).collect();
    let message = match status {
        StatusCode::NOT_FOUND => format!("path '{shown}' does not exist"),
        _ => answers::words(failure),
    };
    answers::error(status, message)
}
