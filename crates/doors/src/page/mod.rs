//! The page for people at `/`: one document, which calls `/v1`.
//!
//! It has no data of its own, so it is served without a token; the token that a user enters
//! goes with its calls. The policy in its header lets it execute and load nothing that did not
//! come in it, whatever code in a cell makes it show.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::answer::{self, Answer};

const PAGE: &str = include_str!("page.html");

static POLICY: LazyLock<String> = LazyLock::new(|| {
    let script = hash_of("script").unwrap_or_default();
    let style = hash_of("style").unwrap_or_default();
    format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(page))
}

async fn page() -> Answer {
    let mut answer = answer::of(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    let fields: [(HeaderName, &str); 3] = [
        (CONTENT_SECURITY_POLICY, &POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// The hash of an element's content, as a policy names it.
fn hash_of(element: &str) -> Option<String> {
    let (_, rest) = PAGE.split_once(&format!("<{element}>"))?;
    let (content, _) = rest.split_once(&format!("</{element}>"))?;
    Some(format!(
        "sha256-{}",
        STANDARD.encode(Sha256::digest(content))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_script_and_one_style_of_its_own() {
        for element in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{element}")).count(), 1, "{element}");
            assert!(hash_of(element).is_some(), "{element}");
        }
        assert!(!PAGE.contains(" src=") && !PAGE.contains(" href="));
        assert!(!PAGE.contains("innerHTML") && !PAGE.contains("://"));
        assert!(!POLICY.contains("''"), "{}", *POLICY);
    }
}
