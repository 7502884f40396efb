//! Files of a context's workspace.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::unfold;
use serde::Serialize;
use wire::{Code, Failure, FilePart, FileRead, method};

use crate::answer::{self, Answer};
use crate::client::Client;

/// The most files that a request may name: each costs at least one call.
pub(crate) const MOST_FILES: usize = 256;

/// The last second of the year 9999, counted from 1970.
const LAST: u64 = 253_402_300_799;

/// The time of this many seconds after 1970. Code in a cell chooses the number, and RFC 3339 has no
/// form for years after 9999.
pub(crate) fn time(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST);
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Refuses a field of a request with too many files.
pub(crate) fn check_count(field: &str, count: usize) -> Result<(), Failure> {
    if count > MOST_FILES {
        let message = format!("{field}: has {count} files, but at most {MOST_FILES} are allowed");
        return Err(Failure::new(Code::BadParams, message));
    }
    Ok(())
}

/// Where the part after this one begins, if the file has one.
fn after(part: &FilePart) -> Option<u64> {
    let count = part.content.as_bytes().len() as u64;
    let end = part.offset.saturating_add(count);
    (count > 0 && end < part.size).then_some(end)
}

/// A part of a file.
///
/// # Errors
/// See [`Client::ask`].
async fn part(client: &mut Client, params: &FileRead) -> Result<FilePart, Failure> {
    let read = client.ask::<method::FileRead>(params).await?;
    Ok(read.content)
}

/// All of a file of at most `most` bytes, if it exists.
///
/// # Errors
/// It is longer; see [`Client::ask`].
pub(crate) async fn whole(
    client: &mut Client,
    context: &str,
    path: &str,
    most: usize,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut content = Vec::new();
    loop {
        let params = FileRead {
            offset: content.len() as u64,
            ..FileRead::new(context, path)
        };
        let part = match part(client, &params).await {
            Err(failure) if failure.code == Code::NotFound => return Ok(None),
            part => part?,
        };
        content.extend_from_slice(part.content.as_bytes());
        if content.len() > most {
            let message = format!("{path}: the file has more than {most} bytes");
            return Err(Failure::new(Code::TooLong, message));
        }
        if after(&part).is_none() {
            return Ok(Some(content));
        }
    }
}

/// A file, part by part. A file that is changed meanwhile may have parts of both.
pub(crate) async fn answer(mut client: Client, mut params: FileRead) -> Result<Answer, Failure> {
    let first = part(&mut client, &params).await?;
    let Some(offset) = after(&first) else {
        let content = first.content.as_bytes().to_vec();
        return Ok(answer::of(
            StatusCode::OK,
            "application/octet-stream",
            content,
        ));
    };
    params.offset = offset;
    let first = Bytes::copy_from_slice(first.content.as_bytes());
    let rest = unfold(Some((client, params)), |state| async {
        let (mut client, mut params) = state?;
        let part = match part(&mut client, &params).await {
            Ok(part) => part,
            // An end that is not the file's must be noticed: the body breaks off.
            Err(failure) => {
                let error = std::io::Error::other(failure.to_string());
                return Some((Err(error), None));
            }
        };
        let next = after(&part).map(|offset| {
            params.offset = offset;
            (client, params)
        });
        Some((Ok(Bytes::copy_from_slice(part.content.as_bytes())), next))
    });
    let first = futures_util::stream::once(async { Ok(first) });
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    Ok(answer::of(StatusCode::OK, "application/octet-stream", body))
}

/// The content of a file as calls have it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Content<'a> {
    Text(&'a str),
    Bytes { base64: String },
}

/// A body as the content of a file: text, unless base64 is shorter as JSON. A control character
/// takes six bytes as text.
pub(crate) fn content(body: &[u8]) -> Content<'_> {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..b' ' => 5,
        _ => 0,
    };
    let more: usize = body.iter().map(escaped).sum();
    match std::str::from_utf8(body) {
        Ok(text) if more <= body.len() / 3 => Content::Text(text),
        _ => Content::Bytes {
            base64: STANDARD.encode(body),
        },
    }
}

#[cfg(test)]
mod tests {
    use record::json::text_of;

    use super::*;

    #[test]
    fn contents_grow_by_a_third_at_most() {
        let zeros = vec![0; 4 << 20];
        let quotes = vec![b'"'; 1000];
        let lines = "a line\n".repeat(1000).into_bytes();
        for body in [&zeros, &quotes, &lines, &vec![0xff; 1000]] {
            let length = text_of(&content(body)).len();
            assert!(length <= body.len() / 3 * 4 + 32, "{length}");
        }
        assert!(matches!(content(&lines), Content::Text(_)));
        assert_eq!(text_of(&content(b"")), r#""""#);
    }
}
