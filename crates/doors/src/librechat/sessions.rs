//! Storage sessions: contexts whose files are kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use record::bytes::RawText;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use wire::{
    Code, ContextCreate, ContextLabel, ContextName, Failure, FileEntry, FileList, Request,
    RequestFile, method,
};

use super::MOST;
use crate::client::Client;
use crate::{files, random};

/// The length of ids: LibreChat checks them and allows no other.
const ID: usize = 21;
/// The label of storage sessions.
const LABEL: &str = "storage session";
/// Where code finds its files, and where `--symlink` leads.
const DIRECTORIES: [&str; 2] = ["/mnt/data/", "/workspace/"];

/// A file of a storage session.
#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    id: String,
    name: String,
    storage_session_id: Option<String>,
    /// The name of the same field in older clients; some send both.
    session_id: Option<String>,
}

/// A file that goes into a session.
pub(super) struct Upload {
    pub(super) path: String,
    pub(super) content: Vec<u8>,
}

impl Upload {
    /// As requests have it.
    fn file(&self) -> RequestFile<'_> {
        RequestFile {
            path: &self.path,
            base64: Some(STANDARD.encode(&self.content).into()),
            ..RequestFile::default()
        }
    }
}

/// A file of a session. Files whose path is not text have no name in the protocol, and are left
/// out.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) mtime: i64,
}

/// The files of a session.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) files: Vec<Entry>,
    /// Whether there are more files, which were not listed.
    is_cut: bool,
}

impl Entries {
    /// The file with this id, if it is there.
    fn find(&self, id: &str) -> Result<Option<&Entry>, Failure> {
        let found = self.files.iter().find(|entry| id_of(&entry.path) == id);
        if found.is_none() && self.is_cut {
            let message = "this session has too many files for this one to be found";
            return Err(Failure::new(Code::TooLong, message));
        }
        Ok(found)
    }
}

/// The files for an execution, without those that no longer exist: when a session is gone, the
/// client uploads its files again.
pub(super) async fn find_all(
    client: &mut Client,
    wanted: &[Reference],
) -> Result<Vec<Upload>, Failure> {
    let mut sessions: HashMap<&str, Entries> = HashMap::new();
    let mut uploads = Vec::new();
    let mut left = MOST;
    for reference in wanted {
        let session = reference.storage_session_id.as_ref();
        let session = session.or(reference.session_id.as_ref()).ok_or_else(|| {
            let message = "files: a file has no storage_session_id";
            Failure::new(Code::BadParams, message)
        })?;
        let listed = match sessions.entry(session) {
            Occupied(listed) => listed.into_mut(),
            Vacant(place) => match entries(client, session).await {
                Err(failure) if failure.code == Code::NotFound => place.insert(Entries {
                    files: Vec::new(),
                    is_cut: false,
                }),
                listed => place.insert(listed?),
            },
        };
        let Some(Entry { path, .. }) = listed.find(&reference.id)? else {
            continue;
        };
        if let Some(content) = files::whole(client, session, path, left).await? {
            left -= content.len();
            let path = match relative(&reference.name) {
                "" => path.clone(),
                name => name.to_owned(),
            };
            uploads.push(Upload { path, content });
        }
    }
    Ok(uploads)
}

/// The path of a file.
pub(super) async fn path_of(
    client: &mut Client,
    session: &str,
    id: &str,
) -> Result<String, Failure> {
    let entries = entries(client, session).await?;
    let found = entries.find(id)?;
    let path = found.map(|entry| entry.path.clone());
    path.ok_or_else(|| Failure::new(Code::NotFound, "this session has no such file"))
}

/// The files of a session.
pub(super) async fn entries(client: &mut Client, session: &str) -> Result<Entries, Failure> {
    let params = FileList {
        context: session.to_owned(),
        path: PathBuf::new(),
        recursive: true,
        depth: None,
    };
    let entries = client.ask::<method::FileList>(&params).await?.entries;
    let files = entries.entries.iter().filter(|any| any.kind == "file");
    let file = |any: &FileEntry| {
        Some(Entry {
            path: text(&any.path)?.to_owned(),
            size: any.size,
            mtime: any.mtime,
        })
    };
    Ok(Entries {
        files: files.filter_map(file).collect(),
        is_cut: entries.is_cut,
    })
}

pub(super) fn text(path: &RawText) -> Option<&str> {
    std::str::from_utf8(path.as_bytes()).ok()
}

/// Creates a session with these files. It ends with its client unless it is kept.
pub(super) async fn create(
    client: &mut Client,
    language: &str,
    uploads: &[Upload],
) -> Result<String, Failure> {
    let request = Request {
        language: Some(language),
        files: uploads.iter().map(Upload::file).collect(),
        ..Request::default()
    };
    let params = ContextCreate {
        context: Some(new_id()?),
        ..ContextCreate::new(request.raw())
    };
    let created = client.ask::<method::ContextCreate>(&params).await?;
    Ok(created.context)
}

/// Lets a session outlive its client.
pub(super) async fn keep(client: &mut Client, session: &str) -> Result<(), Failure> {
    let params = ContextLabel {
        context: session.to_owned(),
        label: Some(LABEL.to_owned()),
        keep: true,
    };
    client.ask::<method::ContextLabel>(&params).await.map(drop)
}

/// Ends a session that has nothing to download.
pub(super) async fn end(client: &mut Client, session: &str) {
    // It may have ended already.
    let params = ContextName::new(session);
    let _ = client.ask::<method::ContextDelete>(&params).await;
}

/// An id that cannot be guessed.
fn new_id() -> Result<String, Failure> {
    Ok(short(&random::bytes(16)?))
}

/// The id of a file.
pub(super) fn id_of(path: &str) -> String {
    short(&Sha256::digest(path))
}

fn short(bytes: &[u8]) -> String {
    let mut text = URL_SAFE_NO_PAD.encode(bytes);
    text.truncate(ID);
    text
}

/// A path as the protocol has it.
pub(super) fn relative(path: &str) -> &str {
    let inside = DIRECTORIES
        .iter()
        .find_map(|directory| path.strip_prefix(directory));
    inside.unwrap_or(path).trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_pass_the_clients_check() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        for id in [
            new_id().unwrap(),
            new_id().unwrap(),
            id_of("a/b.png"),
            id_of(""),
        ] {
            assert!(id.len() == ID && id.chars().all(is_plain), "{id}");
        }
        assert_ne!(new_id().unwrap(), new_id().unwrap());
    }

    #[test]
    fn names_are_below_the_workspace() {
        for (name, path) in [
            ("a.csv", "a.csv"),
            ("/mnt/data/d/a.csv", "d/a.csv"),
            ("/workspace/a", "a"),
            ("/etc/passwd", "etc/passwd"),
        ] {
            assert_eq!(relative(name), path);
        }
    }
}
