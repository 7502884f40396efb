//! The bytes of a request that have arrived and not gone on to the hub.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::{Frame, SizeHint};
use serve::net::Connector;
use serve::protocol::Failure;
use serve::{Party, Share};

use crate::answer::Answer;

/// A byte of a body is there twice before it goes on: as it came, and as a part of what is made of
/// it.
const COPIES: usize = 2;

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

/// An answer whose bytes count as not read until its body is gone. Bodies without a length are made
/// as they are read.
pub(crate) fn unread(connector: &Connector, party: Party, answer: Answer) -> Answer {
    answer.map(|body| {
        let length = body.size_hint().exact().unwrap_or_default();
        let mut share = connector.unread().share(party);
        share.set(usize::try_from(length).unwrap_or(usize::MAX));
        let connector = connector.clone();
        Body::new(Unread {
            body,
            share,
            connector,
        })
    })
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

/// A body whose bytes count until it is dropped.
#[derive(Debug)]
struct Unread {
    body: Body,
    share: Share,
    connector: Connector,
}

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if self.share.bytes() > 0 {
            self.share.set(0);
            // Supervisors may wait for this room.
            self.connector.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use serve::protocol::Code;
    use serve::{Budget, ONE_CALL};

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
}
