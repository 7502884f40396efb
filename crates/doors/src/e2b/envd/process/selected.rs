//! Processes as clients name them: by pid or tag.

use record::json::Object;
use record::object;
use serde::Deserialize;
use wire::{ContextName, ProcessInfo, method};

use crate::e2b::connect::{Code, Error};
use crate::e2b::envd::call::SandboxClient;

/// The pid or tag that names a process.
#[derive(Debug, Deserialize)]
pub(super) struct Selector {
    #[serde(default)]
    pid: Option<i32>,
    #[serde(default)]
    tag: Option<String>,
}

/// The processes that run.
///
/// # Errors
/// See [`Client::ask`].
pub(super) async fn all(client: &mut SandboxClient) -> Result<Vec<ProcessInfo>, Error> {
    let params = ContextName::new(client.context());
    let listed = client.ask::<method::ProcessList>(&params).await?;
    Ok(listed.processes)
}

/// The named process.
///
/// # Errors
/// No such process runs.
pub(super) async fn find(
    client: &mut SandboxClient,
    selector: &Selector,
) -> Result<ProcessInfo, Error> {
    let is_it = |process: &ProcessInfo| match (selector.pid, &selector.tag) {
        (Some(pid), _) => process.pid == pid,
        (None, Some(tag)) => process.tag.as_ref() == Some(tag),
        (None, None) => false,
    };
    let mut found = all(client).await?.into_iter().filter(is_it);
    found.next().ok_or_else(|| {
        let shown = match (selector.pid, &selector.tag) {
            (Some(pid), _) => format!("pid {pid}"),
            (None, Some(tag)) => format!("tag {:?}", tag.chars().take(128).collect::<String>()),
            (None, None) => "no pid and no tag".to_owned(),
        };
        Error::new(Code::NotFound, format!("process with {shown} not found"))
    })
}

/// A process as a client sees it.
pub(super) fn shown(process: &ProcessInfo) -> Object<'static> {
    let text = |raw: &record::bytes::RawText| String::from_utf8_lossy(raw.as_bytes()).into_owned();
    let mut words = process.argv.iter().map(text);
    let envs: std::collections::BTreeMap<_, _> = process
        .env
        .iter()
        .map(|(name, value)| (name, text(value)))
        .collect();
    let cmd = words.next().unwrap_or_default();
    let mut config = object! {"cmd": cmd, "args": Vec::from_iter(words), "envs": envs};
    if let Some(cwd) = &process.cwd {
        config.set("cwd", &cwd.to_string_lossy());
    }
    let mut shown = object! {"config": config, "pid": process.pid};
    if let Some(tag) = &process.tag {
        shown.set("tag", tag);
    }
    shown
}
