//! URIs of what answers link to.
//!
//! ```text
//!   cellblock://context/ID/files/PATH      a file of a context that exists
//!   cellblock://run/ID/files/PATH          a file that a run left
//!   cellblock://run/ID/results/NUMBER      a picture that was too large for an answer
//! ```

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use record::json::Object;
use record::object;

use super::revision::Revision;
use super::rpc::Fault;

const SCHEME: &str = "cellblock://";

/// The URI of a file of a context.
pub(super) fn of_context(context: &str, path: &Path) -> String {
    format!(
        "{SCHEME}context/{context}/files/{}",
        encoded(path.as_os_str().as_bytes())
    )
}

/// The URI of a file that a run left.
pub(super) fn of_run(run: &str, path: &[u8]) -> String {
    format!(
        "{SCHEME}run/{}/files/{}",
        encoded(run.as_bytes()),
        encoded(path)
    )
}

/// The URI of a picture among the results of a run.
pub(super) fn of_result(run: &str, number: usize) -> String {
    format!("{SCHEME}run/{}/results/{number}", encoded(run.as_bytes()))
}

/// The context and the path that a URI names, if it is that of a context's file.
pub(super) fn context_file(uri: &str) -> Option<(String, PathBuf)> {
    let (context, path) = uri
        .strip_prefix(SCHEME)?
        .strip_prefix("context/")?
        .split_once("/files/")?;
    let path = String::from_utf8(decoded(path)?).ok()?;
    (!context.is_empty() && !path.is_empty()).then(|| (context.to_owned(), path.into()))
}

/// The forms of URIs, as `resources/templates/list` shows them.
pub(super) fn templates() -> [Object<'static>; 3] {
    [
        object! {
            "uriTemplate": "cellblock://context/{context_id}/files/{+path}",
            "name": "file of a context",
            "description": "A file in the working directory of a context that exists.",
        },
        object! {
            "uriTemplate": "cellblock://run/{run}/files/{+path}",
            "name": "file of a run",
            "description": "A file that a run without a context left; the newest 64 MiB are kept.",
        },
        object! {
            "uriTemplate": "cellblock://run/{run}/results/{number}",
            "name": "picture of a run",
            "description": "A picture that was too large for the answer of the tool.",
        },
    ]
}

/// Why a resource cannot be read.
pub(super) fn no_resource(revision: Revision, uri: &str, why: &str) -> Fault {
    let mut fault = Fault::new(revision.not_found(), why);
    fault.data = Some(object! {"uri": uri.chars().take(2048).collect::<String>()});
    fault
}

/// The result of `resources/read`.
pub(super) fn contents(uri: &str, media_type: &str, bytes: &[u8]) -> Object<'static> {
    let is_opaque = media_type == "application/octet-stream";
    let content = match std::str::from_utf8(bytes) {
        Ok(text) if is_opaque => object! {"uri": uri, "mimeType": "text/plain", "text": text},
        Ok(text) => object! {"uri": uri, "mimeType": media_type, "text": text},
        Err(_) => object! {"uri": uri, "mimeType": media_type, "blob": BASE64.encode(bytes)},
    };
    object! {"contents": [content]}
}

/// Percent-encodes all but unreserved characters and slashes (RFC 3986).
fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(*byte));
            }
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        (rest, _) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let byte = digit(high)? << 4 | digit(low)?;
                (tail, bytes.push(u8::try_from(byte).ok()?))
            }
            (b'%', _) => return None,
            (byte, tail) => (tail, bytes.push(*byte)),
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_from_its_uri() {
        let path = Path::new("a b/ü%2f?#.png");
        let uri = of_context("c1", path);
        assert_eq!(
            uri,
            "cellblock://context/c1/files/a%20b/%C3%BC%252f%3F%23.png"
        );
        assert_eq!(context_file(&uri), Some(("c1".to_owned(), path.to_owned())));
        for other in [
            "",
            "file:///etc/passwd",
            "cellblock://context//files/a",
            "cellblock://context/a/files/",
            "cellblock://context/a/files/%zz",
            "cellblock://run/a/files/b",
        ] {
            assert_eq!(context_file(other), None, "{other}");
        }
    }
}
