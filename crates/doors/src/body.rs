//! Bodies of requests, within bounds.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use wire::{Code, Failure};

use crate::front::held;

/// The most bytes of a body: a request of the protocol has 16 MiB.
pub(crate) const MOST: usize = 16 << 20;
/// The most time that a body may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// All of a body.
///
/// # Errors
/// It is too long, takes too long, or its client has gone.
pub(crate) async fn read(body: Body) -> Result<Bytes, Failure> {
    let whole = tokio::time::timeout(PATIENCE, collect(body)).await;
    whole.unwrap_or_else(|_| {
        let message = format!("the body took more than {}s", PATIENCE.as_secs());
        Err(Failure::new(Code::BadRequest, message))
    })
}

/// Copies each chunk: a chunk may be one byte, and keeps alive the whole buffer that it was read
/// into.
async fn collect(mut body: Body) -> Result<Bytes, Failure> {
    let too_long = || {
        let message = format!("the body has more than {MOST} bytes");
        Failure::new(Code::TooLong, message)
    };
    // The length that the client has declared.
    if body.size_hint().lower() > MOST as u64 {
        return Err(too_long());
    }
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unreadable(&error))?;
        // Trailers are not looked at.
        let chunk = frame.into_data().unwrap_or_default();
        if chunk.len() > MOST - whole.len() {
            return Err(too_long());
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.into())
}

/// Why a body cannot be read: its client has gone, or there is no room for it.
pub(crate) fn unreadable(error: &axum::Error) -> Failure {
    held::failure_of(error).cloned().unwrap_or_else(|| {
        let message = format!("the body cannot be read: {error}");
        Failure::new(Code::BadRequest, message)
    })
}

/// A body that is JSON.
///
/// # Errors
/// See [`read`]; it is not JSON of this form.
pub(crate) async fn json<T: DeserializeOwned>(body: Body) -> Result<T, Failure> {
    parse(&read(body).await?)
}

/// A body that is JSON, or is left out.
///
/// # Errors
/// See [`json`].
pub(crate) async fn optional<T: DeserializeOwned + Default>(body: Body) -> Result<T, Failure> {
    let text = read(body).await?;
    match text.is_empty() {
        true => Ok(T::default()),
        false => parse(&text),
    }
}

/// The same for a body that has been read.
///
/// # Errors
/// It is not JSON of this form.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Failure> {
    record::json::from_slice(text)
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use super::*;

    /// A buffer whose owners are counted.
    struct Buffer(Arc<[u8; 1]>);

    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            self.0.as_slice()
        }
    }

    #[tokio::test]
    async fn chunks_do_not_stay() {
        let count = Arc::new([b'x']);
        let chunks = (0..1000).map({
            let count = count.clone();
            move |_| {
                let chunk = Bytes::from_owner(Buffer(count.clone()));
                assert!(Arc::strong_count(&count) < 10, "chunks stay");
                Ok::<_, Infallible>(chunk)
            }
        });
        let body = Body::from_stream(futures_util::stream::iter(chunks));
        assert_eq!(read(body).await.unwrap(), "x".repeat(1000));
    }

    #[tokio::test]
    async fn long_bodies_are_refused() {
        let bodies = |count: usize| {
            let chunk = Bytes::from(vec![b'x'; 1 << 20]);
            let chunks = std::iter::repeat_n(Ok::<_, Infallible>(chunk), count);
            Body::from_stream(futures_util::stream::iter(chunks))
        };
        assert_eq!(read(bodies(16)).await.unwrap().len(), MOST);
        let failure = read(bodies(17)).await.unwrap_err();
        assert_eq!(failure.code, Code::TooLong);
    }
}
