//! Which sandbox a request is for, and whether its client may use it.
//!
//! Requests to a sandbox do not carry the API key, but tokens that were given out when it was
//! created: one for envd, another for everything else. Links to files carry a signature made
//! of the first.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::header::HOST;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serve::Party;
use sha2::{Digest as _, Sha256};

use super::sandboxes::{Creation, DEBUG_SANDBOX, Sandbox};
use super::{Port, code, envd, wire};
use crate::answer::Answer;
use crate::front::{Guarded, is_same};

/// Where clients ask whether a sandbox exists.
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
                .fallback(|| async { wire::error(StatusCode::NOT_FOUND, "404 page not found") })
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
    let Some(target) = Target::of(&request) else {
        return next.run(request).await;
    };
    if let Err(refused) = ports.guarded.check_site(request.headers()) {
        return refused;
    }
    let sandbox = match find(&ports.guarded, &target, &request) {
        Ok(sandbox) => sandbox,
        Err(refused) => return refused,
    };
    if sandbox.is_paused() {
        let is_question = request.uri().path() == HEALTH;
        if is_question || !sandbox.creation.resumes_by_itself {
            return wire::no_sandbox(&sandbox.id);
        }
        super::control::resumed(&ports.guarded, &sandbox);
    }
    let service = match target.port {
        Some(Port::Code) => &ports.code,
        Some(Port::Envd) => &ports.envd,
        None => {
            let message = "The sandbox is running, but the port is not open";
            return wire::error(StatusCode::BAD_GATEWAY, message);
        }
    };
    request.extensions_mut().insert(sandbox.party);
    request.extensions_mut().insert(sandbox);
    match service.call(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

impl Target {
    fn of(request: &Request<Body>) -> Option<Self> {
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
        {
            return Some(Self {
                sandbox: Some(id.to_owned()),
                port: Port::of(port),
            });
        }
        let is_signed = request.uri().path() == "/files" && query(request, "signature").is_some();
        is_signed.then_some(Self {
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
    let sandboxes = guarded.sandboxes();
    let Some(id) = &target.sandbox else {
        let signed = sandboxes.first(|sandbox| is_signed(sandbox, request));
        return signed
            .ok_or_else(|| wire::error(StatusCode::UNAUTHORIZED, "the signature is not valid"));
    };
    let found = match sandboxes.find(id) {
        None if id == DEBUG_SANDBOX && guarded.is_open() => debug_sandbox(guarded),
        found => found,
    };
    let sandbox = found.ok_or_else(|| wire::no_sandbox(id))?;
    match may_use(guarded, &sandbox, target.port, request) {
        true => Ok(sandbox),
        false => {
            // As long as it is not known whose request this is, all sandboxes look alike.
            let is_others = guarded.party(request.headers()).is_some();
            Err(match is_others {
                true => wire::no_sandbox(id),
                false => wire::error(StatusCode::UNAUTHORIZED, "the access token is not valid"),
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
    // Whether a sandbox exists can be asked by all who know its id.
    request.uri().path() == HEALTH
        || guarded.party(request.headers()) == Some(sandbox.party)
        || (port == Some(Port::Envd) && is_signed(sandbox, request))
}

/// Whether a request is one by a link that the owner of a sandbox made.
fn is_signed(sandbox: &Sandbox, request: &Request<Body>) -> bool {
    let Some(given) = query(request, "signature") else {
        return false;
    };
    let operation = match *request.method() {
        Method::GET => "read",
        Method::POST => "write",
        _ => return false,
    };
    let expiration = query(request, "signature_expiration");
    let until = expiration.as_deref().map(str::parse::<u64>);
    let is_late = match until {
        None => false,
        Some(Err(_)) => true,
        Some(Ok(until)) => {
            UNIX_EPOCH.checked_add(Duration::from_secs(until)) < Some(SystemTime::now())
        }
    };
    let path = query(request, "path").unwrap_or_default();
    let user = query(request, "username").unwrap_or_default();
    let mut text = format!("{path}:{operation}:{user}:{}", sandbox.access_token);
    if let Some(expiration) = expiration {
        text = format!("{text}:{expiration}");
    }
    let own = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
    is_same(own.as_bytes(), given.as_bytes()) && !is_late
}

/// A parameter of the query.
fn query(request: &Request<Body>, name: &str) -> Option<String> {
    let pairs: Query<Vec<(String, String)>> = Query::try_from_uri(request.uri()).ok()?;
    let mut pairs = pairs.0.into_iter();
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}

/// The one sandbox of a server that needs no token: it exists when it is asked for.
fn debug_sandbox(guarded: &Guarded) -> Option<Arc<Sandbox>> {
    let settings = guarded.e2b();
    let template = "code-interpreter-v1";
    let creation = Creation {
        key: None,
        language: settings.language(template).unwrap_or("python").to_owned(),
        template: template.to_owned(),
        metadata: Default::default(),
        envs: Default::default(),
        network: None,
        given_network: serde_json::Value::Null,
        internet: None,
        branches: settings.pause,
        pauses_at_end: false,
        resumes_by_itself: true,
    };
    let id = Some(DEBUG_SANDBOX.to_owned());
    let sandbox = Sandbox::new(id, Party::Door(0), creation, settings.longest).ok()?;
    let sandbox = Arc::new(sandbox);
    guarded.sandboxes().add(Arc::clone(&sandbox));
    Some(sandbox)
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, fields: &[(&str, &str)]) -> Request<Body> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    fn target(uri: &str, fields: &[(&str, &str)]) -> Option<(Option<String>, Option<Port>)> {
        Target::of(&request(uri, fields)).map(|target| (target.sandbox, target.port))
    }

    #[test]
    fn sandboxes_are_named_by_fields_hosts_and_signatures() {
        let id = Some("abc".to_owned());
        let by_field = |port| {
            target(
                "/health",
                &[("e2b-sandbox-id", "abc"), ("e2b-sandbox-port", port)],
            )
        };
        assert_eq!(by_field("49999"), Some((id.clone(), Some(Port::Code))));
        assert_eq!(by_field("49983"), Some((id.clone(), Some(Port::Envd))));
        assert_eq!(by_field("3000"), Some((id.clone(), None)));
        let by_host = |host| target("/health", &[("host", host)]);
        let found = Some((id, Some(Port::Code)));
        assert_eq!(by_host("49999-abc.box.example"), found);
        for host in [
            "localhost",
            "127.0.0.1:80",
            "a-b.example",
            "49999-abc",
            "-abc.example",
        ] {
            assert_eq!(by_host(host), None, "{host}");
        }
        let signed = Some((None, Some(Port::Envd)));
        assert_eq!(target("/files?path=a&signature=v1_x", &[]), signed);
        assert_eq!(target("/files?path=a", &[]), None);
        assert_eq!(target("/execute?signature=v1_x", &[]), None);
    }

    #[test]
    fn a_signature_is_for_one_path_one_direction_and_a_time() {
        let creation = Creation {
            key: None,
            template: "base".to_owned(),
            language: "python".to_owned(),
            metadata: Default::default(),
            envs: Default::default(),
            network: None,
            given_network: serde_json::Value::Null,
            internet: None,
            branches: false,
            pauses_at_end: false,
            resumes_by_itself: false,
        };
        let life = Duration::from_secs(60);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let sandbox = Sandbox::new(None, Party::Door(0), creation, life).unwrap();
        let sign = |path: &str, rest: &str| {
            let text = format!("{path}:read::{}{rest}", sandbox.access_token);
            let text = STANDARD_NO_PAD.encode(Sha256::digest(text));
            text.replace('+', "%2B").replace('/', "%2F")
        };
        let is_valid = |uri: &str| is_signed(&sandbox, &request(uri, &[]));
        let plain = sign("a", "");
        assert!(is_valid(&format!("/files?path=a&signature=v1_{plain}")));
        assert!(!is_valid(&format!("/files?path=b&signature=v1_{plain}")));
        assert!(!is_valid(&format!("/files?path=a&signature=v2_{plain}")));
        assert!(!is_valid("/files?path=a&signature="));
        let mut upload = request(&format!("/files?path=a&signature=v1_{plain}"), &[]);
        *upload.method_mut() = Method::POST;
        assert!(!is_signed(&sandbox, &upload));
        for (until, valid) in [("99999999999", true), ("1", false), ("x", false)] {
            let signature = sign("a", &format!(":{until}"));
            let uri =
                format!("/files?path=a&signature=v1_{signature}&signature_expiration={until}");
            assert_eq!(is_valid(&uri), valid, "{until}");
        }
        let other = format!("/files?path=a&signature=v1_{plain}&signature_expiration=99999999999");
        assert!(!is_valid(&other));
    }
}
