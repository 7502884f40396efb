//! Contents of files, as they arrive, and as calls take them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use record::json::Object;
use record::object;
use serde_json::value::{RawValue, to_raw_value};
use serve::protocol::{Code, Failure};

use crate::body::{self, PATIENCE};
use crate::client::Client;
use crate::files;
use crate::random;
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
}

impl Blocks {
    pub(crate) fn of(body: Body) -> Self {
        Self {
            body,
            unzip: None,
            bytes: VecDeque::new(),
            is_over: false,
        }
    }

    /// The content of a compressed body.
    pub(crate) fn unzipped(body: Body) -> Self {
        Self {
            unzip: Some(Unzip::new()),
            ..Self::of(body)
        }
    }

    /// More of what was received already.
    fn piece(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.unzip.as_mut().map_or(Ok(None), Unzip::piece)
    }
}

impl Chunks for Blocks {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while self.bytes.len() < BLOCK && !self.is_over {
            if let Some(piece) = self.piece()? {
                self.bytes.extend(piece);
                continue;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let frame = frame.map_err(|_| {
                let seconds = PATIENCE.as_secs();
                let message = format!("nothing was received for {seconds}s");
                Failure::new(Code::BadRequest, message)
            })?;
            match frame {
                // Trailers are ignored.
                Some(frame) => {
                    let data = frame.map_err(|error| body::unreadable(&error))?;
                    let data = data.into_data().unwrap_or_default();
                    match &mut self.unzip {
                        Some(unzip) => unzip.give(data),
                        None => self.bytes.extend(data),
                    }
                }
                None => {
                    self.is_over = true;
                    if let Some(unzip) = &mut self.unzip {
                        self.bytes.extend(unzip.end()?);
                    }
                }
            }
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
    pub(crate) async fn next(&mut self) -> Result<Option<Box<RawValue>>, Failure> {
        let mut part = Vec::new();
        while !self.is_over && part.len() < PART {
            match self.chunks.next().await? {
                Some(chunk) => part.extend_from_slice(&chunk),
                None => self.is_over = true,
            }
        }
        let is_part = !part.is_empty() || !self.is_begun;
        self.is_begun = true;
        Ok(is_part.then(|| to_raw_value(&files::content(&part)).unwrap_or_default()))
    }
}

/// Writes a file of several parts to this path. `params` are those of `file.write` for the first
/// part, without the path. Until the
/// file is complete, it has a temporary name beside its own, so that other requests never find a
/// part of it; after a failure it is removed. Returns the result of the last `file.write`.
///
/// # Errors
/// The client has gone, or a call fails.
pub(crate) async fn write_parts<C: Chunks>(
    client: &mut Client,
    to: &Path,
    mut params: Object<'static>,
    mut parts: Parts<C>,
) -> Result<Box<RawValue>, Failure> {
    let pending = pending(to)?;
    let of_context = object! {"context": params.get("context"), "path": pending};
    params.set("path", &pending);
    let written = async {
        let mut written = client.ask("file.write", &params).await?;
        params.remove("executable");
        params.set("append", &true);
        while let Some(content) = parts.next().await? {
            params.set("content", &content);
            written = client.ask("file.write", &params).await?;
        }
        let rename = object! {"context": params.get("context"), "from": pending, "to": to};
        client.ask("file.move", &rename).await?;
        Ok(written)
    };
    let written = written.await;
    if written.is_err() {
        // The caller gets the first error.
        let _ = client.ask("file.remove", &of_context).await;
    }
    written
}

/// A temporary name beside that of a file.
fn pending(path: &Path) -> Result<PathBuf, Failure> {
    let number: String = (random::bytes(8)?.iter())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(path.with_file_name(format!(".cellblock-upload-{number}")))
}

/// Runs `work` to its end even if the request is dropped because its client has gone, so that
/// `work` removes its temporary files.
///
/// # Errors
/// Those of `work`; the server is ending.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let done = crate::front::held::spawn(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(Code::Failed, error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of the parts of a body of this many bytes.
    async fn lengths(bytes: usize) -> Vec<usize> {
        let mut parts = Parts::of(Blocks::of(Body::from("x".repeat(bytes))));
        let mut lengths = Vec::new();
        while let Some(part) = parts.next().await.unwrap() {
            lengths.push(part.get().len() - "\"\"".len());
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
}
