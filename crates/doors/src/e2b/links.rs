//! Links to files, which the owner of a sandbox signs with its token for envd.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Query, Request};
use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::front::is_same;

/// The path of links: they give access to nothing else of envd.
const FILES: &str = "/files";
/// The characters of a signature: its version, and a digest in base64.
const SIGNATURE_LENGTH: usize = "v1_".len() + 43;
/// The most parameters of a link: it has four.
const MOST_PAIRS: usize = 8;
/// The most bytes of a path (the kernel's PATH_MAX), and of a user's name.
const LONGEST: usize = 4096;

/// A request with a signature, which is not checked yet.
#[derive(Debug, PartialEq)]
pub(super) struct Link {
    signature: String,
    operation: &'static str,
    path: String,
    user: String,
    expiration: Option<String>,
}

/// Why the signature of a request cannot be valid.
#[derive(Debug, PartialEq)]
pub(super) struct InvalidLink(pub(super) &'static str);

impl InvalidLink {
    pub(super) const BAD_SIGNATURE: Self = Self("the signature is not valid");
    /// The text is envd's.
    const EXPIRED: Self = Self("signature is already expired");
}

impl Link {
    /// `None` for a request that has no signature, or is not for a file.
    ///
    /// Refuses as much as possible without a token: the check costs a digest for each sandbox.
    pub(super) fn of(request: &Request<Body>) -> Option<Result<Self, InvalidLink>> {
        let query = request.uri().query().unwrap_or_default();
        let is_signed = query.split('&').any(|pair| pair.starts_with("signature="));
        (is_signed && request.uri().path() == FILES).then(|| Self::read(request, query))
    }

    fn read(request: &Request<Body>, query: &str) -> Result<Self, InvalidLink> {
        if query.split('&').nth(MOST_PAIRS).is_some() {
            return Err(InvalidLink::BAD_SIGNATURE);
        }
        let pairs: Query<Vec<(String, String)>> =
            Query::try_from_uri(request.uri()).map_err(|_| InvalidLink::BAD_SIGNATURE)?;
        let value = |name: &str| {
            let mut pairs = pairs.0.iter();
            pairs.find_map(|(key, value)| (key == name).then(|| value.clone()))
        };
        let operation = match *request.method() {
            Method::GET => "read",
            Method::POST => "write",
            _ => return Err(InvalidLink::BAD_SIGNATURE),
        };
        let link = Self {
            signature: value("signature").ok_or(InvalidLink::BAD_SIGNATURE)?,
            operation,
            path: value("path").unwrap_or_default(),
            user: value("username").unwrap_or_default(),
            expiration: value("signature_expiration"),
        };
        match link {
            link if link.is_odd() => Err(InvalidLink::BAD_SIGNATURE),
            link if link.is_late() => Err(InvalidLink::EXPIRED),
            link => Ok(link),
        }
    }

    fn is_odd(&self) -> bool {
        self.signature.len() != SIGNATURE_LENGTH
            || self.path.len() > LONGEST
            || self.user.len() > LONGEST
            // Path, operation and user are signed with colons between them: a user's name with a
            // colon could be the end of another link's path.
            || self.user.contains(':')
    }

    fn is_late(&self) -> bool {
        match self.expiration.as_deref().map(str::parse::<u64>) {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(until)) => {
                UNIX_EPOCH.checked_add(Duration::from_secs(until)) < Some(SystemTime::now())
            }
        }
    }

    /// Whether it was signed with this token.
    pub(super) fn is_signed_with(&self, token: &str) -> bool {
        let Self {
            operation,
            path,
            user,
            ..
        } = self;
        let mut text = format!("{path}:{operation}:{user}:{token}");
        if let Some(expiration) = &self.expiration {
            text = format!("{text}:{expiration}");
        }
        let own = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        is_same(own.as_bytes(), self.signature.as_bytes())
    }
}

/// The query of a link, for fuzzing: only queries that were signed have a valid signature. The
/// corpus has signatures of a few links.
#[cfg(any(test, fuzzing))]
pub fn signed_link(bytes: &[u8]) {
    const TOKEN: &str = "0123456789abcdef";
    const SIGNED: [(&str, &str, Option<&str>); 4] = [
        ("a", "", None),
        ("a", "", Some("99999999999")),
        ("/home/user/a", "user", None),
        ("a:write:b", "c", None),
    ];
    let query = String::from_utf8_lossy(bytes);
    for verb in [Method::GET, Method::POST] {
        let is_read = verb == Method::GET;
        let request = Request::builder().method(verb);
        let request = request.uri(format!("/files?{query}")).body(Body::empty());
        let link = request.ok().and_then(|request| Link::of(&request));
        if let Some(Ok(link)) = link
            && link.is_signed_with(TOKEN)
        {
            let own = (
                link.path.as_str(),
                link.user.as_str(),
                link.expiration.as_deref(),
            );
            assert!(is_read && SIGNED.contains(&own), "{link:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn request(verb: Method, uri: &str) -> Request<Body> {
        let request = Request::builder().method(verb).uri(uri);
        request.body(Body::empty()).unwrap()
    }

    fn sign(text: &str) -> String {
        let text = STANDARD_NO_PAD.encode(Sha256::digest(text));
        format!("v1_{}", text.replace('+', "%2B").replace('/', "%2F"))
    }

    fn is_valid(verb: Method, uri: &str) -> bool {
        let link = Link::of(&request(verb, uri));
        link.is_some_and(|link| link.is_ok_and(|link| link.is_signed_with(TOKEN)))
    }

    #[test]
    fn a_signature_is_for_one_path_one_direction_and_a_time() {
        let plain = sign(&format!("a:read::{TOKEN}"));
        let of = |path: &str| format!("/files?path={path}&signature={plain}");
        assert!(is_valid(Method::GET, &of("a")));
        assert!(!is_valid(Method::GET, &of("b")));
        assert!(!is_valid(Method::POST, &of("a")));
        assert!(!is_valid(Method::GET, &of("a").replace("v1_", "v2_")));
        assert!(!is_valid(Method::GET, "/files?path=a&signature="));
        for (until, valid) in [("99999999999", true), ("1", false), ("x", false)] {
            let signature = sign(&format!("a:read::{TOKEN}:{until}"));
            let uri = format!("/files?path=a&signature={signature}&signature_expiration={until}");
            assert_eq!(is_valid(Method::GET, &uri), valid, "{until}");
            let link = Link::of(&request(Method::GET, &uri)).unwrap();
            assert_eq!(link.err(), (!valid).then_some(InvalidLink::EXPIRED));
        }
        let other = format!("{}&signature_expiration=99999999999", of("a"));
        assert!(!is_valid(Method::GET, &other));
    }

    #[test]
    fn a_link_is_for_files_alone() {
        let plain = sign(&format!("a:read::{TOKEN}"));
        for path in ["/envs", "/execute", "/filesystem.Filesystem/ListDir"] {
            let uri = format!("{path}?path=a&signature={plain}");
            assert_eq!(Link::of(&request(Method::GET, &uri)), None, "{path}");
        }
        assert_eq!(Link::of(&request(Method::GET, "/files?path=a")), None);
    }

    #[test]
    fn two_links_never_have_the_same_signature() {
        // The text that is signed is the same for both.
        let signature = sign(&format!("a:write:b:read:c:{TOKEN}"));
        let of = |path: &str, user: &str| {
            format!("/files?path={path}&username={user}&signature={signature}")
        };
        assert!(is_valid(Method::GET, &of("a:write:b", "c")));
        assert!(!is_valid(Method::POST, &of("a", "b:read:c")));
    }

    #[test]
    fn odd_links_cost_no_digest() {
        let plain = sign(&format!("a:read::{TOKEN}"));
        let long = "a".repeat(LONGEST + 1);
        for uri in [
            format!("/files?signature=x{}", "&a".repeat(1000)),
            format!("/files?path=a&signature={plain}{}", "&a".repeat(MOST_PAIRS)),
            "/files?signature=v1_x".to_owned(),
            format!("/files?path={long}&signature={plain}"),
        ] {
            let link = Link::of(&request(Method::GET, &uri));
            assert_eq!(link, Some(Err(InvalidLink::BAD_SIGNATURE)), "{uri}");
        }
    }
}
