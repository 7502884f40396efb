//! The Connect protocol with JSON, as far as E2B's clients speak it.
//!
//! A unary call is a POST of a JSON object, whose answer is one, or an error with a status of
//! HTTP. A stream is messages in *envelopes*, in either direction: one byte of flags, four of
//! length (big-endian), then JSON. The last envelope of an answer has a flag of its own, and an
//! error if there is one; the status is always 200.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use futures_util::Stream;
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serve::protocol::Failure;

use super::wire;
use crate::answer::{self, Answer};

/// The most bytes of a message.
const LONGEST: usize = 4 << 20;
/// The bytes before a message.
const HEAD: usize = 5;
/// The message is compressed, by what the client named.
const COMPRESSED: u8 = 1;
/// The envelope is the last one.
const LAST: u8 = 2;
/// The longest time that a client may name: ten digits of milliseconds.
const MOST_DIGITS: usize = 10;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
}

/// Why a call has no answer.
#[derive(Debug, PartialEq)]
pub(super) struct Error {
    pub(super) code: Code,
    pub(super) message: String,
}

impl Code {
    const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Error {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    fn json(&self) -> Value {
        json!({"code": self.code.name(), "message": self.message})
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        use serve::protocol::Code as Own;
        let code = match (failure.code, failure.errno.as_deref()) {
            (Own::NotFound, Some("ENOENT")) => Code::NotFound,
            // A context; the SDKs look for these words.
            (Own::NotFound, None) => {
                return Self::new(Code::Unavailable, "The sandbox was not found");
            }
            (Own::Failed, Some("EEXIST" | "ENOTEMPTY")) => Code::AlreadyExists,
            // `resource_exhausted` says that there are too many requests.
            (Own::Failed, Some("ENOSPC" | "EDQUOT")) => Code::FailedPrecondition,
            (Own::Failed, Some(_)) | (Own::BadParams | Own::BadRequest | Own::TooLong, _) => {
                Code::InvalidArgument
            }
            (Own::NotFound, _) => Code::NotFound,
            (Own::UnknownMethod, _) => Code::Unimplemented,
            (Own::Busy, _) => Code::ResourceExhausted,
            (Own::Lost | Own::ShuttingDown | Own::Cancelled, _) => Code::Unavailable,
            (Own::NotAllowed | Own::DuplicateId, _) => Code::Internal,
            (Own::Failed, None) => Code::FailedPrecondition,
        };
        Self::new(code, wire::words(&failure))
    }
}

/// The answer of a unary call.
pub(super) fn answer(result: Result<Value, Error>) -> Answer {
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

/// Messages that come one after the other.
#[derive(Debug)]
pub(super) struct Messages {
    body: Body,
    envelopes: Envelopes,
}

impl Messages {
    /// # Errors
    /// They are compressed, or not JSON.
    pub(super) fn new(headers: &HeaderMap, body: Body) -> Result<Self, Error> {
        check(
            headers,
            "application/connect+json",
            "connect-content-encoding",
        )?;
        Ok(Self {
            body,
            envelopes: Envelopes::default(),
        })
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// The client has gone; the message is too long or not JSON of this form.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(message) = self.envelopes.next()? {
                return parse(&message).map(Some);
            }
            let Some(frame) = self.body.frame().await else {
                return self.envelopes.end().map(|()| None);
            };
            let frame = frame.map_err(|error| {
                let message = format!("the body cannot be read: {error}");
                Error::new(Code::InvalidArgument, message)
            })?;
            if let Ok(bytes) = frame.into_data() {
                self.envelopes.add(&bytes);
            }
        }
    }

    /// The only one.
    ///
    /// # Errors
    /// See [`Messages::next`]; there is none, or it takes too long.
    pub(super) async fn only<T: DeserializeOwned>(self) -> Result<T, Error> {
        self.only_within(crate::body::PATIENCE).await
    }

    async fn only_within<T: DeserializeOwned>(mut self, most: Duration) -> Result<T, Error> {
        let message = tokio::time::timeout(most, self.next()).await;
        let message = message.unwrap_or_else(|_| {
            let message = "the message took too long";
            Err(Error::new(Code::InvalidArgument, message))
        })?;
        message.ok_or_else(|| Error::new(Code::InvalidArgument, "the stream has no message"))
    }
}

/// What a stream of bytes has of envelopes.
#[derive(Debug, Default)]
struct Envelopes {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Envelopes {
    fn add(&mut self, bytes: &[u8]) {
        if !self.is_over {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The next message, if all of it has come.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [flags, length @ ..] = *head;
        if self.is_over || flags & LAST != 0 {
            self.is_over = true;
            self.bytes.clear();
            return Ok(None);
        }
        match flags {
            0 => {}
            COMPRESSED => {
                let message = "the message is compressed: send it as it is";
                return Err(Error::new(Code::Unimplemented, message));
            }
            other => {
                let message = format!("the flags {other} of a message mean nothing");
                return Err(Error::new(Code::InvalidArgument, message));
            }
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST {
            let message = format!("a message has {length} bytes, but wants at most {LONGEST}");
            return Err(Error::new(Code::InvalidArgument, message));
        }
        let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.bytes.drain(..HEAD + length);
        Ok(Some(message))
    }

    fn end(&self) -> Result<(), Error> {
        match self.bytes.is_empty() {
            true => Ok(()),
            false => {
                let message = "the stream ends within a message";
                Err(Error::new(Code::InvalidArgument, message))
            }
        }
    }
}

/// A message in its envelope.
pub(super) fn message(value: &impl Serialize) -> Bytes {
    envelope(0, &serde_json::to_vec(value).unwrap_or_default())
}

/// The last envelope of an answer.
pub(super) fn end(error: Option<&Error>) -> Bytes {
    let text = match error {
        None => json!({}),
        Some(error) => json!({"error": error.json()}),
    };
    envelope(LAST, text.to_string().as_bytes())
}

fn envelope(flags: u8, text: &[u8]) -> Bytes {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&[flags], length.to_be_bytes().as_slice(), text]
        .concat()
        .into()
}

/// An answer of envelopes.
pub(super) fn stream<S>(envelopes: S) -> Answer
where
    S: Stream<Item = Bytes> + Send + 'static,
{
    let whole = futures_util::StreamExt::map(envelopes, Ok::<_, std::convert::Infallible>);
    answer::of(
        StatusCode::OK,
        "application/connect+json",
        Body::from_stream(whole),
    )
}

/// A stream that has nothing but an error.
pub(super) fn failed(error: &Error) -> Answer {
    let end = end(Some(error));
    stream(futures_util::stream::once(async { end }))
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
            let message = format!("{encoding}: compressed messages are not read");
            Err(Error::new(Code::Unimplemented, message))
        }
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text)
        .map_err(|error| Error::new(Code::InvalidArgument, format!("the message: {error}")))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn all(envelopes: &mut Envelopes) -> Result<Vec<Vec<u8>>, Error> {
        let mut found = Vec::new();
        while let Some(message) = envelopes.next()? {
            found.push(message);
        }
        Ok(found)
    }

    proptest! {
        /// However a stream is cut, its messages are the same.
        #[test]
        fn messages_survive_any_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in prop::collection::vec(1usize..9, 1..40),
        ) {
            let whole: Vec<u8> = messages.iter().flat_map(|text| envelope(0, text)).collect();
            let (mut envelopes, mut found) = (Envelopes::default(), Vec::new());
            let mut rest = whole.as_slice();
            for cut in cuts.iter().cycle() {
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                envelopes.add(part);
                found.extend(all(&mut envelopes).unwrap());
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, messages);
            prop_assert_eq!(envelopes.end(), Ok(()));
        }

        /// Any bytes are messages, an error, or not enough; what is kept is bounded.
        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            let mut envelopes = Envelopes::default();
            for part in bytes.chunks(7) {
                envelopes.add(part);
                if all(&mut envelopes).is_err() {
                    break;
                }
            }
            prop_assert!(envelopes.bytes.len() <= bytes.len());
        }
    }

    #[tokio::test]
    async fn a_message_is_not_waited_for_for_ever() {
        let headers = HeaderMap::from_iter([(
            CONTENT_TYPE,
            HeaderValue::from_static("application/connect+json"),
        )]);
        let never = futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let messages = Messages::new(&headers, Body::from_stream(never)).unwrap();
        let within = messages.only_within::<Value>(Duration::from_millis(1));
        let error = within.await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
    }

    #[test]
    fn only_a_busy_server_is_asked_again() {
        use serve::protocol::Code as Own;
        let full = Failure {
            errno: Some("ENOSPC".to_owned()),
            ..Failure::new(Own::Failed, "no space left")
        };
        assert_eq!(Error::from(full).code, Code::FailedPrecondition);
        let busy = Error::from(Failure::new(Own::Busy, "the server is busy"));
        assert_eq!(busy.code.status(), StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let of = |bytes: &[u8]| {
            let mut envelopes = Envelopes::default();
            envelopes.add(bytes);
            all(&mut envelopes).map(|found| (found, envelopes.end()))
        };
        let code = |bytes: &[u8]| of(bytes).unwrap_err().code;
        assert_eq!(code(&[1, 0, 0, 0, 0]), Code::Unimplemented);
        assert_eq!(code(&[4, 0, 0, 0, 0]), Code::InvalidArgument);
        // A length is believed only as far as there may be so many bytes.
        assert_eq!(code(&[0, 255, 255, 255, 255]), Code::InvalidArgument);
        let (found, end) = of(&[0, 0, 0, 0, 2, b'{']).unwrap();
        assert!(found.is_empty() && end.is_err());
        // Nothing counts after the end.
        let (found, end) = of(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert!(found.is_empty() && end.is_ok());
    }

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

    #[test]
    fn ends_have_their_error() {
        assert_eq!(end(None).as_ref(), b"\x02\0\0\0\x02{}");
        let error = Error::new(Code::NotFound, "gone");
        let text = br#"{"error":{"code":"not_found","message":"gone"}}"#;
        assert_eq!(&end(Some(&error))[5..], text);
    }
}
