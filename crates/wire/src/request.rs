//! Requests as clients write them. cellblock-request(5) has all fields; these are those that the
//! clients in this program need.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::Span;

/// What to run, with what input and limits. Fields that are left out are the server's choice.
#[derive(Debug, Default, Serialize)]
pub struct Request<'a> {
    /// The language of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<&'a str>,
    /// The code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'a str>,
    /// Standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<&'a str>,
    /// Environment variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<&'a BTreeMap<String, String>>,
    /// Files to put into `/workspace`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RequestFile<'a>>,
    /// Lower limits than the server's.
    #[serde(skip_serializing_if = "RequestLimits::is_empty")]
    pub limits: RequestLimits,
    /// A smaller network than the server's, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Box<RawValue>>,
}

/// A file to put into `/workspace`. It has exactly one of `text` and `base64`.
#[derive(Debug, Default, Serialize)]
pub struct RequestFile<'a> {
    /// Its path relative to `/workspace`.
    pub path: &'a str,
    /// Its content as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<&'a str>,
    /// Its content in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<Cow<'a, str>>,
}

/// Limits of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RequestLimits {
    /// The most wall time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<Span>,
    /// The most memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl RequestLimits {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Request<'_> {
    /// As calls have it.
    pub fn raw(&self) -> Box<RawValue> {
        // What this program writes has a form in JSON.
        to_raw_value(self).unwrap_or_default()
    }
}

/// Stands for a request in a schema. Only the crate that reads requests has all of their fields,
/// and adds its own schema under this name.
pub(crate) struct RemoteRequest;

impl JsonSchema for RemoteRequest {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RemoteRequest".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let path = &generator.settings().definitions_path;
        let path = path.trim_start_matches('/');
        json_schema!({"$ref": format!("#/{path}/RemoteRequest")})
    }
}
