//! Who may ask, and under which name of this host.
//!
//! A browser on this host can be made to send requests by any page. It cannot be kept from
//! sending them, but it says where the page came from (`Origin`; for a GET only
//! `Sec-Fetch-Site`), and which name it thinks that this host has (`Host`): a page may have
//! had its own name resolved to 127.0.0.1.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use record::error::{Result, SetupError, Step};
use wire::{Code, Connector, Failure, Party, Share};

use crate::answer::{self, Answer};
use crate::client::Client;
use crate::e2b;
use crate::mcp;
use crate::runs::Most;

use super::held;
use super::places::count;

/// Why a request is not served.
#[derive(Debug, PartialEq)]
struct Refusal(StatusCode, Failure);

/// Shorter tokens could be guessed.
const SHORTEST_TOKEN: usize = 16;

/// What is checked of each request.
#[derive(Clone, Debug)]
pub(super) struct Access {
    tokens: Vec<String>,
    hosts: Vec<String>,
}

impl Access {
    /// # Errors
    /// A token is too short, or has characters that no header field has.
    pub(super) fn new(tokens: Vec<String>, hosts: Vec<String>) -> Result<Self> {
        let is_plain = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
        let is_good = |token: &String| token.len() >= SHORTEST_TOKEN && is_plain(token);
        if !tokens.iter().all(is_good) {
            let message =
                format!("a token wants at least {SHORTEST_TOKEN} visible ASCII characters");
            return Err(SetupError::new(Step::Inputs, message).on("--http-token"));
        }
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Ok(Self { tokens, hosts })
    }

    /// The number of tokens.
    pub(super) const fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Whose request this is.
    fn party(&self, headers: &HeaderMap) -> std::result::Result<Party, Refusal> {
        self.check_host(headers)?;
        check_origin(headers)?;
        if self.tokens.is_empty() {
            return Ok(Party::Door(0));
        }
        let given = token(headers).unwrap_or_default();
        // All are compared, so that the time does not show which one is similar.
        let found = self
            .tokens
            .iter()
            .enumerate()
            .fold(None, |found, (index, own)| {
                let is_same = is_same(own.as_bytes(), given.as_bytes());
                if is_same { Some(index) } else { found }
            });
        let number = found.and_then(|index| u32::try_from(index).ok());
        number.map(Party::Door).ok_or_else(|| {
            let message = "the request has no token of this server";
            let failure = Failure::new(Code::NotAllowed, message)
                .hint("send it as `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`");
            Refusal(StatusCode::UNAUTHORIZED, failure)
        })
    }

    /// With a token, a page that has its name resolved to this host learns nothing.
    fn check_host(&self, headers: &HeaderMap) -> std::result::Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let Some(name) = host.and_then(host_name) else {
            let message = "the request has no Host, or one that is not a host";
            let failure = Failure::new(Code::BadRequest, message);
            return Err(Refusal(StatusCode::BAD_REQUEST, failure));
        };
        let name = name.to_ascii_lowercase();
        let is_own = name == "localhost" || self.hosts.contains(&name);
        match is_own || is_address(&name) || !self.tokens.is_empty() {
            true => Ok(()),
            false => {
                let message = "the Host of the request is not a name of this server";
                let failure = Failure::new(Code::NotAllowed, message);
                let failure = failure.hint("start the server with --http-host NAME");
                Err(Refusal(StatusCode::FORBIDDEN, failure))
            }
        }
    }
}

/// A page may ask only the server that it came from.
fn check_origin(headers: &HeaderMap) -> std::result::Result<(), Refusal> {
    let refusal = || {
        let message = "the request comes from a page of another origin";
        let failure = Failure::new(Code::NotAllowed, message);
        Err(Refusal(StatusCode::FORBIDDEN, failure))
    };
    // A user who types the address sends `none`.
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return refusal();
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let from = origin.to_str().ok().and_then(|origin| {
        let (scheme, from) = origin.split_once("://")?;
        matches!(scheme, "http" | "https").then_some(from)
    });
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    match (from, host) {
        (Some(from), Some(host)) if from.eq_ignore_ascii_case(host) => Ok(()),
        _ => refusal(),
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok();
    }
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// Takes the same time wherever they differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

/// The host of `HOST[:PORT]`.
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            (name, port)
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    (has_port && !name.is_empty() && name.bytes().all(is_plain)).then_some(name)
}

/// An address is not resolved, so that no page's name can stand for it.
fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

/// What all handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Guarded(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    access: Access,
    connector: Connector,
    most: Most,
    e2b: e2b::Settings,
    sandboxes: e2b::Sandboxes,
    mcp: mcp::http::Shared,
}

impl Guarded {
    pub(super) fn new(
        access: Access,
        connector: Connector,
        most: Most,
        e2b: e2b::Settings,
        mcp: mcp::http::Shared,
    ) -> Self {
        Self(Arc::new(Inside {
            access,
            connector,
            most,
            e2b,
            sandboxes: e2b::Sandboxes::default(),
            mcp,
        }))
    }

    /// How sandboxes are made.
    pub(crate) fn e2b(&self) -> &e2b::Settings {
        &self.0.e2b
    }

    /// The sandboxes that exist.
    pub(crate) fn sandboxes(&self) -> &e2b::Sandboxes {
        &self.0.sandboxes
    }

    /// Whether clients need no token.
    pub(crate) fn is_open(&self) -> bool {
        self.0.access.tokens.is_empty()
    }

    /// The party of a request, if the request has a token of this server or needs none.
    pub(crate) fn party(&self, headers: &HeaderMap) -> Option<Party> {
        self.0.access.party(headers).ok()
    }

    /// Refuses requests from pages of other origins.
    ///
    /// # Errors
    /// The answer that refuses this one.
    pub(crate) fn check_site(&self, headers: &HeaderMap) -> std::result::Result<(), Answer> {
        self.check_host(headers)?;
        check_origin(headers).map_err(refused)
    }

    /// Refuses requests under a name that is not this server's.
    ///
    /// # Errors
    /// The answer that refuses this one.
    pub(crate) fn check_host(&self, headers: &HeaderMap) -> std::result::Result<(), Answer> {
        self.0.access.check_host(headers).map_err(refused)
    }

    /// The most that a request may ask for.
    pub(crate) fn most(&self) -> &Most {
        &self.0.most
    }

    /// What requests at `/mcp` share.
    pub(crate) fn mcp(&self) -> &mcp::http::Shared {
        &self.0.mcp
    }

    /// What a request of this party holds of its bytes.
    pub(crate) fn share(&self, party: Party) -> Share {
        self.0.connector.budget().share(party)
    }

    /// An answer whose bytes count until the client of this party has read them.
    ///
    /// # Errors
    /// Too many bytes wait for this party already.
    pub(crate) fn unread(
        &self,
        party: Party,
        answer: Answer,
    ) -> std::result::Result<Answer, Failure> {
        held::unread(&self.0.connector, party, answer)
    }

    /// A client of the hub for a request of this party.
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub(crate) fn client(&self, party: Party) -> std::result::Result<Client, Failure> {
        Client::connect(&self.0.connector, party)
    }
}

/// Notes whose request it is, or refuses it.
pub(super) async fn check(
    State(guarded): State<Guarded>,
    mut request: Request<Body>,
    next: Next,
) -> Answer {
    match guarded.0.access.party(request.headers()) {
        Ok(party) => {
            if let Err(failure) = count(&request, party) {
                return answer::failed(&failure);
            }
            request.extensions_mut().insert(party);
            let share = guarded.share(party);
            let answer = held::serve(share, request, |request| next.run(request)).await;
            let counted = guarded.unread(party, answer);
            counted.unwrap_or_else(|failure| answer::failed(&failure))
        }
        Err(refusal) => refused(refusal),
    }
}

fn refused(Refusal(status, failure): Refusal) -> Answer {
    let mut answer = answer::failed(&failure);
    *answer.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    answer
}

/// The answer where there is no resource.
pub(super) async fn nothing_here() -> Answer {
    let message = "there is nothing at this path";
    let failure = Failure::new(Code::NotFound, message);
    answer::failed(&failure.hint("GET /v1/openapi.json lists what there is"))
}

/// The answer to a method that a resource does not have.
pub(super) async fn not_that_way() -> Answer {
    let message = "this path has no such method";
    let failure = Failure::new(Code::UnknownMethod, message);
    let mut answer = answer::failed(&failure.hint("GET /v1/openapi.json lists the methods"));
    *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (axum::http::HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    #[test]
    fn only_names_of_this_host_are_served_without_a_token() {
        let access = Access::new(Vec::new(), vec!["Box.Example".to_owned()]).unwrap();
        for (host, served) in [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("box.example:1", true),
            ("evil.example", false),
            ("localhost.evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("localhost:80:80", false),
            ("localhost@evil.example", false),
            ("[::1", false),
            ("", false),
        ] {
            let found = access.party(&headers(&[("host", host)]));
            assert_eq!(found.is_ok(), served, "{host}");
        }
        assert!(access.party(&HeaderMap::new()).is_err());
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let access = Access::new(Vec::new(), Vec::new()).unwrap();
        for (origin, served) in [
            ("http://localhost:80", true),
            ("http://localhost:81", false),
            ("http://evil.example", false),
            ("null", false),
            ("file://localhost:80", false),
        ] {
            let fields = headers(&[("host", "localhost:80"), ("origin", origin)]);
            assert_eq!(access.party(&fields).is_ok(), served, "{origin}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let access = Access::new(Vec::new(), Vec::new()).unwrap();
        for (site, served) in [
            ("same-origin", true),
            ("none", true),
            ("same-site", false),
            ("cross-site", false),
            ("", false),
        ] {
            let fields = headers(&[("host", "localhost:80"), ("sec-fetch-site", site)]);
            assert_eq!(access.party(&fields).is_ok(), served, "{site}");
        }
    }

    #[test]
    fn each_token_is_a_party() {
        let tokens = vec![TOKEN.to_owned(), "f".repeat(16)];
        let access = Access::new(tokens, Vec::new()).unwrap();
        let with =
            |name, value: &str| access.party(&headers(&[("host", "any.name"), (name, value)]));
        assert_eq!(
            with("authorization", &format!("Bearer {TOKEN}")),
            Ok(Party::Door(0))
        );
        assert_eq!(with("x-api-key", &"f".repeat(16)), Ok(Party::Door(1)));
        assert!(with("x-api-key", &"f".repeat(17)).is_err());
        assert!(with("x-api-key", &"f".repeat(15)).is_err());
        assert!(with("x-api-key", "").is_err());
        assert!(with("authorization", &format!("Basic {TOKEN}")).is_err());
        assert!(access.party(&headers(&[("host", "localhost")])).is_err());
        assert!(Access::new(vec!["short".to_owned()], Vec::new()).is_err());
        assert!(Access::new(vec![String::new()], Vec::new()).is_err());
    }
}
