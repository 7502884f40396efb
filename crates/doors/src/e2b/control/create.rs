//! A new sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use record::json::{Pairs, text_of};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use wire::{Code, Failure, Party};

use super::network::{self, Network};
use super::{access, life};
use crate::answer::{self, Answer};
use crate::body;
use crate::e2b::sandboxes::{Creation, Sandbox};
use crate::e2b::{answers, detached};
use crate::front::Guarded;

/// The default time until a sandbox ends.
pub(super) const USUAL_LIFE: Duration = Duration::from_secs(300);
/// The most bytes of the texts that a client gives a sandbox.
const MOST_TEXT: usize = 64 << 10;

record::bounds! {
    /// The metadata of a sandbox.
    MostMetadata = "metadata", 4096;
    /// The variables of a sandbox.
    MostVariables = "envVars", 4096;
}

/// The body of the request. Fields that have no effect here are ignored.
#[derive(Debug, Deserialize)]
struct New {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(default)]
    timeout: Option<u64>,
    #[serde(default)]
    metadata: Option<Pairs<String, MostMetadata>>,
    #[serde(default, rename = "envVars")]
    envs: Option<Pairs<String, MostVariables>>,
    #[serde(default, rename = "autoPause")]
    pauses: Option<bool>,
    #[serde(default, rename = "autoResume")]
    resumes: Option<Resumes>,
    #[serde(default)]
    allow_internet_access: Option<bool>,
    #[serde(default)]
    network: Option<Box<RawValue>>,
    #[serde(default)]
    mcp: Option<IgnoredAny>,
    #[serde(default)]
    iam: Option<IgnoredAny>,
    #[serde(default, rename = "volumeMounts")]
    volumes: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
struct Resumes {
    enabled: bool,
}

pub(super) async fn create(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let made = async {
        let text = body::read(body).await?;
        let sandboxes = guarded.sandboxes();
        let mut held = match headers.get("idempotency-key") {
            None => None,
            Some(key) => Some(sandboxes.keys.hold(party, key.as_bytes(), &text).await?),
        };
        let before = held.as_ref().and_then(|made| made.sandbox.as_ref());
        if let Some(made) = before.and_then(|id| sandboxes.find(id)) {
            return Ok(made);
        }
        let new: New = body::parse(&text)?;
        let life = life::within(&guarded, new.timeout);
        let creation = creation(&guarded, new)?;
        let sandbox = Arc::new(Sandbox::new(None, party, creation, life)?);
        detached(async move {
            start(&guarded, &sandbox).await?;
            if let Some(made) = &mut held {
                made.sandbox = Some(sandbox.id.clone());
            }
            Ok(sandbox)
        })
        .await
    };
    match made.await {
        Ok(sandbox) => answer::json(StatusCode::CREATED, &access(&sandbox)),
        Err(failure) => answers::failed(&failure),
    }
}

/// Makes the cell of a new sandbox, and starts its clock.
async fn start(guarded: &Guarded, sandbox: &Arc<Sandbox>) -> Result<(), Failure> {
    let mut client = guarded.client(sandbox.party)?;
    sandbox.open_main(&mut client).await.map_err(|failure| {
        // What the client said about variables and the network is checked by the hub.
        match failure.code {
            Code::Failed => Failure {
                code: Code::BadParams,
                ..failure
            },
            _ => failure,
        }
    })?;
    guarded.sandboxes().add(Arc::clone(sandbox));
    life::start_clock(guarded, sandbox);
    Ok(())
}

fn creation(guarded: &Guarded, new: New) -> Result<Creation, Failure> {
    let settings = guarded.e2b();
    let absent = [
        ("mcp", new.mcp.is_some()),
        ("iam", new.iam.is_some()),
        (
            "volumeMounts",
            new.volumes.is_some_and(|all| !all.is_empty()),
        ),
    ];
    if let Some((field, _)) = absent.iter().find(|(_, is_given)| *is_given) {
        let message = format!("{field}: is not supported here");
        return Err(Failure::new(Code::BadParams, message));
    }
    let Some(language) = settings.language(&new.template) else {
        let shown: String = new.template.chars().take(64).collect();
        let known: Vec<_> = settings.templates.keys().map(String::as_str).collect();
        let message = format!("template '{shown}' not found");
        let hint = format!("this server has {}: --e2b-template", known.join(", "));
        return Err(Failure::new(Code::NotFound, message).hint(hint));
    };
    let metadata = new.metadata.unwrap_or_default().into_inner();
    let envs = new.envs.unwrap_or_default().into_inner();
    let network = Network::read(new.network.as_deref())?;
    let length = new.template.len() + length(&metadata) + length(&envs) + text_of(&network).len();
    if length > MOST_TEXT {
        let message = format!(
            "templateID, metadata, envVars and network: want at most {MOST_TEXT} bytes together"
        );
        return Err(Failure::new(Code::BadParams, message));
    }
    let pauses_at_end = new.pauses == Some(true);
    Ok(Creation {
        language: language.to_owned(),
        template: new.template,
        metadata,
        envs,
        network: network::request(new.allow_internet_access, &network)?,
        given_network: network,
        internet: new.allow_internet_access,
        branches: settings.pause || pauses_at_end,
        pauses_at_end,
        resumes_by_itself: new.resumes.is_some_and(|resumes| resumes.enabled),
        has_home: settings.has_home,
    })
}

fn length(pairs: &BTreeMap<String, String>) -> usize {
    let lengths = pairs.iter().map(|(key, text)| key.len() + text.len());
    lengths.sum()
}
