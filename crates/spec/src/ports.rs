//! Ports of a protocol as files and flags give them.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::PortRule;

/// `"any"`, or lists of ports. A list that is not given keeps the one of the
/// layer below, and denies all where that has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartialPorts {
    /// Landlock leaves the protocol alone.
    Any,
    /// Only these ports.
    #[serde(untagged)]
    Ports(PortLists),
}

/// Ports that the program may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortLists {
    /// Ports that may be connected to, or that datagrams may be sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Vec<u16>>,
    /// Ports that may be bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<Vec<u16>>,
}

impl PartialPorts {
    pub(crate) fn merge(earlier: Option<Self>, later: Option<Self>) -> Option<Self> {
        match (earlier, later) {
            (Some(Self::Ports(earlier)), Some(Self::Ports(later))) => {
                Some(Self::Ports(PortLists {
                    connect: later.connect.or(earlier.connect),
                    bind: later.bind.or(earlier.bind),
                }))
            }
            (earlier, later) => later.or(earlier),
        }
    }
}

impl From<PartialPorts> for PortRule {
    fn from(tcp: PartialPorts) -> Self {
        match tcp {
            PartialPorts::Any => Self::Any,
            PartialPorts::Ports(ports) => Self::Ports {
                connect: ports.connect.unwrap_or_default(),
                bind: ports.bind.unwrap_or_default(),
            },
        }
    }
}

impl<'de> Deserialize<'de> for PartialPorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PortsVisitor)
    }
}

struct PortsVisitor;

impl<'de> Visitor<'de> for PortsVisitor {
    type Value = PartialPorts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"any\", or a table with lists of ports, {connect = […], bind = […]}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PartialPorts, E> {
        match text {
            "any" => Ok(PartialPorts::Any),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PartialPorts, A::Error> {
        PortLists::deserialize(MapAccessDeserializer::new(map)).map(PartialPorts::Ports)
    }
}

impl JsonSchema for PartialPorts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PartialPorts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let ports = generator.subschema_for::<PortLists>();
        json_schema!({ "anyOf": [{ "const": "any" }, ports] })
    }
}
