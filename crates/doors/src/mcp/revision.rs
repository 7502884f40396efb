//! Revisions of the protocol, and how results differ between them.

use record::json::Object;
use record::object;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::rpc::{self, Fault, INVALID_PARAMS, RESOURCE_NOT_FOUND, UNSUPPORTED_REVISION};

/// The revision without sessions.
pub(crate) const STATELESS: &str = "2026-07-28";
/// Revisions that begin with `initialize`, the newest first.
pub(crate) const WITH_HANDSHAKE: [&str; 4] =
    ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

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

/// What requests of all methods may have.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Meta<'a> {
    /// The request's revision, since 2026-07-28.
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    /// What the client can do.
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    /// What reports of progress name.
    #[serde(borrow, default, rename = "progressToken")]
    pub(super) token: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// That of these parameters.
    ///
    /// # Errors
    /// It is not an object.
    pub(super) fn of(params: &'a str) -> Result<Self, Fault> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default, rename = "_meta")]
            meta: Option<Meta<'a>>,
        }
        let Params { meta } = rpc::read(params)?;
        Ok(meta.unwrap_or_default())
    }
}

/// A result, before its revision adds fields.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) fields: Object<'static>,
    /// Its `_meta`.
    pub(super) meta: Object<'static>,
}

impl From<Object<'static>> for Reply {
    fn from(fields: Object<'static>) -> Self {
        Self {
            fields,
            ..Self::default()
        }
    }
}

impl Revision {
    /// The revision that a request names.
    ///
    /// # Errors
    /// A revision that the server does not speak, or a request of 2026-07-28 that lacks
    /// what the revision requires.
    pub(super) fn of(meta: &Meta<'_>) -> Result<Self, Fault> {
        let Some(version) = meta.version.map(RawValue::get) else {
            return Ok(Self::WithHandshake);
        };
        if serde_json::from_str::<&str>(version).ok() != Some(STATELESS) {
            let mut fault = Fault::new(
                UNSUPPORTED_REVISION,
                format!("this server speaks {STATELESS}, and older revisions after initialize"),
            );
            let requested: String = version.chars().take(64).collect();
            let requested = requested.trim_matches('"');
            fault.data = Some(object! {"supported": [STATELESS], "requested": requested});
            return Err(fault);
        }
        match meta.capabilities {
            Some(all) if all.get().starts_with('{') => Ok(Self::Stateless),
            _ => Err(Fault::new(
                INVALID_PARAMS,
                format!("_meta: wants {CAPABILITIES_KEY}, an object"),
            )),
        }
    }

    /// Finishes a result as this revision wants it.
    pub(super) fn dress(
        self,
        reply: Reply,
        caching: Caching,
        server: &Object<'_>,
    ) -> Object<'static> {
        let Reply {
            mut fields,
            mut meta,
        } = reply;
        if self == Self::Stateless {
            fields.set("resultType", "complete");
            meta.set(SERVER_KEY, server);
            let (ttl, scope) = match caching {
                Caching::Never => (None, None),
                Caching::Lasting => (Some(LASTING_MS), Some("public")),
                Caching::Private => (Some(0), Some("private")),
            };
            if let (Some(ttl), Some(scope)) = (ttl, scope) {
                fields.set("ttlMs", &ttl);
                fields.set("cacheScope", scope);
            }
        }
        if !meta.is_empty() {
            fields.set("_meta", &meta);
        }
        fields
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
    use serde_json::json;

    use super::*;

    fn of(meta: &serde_json::Value) -> Result<Revision, Fault> {
        let params = json!({"_meta": meta}).to_string();
        Meta::of(&params).and_then(|meta| Revision::of(&meta))
    }

    #[test]
    fn a_request_names_its_revision() {
        let version = "io.modelcontextprotocol/protocolVersion";
        let older = Meta::of("{}").and_then(|meta| Revision::of(&meta));
        assert_eq!(older, Ok(Revision::WithHandshake));
        assert_eq!(
            of(&json!({"progressToken": 1})),
            Ok(Revision::WithHandshake)
        );
        let whole = json!({version: STATELESS, CAPABILITIES_KEY: {}});
        assert_eq!(of(&whole), Ok(Revision::Stateless));
        assert_eq!(
            of(&json!({version: STATELESS})).unwrap_err().code,
            INVALID_PARAMS
        );
        let fault = of(&json!({version: "2030-01-01", CAPABILITIES_KEY: {}})).unwrap_err();
        assert_eq!(fault.code, UNSUPPORTED_REVISION);
        let data = object! {"supported": [STATELESS], "requested": "2030-01-01"};
        assert_eq!(fault.data, Some(data));
        assert_eq!(of(&json!("x")).unwrap_err().code, INVALID_PARAMS);
    }

    #[test]
    fn initialize_is_answered_with_the_revision_of_the_client() {
        assert_eq!(agreed(Some("2025-03-26")), "2025-03-26");
        assert_eq!(agreed(Some("2031-01-01")), "2025-11-25");
        assert_eq!(agreed(None), "2025-11-25");
    }
}
