//! The control plane: which sandboxes exist, and for how long.

mod create;
mod life;
mod list;
mod network;
mod state;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use record::json::Object;
use record::object;
use wire::{Code, Failure, Party};

use super::sandboxes::Sandbox;
use super::settings::Size;
use super::{ENVD_VERSION, answers};
use crate::answer::{self, Answer};
use crate::front::Guarded;
pub(super) use network::{Closed, Network};
pub(super) use state::wake;

/// An empty list.
const NONE: [(); 0] = [];
/// The id of the node of a sandbox, as it is shown to clients.
const CLIENT: &str = "cellblock";

pub(crate) fn router() -> Router<Guarded> {
    Router::new()
        .route("/v2/sandboxes", get(list::list).post(create::create))
        .route("/sandboxes", get(list::list_running).post(create::create))
        .route("/sandboxes/metrics", get(list::metrics))
        .route("/sandboxes/{id}", get(describe).delete(life::kill))
        .route("/sandboxes/{id}/timeout", post(life::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(life::refresh))
        .route("/sandboxes/{id}/connect", post(life::connect))
        .route("/v2/sandboxes/{id}/connect", post(life::connect))
        .route("/sandboxes/{id}/resume", post(life::connect))
        .route("/sandboxes/{id}/pause", post(state::pause))
        .route("/sandboxes/{id}/fork", post(state::fork))
        .route("/sandboxes/{id}/metrics", get(list::metrics_of))
        .route("/sandboxes/{id}/logs", get(logs))
        .route("/v2/sandboxes/{id}/logs", get(logs))
        .route("/sandboxes/{id}/snapshots", post(no_snapshots))
        .route("/sandboxes/{id}/network", put(network::update))
        .route(
            "/snapshots",
            get(|| async { answer::json(StatusCode::OK, &NONE) }),
        )
}

/// A sandbox of this party.
///
/// # Errors
/// It does not exist, or is another party's.
fn find(guarded: &Guarded, party: Party, id: &str) -> Result<Arc<Sandbox>, Failure> {
    let found = guarded.sandboxes().find(id);
    found
        .filter(|sandbox| sandbox.party == party)
        .ok_or_else(|| {
            let shown: String = id.chars().take(64).collect();
            answers::gone(&shown)
        })
}

/// What a client needs to use a sandbox.
fn access(sandbox: &Sandbox) -> Object<'static> {
    object! {
        "templateID": sandbox.creation.template,
        "sandboxID": sandbox.id,
        "clientID": CLIENT,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": sandbox.access_token,
        "trafficAccessToken": sandbox.traffic_token,
    }
}

/// What a client is shown of a sandbox in a list.
fn summary(guarded: &Guarded, sandbox: &Sandbox) -> Object<'static> {
    let Size { cpus, memory, disk } = guarded.e2b().size;
    object! {
        "templateID": sandbox.creation.template,
        "alias": sandbox.creation.template,
        "sandboxID": sandbox.id,
        "clientID": CLIENT,
        "startedAt": answers::time(sandbox.began()),
        "endAt": answers::time(sandbox.end_time()),
        "cpuCount": cpus.unwrap_or_else(host_cpus),
        "memoryMB": Size::mib(memory),
        "diskSizeMB": Size::mib(disk),
        "state": sandbox.state(),
        "envdVersion": ENVD_VERSION,
        "metadata": sandbox.creation.metadata,
    }
}

fn host_cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

async fn describe(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
) -> Answer {
    let sandbox = match life::existing(&guarded, party, &id).await {
        Ok(sandbox) => sandbox,
        Err(failure) => return answers::failed(&failure),
    };
    let creation = &sandbox.creation;
    let mut shown = summary(&guarded, &sandbox);
    shown.set("envdAccessToken", &sandbox.access_token);
    let lifecycle = object! {
        "onTimeout": if creation.pauses_at_end { "pause" } else { "kill" },
        "autoResume": creation.resumes_by_itself,
    };
    shown.set("lifecycle", &lifecycle);
    if let Some(internet) = creation.internet {
        shown.set("allowInternetAccess", &internet);
    }
    if !creation.given_network.is_empty() {
        shown.set("network", &creation.given_network);
    }
    answer::json(StatusCode::OK, &shown)
}

/// Always empty: output goes to the client's calls, and no logs are kept.
async fn logs(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
) -> Answer {
    match find(&guarded, party, &id) {
        Ok(_) => answer::json(StatusCode::OK, &object! {"logs": NONE, "logEntries": NONE}),
        Err(failure) => answers::failed(&failure),
    }
}

async fn no_snapshots(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
) -> Answer {
    let message = "snapshots do not exist here: pause a sandbox, or fork it";
    refused(&guarded, party, &id, message)
}

/// The answer to a request for what no sandbox can do.
fn refused(guarded: &Guarded, party: Party, id: &str, message: &str) -> Answer {
    let failure = match find(guarded, party, id) {
        Ok(_) => Failure::new(Code::BadParams, message),
        Err(failure) => failure,
    };
    answers::failed(&failure)
}
