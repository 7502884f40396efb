//! TCP ports as files and flags give them.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::TcpRule;

/// `"any"`, or lists of ports. A list that is not given keeps the one of the
/// layer below, and denies all where that has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartialTcp {
    /// Landlock leaves TCP alone.
    Any,
    /// Only these ports.
    #[serde(untagged)]
    Ports(TcpPorts),
}

/// Ports that the program may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TcpPorts {
    /// Ports that may be connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Vec<u16>>,
    /// Ports that may be bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<Vec<u16>>,
}

impl PartialTcp {
    pub(crate) fn merge(self, later: Self) -> Self {
        match (self, later) {
            (Self::Ports(earlier), Self::Ports(later)) => Self::Ports(TcpPorts {
                connect: later.connect.or(earlier.connect),
                bind: later.bind.or(earlier.bind),
            }),
            (_, later) => later,
        }
    }
}

impl From<PartialTcp> for TcpRule {
    fn from(tcp: PartialTcp) -> Self {
        match tcp {
            PartialTcp::Any => Self::Any,
            PartialTcp::Ports(ports) => Self::Ports {
                connect: ports.connect.unwrap_or_default(),
                bind: ports.bind.unwrap_or_default(),
            },
        }
    }
}

impl<'de> Deserialize<'de> for PartialTcp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TcpVisitor)
    }
}

struct TcpVisitor;

impl<'de> Visitor<'de> for TcpVisitor {
    type Value = PartialTcp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"any\", or a table with lists of ports, {connect = […], bind = […]}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PartialTcp, E> {
        match text {
            "any" => Ok(PartialTcp::Any),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PartialTcp, A::Error> {
        TcpPorts::deserialize(MapAccessDeserializer::new(map)).map(PartialTcp::Ports)
    }
}

impl JsonSchema for PartialTcp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PartialTcp".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let ports = generator.subschema_for::<TcpPorts>();
        json_schema!({ "anyOf": [{ "const": "any" }, ports] })
    }
}
