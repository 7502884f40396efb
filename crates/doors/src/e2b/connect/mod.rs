//! The part of the Connect protocol with JSON that E2B's clients use.
//!
//! A unary call is a POST of a JSON object; the answer is a JSON object, or an error with an HTTP
//! status. A stream is messages in *envelopes*, in either direction: one byte of flags, four of
//! length (big-endian), then JSON. The last envelope of an answer has a flag of its own, and an
//! error if there is one; the status is always 200.

mod envelope;
mod error;

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use futures_util::Stream;
use record::json::Object;
use serde::de::DeserializeOwned;

use crate::answer::{self, Answer};
#[cfg(any(test, fuzzing))]
pub use envelope::envelopes;
pub(super) use envelope::{Messages, end, message};
pub(super) use error::{Code, Error};

/// The most digits of a timeout in milliseconds.
const MOST_DIGITS: usize = 10;

/// The answer of a unary call.
pub(super) fn answer(result: Result<Object<'_>, Error>) -> Answer {
    match result {
        Ok(value) => answer::json(StatusCode::OK, &value),
        Err(error) => answer::json(error.code.status(), &error.json()),
    }
}

/// The message of a unary call.
///
/// # Errors
/// It is compressed, too long or not JSON of this form.
pub(super) async fn unary<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Error> {
    check(headers, "application/json", CONTENT_ENCODING.as_str())?;
    let text = crate::body::read(body).await?;
    parse(&text)
}

/// An answer of envelopes, which breaks off at an error.
pub(super) fn stream<S>(envelopes: S) -> Answer
where
    S: Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    answer::of(
        StatusCode::OK,
        "application/connect+json",
        Body::from_stream(envelopes),
    )
}

/// An answer of envelopes with nothing but an error.
pub(super) fn failed(error: &Error) -> Answer {
    let end = end(Some(error));
    stream(futures_util::stream::once(async { Ok(end) }))
}

/// How long the client waits for an answer.
///
/// # Errors
/// It is not a number of at most ten digits.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Error> {
    let Some(given) = headers.get("connect-timeout-ms") else {
        return Ok(None);
    };
    let text = given.to_str().unwrap_or_default();
    let is_number =
        (1..=MOST_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse().ok().filter(|_| is_number) {
        Some(0) => Ok(None),
        Some(millis) => Ok(Some(Duration::from_millis(millis))),
        None => {
            let message = "Connect-Timeout-Ms: wants a number of at most ten digits";
            Err(Error::new(Code::InvalidArgument, message))
        }
    }
}

fn check(headers: &HeaderMap, kind: &str, encoding: &str) -> Result<(), Error> {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let given = field(CONTENT_TYPE.as_str()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    if !given.eq_ignore_ascii_case(kind) {
        let shown: String = given.chars().take(64).collect();
        let message = format!("Content-Type: is {shown:?}, but wants {kind}");
        return Err(Error::new(Code::Unimplemented, message));
    }
    match field(encoding) {
        None | Some("" | "identity") => Ok(()),
        Some(_) => {
            let message = format!("{encoding}: compressed messages are not supported");
            Err(Error::new(Code::Unimplemented, message))
        }
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    record::json::from_slice(text)
        .map_err(|error| Error::new(Code::InvalidArgument, format!("the message: {error}")))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn fields_are_checked() {
        let headers = |fields: &[(&'static str, &'static str)]| -> HeaderMap {
            let field = |(name, value): &(&'static str, &'static str)| {
                let name = axum::http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            };
            fields.iter().map(field).collect()
        };
        let timeout = |text| super::timeout(&headers(&[("connect-timeout-ms", text)]));
        assert_eq!(super::timeout(&headers(&[])), Ok(None));
        assert_eq!(timeout("0"), Ok(None));
        assert_eq!(timeout("1500"), Ok(Some(Duration::from_millis(1500))));
        for text in ["", "-1", "+1", "1s", "12345678901"] {
            assert!(timeout(text).is_err(), "{text}");
        }
        let check = |fields: &[_]| check(&headers(fields), "application/json", "content-encoding");
        let json = ("content-type", "application/json; charset=utf-8");
        assert_eq!(check(&[json]), Ok(()));
        assert_eq!(check(&[json, ("content-encoding", "identity")]), Ok(()));
        assert!(check(&[json, ("content-encoding", "gzip")]).is_err());
        assert!(check(&[("content-type", "application/proto")]).is_err());
        assert!(check(&[]).is_err());
    }
}
