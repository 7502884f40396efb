//! Files of a context's workspace: what methods take, and what the server says.

use std::num::NonZeroU32;
use std::path::PathBuf;

use record::bytes::RawText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `file.write` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FileWrite")]
pub struct FileWrite<Text = RawText> {
    /// The context.
    pub context: String,
    /// Relative to `/workspace`. Directories above it are made.
    pub path: PathBuf,
    /// The file's whole content.
    pub content: Text,
    /// Whether it may be executed.
    #[serde(default)]
    pub executable: bool,
    /// Whether the content is added at the end of a file that exists, whose mode stays as it
    /// is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// Whether more of the file follows: from the same client, with `append`, and `more` except in
    /// the last part. Until then nobody sees anything of it; it is dropped if the client goes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

impl<Text> FileWrite<Text> {
    /// A file with this content alone.
    pub fn new(context: impl Into<String>, path: impl Into<PathBuf>, content: Text) -> Self {
        Self {
            context: context.into(),
            path: path.into(),
            content,
            executable: false,
            append: false,
            more: false,
        }
    }
}

/// The parameters of methods that need only a path in a context's workspace.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileName {
    /// The context.
    pub context: String,
    /// Relative to `/workspace`.
    #[serde(default)]
    pub path: PathBuf,
}

impl FileName {
    /// This path in this context.
    pub fn new(context: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            context: context.into(),
            path: path.into(),
        }
    }
}

/// What `file.move` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileMove {
    /// The context.
    pub context: String,
    /// The present path, relative to `/workspace`.
    pub from: PathBuf,
    /// Its new path, relative to `/workspace`. Directories above it are made; a file of this
    /// name is replaced.
    pub to: PathBuf,
}

/// What `file.read` takes.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRead {
    /// The context.
    pub context: String,
    /// Relative to `/workspace`.
    pub path: PathBuf,
    /// The first byte.
    #[serde(default)]
    pub offset: u64,
    /// The most bytes, at most 4 MiB, which is also what it is without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl FileRead {
    /// The beginning of a file.
    pub fn new(context: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            context: context.into(),
            path: path.into(),
            offset: 0,
            limit: None,
        }
    }
}

/// What `file.list` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileList {
    /// The context.
    pub context: String,
    /// Relative to `/workspace`; without it, `/workspace` itself.
    #[serde(default)]
    pub path: PathBuf,
    /// Whether to list the directories below as well.
    #[serde(default)]
    pub recursive: bool,
    /// How many levels of directories to list, at least 1, instead of `recursive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<NonZeroU32>,
}

/// What `file.remove` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRemove {
    /// The context.
    pub context: String,
    /// Relative to `/workspace`. A directory goes with everything in it.
    pub path: PathBuf,
}

impl FileRemove {
    /// This path in this context.
    pub fn new(context: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            context: context.into(),
            path: path.into(),
        }
    }
}

/// What `file.watch` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWatch {
    /// The context.
    pub context: String,
    /// Relative to `/workspace`; without it, `/workspace` itself.
    #[serde(default)]
    pub path: PathBuf,
}

/// What `file.unwatch` takes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileUnwatch {
    /// The context.
    pub context: String,
    /// The `watch` of the answer to `file.watch`.
    pub watch: u64,
}

/// The result of `file.read`.
#[derive(Debug, Deserialize)]
pub struct FileContent {
    /// What was read.
    pub content: FilePart,
}

/// A part of a file.
#[derive(Debug, Deserialize)]
pub struct FilePart {
    /// The bytes.
    pub content: RawText,
    /// Where they begin.
    pub offset: u64,
    /// Bytes of the whole file.
    pub size: u64,
}

/// The result of `file.write`.
#[derive(Debug, Deserialize)]
pub struct FileWritten {
    /// What was written.
    pub written: FileSize,
}

/// How large a file is.
#[derive(Debug, Deserialize)]
pub struct FileSize {
    /// Its bytes.
    pub size: u64,
}

/// The result of `file.list`.
#[derive(Debug, Deserialize)]
pub struct FileListed {
    /// The directory's content.
    pub entries: FileEntries,
}

/// The content of a directory.
#[derive(Debug, Deserialize)]
pub struct FileEntries {
    /// Sorted by path.
    pub entries: Vec<FileEntry>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// The result of `file.stat`.
#[derive(Debug, Deserialize)]
pub struct FileFound {
    /// What is there.
    pub found: OneEntry,
}

/// The result of `file.move`.
#[derive(Debug, Deserialize)]
pub struct FileMoved {
    /// What has the new name.
    pub moved: OneEntry,
}

/// An entry by itself.
#[derive(Debug, Deserialize)]
pub struct OneEntry {
    /// The entry.
    pub entry: FileEntry,
}

/// One entry of a directory.
#[derive(Debug, Deserialize)]
pub struct FileEntry {
    /// Relative to the workspace.
    pub path: RawText,
    /// `file`, `directory`, `link` or `other`.
    pub kind: String,
    /// Bytes of a file.
    pub size: u64,
    /// When it was last changed, in seconds since 1970.
    pub mtime: i64,
    /// Permission bits.
    pub mode: u32,
    /// The text of a link.
    #[serde(default)]
    pub target: Option<RawText>,
}
