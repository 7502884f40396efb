//! Contents of files, as they arrive, and as calls take them.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use record::bytes::RawText;
use record::unread::Unread;
use serde_json::value::RawValue;
use wire::{Code, Failure, FileWrite, method};

use crate::body::{self, PATIENCE};
use crate::client::Client;
use crate::files;
use crate::front::held;
use crate::unzip::Unzip;

/// The bytes of a block.
pub(crate) const BLOCK: usize = 16 << 10;
/// Bytes of a file that are written at once.
const PART: usize = 4 << 20;

/// A source that is read in pieces.
pub(crate) trait Chunks {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The client has gone, or has sent nothing for too long; what it sent is no form.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure>;
}

/// A body in blocks of one size. The last one is shorter.
#[derive(Debug)]
pub(crate) struct Blocks {
    body: Body,
    /// Inflates the body, if it is compressed.
    unzip: Option<Unzip>,
    bytes: VecDeque<u8>,
    is_over: bool,
    /// The most time that a block may take.
    patience: Duration,
}

impl Blocks {
    pub(crate) fn of(body: Body) -> Self {
        Self {
            body,
            unzip: None,
            bytes: VecDeque::new(),
            is_over: false,
            patience: PATIENCE,
        }
    }

    /// The content of a compressed body.
    pub(crate) fn unzipped(body: Body) -> Self {
        Self {
            unzip: Some(Unzip::new()),
            ..Self::of(body)
        }
    }

    /// Receives more, unless all of the next block is there.
    async fn fill(&mut self) -> Result<(), Failure> {
        while self.bytes.len() < BLOCK && !self.is_over {
            if let Some(unzip) = &mut self.unzip
                && let Some(piece) = unzip.piece()?
            {
                self.inflated(piece)?;
                continue;
            }
            match self.body.frame().await {
                // Trailers are ignored.
                Some(frame) => {
                    let data = frame.map_err(|error| body::unreadable(&error))?;
                    let data = data.into_data().unwrap_or_default();
                    match &mut self.unzip {
                        Some(unzip) => {
                            // The content counts in its place, as it is inflated.
                            held::sent(data.len());
                            unzip.give(data);
                        }
                        None => self.bytes.extend(data),
                    }
                }
                None => {
                    self.is_over = true;
                    if let Some(unzip) = &mut self.unzip {
                        let last = unzip.end()?;
                        self.inflated(last)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes inflated bytes, which may be a thousand times as many as arrived.
    fn inflated(&mut self, piece: Vec<u8>) -> Result<(), Failure> {
        held::received(piece.len())?;
        self.bytes.extend(piece);
        Ok(())
    }
}

impl Chunks for Blocks {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let patience = self.patience;
        let filled = tokio::time::timeout(patience, self.fill()).await;
        filled.map_err(|_| {
            let seconds = patience.as_secs();
            let message = format!("fewer than {BLOCK} bytes were received in {seconds}s");
            Failure::new(Code::BadRequest, message)
        })??;
        if self.unzip.is_some() {
            // One compressed frame may hold a long content, and other clients share this thread.
            tokio::task::yield_now().await;
        }
        let length = self.bytes.len().min(BLOCK);
        let block: Vec<u8> = self.bytes.drain(..length).collect();
        Ok((length > 0).then(|| block.into()))
    }
}

pub(crate) fn unreadable(error: impl std::fmt::Display) -> Failure {
    let message = format!("the body cannot be read: {error}");
    Failure::new(Code::BadRequest, message)
}

/// A file in parts, each of which is the `content` of a call, so that only the workspace bounds the
/// file's size. An empty file has one part.
#[derive(Debug)]
pub(crate) struct Parts<C> {
    chunks: C,
    is_begun: bool,
    is_over: bool,
}

impl<C: Chunks> Parts<C> {
    pub(crate) fn of(chunks: C) -> Self {
        Self {
            chunks,
            is_begun: false,
            is_over: false,
        }
    }

    /// Whether there is no part after the last one.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    /// See [`Chunks::next`].
    pub(crate) async fn next(&mut self) -> Result<Option<Unread<RawText>>, Failure> {
        let mut part = Vec::new();
        while !self.is_over && part.len() < PART {
            match self.chunks.next().await? {
                Some(chunk) => part.extend_from_slice(&chunk),
                None => self.is_over = true,
            }
        }
        let is_part = !part.is_empty() || !self.is_begun;
        self.is_begun = true;
        Ok(is_part.then(|| Unread::of(&files::content(&part))))
    }
}

/// Writes a file of several parts, of which `first` is the first one. Nobody sees anything of the file
/// until it is complete; after a failure, it goes with the client. Returns the result of the last
/// `file.write`.
///
/// # Errors
/// The client has gone, or a call fails.
pub(crate) async fn write_parts<C: Chunks>(
    client: &mut Client,
    first: FileWrite<Unread<RawText>>,
    mut parts: Parts<C>,
) -> Result<Box<RawValue>, Failure> {
    let mut part = first;
    loop {
        part.more = !parts.is_over();
        let written = write(client, &part).await?;
        if !part.more {
            return Ok(written);
        }
        part.append = true;
        part.content = parts.next().await?.unwrap_or_else(|| "".into());
    }
}

/// Makes the call; its result stays text.
///
/// # Errors
/// See [`Client::ask`].
pub(crate) async fn write(
    client: &mut Client,
    params: &FileWrite<Unread<RawText>>,
) -> Result<Box<RawValue>, Failure> {
    client.ask_as::<method::FileWrite, _>(params).await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::extract::Request;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use record::json::text_of;
    use wire::{Budget, ONE_CALL, Party};

    use super::*;

    const MIB: usize = 1 << 20;

    /// A request with this many zeros, compressed.
    fn zipped(bytes: usize) -> Request<Body> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![0; bytes]).unwrap();
        Request::new(Body::from(encoder.finish().unwrap()))
    }

    /// The lengths of the parts of a body of this many bytes.
    async fn lengths(bytes: usize) -> Vec<usize> {
        let mut parts = Parts::of(Blocks::of(Body::from("x".repeat(bytes))));
        let mut lengths = Vec::new();
        while let Some(part) = parts.next().await.unwrap() {
            lengths.push(text_of(&part).len() - "\"\"".len());
        }
        lengths
    }

    #[tokio::test]
    async fn files_are_split() {
        assert_eq!(lengths(0).await, [0]);
        assert_eq!(lengths(1).await, [1]);
        assert_eq!(lengths(PART).await, [PART]);
        assert_eq!(lengths(2 * PART + 1).await, [PART, PART, 1]);
    }

    #[tokio::test]
    async fn inflated_bytes_count_until_they_are_sent() {
        let party = Party::Door(0);
        let budget = Budget::new(ONE_CALL, ONE_CALL, 1);
        let counts = budget.clone();
        let kept = |request: Request<Body>| async move {
            let mut blocks = Blocks::unzipped(request.into_body());
            let mut received = 0;
            loop {
                match blocks.next().await {
                    Ok(block) => received += block.unwrap().len(),
                    Err(failure) => return (received, failure.code),
                }
                let held = counts.held(party);
                assert!(held >= 2 * received, "{held} for {received}");
            }
        };
        let (received, code) = held::serve(budget.share(party), zipped(64 * MIB), kept).await;
        assert_eq!(code, Code::Busy);
        assert!(received <= ONE_CALL / 2, "{received}");
        assert_eq!(budget.all(), 0);
        let sent = |request: Request<Body>| async {
            let mut blocks = Blocks::unzipped(request.into_body());
            let mut received = 0;
            while let Some(block) = blocks.next().await.unwrap() {
                received += block.len();
                held::sent(block.len());
            }
            received
        };
        let received = held::serve(budget.share(party), zipped(64 * MIB), sent).await;
        assert_eq!(received, 64 * MIB);
    }

    #[tokio::test]
    async fn others_run_while_a_frame_is_inflated() {
        let turns = Arc::new(AtomicUsize::new(0));
        let other = tokio::spawn({
            let turns = turns.clone();
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut blocks = Blocks::unzipped(zipped(4 * MIB).into_body());
        while blocks.next().await.unwrap().is_some() {}
        other.abort();
        let turns = turns.load(Ordering::Relaxed);
        assert!(turns >= 4 * MIB / (64 << 10), "{turns}");
    }

    #[tokio::test]
    async fn a_block_that_drips_is_not_waited_for() {
        let drips = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((Ok::<_, Infallible>("x"), ()))
        });
        let mut blocks = Blocks::of(Body::from_stream(drips));
        blocks.patience = Duration::from_millis(100);
        let failure = blocks.next().await.unwrap_err();
        assert_eq!(failure.code, Code::BadRequest);
    }
}
