//! Tools that move files into and out of a context.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use record::bytes::RawText;
use record::picture;
use record::unread::Unread;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::{
    FileContent, FileEntry, FileList, FileListed, FilePart, FileRead, FileWrite, FileWritten,
    method,
};

use super::Begun;
use crate::mcp::output::{Part as Shown, ToolResult};

/// Bytes that `read_file` returns at once: clients cut longer texts.
const MOST: u64 = 32 << 10;
/// The same for pictures.
const MOST_OF_PICTURE: u64 = 768 << 10;

/// What `read_file` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    /// The context.
    context_id: String,
    /// Relative to the working directory.
    path: String,
    /// The first byte; 0 without it.
    #[serde(default)]
    offset: u64,
    /// The most bytes; at most 32 KiB, or 768 KiB of a picture that is read from its beginning.
    #[serde(default)]
    limit: Option<u64>,
}

/// What `write_file` takes. It has exactly one of `text` and `base64`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    /// The context.
    context_id: String,
    /// Relative to the working directory.
    path: String,
    /// The whole content as text.
    #[serde(default)]
    text: Option<String>,
    /// The whole content in base64.
    #[serde(default)]
    base64: Option<String>,
}

/// What `list_files` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    /// The context.
    context_id: String,
    /// A directory relative to the working directory, which it is without it.
    #[serde(default)]
    path: String,
    /// Whether to list the directories below as well.
    #[serde(default)]
    recursive: bool,
}

/// What `read_file` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Content {
    /// Bytes of the whole file.
    size: u64,
    /// The first byte that was read.
    offset: u64,
    /// Bytes that were read.
    length: u64,
    /// They, if they are text.
    text: Option<String>,
    /// They in base64, if they are neither text nor a picture.
    base64: Option<String>,
    /// The media type of a picture, which is a part of the answer.
    picture: Option<String>,
}

/// What `write_file` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Written {
    /// Bytes that were written.
    size: u64,
}

/// What `list_files` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Entries {
    /// Sorted by path.
    entries: Vec<Entry>,
    /// Whether there are more.
    is_cut: bool,
}

/// An entry of a directory.
#[derive(Debug, Serialize, JsonSchema)]
struct Entry {
    /// Relative to the working directory.
    #[schemars(with = "String")]
    path: RawText,
    /// file, directory, link or other.
    kind: String,
    /// Bytes of a file.
    size: u64,
    /// When it was last changed, in seconds since 1970.
    mtime: i64,
}

pub(super) fn read(read: Read) -> Result<Begun, String> {
    let most = match read.offset == 0 && has_name_of_picture(&read.path) {
        true => MOST_OF_PICTURE,
        false => MOST,
    };
    let params = FileRead {
        offset: read.offset,
        limit: Some(read.limit.unwrap_or(most).min(most)),
        ..FileRead::new(read.context_id, read.path)
    };
    Ok(Begun::of::<method::FileRead>(&params, |result, _| {
        let read: FileContent = serde_json::from_str(result)?;
        Ok(content(&read.content))
    }))
}

pub(super) fn write(write: Write) -> Result<Begun, String> {
    let content = match (write.text, write.base64) {
        (Some(text), None) => Unread::of(&text),
        (None, Some(base64)) => Unread::of(&Base64 { base64 }),
        _ => return Err("wants exactly one of `text` or `base64`".to_owned()),
    };
    let params = FileWrite::new(write.context_id, write.path, content);
    Ok(Begun::of::<method::FileWrite>(&params, |result, _| {
        let FileWritten { written } = serde_json::from_str(result)?;
        Ok(ToolResult::of(&Written { size: written.size }))
    }))
}

pub(super) fn list(list: List) -> Result<Begun, String> {
    let params = FileList {
        context: list.context_id,
        path: list.path.into(),
        recursive: list.recursive,
        depth: None,
    };
    Ok(Begun::of::<method::FileList>(&params, |result, _| {
        let FileListed { entries } = serde_json::from_str(result)?;
        let is_cut = entries.is_cut;
        let entries = entries.entries.into_iter().map(Entry::from).collect();
        Ok(ToolResult::of(&Entries { entries, is_cut }))
    }))
}

/// Bytes as calls have them.
#[derive(Serialize)]
struct Base64 {
    base64: String,
}

impl From<FileEntry> for Entry {
    fn from(entry: FileEntry) -> Self {
        Self {
            path: entry.path,
            kind: entry.kind,
            size: entry.size,
            mtime: entry.mtime,
        }
    }
}

fn content(part: &FilePart) -> ToolResult {
    let bytes = part.content.as_bytes();
    let base64 = || BASE64.encode(bytes);
    let is_whole = bytes.len() as u64 == part.size;
    let picture = picture::media_type(bytes).filter(|_| is_whole);
    let (text, rest) = match picture {
        Some(_) => (None, None),
        None => match text_of(bytes, is_whole) {
            Some(text) => (Some(text), None),
            None => (None, Some(base64())),
        },
    };
    let data = Content {
        size: part.size,
        offset: part.offset,
        length: text.map_or(bytes.len(), str::len) as u64,
        text: text.map(str::to_owned),
        base64: rest,
        picture: picture.map(str::to_owned),
    };
    let result = ToolResult::of(&data);
    match (picture, &data.text) {
        (Some(media_type), _) => result.with(Shown::Image {
            media_type,
            data: base64(),
        }),
        (None, Some(text)) if is_whole => result.with_text(text),
        _ => result,
    }
}

/// The bytes as text; without the character that the end of a part cuts through.
fn text_of(bytes: &[u8], is_whole: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && !is_whole && error.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn has_name_of_picture(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|name| name.to_str());
    extension.is_some_and(|name| {
        ["png", "jpg", "jpeg", "webp", "gif"].contains(&name.to_ascii_lowercase().as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::revision::Reply;

    fn part(bytes: &[u8], size: u64) -> serde_json::Value {
        let part = FilePart {
            content: bytes.to_vec().into(),
            offset: 0,
            size,
        };
        serde_json::to_value(Reply::from(content(&part)).fields).unwrap()
    }

    #[test]
    fn text_is_text_and_the_rest_is_base64() {
        let whole = part(b"a,b\n1,2\n", 8);
        assert_eq!(whole["content"][0]["text"], "a,b\n1,2\n");
        assert_eq!(whole["structuredContent"]["size"], 8);
        let cut = part("aü".as_bytes().split_at(2).0, 3);
        assert_eq!(cut["structuredContent"]["text"], "a");
        assert_eq!(cut["structuredContent"]["length"], 1);
        let binary = part(&[0xff, 0], 2);
        assert_eq!(binary["structuredContent"]["base64"], "/wA=");
    }

    #[test]
    fn a_picture_is_a_part_of_the_answer() {
        let png = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];
        let whole = part(&png, 8);
        assert_eq!(whole["content"][1]["mimeType"], "image/png");
        assert_eq!(part(&png, 9)["content"].as_array().map(Vec::len), Some(1));
    }
}
