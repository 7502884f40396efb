//! What the server says about files of a context's workspace.

use record::bytes::RawText;
use serde::Deserialize;

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
