//! Bodies of uploads, block by block: plain, or as a form (multipart/form-data, RFC 7578).
//!
//! A form is never held as a whole: multer gets a block only when its buffer is empty, and the
//! bytes before a part's content are limited.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use futures_util::Stream;
use wire::{Code, Failure};

use crate::upload::{Blocks, Chunks, unreadable};

/// The most bytes between the beginning of a part and its content, or between two parts.
const MOST_HEAD: usize = 64 << 10;

/// The boundary between the parts of a form; `None` if this media type is not a form's.
pub(super) fn boundary(media_type: &str) -> Option<String> {
    multer::parse_boundary(media_type).ok()
}

/// A form whose parts are read one after the other.
#[derive(Debug)]
pub(super) struct Form {
    blocks: Blocks,
    parts: multer::Multipart<'static>,
    given: Given,
    /// The bytes since a part began or had content.
    head: usize,
}

impl Form {
    pub(super) fn of(blocks: Blocks, boundary: String) -> Self {
        let given = Given::default();
        Self {
            blocks,
            parts: multer::Multipart::new(given.clone(), boundary),
            given,
            head: 0,
        }
    }

    /// The next part, when the one before has been read.
    ///
    /// # Errors
    /// See [`Chunks::next`].
    pub(super) async fn next(&mut self) -> Result<Option<Part<'_>>, Failure> {
        let field = loop {
            let parts = &mut self.parts;
            let ready = once(|context| parts.poll_next_field(context)).await;
            match ready {
                Poll::Ready(field) => break field.map_err(unreadable)?,
                Poll::Pending => self.give().await?,
            }
        };
        self.head = 0;
        Ok(field.map(|field| Part { form: self, field }))
    }

    /// Gives multer one more block.
    async fn give(&mut self) -> Result<(), Failure> {
        if self.given.inside().is_over {
            return Err(bad("the form has no end"));
        }
        let block = self.blocks.next().await?;
        self.head += block.as_ref().map_or(0, Bytes::len);
        if self.head > MOST_HEAD {
            let message = format!("the form has no part in {MOST_HEAD} bytes");
            return Err(bad(&message));
        }
        let mut given = self.given.inside();
        match block {
            Some(block) => given.block = Some(block),
            None => given.is_over = true,
        }
        Ok(())
    }
}

/// A part of a form.
#[derive(Debug)]
pub(super) struct Part<'a> {
    form: &'a mut Form,
    field: multer::Field<'static>,
}

impl Part<'_> {
    /// Its name in the form.
    pub(super) fn name(&self) -> Option<&str> {
        self.field.name()
    }

    /// The name of its file.
    pub(super) fn file_name(&self) -> Option<&str> {
        self.field.file_name()
    }
}

impl Chunks for Part<'_> {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let mut field = Pin::new(&mut self.field);
            match once(|context| field.as_mut().poll_next(context)).await {
                Poll::Ready(chunk) => {
                    self.form.head = 0;
                    return chunk.transpose().map_err(unreadable);
                }
                Poll::Pending => self.form.give().await?,
            }
        }
    }
}

/// The stream that multer reads: it has one block at a time.
#[derive(Clone, Debug, Default)]
struct Given(Arc<Mutex<Next>>);

#[derive(Debug, Default)]
struct Next {
    block: Option<Bytes>,
    is_over: bool,
}

impl Given {
    fn inside(&self) -> MutexGuard<'_, Next> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Given {
    type Item = Result<Bytes, std::convert::Infallible>;

    /// Does not register a waker: the caller supplies the next block before it polls again.
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut next = self.inside();
        match next.block.take() {
            Some(block) => Poll::Ready(Some(Ok(block))),
            None if next.is_over => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// The outcome of one poll.
async fn once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    std::future::poll_fn(|context| Poll::Ready(poll(context))).await
}

pub(super) fn bad(message: &str) -> Failure {
    Failure::new(Code::BadRequest, message)
}

/// The body of an upload, for fuzzing. The first byte is the size of the pieces in which it
/// arrives: what is read must not depend on that.
#[cfg(any(test, fuzzing))]
pub fn upload_form(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else {
        return;
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
    else {
        return;
    };
    let read = |step: usize| {
        let pieces: Vec<_> = bytes.chunks(step).map(Bytes::copy_from_slice).collect();
        let pieces = pieces.into_iter().map(Ok::<_, std::convert::Infallible>);
        let body = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
        runtime.block_on(all(Form::of(Blocks::of(body), "B".to_owned())))
    };
    let whole = read(bytes.len().max(1));
    let pieces = read(usize::from(*step).max(1));
    assert_eq!(whole.as_ref().ok(), pieces.as_ref().ok());
    let length = |(_, content): &(String, Vec<u8>)| content.len();
    let content = whole.iter().flatten().map(length).sum::<usize>();
    assert!(content <= bytes.len());
}

/// All parts of a form: their files' names and contents.
#[cfg(any(test, fuzzing))]
async fn all(mut form: Form) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut found = Vec::new();
    while let Some(mut part) = form.next().await? {
        let name = part.file_name().unwrap_or_default().to_owned();
        let mut content = Vec::new();
        while let Some(chunk) = part.next().await? {
            content.extend_from_slice(&chunk);
        }
        found.push((name, content));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;

    use super::*;
    use crate::upload::BLOCK;

    const KIND: &str = "multipart/form-data; boundary=B";

    /// A form of these chunks, and how many of them were taken.
    fn form(chunks: Vec<Vec<u8>>) -> (Form, Arc<AtomicUsize>) {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = chunks.into_iter().map({
            let taken = Arc::clone(&taken);
            move |chunk| {
                taken.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::convert::Infallible>(Bytes::from(chunk))
            }
        });
        let body = Body::from_stream(futures_util::stream::iter(counted));
        let blocks = Blocks::of(body);
        (Form::of(blocks, boundary(KIND).unwrap()), taken)
    }

    fn part(name: &str, content: &[u8]) -> Vec<u8> {
        let head = format!(
            "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n"
        );
        [head.as_bytes(), content, b"\r\n"].concat()
    }

    #[tokio::test]
    async fn parts_survive_any_cut() {
        let long = b"\r\n--A-\r".repeat(10_000);
        let whole = [part("a", b"1"), part("b", &long), b"--B--\r\n".to_vec()].concat();
        for cut in [1, 7, BLOCK - 1, BLOCK + 1, whole.len()] {
            let (form, _) = form(whole.chunks(cut).map(<[u8]>::to_vec).collect());
            let found = all(form).await.unwrap();
            let wanted = [
                ("a".to_owned(), b"1".to_vec()),
                ("b".to_owned(), long.clone()),
            ];
            assert_eq!(found, wanted, "{cut}");
        }
        let (form, _) = form(vec![part("a", b"1")]);
        assert!(all(form).await.is_err(), "the form has no end");
    }

    #[tokio::test]
    async fn what_is_no_form_is_not_kept() {
        let chunk = vec![b'x'; BLOCK];
        let endless = || vec![chunk.clone(); 1000];
        let head = b"--B\r\nContent-Disposition: form-data; name=\"".to_vec();
        let heads = [vec![head], endless()].concat();
        for chunks in [endless(), heads] {
            let (form, taken) = form(chunks);
            let failure = all(form).await.unwrap_err();
            assert!(failure.message.contains("no part"), "{failure}");
            assert!(taken.load(Ordering::Relaxed) < 10);
        }
    }

    #[tokio::test]
    async fn little_is_read_before_it_is_needed() {
        let content = vec![0; 100 * BLOCK];
        let whole = [part("a", &content), b"--B--".to_vec()].concat();
        let (mut form, taken) = form(whole.chunks(BLOCK).map(<[u8]>::to_vec).collect());
        let mut part = form.next().await.unwrap().unwrap();
        part.next().await.unwrap();
        assert!(taken.load(Ordering::Relaxed) < 4);
    }
}
