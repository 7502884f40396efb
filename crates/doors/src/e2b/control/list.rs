//! Lists of sandboxes, in pages, and what they use.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use futures_util::future::join_all;
use record::json::Object;
use record::object;
use serde::Deserialize;
use wire::{Code, ContextName, Failure, Party, method};

use super::{host_cpus, life, summary};
use crate::answer::{self, Answer};
use crate::e2b::answers;
use crate::e2b::sandboxes::Sandbox;
use crate::e2b::settings::Size;
use crate::front::Guarded;

/// The most sandboxes of a page, which is also the default.
const MOST: usize = 100;
/// How long a measurement may take: it waits for code that is being executed.
const MEASURE_DEADLINE: Duration = Duration::from_secs(1);
/// How many sandboxes are measured at once.
const AT_ONCE: usize = 8;
/// The field with the token for the next page.
const NEXT: HeaderName = HeaderName::from_static("x-next-token");

/// The filter of a list.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    metadata: Vec<(String, String)>,
    states: Vec<String>,
    template: Option<String>,
    after: Option<SystemTime>,
    is_ascending: bool,
    limit: usize,
    next: Option<(u64, String)>,
}

type Pairs = Vec<(String, String)>;

pub(super) async fn list(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Query(query): Query<Pairs>,
) -> Answer {
    let wanted = match Wanted::read(query) {
        Ok(wanted) => wanted,
        Err(failure) => return answers::failed(&failure),
    };
    if let Err(failure) = life::forget_ended(&guarded, party).await {
        return answers::failed(&failure);
    }
    let mut all = guarded.sandboxes().of(party);
    all.retain(|sandbox| wanted.has(sandbox));
    all.sort_by_key(|sandbox| place(sandbox));
    if !wanted.is_ascending {
        all.reverse();
    }
    let begin = wanted.next.as_ref().map_or(0, |next| {
        all.partition_point(|sandbox| match wanted.is_ascending {
            true => place(sandbox) <= *next,
            false => place(sandbox) >= *next,
        })
    });
    let rest = all.get(begin..).unwrap_or_default();
    let page: Vec<_> = rest
        .iter()
        .take(wanted.limit)
        .map(|sandbox| summary(&guarded, sandbox))
        .collect();
    let next = rest
        .get(wanted.limit.saturating_sub(1))
        .map(|last| place(last));
    let mut answer = answer::json(StatusCode::OK, &page);
    if let (true, Some((began, id))) = (rest.len() > wanted.limit, next)
        && let Ok(token) = HeaderValue::from_str(&format!("{began}-{id}"))
    {
        answer.headers_mut().insert(NEXT, token);
    }
    answer
}

/// The list for older clients: all running sandboxes.
pub(super) async fn list_running(
    state: State<Guarded>,
    party: Extension<Party>,
    Query(mut query): Query<Pairs>,
) -> Answer {
    query.push(("state".to_owned(), "running".to_owned()));
    list(state, party, Query(query)).await
}

/// The position of a sandbox in the list.
fn place(sandbox: &Sandbox) -> (u64, String) {
    let began = sandbox.began().duration_since(SystemTime::UNIX_EPOCH);
    let began = began.unwrap_or_default().as_micros();
    (u64::try_from(began).unwrap_or(u64::MAX), sandbox.id.clone())
}

impl Wanted {
    fn read(query: Pairs) -> Result<Self, Failure> {
        let wrong = |field: &str, wants: &str| {
            Failure::new(Code::BadParams, format!("{field}: wants {wants}"))
        };
        let mut wanted = Self {
            limit: MOST,
            ..Self::default()
        };
        for (name, text) in query {
            match name.as_str() {
                "metadata" => wanted.metadata = metadata(&text),
                "state" => wanted.states.extend(text.split(',').map(str::to_owned)),
                "template" => wanted.template = Some(text),
                "order" => wanted.is_ascending = text == "asc",
                "startedAfter" => {
                    let time = humantime::parse_rfc3339_weak(&utc(&text));
                    wanted.after =
                        Some(time.map_err(|_| wrong("startedAfter", "a time of RFC 3339"))?);
                }
                "limit" => {
                    let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                    wanted.limit = limit
                        .ok_or_else(|| wrong("limit", &format!("a number from 1 to {MOST}")))?;
                }
                "nextToken" => {
                    let next = text
                        .split_once('-')
                        .and_then(|(began, id)| Some((began.parse().ok()?, id.to_owned())));
                    let next = next.ok_or_else(|| wrong("nextToken", "that of an answer"))?;
                    wanted.next = Some(next);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }

    fn has(&self, sandbox: &Sandbox) -> bool {
        let creation = &sandbox.creation;
        let is_it = |own: &String| own == sandbox.state();
        (self.states.is_empty() || self.states.iter().any(is_it))
            && self
                .template
                .as_ref()
                .is_none_or(|own| *own == creation.template)
            && self.after.is_none_or(|after| sandbox.began() >= after)
            && self
                .metadata
                .iter()
                .all(|(key, text)| creation.metadata.get(key) == Some(text))
    }
}

/// `k=v&k=v`, whose parts are encoded twice.
fn metadata(text: &str) -> Pairs {
    let decoded = |text: &str| -> Pairs {
        let uri = format!("/?{text}").parse().ok();
        let query = uri.and_then(|uri| Query::<Pairs>::try_from_uri(&uri).ok());
        query.map(|query| query.0).unwrap_or_default()
    };
    let once = decoded(text).into_iter();
    let twice = once.flat_map(|(key, value)| decoded(&format!("{key}={value}")));
    twice.collect()
}

/// Replaces a zero offset of an RFC 3339 time by `Z`.
fn utc(text: &str) -> String {
    let zone = ["+00:00", " 00:00"];
    let bare = zone.iter().find_map(|zone| text.strip_suffix(zone));
    bare.map_or_else(|| text.to_owned(), |bare| format!("{bare}Z"))
}

/// What a sandbox uses now; no history is kept. `None` for a sandbox that is paused or executes
/// code.
async fn measure(guarded: &Guarded, sandbox: &Sandbox) -> Result<Option<Object<'static>>, Failure> {
    #[derive(Deserialize)]
    struct Described {
        usage: Use,
    }
    #[derive(Deserialize)]
    struct Use {
        memory_bytes: Option<u64>,
    }
    if sandbox.is_paused() {
        return Ok(None);
    }
    let mut client = guarded.client(sandbox.party)?;
    let params = ContextName::new(&sandbox.main);
    let described = client.ask_as::<method::ContextDescribe, Described>(&params);
    let Ok(described) = tokio::time::timeout(MEASURE_DEADLINE, described).await else {
        return Ok(None);
    };
    let described = described?;
    let now = SystemTime::now();
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH);
    let Size { cpus, memory, disk } = guarded.e2b().size;
    Ok(Some(object! {
        "timestamp": answers::time(now),
        "timestampUnix": seconds.unwrap_or_default().as_secs(),
        "cpuCount": cpus.unwrap_or_else(host_cpus),
        "cpuUsedPct": 0.0,
        "memTotal": memory.unwrap_or_default(),
        "memUsed": described.usage.memory_bytes.unwrap_or_default(),
        "memCache": 0,
        "diskTotal": disk.unwrap_or_default(),
        "diskUsed": 0,
    }))
}

pub(super) async fn metrics_of(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
) -> Answer {
    let measured = async {
        let sandbox = life::existing(&guarded, party, &id).await?;
        measure(&guarded, &sandbox).await
    };
    match measured.await {
        Ok(measured) => answer::json(StatusCode::OK, &Vec::from_iter(measured)),
        Err(failure) => answers::failed(&failure),
    }
}

pub(super) async fn metrics(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Query(query): Query<Pairs>,
) -> Answer {
    let ids = query.iter().filter(|(name, _)| name == "sandbox_ids");
    let ids: Vec<&str> = ids.flat_map(|(_, ids)| ids.split(',')).take(MOST).collect();
    let found = ids.into_iter();
    let found = found.filter_map(|id| super::find(&guarded, party, id).ok());
    let found: Vec<_> = found.collect();
    let mut all = BTreeMap::new();
    for some in found.chunks(AT_ONCE) {
        let measured = some.iter().cloned().map(|sandbox| {
            let guarded = guarded.clone();
            async move { (sandbox.id.clone(), measure(&guarded, &sandbox).await) }
        });
        for (id, measured) in join_all(measured).await {
            // A sandbox that cannot be measured now is left out.
            if let Ok(Some(measured)) = measured {
                all.insert(id, measured);
            }
        }
    }
    answer::json(StatusCode::OK, &object! {"sandboxes": all})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn metadata_is_encoded_twice() {
        // urlencode({quote(k): quote(v)}), of the query's own value.
        let given = "a%2520b=c%2526d%253D%252Bf&x=y";
        assert_eq!(metadata(given), [pair("a b", "c&d=+f"), pair("x", "y")]);
        assert_eq!(metadata(""), []);
    }

    #[test]
    fn filters_are_read() {
        let query = vec![
            pair("state", "running"),
            pair("state", "paused"),
            pair("limit", "3"),
            pair("nextToken", "12-abc"),
            pair("startedAfter", "2026-01-01T00:00:00+00:00"),
        ];
        let wanted = Wanted::read(query).unwrap();
        assert_eq!(wanted.states, ["running", "paused"]);
        assert_eq!(
            (wanted.limit, wanted.next),
            (3, Some((12, "abc".to_owned())))
        );
        assert!(wanted.after.is_some());
        for (name, text) in [
            ("limit", "0"),
            ("limit", "x"),
            ("nextToken", "x"),
            ("startedAfter", "x"),
        ] {
            assert!(
                Wanted::read(vec![pair(name, text)]).is_err(),
                "{name}={text}"
            );
        }
    }
}
