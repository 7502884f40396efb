//! Which sandbox a request is for, and whether its client may use it.
//!
//! Requests to a sandbox do not carry the API key, but tokens that were given out when it was
//! created: one for envd, another for everything else. Links to files carry a signature that is
//! made with the first.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::Next;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use wire::{Code, Party};

use super::links::{InvalidLink, Link};
use super::sandboxes::{Creation, DEBUG_SANDBOX, Sandbox, is_id};
use super::{Port, answers, code, control, envd};
use crate::answer::Answer;
use crate::front::{Guarded, count, held, is_same};

/// The path at which clients check whether a sandbox exists.
const HEALTH: &str = "/health";

/// The servers of sandboxes.
#[derive(Clone)]
pub(crate) struct Ports {
    guarded: Guarded,
    code: TowerToHyperService<Router>,
    envd: TowerToHyperService<Router>,
}

impl Ports {
    pub(crate) fn new(guarded: &Guarded) -> Self {
        let served = |router: Router<Guarded>| {
            let router = router
                .fallback(|| async { answers::error(StatusCode::NOT_FOUND, "404 page not found") })
                .with_state(guarded.clone());
            TowerToHyperService::new(router)
        };
        Self {
            guarded: guarded.clone(),
            code: served(code::router()),
            envd: served(envd::router()),
        }
    }
}

/// What a request names.
#[derive(Debug, PartialEq)]
struct Target {
    /// `None` for a link to a file, which is signed.
    sandbox: Option<String>,
    /// `None` for a port that nothing listens at.
    port: Option<Port>,
}

/// Serves requests that are for a sandbox, and leaves the others to the other doors.
pub(crate) async fn dispatch(
    State(ports): State<Ports>,
    mut request: Request<Body>,
    next: Next,
) -> Answer {
    let link = Link::of(&request);
    let Some(target) = Target::of(&request, link.is_some()) else {
        return next.run(request).await;
    };
    // Pages of any origin may use a link: it only gives access to one file.
    let checked = match &link {
        None => ports.guarded.check_site(request.headers()),
        Some(_) => ports.guarded.check_host(request.headers()),
    };
    if let Err(refused) = checked {
        return refused;
    }
    let found = match link {
        None => find(&ports.guarded, &target, &request),
        Some(Ok(link)) => linked(&ports.guarded, &target, &link),
        Some(Err(InvalidLink(why))) => Err(answers::error(StatusCode::UNAUTHORIZED, why)),
    };
    let sandbox = match found {
        Ok(sandbox) => sandbox,
        Err(refused) => return refused,
    };
    let service = match target.port {
        Some(Port::Code) => &ports.code,
        Some(Port::Envd) => &ports.envd,
        None => {
            let message = "The sandbox is running, but the port is not open";
            return answers::error(StatusCode::BAD_GATEWAY, message);
        }
    };
    let is_question = request.uri().path() == HEALTH;
    // Any client may ask this question.
    if !is_question && let Err(failure) = count(&request, sandbox.party) {
        return answers::failed(&failure);
    }
    if sandbox.is_paused() {
        if is_question || !sandbox.creation.resumes_by_itself {
            return answers::no_sandbox(&sandbox.id);
        }
        if let Err(failure) = control::wake(&ports.guarded, &sandbox).await {
            return match failure.code {
                Code::NotFound => answers::no_sandbox(&sandbox.id),
                _ => answers::failed(&failure),
            };
        }
    }
    request.extensions_mut().insert(sandbox.party);
    let party = sandbox.party;
    let share = ports.guarded.share(party);
    request.extensions_mut().insert(sandbox);
    match held::serve(share, request, |request| service.call(request)).await {
        Ok(answer) => {
            let counted = ports.guarded.unread(party, answer);
            counted.unwrap_or_else(|failure| answers::failed(&failure))
        }
        Err(never) => match never {},
    }
}

impl Target {
    fn of(request: &Request<Body>, is_link: bool) -> Option<Self> {
        let field = |name: &str| request.headers().get(name)?.to_str().ok();
        if let Some(id) = field("e2b-sandbox-id") {
            return Some(Self {
                sandbox: Some(id.to_owned()),
                port: Port::of(field("e2b-sandbox-port").unwrap_or("49983")),
            });
        }
        // `PORT-ID.DOMAIN`, as names of E2B's hosts are.
        let host = field(HOST.as_str()).unwrap_or_default();
        let label = host.split('.').next().unwrap_or_default();
        if let Some((port, id)) = label.split_once('-')
            && !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && host.len() > label.len()
            && is_id(&id.to_ascii_lowercase())
        {
            return Some(Self {
                sandbox: Some(id.to_ascii_lowercase()),
                port: Port::of(port),
            });
        }
        is_link.then_some(Self {
            sandbox: None,
            port: Some(Port::Envd),
        })
    }
}

/// The sandbox, if this client may use it.
fn find(
    guarded: &Guarded,
    target: &Target,
    request: &Request<Body>,
) -> Result<Arc<Sandbox>, Answer> {
    let id = target.sandbox.as_deref().unwrap_or_default();
    let found = match guarded.sandboxes().find(id) {
        None if id == DEBUG_SANDBOX && guarded.is_open() => debug_sandbox(guarded),
        found => found,
    };
    let sandbox = found.ok_or_else(|| answers::no_sandbox(id))?;
    match may_use(guarded, &sandbox, target.port, request) {
        true => Ok(sandbox),
        false => {
            // For another party, the sandbox does not exist. A client of no party only lacks a
            // valid token.
            let is_others = guarded.party(request.headers()).is_some();
            Err(match is_others {
                true => answers::no_sandbox(id),
                false => answers::error(StatusCode::UNAUTHORIZED, "the access token is not valid"),
            })
        }
    }
}

fn may_use(
    guarded: &Guarded,
    sandbox: &Sandbox,
    port: Option<Port>,
    request: &Request<Body>,
) -> bool {
    let given = |name: &str| request.headers().get(name).map(|value| value.as_bytes());
    let access = given("x-access-token");
    if let Some(token) = access.filter(|token| !token.is_empty()) {
        return is_same(token, sandbox.access_token.as_bytes());
    }
    let traffic = given("e2b-traffic-access-token").filter(|_| port != Some(Port::Envd));
    if let Some(token) = traffic {
        return is_same(token, sandbox.traffic_token.as_bytes());
    }
    // Any client that knows a sandbox's id may check whether the sandbox exists.
    request.uri().path() == HEALTH || guarded.party(request.headers()) == Some(sandbox.party)
}

/// The sandbox whose owner made a link. No other part of the request identifies it.
fn linked(guarded: &Guarded, target: &Target, link: &Link) -> Result<Arc<Sandbox>, Answer> {
    let is_own = |sandbox: &Sandbox| link.is_signed_with(&sandbox.access_token);
    let signed = match &target.sandbox {
        Some(id) => guarded.sandboxes().find(id).filter(|own| is_own(own)),
        None => guarded.sandboxes().first(is_own),
    };
    let InvalidLink(why) = InvalidLink::BAD_SIGNATURE;
    signed.ok_or_else(|| answers::error(StatusCode::UNAUTHORIZED, why))
}

/// The debug sandbox, only on a server without tokens: it is created at its first request.
fn debug_sandbox(guarded: &Guarded) -> Option<Arc<Sandbox>> {
    let settings = guarded.e2b();
    let template = "code-interpreter-v1";
    let creation = Creation {
        language: settings.language(template).unwrap_or("python").to_owned(),
        template: template.to_owned(),
        metadata: Default::default(),
        envs: Default::default(),
        network: None,
        given_network: Default::default(),
        internet: None,
        branches: settings.pause,
        pauses_at_end: false,
        resumes_by_itself: true,
        has_home: settings.has_home,
    };
    let id = Some(DEBUG_SANDBOX.to_owned());
    let sandbox = Sandbox::new(id, Party::Door(0), creation, settings.longest).ok()?;
    let sandbox = Arc::new(sandbox);
    guarded.sandboxes().add(Arc::clone(&sandbox));
    Some(sandbox)
}

/// The Host and the fields of a request by which a sandbox is found, one a line, for fuzzing.
#[cfg(any(test, fuzzing))]
pub fn sandbox_target(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let mut request = Request::builder().uri("/files");
    let names = ["host", "e2b-sandbox-id", "e2b-sandbox-port"];
    for (name, line) in names.iter().zip(&mut lines) {
        if !line.is_empty() {
            request = request.header(*name, line);
        }
    }
    let Ok(request) = request.body(Body::empty()) else {
        return;
    };
    let is_named = request.headers().contains_key("e2b-sandbox-id");
    if let Some(target) = Target::of(&request, false).filter(|_| !is_named) {
        // A host can only stand for what could be a sandbox.
        assert!(target.sandbox.is_some_and(|id| is_id(&id)));
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123";

    fn request(uri: &str, fields: &[(&str, &str)]) -> Request<Body> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    fn target(uri: &str, fields: &[(&str, &str)]) -> Option<(Option<String>, Option<Port>)> {
        let request = request(uri, fields);
        let is_link = Link::of(&request).is_some();
        Target::of(&request, is_link).map(|target| (target.sandbox, target.port))
    }

    #[test]
    fn sandboxes_are_named_by_fields_hosts_and_signatures() {
        let id = Some(ID.to_owned());
        let by_field = |port| {
            target(
                "/health",
                &[("e2b-sandbox-id", ID), ("e2b-sandbox-port", port)],
            )
        };
        assert_eq!(by_field("49999"), Some((id.clone(), Some(Port::Code))));
        assert_eq!(by_field("49983"), Some((id.clone(), Some(Port::Envd))));
        assert_eq!(by_field("3000"), Some((id.clone(), None)));
        let by_host = |host: &str| target("/health", &[("host", host)]);
        let found = Some((id, Some(Port::Code)));
        assert_eq!(by_host(&format!("49999-{ID}.box.example")), found);
        assert_eq!(by_host(&format!("49999-{}.box", ID.to_uppercase())), found);
        for host in [
            "localhost",
            "127.0.0.1:80",
            "a-b.example",
            "49999-0123456789abcdef0123",
            "-0123456789abcdef0123.example",
            // Any other service of the host may have such a name.
            "8080-name.example",
            "8080-0123456789abcdef012.example",
        ] {
            assert_eq!(by_host(host), None, "{host}");
        }
        let signed = Some((None, Some(Port::Envd)));
        assert_eq!(target("/files?path=a&signature=v1_x", &[]), signed);
        assert_eq!(target("/files?path=a", &[]), None);
        assert_eq!(target("/execute?signature=v1_x", &[]), None);
    }
}
