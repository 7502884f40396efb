//! The service `filesystem.Filesystem`, apart from watches.

use std::path::Path;

use record::json::Object;
use record::object;
use serde::Deserialize;

use super::call::{Call, SandboxClient};
use super::entry::Entry;
use super::path;
use crate::e2b::connect::{Code, Error};

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    path: String,
}

/// The entry at this path.
///
/// # Errors
/// It does not exist.
pub(super) async fn find(client: &mut SandboxClient, at: &Path) -> Result<Entry, Error> {
    #[derive(Deserialize)]
    struct Answer {
        found: Found,
    }
    let answer: Answer = client.ask("file.stat", object! {"path": at}).await?;
    Ok(answer.found.entry)
}

/// The directory at this path.
///
/// # Errors
/// It does not exist, or is something else.
pub(super) async fn directory(client: &mut SandboxClient, at: &Path) -> Result<(), Error> {
    match find(client, at).await?.is_directory() {
        true => Ok(()),
        false => {
            let message = format!("path is not a directory: {}", at.display());
            Err(Error::new(Code::InvalidArgument, message))
        }
    }
}

#[derive(Debug, Deserialize)]
struct Found {
    entry: Entry,
}

fn shown(entry: &Entry) -> Object<'static> {
    object! {"entry": entry.info()}
}

pub(super) async fn stat(call: Call<Named>) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let at = path::inside(&call.message.path)?;
    let entry = find(&mut client, &at).await?;
    Ok(shown(&entry))
}

pub(super) async fn make_directory(call: Call<Named>) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let at = path::inside(&call.message.path)?;
    let params = object! {"path": at};
    client.tell("file.make_directory", params).await?;
    let entry = find(&mut client, &at).await?;
    Ok(shown(&entry))
}

#[derive(Debug, Deserialize)]
pub(super) struct Moving {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destination: String,
}

pub(super) async fn rename(call: Call<Moving>) -> Result<Object<'static>, Error> {
    #[derive(Deserialize)]
    struct Answer {
        moved: Found,
    }
    let mut client = call.client()?;
    let params = object! {
        "from": path::inside(&call.message.source)?,
        "to": path::inside(&call.message.destination)?,
    };
    let answer: Answer = client.ask("file.move", params).await?;
    Ok(shown(&answer.moved.entry))
}

#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: u32,
}

pub(super) async fn list(call: Call<Listing>) -> Result<Object<'static>, Error> {
    #[derive(Deserialize)]
    struct Answer {
        entries: Entries,
    }
    #[derive(Deserialize)]
    struct Entries {
        entries: Vec<Entry>,
        is_cut: bool,
    }
    let mut client = call.client()?;
    let at = path::inside(&call.message.path)?;
    directory(&mut client, &at).await?;
    let params = object! {"path": at, "depth": call.message.depth.max(1)};
    let Answer { entries } = client.ask("file.list", params).await?;
    if entries.is_cut {
        let message = format!("there are more than {} entries", entries.entries.len());
        return Err(Error::new(Code::FailedPrecondition, message));
    }
    let all: Vec<_> = entries.entries.iter().map(Entry::info).collect();
    Ok(object! {"entries": all})
}

pub(super) async fn remove(call: Call<Named>) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let params = object! {"path": path::inside(&call.message.path)?};
    let removed = client.tell("file.remove", params).await;
    match removed.map_err(Error::from) {
        // What does not exist is removed already.
        Err(error) if error.code != Code::NotFound => Err(error),
        _ => Ok(object! {}),
    }
}
