//! Files that clients send in parts.
//!
//! Until it is complete, a file has no name, so that no program, client, watch or record sees a part
//! of it. It takes its room in the workspace all the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Context;
use super::files::{FileAnswer, Nameless};
use record::bytes::RawText;
use record::error::{Result, SetupError, Step as Stage};
use workspace::Digesting;

/// A part of a file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// The number of the client that sends it.
    pub client: u64,
    /// The file's path in the workspace.
    pub path: PathBuf,
    /// What follows the parts before.
    pub content: RawText,
    /// Whether the file can be executed.
    pub executable: bool,
    /// Whether it begins a file, in place of one that this client has begun.
    pub is_first: bool,
    /// Whether the file is complete: it gets its path now.
    pub is_last: bool,
}

/// Files that have begun, by client and path.
#[derive(Default)]
pub(super) struct Uploads(BTreeMap<(u64, PathBuf), Upload>);

struct Upload {
    file: Nameless,
    digest: Digesting,
}

impl Context<'_> {
    /// Adds a part. After a failure, nothing is left of the file.
    pub(super) fn add_part(&mut self, part: &Part) -> Result<FileAnswer> {
        let key = (part.client, part.path.clone());
        let begun = self.uploads.0.remove(&key);
        let (upload, size) = self.in_workspace(|files| {
            let mut upload = match part.is_first {
                true => Upload {
                    file: files.nameless(&part.path)?,
                    digest: Digesting::default(),
                },
                false => begun.ok_or_else(|| not_begun(&part.path))?,
            };
            let bytes = part.content.as_bytes();
            upload.file.write(bytes, &part.path)?;
            upload.digest.add(bytes);
            if part.is_last {
                files.name(&upload.file, &part.path, part.executable)?;
            }
            let size = upload.digest.size();
            Ok((upload, size))
        })?;
        match (part.is_last, &mut self.live) {
            (false, _) => {
                self.uploads.0.insert(key, upload);
            }
            (true, Some(live)) => live.note_written(&part.path, upload.digest.finish()),
            (true, None) => {}
        }
        Ok(FileAnswer::Written { size })
    }

    /// Drops the files that a client has begun.
    pub fn drop_uploads(&mut self, client: u64) -> FileAnswer {
        self.uploads.0.retain(|(sender, _), _| *sender != client);
        FileAnswer::Removed {}
    }
}

fn not_begun(path: &Path) -> SetupError {
    SetupError::new(Stage::Outputs, "no part of this file is here: an earlier one failed, or the context went on from an earlier state")
        .on(path.display())
        .hint("send the file again from its beginning")
}
