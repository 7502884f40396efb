//! Revisions of the protocol, and how results differ between them.

use serde_json::{Map, Value, json};

use super::rpc::{Fault, INVALID_PARAMS, RESOURCE_NOT_FOUND, UNSUPPORTED_REVISION};

/// The revision without sessions.
pub const STATELESS: &str = "2026-07-28";
/// Revisions that begin with `initialize`, the newest first.
pub const WITH_HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Where every request names its revision, since 2026-07-28.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client can do.
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Where every result names the server.
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// How long a client may keep what does not change, in milliseconds.
const LASTING_MS: u64 = 3_600_000;

/// The revisions, as far as they matter for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revision {
    /// One that begins with `initialize`.
    WithHandshake,
    /// 2026-07-28.
    Stateless,
}

/// How long and by whom a result may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// It is not kept.
    Never,
    /// It is the same for everyone, for an hour.
    Lasting,
    /// It belongs to one client, and is out of date at once.
    Private,
}

impl Revision {
    /// The revision that a request names.
    ///
    /// # Errors
    /// A revision that the server does not speak, or a request of 2026-07-28 that lacks
    /// what the revision requires.
    pub(super) fn of(params: &Map<String, Value>) -> Result<Self, Fault> {
        let meta = params.get("_meta").and_then(Value::as_object);
        let Some(version) = meta.and_then(|meta| meta.get(VERSION_KEY)) else {
            return Ok(Self::WithHandshake);
        };
        if version != STATELESS {
            let mut fault = Fault::new(
                UNSUPPORTED_REVISION,
                format!("this server speaks {STATELESS}, and older revisions after initialize"),
            );
            fault.data = Some(json!({"supported": [STATELESS], "requested": version}));
            return Err(fault);
        }
        match meta.and_then(|meta| meta.get(CAPABILITIES_KEY)) {
            Some(Value::Object(_)) => Ok(Self::Stateless),
            _ => Err(Fault::new(
                INVALID_PARAMS,
                format!("_meta: wants {CAPABILITIES_KEY}, an object"),
            )),
        }
    }

    /// Finishes a result as this revision wants it.
    pub(super) fn dress(self, mut result: Value, caching: Caching, server: &Value) -> Value {
        if self == Self::WithHandshake {
            return result;
        }
        if let Some(fields) = result.as_object_mut() {
            fields.insert("resultType".into(), "complete".into());
            let meta = fields.entry("_meta").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut() {
                meta.insert(SERVER_KEY.into(), server.clone());
            }
            let (ttl, scope) = match caching {
                Caching::Never => return result,
                Caching::Lasting => (LASTING_MS, "public"),
                Caching::Private => (0, "private"),
            };
            fields.insert("ttlMs".into(), ttl.into());
            fields.insert("cacheScope".into(), scope.into());
        }
        result
    }

    /// The code for a resource that does not exist.
    pub(super) const fn not_found(self) -> i64 {
        match self {
            Self::WithHandshake => RESOURCE_NOT_FOUND,
            Self::Stateless => INVALID_PARAMS,
        }
    }
}

/// The revision to answer `initialize` with: the client's, or the newest one.
pub(super) fn agreed(wanted: Option<&str>) -> &'static str {
    let [newest, ..] = WITH_HANDSHAKE;
    let known = |wanted| WITH_HANDSHAKE.into_iter().find(|known| *known == wanted);
    wanted.and_then(known).unwrap_or(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(meta: Value) -> Result<Revision, Fault> {
        Revision::of(json!({"_meta": meta}).as_object().unwrap())
    }

    #[test]
    fn a_request_names_its_revision() {
        assert_eq!(Revision::of(&Map::new()), Ok(Revision::WithHandshake));
        assert_eq!(of(json!({"progressToken": 1})), Ok(Revision::WithHandshake));
        let whole = json!({VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}});
        assert_eq!(of(whole), Ok(Revision::Stateless));
        assert_eq!(
            of(json!({VERSION_KEY: STATELESS})).unwrap_err().code,
            INVALID_PARAMS
        );
        let fault = of(json!({VERSION_KEY: "2030-01-01", CAPABILITIES_KEY: {}})).unwrap_err();
        assert_eq!(fault.code, UNSUPPORTED_REVISION);
        let data = fault.data.unwrap();
        assert_eq!(
            (&data["supported"][0], &data["requested"]),
            (&json!(STATELESS), &json!("2030-01-01"))
        );
    }

    #[test]
    fn initialize_is_answered_with_the_revision_of_the_client() {
        assert_eq!(agreed(Some("2025-03-26")), "2025-03-26");
        assert_eq!(agreed(Some("2031-01-01")), "2025-11-25");
        assert_eq!(agreed(None), "2025-11-25");
    }
}
