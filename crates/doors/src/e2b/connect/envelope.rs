//! Messages in their envelopes.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use http_body_util::BodyExt as _;
use record::json::text_of;
use record::object;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Code, Error, check, parse};
use crate::front::held;

/// The most bytes of a message.
const LONGEST: usize = 4 << 20;
/// The bytes before a message.
const HEAD: usize = 5;
/// How long the end of a stream is waited for, when its only message has come.
const END: Duration = Duration::from_secs(2);
/// The flag of a compressed message.
const COMPRESSED: u8 = 1;
/// The flag of the last envelope.
const LAST: u8 = 2;

/// Messages that come one after the other.
#[derive(Debug)]
pub(in crate::e2b) struct Messages {
    body: Body,
    envelopes: Envelopes,
}

impl Messages {
    /// # Errors
    /// They are compressed, or not JSON.
    pub(in crate::e2b) fn new(headers: &HeaderMap, body: Body) -> Result<Self, Error> {
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

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// The client has gone; the message is too long or not JSON of this form.
    pub(in crate::e2b) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        // The message before has been taken.
        held::kept(self.envelopes.bytes.len());
        loop {
            if let Some(message) = self.envelopes.next()? {
                return parse(&message).map(Some);
            }
            let Some(frame) = self.body.frame().await else {
                return self.envelopes.end().map(|()| None);
            };
            let frame = frame.map_err(|error| match held::failure_of(&error) {
                Some(failure) => failure.clone().into(),
                None => {
                    let message = format!("the body cannot be read: {error}");
                    Error::new(Code::InvalidArgument, message)
                }
            })?;
            if let Ok(bytes) = frame.into_data() {
                self.envelopes.add(&bytes);
            }
        }
    }

    /// The only one.
    ///
    /// # Errors
    /// Those of [`Messages::next`]; the stream has no message, or the message takes too long.
    pub(in crate::e2b) async fn only<T: DeserializeOwned>(self) -> Result<T, Error> {
        self.only_within(crate::body::PATIENCE).await
    }

    async fn only_within<T: DeserializeOwned>(mut self, most: Duration) -> Result<T, Error> {
        let message = tokio::time::timeout(most, self.next()).await;
        let message = message.unwrap_or_else(|_| {
            let message = "the message took too long";
            Err(Error::new(Code::InvalidArgument, message))
        })?;
        let none = || Error::new(Code::InvalidArgument, "the stream has no message");
        let message = message.ok_or_else(none)?;
        let _ = tokio::time::timeout(END, self.read_end()).await;
        Ok(message)
    }

    /// Reads what follows the only message: its client has ended the stream, but the end may arrive
    /// later. A server that closes the connection with unread input resets it, and the client may lose the
    /// end of a long answer.
    async fn read_end(&mut self) {
        let mut left = LONGEST;
        while let Some(Ok(frame)) = self.body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else {
                return;
            };
            left = rest;
        }
    }
}

/// Splits a stream of bytes into envelopes.
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

    /// The next message, if it is complete.
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
                let message = "the message is compressed: send it uncompressed";
                return Err(Error::new(Code::Unimplemented, message));
            }
            other => {
                let message = format!("a message has the unknown flags {other}");
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
pub(in crate::e2b) fn message(value: &impl Serialize) -> Bytes {
    envelope(0, &serde_json::to_vec(value).unwrap_or_default())
}

/// The last envelope of an answer.
pub(in crate::e2b) fn end(error: Option<&Error>) -> Bytes {
    let text = match error {
        None => object! {},
        Some(error) => object! {"error": error.json()},
    };
    envelope(LAST, text_of(&text).as_bytes())
}

fn envelope(flags: u8, text: &[u8]) -> Bytes {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&[flags], length.to_be_bytes().as_slice(), text]
        .concat()
        .into()
}

/// A stream of envelopes, for fuzzing. The first byte is the size of the pieces in which it
/// arrives: what is read must not depend on that.
#[cfg(any(test, fuzzing))]
pub fn envelopes(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else {
        return;
    };
    let read = |step: usize| {
        let (mut envelopes, mut found) = (Envelopes::default(), Vec::new());
        let mut split = || {
            for piece in bytes.chunks(step) {
                envelopes.add(piece);
                while let Some(message) = envelopes.next()? {
                    found.push(message);
                }
            }
            envelopes.end()
        };
        let end = split();
        (found, end)
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(whole, read(usize::from(*step).max(1)));
    let length = |message: &Vec<u8>| HEAD + message.len();
    assert!(whole.0.iter().map(length).sum::<usize>() <= bytes.len());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use axum::extract::Request;
    use axum::http::HeaderValue;
    use axum::http::header::CONTENT_TYPE;
    use proptest::prelude::*;
    use serde_json::Value;
    use wire::{Budget, ONE_CALL, Party};

    use super::*;

    fn headers() -> HeaderMap {
        let kind = HeaderValue::from_static("application/connect+json");
        HeaderMap::from_iter([(CONTENT_TYPE, kind)])
    }

    fn all(envelopes: &mut Envelopes) -> Result<Vec<Vec<u8>>, Error> {
        let mut found = Vec::new();
        while let Some(message) = envelopes.next()? {
            found.push(message);
        }
        Ok(found)
    }

    proptest! {
        /// The messages of a stream do not depend on how it is cut into chunks.
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

        /// Any bytes are messages, an error, or an incomplete message; what is kept is bounded.
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
        let never = futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let messages = Messages::new(&headers(), Body::from_stream(never)).unwrap();
        let within = messages.only_within::<Value>(Duration::from_millis(1));
        let error = within.await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
    }

    #[tokio::test]
    async fn a_stream_is_read_to_its_end() {
        let is_read = Arc::new(AtomicBool::new(false));
        let pieces = futures_util::stream::unfold(0, {
            let is_read = is_read.clone();
            move |count| {
                let is_read = is_read.clone();
                async move {
                    // What follows the message arrives later.
                    tokio::task::yield_now().await;
                    is_read.store(count == 2, Relaxed);
                    let piece = [message(&"x"), end(None)].into_iter().nth(count)?;
                    Some((Ok::<_, std::convert::Infallible>(piece), count + 1))
                }
            }
        });
        let messages = Messages::new(&headers(), Body::from_stream(pieces)).unwrap();
        assert_eq!(messages.only::<String>().await, Ok("x".to_owned()));
        assert!(is_read.load(Relaxed), "the end is left unread");
    }

    #[tokio::test]
    async fn messages_that_were_taken_do_not_count() {
        let party = Party::Door(0);
        let budget = Budget::new(ONE_CALL, ONE_CALL, 1);
        let text = "x".repeat(2 << 20);
        let frame = message(&text);
        let count = ONE_CALL / frame.len();
        let frames = std::iter::repeat_n(Ok::<_, std::convert::Infallible>(frame), count);
        let body = Body::from_stream(futures_util::stream::iter(frames));
        let handler = |request: Request<Body>| async {
            let (body, mut taken) = (request.into_body(), 0);
            let mut messages = Messages::new(&headers(), body).unwrap();
            while let Some(found) = messages.next::<String>().await.unwrap() {
                assert!(found == text);
                taken += 1;
            }
            taken
        };
        let taken = held::serve(budget.share(party), Request::new(body), handler).await;
        assert_eq!(taken, count);
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
        // A length beyond the limit is refused at once.
        assert_eq!(code(&[0, 255, 255, 255, 255]), Code::InvalidArgument);
        let (found, end) = of(&[0, 0, 0, 0, 2, b'{']).unwrap();
        assert!(found.is_empty() && end.is_err());
        // Bytes after the last envelope are ignored.
        let (found, end) = of(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert!(found.is_empty() && end.is_ok());
    }

    #[test]
    fn ends_have_their_error() {
        assert_eq!(end(None).as_ref(), b"\x02\0\0\0\x02{}");
        let error = Error::new(Code::NotFound, "gone");
        let text = br#"{"error":{"code":"not_found","message":"gone"}}"#;
        assert_eq!(&end(Some(&error))[5..], text);
    }
}
