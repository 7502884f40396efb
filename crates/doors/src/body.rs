//! Bodies of requests, within bounds.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serve::protocol::{Code, Failure};

/// The most bytes of a body: a request of the protocol has 16 MiB.
pub(crate) const MOST: usize = 16 << 20;
/// The most time that a body may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// All of a body.
///
/// # Errors
/// It is too long, takes too long, or its client has gone.
pub(crate) async fn read(body: Body) -> Result<Bytes, Failure> {
    let whole = Limited::new(body, MOST).collect();
    match tokio::time::timeout(PATIENCE, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body has more than {MOST} bytes");
            Err(Failure::new(Code::TooLong, message))
        }
        Ok(Err(error)) => {
            let message = format!("the body cannot be read: {error}");
            Err(Failure::new(Code::BadRequest, message))
        }
        Err(_) => {
            let message = format!("the body took more than {}s", PATIENCE.as_secs());
            Err(Failure::new(Code::BadRequest, message))
        }
    }
}

/// A body that is JSON.
///
/// # Errors
/// See [`read`]; it is not JSON of this form.
pub(crate) async fn json<T: DeserializeOwned>(body: Body) -> Result<T, Failure> {
    let text = read(body).await?;
    serde_json::from_slice(&text)
        .map_err(|error| Failure::new(Code::BadParams, format!("the body: {error}")))
}

/// A file of a form.
#[derive(Debug)]
pub(crate) struct FormFile {
    /// Its name as the client gave it.
    pub(crate) name: String,
    pub(crate) content: Bytes,
}

/// The files of a form (multipart/form-data, RFC 7578); its other fields are left out.
///
/// # Errors
/// It is not a form.
pub(crate) async fn form(headers: &HeaderMap, body: Bytes) -> Result<Vec<FormFile>, Failure> {
    let wrong = |error: multer::Error| {
        Failure::new(Code::BadRequest, format!("the body is not a form: {error}"))
    };
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default()).map_err(wrong)?;
    let whole = futures_util::stream::once(async { Ok::<_, std::convert::Infallible>(body) });
    let mut parts = multer::Multipart::new(whole, boundary);
    let mut files = Vec::new();
    while let Some(part) = parts.next_field().await.map_err(wrong)? {
        if let Some(name) = part.file_name().map(str::to_owned) {
            let content = part.bytes().await.map_err(wrong)?;
            files.push(FormFile { name, content });
        }
    }
    Ok(files)
}
