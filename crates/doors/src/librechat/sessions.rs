//! Storage sessions: contexts whose files are kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use record::bytes::RawText;
use record::object;
use serde::Deserialize;
use serve::protocol::{Code, Created, Deleted, Failure};
use sha2::{Digest as _, Sha256};

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
    #[derive(Deserialize)]
    struct Listed {
        entries: List,
    }
    #[derive(Deserialize)]
    struct List {
        entries: Vec<Any>,
        is_cut: bool,
    }
    #[derive(Deserialize)]
    struct Any {
        path: RawText,
        kind: String,
        size: u64,
        mtime: i64,
    }
    let params = object! {"context": session, "recursive": true};
    let Listed { entries } = client.ask_for("file.list", &params).await?;
    let files = entries.entries.iter().filter(|any| any.kind == "file");
    let file = |any: &Any| {
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
    let file = |upload: &Upload| {
        object! {"path": upload.path, "base64": STANDARD.encode(&upload.content)}
    };
    let files: Vec<_> = uploads.iter().map(file).collect();
    let params = object! {
        "request": object! {"language": language, "files": files},
        "context": new_id()?,
    };
    let created: Created = client.ask_for("context.create", &params).await?;
    Ok(created.context)
}

/// Lets a session outlive its client.
pub(super) async fn keep(client: &mut Client, session: &str) -> Result<(), Failure> {
    let params = object! {"context": session, "label": LABEL, "keep": true};
    client.ask("context.label", &params).await.map(drop)
}

/// Ends a session that has nothing to download.
pub(super) async fn end(client: &mut Client, session: &str) {
    let params = object! {"context": session};
    // It may have ended already.
    let _ = client.ask_for::<Deleted>("context.delete", &params).await;
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
