//! The service `filesystem.Filesystem`, apart from watches.

use std::num::NonZeroU32;
use std::path::Path;

use record::json::Object;
use record::object;
use serde::Deserialize;
use wire::{FileList, FileMove, FileName, FileRemove, method};

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
    let params = FileName::new(client.context(), at);
    let stat = client.ask::<method::FileStat>(&params).await?;
    Ok(Entry(stat.found.entry))
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
    let params = FileName::new(client.context(), &at);
    client.ask::<method::FileMakeDirectory>(&params).await?;
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
    let mut client = call.client()?;
    let params = FileMove {
        context: client.context(),
        from: path::inside(&call.message.source)?,
        to: path::inside(&call.message.destination)?,
    };
    let answer = client.ask::<method::FileMove>(&params).await?;
    Ok(shown(&Entry(answer.moved.entry)))
}

#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: u32,
}

pub(super) async fn list(call: Call<Listing>) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let at = path::inside(&call.message.path)?;
    directory(&mut client, &at).await?;
    let params = FileList {
        context: client.context(),
        path: at,
        recursive: false,
        // The hub lists one level where this is missing.
        depth: NonZeroU32::new(call.message.depth),
    };
    let entries = client.ask::<method::FileList>(&params).await?.entries;
    if entries.is_cut {
        let message = format!("there are more than {} entries", entries.entries.len());
        return Err(Error::new(Code::FailedPrecondition, message));
    }
    let all = entries.entries.into_iter();
    let all: Vec<_> = all.map(|entry| Entry(entry).info()).collect();
    Ok(object! {"entries": all})
}

pub(super) async fn remove(call: Call<Named>) -> Result<Object<'static>, Error> {
    let mut client = call.client()?;
    let params = FileRemove::new(client.context(), path::inside(&call.message.path)?);
    let removed = client.ask::<method::FileRemove>(&params).await;
    match removed.map_err(Error::from) {
        // What does not exist is removed already.
        Err(error) if error.code != Code::NotFound => Err(error),
        _ => Ok(object! {}),
    }
}
