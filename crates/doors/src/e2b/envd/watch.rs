//! Changes below a directory: as a stream, or collected for a client that polls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::Stream;
use futures_util::stream::{StreamExt as _, once, unfold};
use record::bytes::RawText;
use record::json::Object;
use record::object;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wire::{Failure, FileWatch, Said, method};

use super::call::{Call, SandboxClient};
use super::filesystem::directory;
use super::path;
use crate::client::Client;
use crate::e2b::connect::{self, Code, Error};
use crate::e2b::sandboxes::secret;

/// The most events that wait for their client. Beyond that the hub's events are not read, and the
/// hub reports that some are missing.
const MOST_EVENTS: usize = 10_000;
/// The most bytes of these events.
const MOST_BYTES: usize = 1 << 20;
/// The most watchers of a sandbox: each is a client of the hub, with two descriptors.
const MOST_WATCHERS: usize = 16;
/// A watcher ends after this time without a poll.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// A keepalive follows after this time without a change.
const QUIET: Duration = Duration::from_secs(30);
/// How long a full watcher waits before it checks again for room.
const BREATH: Duration = Duration::from_millis(200);
/// How long the answer to a poll waits for a first event. Clients poll right after a change, and the
/// hub reports changes a tenth of a second apart.
const FIRST_EVENT_DEADLINE: Duration = Duration::from_millis(250);
/// The time between two looks for it.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The watchers of a sandbox, by their ids.
#[derive(Debug, Default)]
pub(in crate::e2b) struct Watchers(Mutex<BTreeMap<String, Watcher>>);

/// Collects changes until its client polls.
#[derive(Debug)]
struct Watcher {
    found: Arc<Mutex<Found>>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Found {
    events: Vec<FilesystemEvent>,
    /// The bytes of their names.
    bytes: usize,
    /// When the client last polled.
    asked: Instant,
    /// Why there are no more.
    end: Option<String>,
}

impl Found {
    fn new() -> Self {
        Self {
            events: Vec::new(),
            bytes: 0,
            asked: Instant::now(),
            end: None,
        }
    }

    fn is_full(&self) -> bool {
        self.events.len() >= MOST_EVENTS || self.bytes >= MOST_BYTES
    }

    fn add(&mut self, events: Vec<FilesystemEvent>) {
        self.bytes += events.iter().map(|event| event.name.len()).sum::<usize>();
        self.events.extend(events);
    }

    fn take(&mut self) -> Vec<FilesystemEvent> {
        (self.asked, self.bytes) = (Instant::now(), 0);
        std::mem::take(&mut self.events)
    }

    fn end(&mut self, why: String) {
        self.end = Some(why);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
}

/// A watch of the hub.
struct Watch {
    client: Client,
    top: PathBuf,
    is_recursive: bool,
}

impl Watch {
    async fn begin(mut client: SandboxClient, wanted: &Wanted) -> Result<Self, Error> {
        let top = path::inside(&wanted.path)?;
        directory(&mut client, &top).await?;
        let params = FileWatch {
            context: client.context(),
            path: top.clone(),
        };
        client.ask::<method::FileWatch>(&params).await?;
        Ok(Self {
            client: client.client,
            top,
            is_recursive: wanted.recursive,
        })
    }

    /// The next changes. Nothing is lost if this future is dropped before it is ready.
    async fn next(&mut self) -> Result<Vec<FilesystemEvent>, Failure> {
        #[derive(Deserialize)]
        struct Event<'a> {
            event: &'a str,
            #[serde(default)]
            changes: Vec<Change>,
            #[serde(default)]
            why: String,
        }
        loop {
            let Said::Event(event) = self.client.next().await? else {
                continue;
            };
            let Ok(Event {
                event,
                changes,
                why,
            }) = serde_json::from_str(event.get())
            else {
                continue;
            };
            match event {
                "files_changed" => {
                    let own = changes.iter().filter_map(|change| self.event(change));
                    return Ok(own.collect());
                }
                "watch_ended" => return Err(Failure::new(wire::Code::Lost, why)),
                _ => {}
            }
        }
    }

    /// A change as `FilesystemEvent`, if it is of a kind that is wanted.
    fn event(&self, change: &Change) -> Option<FilesystemEvent> {
        let whole = String::from_utf8_lossy(change.path.as_bytes());
        let name = Path::new(whole.as_ref()).strip_prefix(&self.top).ok()?;
        let depth = name.components().count();
        if depth == 0 || (depth > 1 && !self.is_recursive) {
            return None;
        }
        let kind = match change.change.as_str() {
            "created" => "EVENT_TYPE_CREATE",
            "deleted" => "EVENT_TYPE_REMOVE",
            _ => "EVENT_TYPE_WRITE",
        };
        Some(FilesystemEvent {
            name: name.to_str()?.to_owned(),
            kind,
        })
    }
}

/// A change as envd has it.
#[derive(Debug, Serialize)]
struct FilesystemEvent {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Deserialize)]
struct Change {
    path: RawText,
    change: String,
}

/// `WatchDir`
pub(super) async fn stream(call: Call<Wanted>) -> Result<impl Stream<Item = Bytes> + use<>, Error> {
    let watch = Watch::begin(call.client()?, &call.message).await?;
    let start = connect::message(&object! {"start": object! {}});
    let changes = unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        match tokio::time::timeout(QUIET, watch.next()).await {
            Err(_) => Some((
                connect::message(&object! {"keepalive": object! {}}),
                Some(watch),
            )),
            Ok(Ok(events)) => {
                let all = events.iter();
                let all = all.map(|event| connect::message(&object! {"filesystem": event}));
                Some((all.collect::<Vec<Bytes>>().concat().into(), Some(watch)))
            }
            Ok(Err(failure)) => Some((connect::end(Some(&failure.into())), None)),
        }
    });
    Ok(once(async { start }).chain(changes))
}

/// `CreateWatcher`
pub(super) async fn create(call: Call<Wanted>) -> Result<Object<'static>, Error> {
    let watch = Watch::begin(call.client()?, &call.message).await?;
    let id = secret(8)?;
    call.sandbox.watchers.add(&id, watch)?;
    Ok(object! {"watcherId": id})
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    #[serde(default, rename = "watcherId")]
    id: String,
}

/// `GetWatcherEvents`
pub(super) async fn events(call: Call<Named>) -> Result<Object<'static>, Error> {
    let watchers = &call.sandbox.watchers;
    let until = Instant::now() + FIRST_EVENT_DEADLINE;
    let events = loop {
        let events = watchers.take(&call.message.id)?;
        if !events.is_empty() || Instant::now() >= until {
            break events;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    };
    Ok(object! {"events": events})
}

/// `RemoveWatcher`
pub(super) async fn remove(call: Call<Named>) -> Result<Object<'static>, Error> {
    let id = &call.message.id;
    let removed = call.sandbox.watchers.all().remove(id);
    removed.map(|_| object! {}).ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Error {
    let shown: String = id.chars().take(64).collect();
    Error::new(Code::NotFound, format!("watcher with id {shown} not found"))
}

impl Watchers {
    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all watchers.
    pub(in crate::e2b) fn end(&self) {
        self.all().clear();
    }

    fn add(&self, id: &str, watch: Watch) -> Result<(), Error> {
        let mut all = self.all();
        if all.len() >= MOST_WATCHERS {
            all.retain(|_, watcher| locked(&watcher.found).end.is_none());
        }
        if all.len() >= MOST_WATCHERS {
            let message = format!("a sandbox has at most {MOST_WATCHERS} watchers");
            return Err(Error::new(Code::FailedPrecondition, message));
        }
        let found = Arc::new(Mutex::new(Found::new()));
        let task = tokio::spawn(collect(watch, Arc::clone(&found)));
        let task = task.abort_handle();
        all.insert(id.to_owned(), Watcher { found, task });
        Ok(())
    }

    /// The events since the last time.
    fn take(&self, id: &str) -> Result<Vec<FilesystemEvent>, Error> {
        let all = self.all();
        let watcher = all.get(id).ok_or_else(|| missing(id))?;
        let mut found = locked(&watcher.found);
        match &found.end {
            Some(why) if found.events.is_empty() => Err(Error::new(Code::Unavailable, why.clone())),
            _ => Ok(found.take()),
        }
    }
}

fn locked(found: &Mutex<Found>) -> std::sync::MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects changes as long as there is room for them and the client polls.
async fn collect(mut watch: Watch, found: Arc<Mutex<Found>>) {
    tokio::select! {
        () = forgotten(&found) => {
            let mut found = locked(&found);
            found.take();
            let seconds = FORGOTTEN.as_secs();
            found.end(format!("the watcher's events were not requested for {seconds}s"));
        }
        () = gather(&mut watch, &found) => {}
    }
}

/// Ready when the client has not polled for too long.
async fn forgotten(found: &Mutex<Found>) {
    loop {
        let until = locked(found).asked + FORGOTTEN;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}

/// Ready when there are no more changes.
async fn gather(watch: &mut Watch, found: &Mutex<Found>) {
    loop {
        match watch.next().await {
            Ok(events) => locked(found).add(events),
            Err(failure) => return locked(found).end(failure.message),
        }
        while locked(found).is_full() {
            tokio::time::sleep(BREATH).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_wait_are_bounded_in_bytes() {
        let mut found = Found::new();
        let long = || FilesystemEvent {
            name: "n".repeat(1 << 10),
            kind: "EVENT_TYPE_WRITE",
        };
        for _ in 0..1024 {
            assert!(!found.is_full());
            found.add(vec![long()]);
        }
        assert!(found.is_full());
        assert_eq!(found.take().len(), 1024);
        assert!(!found.is_full());
    }
}
