//! The bytes of a request that have arrived and not gone on to the hub.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::{Frame, SizeHint};
use wire::{Code, Connector, Failure, Party, Share};

use crate::answer::Answer;

/// A byte of a body is there twice before it goes on: as it came, and as a part of what is made of
/// it.
const COPIES: usize = 2;
/// The most bytes of an answer that go on at once: as many wait in hyper, which asks for no more
/// until the client has read them.
const PIECE: usize = 64 << 10;

tokio::task_local! {
    /// What the request that this task serves holds.
    static HELD: Held;
}

/// What a request holds of its party's bytes.
#[derive(Clone, Debug)]
struct Held(Arc<Mutex<Share>>);

impl Held {
    /// Changes the bytes that are held.
    ///
    /// # Errors
    /// The party has used up its bytes.
    fn set(&self, to: impl FnOnce(usize) -> usize) -> Result<(), Failure> {
        let mut share = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = to(share.bytes());
        share.try_set(bytes)
    }
}

/// Serves a request whose body counts for `share`, from its first byte until the hub has it.
pub(crate) async fn serve<A, F: Future<Output = A>>(
    share: Share,
    request: Request<Body>,
    handler: impl FnOnce(Request<Body>) -> F,
) -> A {
    let held = Held(Arc::new(Mutex::new(share)));
    let counts = held.clone();
    let request = request.map(|body| Body::new(Counted { body, held: counts }));
    HELD.scope(held, handler(request)).await
}

/// An answer whose bytes count as not read until they have gone on to its client. Bodies without a
/// length are made as they are read.
///
/// # Errors
/// The party has used up its bytes. Answers that are short enough for hyper's buffer always go on,
/// so that such a party can still end what it has begun.
pub(crate) fn unread(
    connector: &Connector,
    party: Party,
    answer: Answer,
) -> Result<Answer, Failure> {
    let exact = answer.body().size_hint().exact();
    let is_short = exact.is_some_and(|length| length <= PIECE as u64);
    let unread = connector.unread();
    // The last one may go beyond: an answer may be longer than all that a party can have.
    if !is_short && !unread.has_room_for(party) {
        let message = "too many bytes of answers wait for this client's party to read them";
        return Err(Failure::new(Code::Busy, message).retry_after(Duration::from_secs(1)));
    }
    let mut share = unread.share(party);
    share.set(length(answer.body()));
    let connector = connector.clone();
    Ok(answer.map(|body| {
        Body::new(Unread {
            body,
            rest: Bytes::new(),
            share,
            connector,
        })
    }))
}

/// Runs a part of the request's work in a task of its own.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    match HELD.try_with(Held::clone) {
        Ok(held) => tokio::spawn(HELD.scope(held, work)),
        Err(_) => tokio::spawn(work),
    }
}

/// So many bytes were made of the body, beyond those that arrived.
///
/// # Errors
/// The party has used up its bytes.
pub(crate) fn received(bytes: usize) -> Result<(), Failure> {
    let more = |before: usize| before.saturating_add(bytes.saturating_mul(COPIES));
    // Work outside of a request has no party to count for.
    HELD.try_with(|held| held.set(more)).unwrap_or(Ok(()))
}

/// Counts no more than these bytes: the others that arrived have been dealt with.
pub(crate) fn kept(bytes: usize) {
    let fewer = |before: usize| before.min(bytes.saturating_mul(COPIES));
    // Fewer bytes always have room.
    let _ = HELD.try_with(|held| held.set(fewer));
}

/// So many bytes have gone on to the hub.
pub(crate) fn sent(bytes: usize) {
    let fewer = |before: usize| before.saturating_sub(bytes.saturating_mul(COPIES));
    // Fewer bytes always have room.
    let _ = HELD.try_with(|held| held.set(fewer));
}

/// The failure that ended a body, if it was not the client.
pub(crate) fn failure_of(error: &axum::Error) -> Option<&Failure> {
    let first: &dyn std::error::Error = error;
    let mut causes = std::iter::successors(Some(first), |error| error.source());
    causes.find_map(|error| error.downcast_ref())
}

/// A body whose bytes are counted.
#[derive(Debug)]
struct Counted {
    body: Body,
    held: Held,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        let counted = self.held.set(|before| before + COPIES * bytes);
        Poll::Ready(match counted {
            Ok(()) => frame,
            Err(failure) => Some(Err(axum::Error::new(failure))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body whose bytes count until they go on to hyper, which drops a body as soon as it has the last
/// of them.
#[derive(Debug)]
struct Unread {
    body: Body,
    /// The end of a long frame.
    rest: Bytes,
    share: Share,
    connector: Connector,
}

impl Unread {
    /// Changes the bytes that wait.
    fn hold(&mut self, bytes: usize) {
        let is_less = bytes < self.share.bytes();
        self.share.set(bytes);
        if is_less {
            // Supervisors may wait for this room.
            self.connector.wake();
        }
    }

    /// The next piece of a long frame. As a copy it does not keep the whole frame alive, whose bytes
    /// count until the last piece has gone on.
    fn piece(&mut self) -> Bytes {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        let piece = Bytes::copy_from_slice(&piece);
        if self.rest.is_empty() {
            self.rest = Bytes::new();
            self.hold(length(&self.body));
        }
        piece
    }
}

/// The bytes of a body, if they are known.
fn length(body: &Body) -> usize {
    let length = body.size_hint().exact().unwrap_or_default();
    usize::try_from(length).unwrap_or(usize::MAX)
}

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            let data = match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            // There need not be room: in the hub's buffer these bytes counted as well.
            let bytes = data.len().saturating_add(length(&self.body));
            self.hold(bytes);
            self.rest = data;
        }
        Poll::Ready(Some(Ok(Frame::data(self.piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt as _;
    use wire::{Budget, ONE_CALL};

    use super::*;
    use crate::body;

    fn request(bytes: usize) -> Request<Body> {
        Request::new(Body::from(vec![b'x'; bytes]))
    }

    #[tokio::test]
    async fn a_body_counts_until_it_is_sent() {
        let party = Party::Door(0);
        let budget = Budget::new(ONE_CALL, ONE_CALL, 1);
        let counts = budget.clone();
        let handler = |request: Request<Body>| async move {
            let text = body::read(request.into_body()).await.unwrap();
            assert_eq!(counts.held(party), 2 * text.len());
            spawn(async { sent(10) }).await.unwrap();
            assert_eq!(counts.held(party), 2 * text.len() - 20);
            sent(text.len());
            assert_eq!(counts.held(party), 0);
        };
        serve(budget.share(party), request(1 << 20), handler).await;
        // What is never sent is given back with the request.
        let dropped = |request: Request<Body>| async { body::read(request.into_body()).await };
        let text = serve(budget.share(party), request(100), dropped).await;
        assert_eq!((text.unwrap().len(), budget.all()), (100, 0));
    }

    #[tokio::test]
    async fn a_body_without_room_is_busy() {
        let party = Party::Door(0);
        let budget = Budget::new(ONE_CALL, ONE_CALL, 1);
        let mut others = budget.share(party);
        others.try_set(ONE_CALL - 100).unwrap();
        let handler = |request: Request<Body>| async { body::read(request.into_body()).await };
        let refused = serve(budget.share(party), request(51), handler).await;
        let failure = refused.unwrap_err();
        assert_eq!(failure.code, Code::Busy);
        assert!(failure.retry_after_ms.is_some());
        let served = serve(budget.share(party), request(50), handler).await;
        assert_eq!(served.unwrap().len(), 50);
    }

    fn connector() -> Connector {
        let budget = || Budget::new(256 << 20, 64 << 20, 1);
        wire::connections(budget(), budget()).unwrap().0
    }

    async fn next(body: &mut Body) -> Option<usize> {
        let frame = body.frame().await?;
        Some(frame.unwrap().into_data().unwrap().len())
    }

    #[tokio::test]
    async fn an_answer_counts_until_its_last_piece_goes_on() {
        let (connector, party) = (connector(), Party::Door(0));
        let held = || connector.unread().held(party);
        let long = 3 * PIECE + 1;
        let once = Bytes::from(vec![b'x'; long]);
        let frames = futures_util::stream::iter([Ok::<_, Infallible>(once.clone())]);
        let (known, made) = (Body::from(once), Body::from_stream(frames));
        for (body, exact) in [(known, Some(long)), (made, None)] {
            let answer = unread(&connector, party, Answer::new(body)).unwrap();
            assert_eq!(held(), exact.unwrap_or(0));
            let mut body = answer.into_body();
            for gone in 1..=3 {
                let left = exact.map(|all| (all - (gone - 1) * PIECE) as u64);
                assert_eq!(body.size_hint().exact(), left);
                assert_eq!(next(&mut body).await, Some(PIECE));
                // The frame is still there as a whole.
                assert_eq!((held(), body.is_end_stream()), (long, false));
            }
            assert_eq!((next(&mut body).await, held()), (Some(1), 0));
            assert_eq!(next(&mut body).await, None);
        }
        // A client that goes gives back what it has not read.
        let answer = Answer::new(Body::from(vec![b'x'; long]));
        let mut body = unread(&connector, party, answer).unwrap().into_body();
        next(&mut body).await;
        drop(body);
        assert_eq!(held(), 0);
    }

    #[tokio::test]
    async fn a_long_answer_without_room_is_busy() {
        let (connector, party) = (connector(), Party::Door(0));
        let of = |bytes: usize| {
            let answer = Answer::new(Body::from(vec![b'x'; bytes]));
            unread(&connector, party, answer)
        };
        let mut others = connector.unread().share(party);
        others.set(usize::MAX / 2);
        let failure = of(PIECE + 1).unwrap_err();
        assert_eq!(failure.code, Code::Busy);
        assert!(failure.retry_after_ms.is_some());
        assert!(of(PIECE).is_ok());
        drop(others);
        assert!(of(PIECE + 1).is_ok());
    }
}
