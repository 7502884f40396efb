//! The network as files, flags and requests give it.

use std::fmt;

use hosts::NameChecks;
use hosts::{Host, Name, Rule, RuleError, Rules, preset};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::secret::{self, SecretHeader};
use super::{Egress, Network, counted, mirrors};
use record::error::SetupError;

/// The most rules, so that they fit into one message to the broker.
pub(super) const MOST_RULES: usize = 500;
/// The most TCP ports: each takes two listening sockets.
const MOST_PORTS: usize = 64;
/// The port of DNS.
const DNS_PORT: u16 = 53;

/// `"none"`, `"host"`, or a table with the hosts that the program may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartialNetwork {
    /// Loopback only.
    None,
    /// The host's own network.
    Host,
    /// Named hosts only.
    #[serde(untagged)]
    Hosts(PartialEgress),
}

/// The hosts that the program may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PartialEgress {
    /// Hosts that it may reach: `HOST` on ports 80 and 443, `HOST:PORT`,
    /// `*.example.com` for all subdomains, an address or a network;
    /// `preset:NAME` for the hosts of `pypi`, `npm`, `debian`, `crates`, `cran`,
    /// `maven` or `github`; `mirror:pip`, `mirror:npm` or `mirror:apt` for the hosts that
    /// pip.conf, .npmrc or sources.list name on the host.
    #[serde(deserialize_with = "counted::allow")]
    pub allow: Vec<String>,
    /// Hosts that it may not reach, in the same form; this wins.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "counted::deny"
    )]
    pub deny: Vec<String>,
    /// Whether the name in a TLS handshake (SNI) or in the Host field of HTTP/1 must be
    /// the one that was connected to; true by default. Without it, an allowed host that
    /// shares its address with others leads to all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_names: Option<bool>,
    /// Header fields that the broker puts into requests to one host, and that the cell
    /// never sees: `HOST[:PORT]:NAME=env:VARIABLE` or `=file:PATH` for requests by TLS,
    /// which the broker ends with a certificate that only this cell trusts; with
    /// `http://` before it, for plain ones. Not in a request.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "counted::secret_headers"
    )]
    pub secret_headers: Vec<String>,
}

/// What names a preset, before its name.
const PRESET: &str = "preset:";
/// What names a mirror that the host is configured with.
pub(super) const MIRROR: &str = "mirror:";

impl PartialEgress {
    /// As rules.
    ///
    /// # Errors
    /// The first entry that is not one.
    fn rules(&self) -> Result<Rules, RuleError> {
        Ok(Rules {
            allow: rules(&self.allow)?,
            deny: rules(&self.deny)?,
        })
    }

    /// Its secret fields.
    fn secrets(&self) -> Result<Vec<SecretHeader>, String> {
        let read = |text: &String| {
            text.parse()
                .map_err(|why: String| format!("{text:?} {why}"))
        };
        self.secret_headers.iter().map(read).collect()
    }

    fn secrets_fault(&self, rules: &Rules) -> Option<String> {
        let secrets = match self.secrets() {
            Ok(secrets) => secrets,
            Err(message) => return Some(message),
        };
        if secrets.len() > secret::MOST {
            return Some(format!("has more than {} fields", secret::MOST));
        }
        if !secrets.is_empty() && self.check_names == Some(false) {
            return Some("needs the check of names, which is off".to_owned());
        }
        for (index, one) in secrets.iter().enumerate() {
            let SecretHeader {
                host, port, name, ..
            } = one;
            let is_allowed =
                Name::parse(host).is_ok_and(|name| rules.check(&Host::Name(name), *port).is_ok());
            if !is_allowed {
                return Some(format!("names {host}:{port}, which is not allowed"));
            }
            let mut others = secrets[..index].iter();
            let is_same = |other: &SecretHeader| other.host == *host && other.port == *port;
            if others.any(|other| {
                is_same(other) && (other.tls != one.tls || other.name.eq_ignore_ascii_case(name))
            }) {
                return Some(format!(
                    "has {host}:{port} twice, with one field or as plain and as TLS"
                ));
            }
        }
        None
    }

    /// Those for hosts that these rules still allow.
    fn secrets_within(&self, rules: &Rules) -> Vec<String> {
        let is_within = |text: &&String| {
            let Ok(header) = text.parse::<SecretHeader>() else {
                return true;
            };
            let name = Name::parse(&header.host);
            name.is_ok_and(|name| rules.check(&Host::Name(name), header.port).is_ok())
        };
        self.secret_headers
            .iter()
            .filter(is_within)
            .cloned()
            .collect()
    }

    /// What is wrong with it, with the field below `network`.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let rules = match self.rules() {
            Ok(rules) => rules,
            Err(error) => {
                let is_denied = self.deny.contains(&error.text);
                return Some((if is_denied { "deny" } else { "allow" }, error.to_string()));
            }
        };
        let count = rules.allow.len() + rules.deny.len();
        if count > MOST_RULES {
            return Some((
                "allow",
                format!("has {count} hosts, but wants at most {MOST_RULES}"),
            ));
        }
        if let Some(message) = self.secrets_fault(&rules) {
            return Some(("secret_headers", message));
        }
        let ports = rules.ports();
        if ports.len() > MOST_PORTS {
            let count = ports.len();
            return Some((
                "allow",
                format!("has {count} ports, but wants at most {MOST_PORTS}"),
            ));
        }
        if ports.contains(&DNS_PORT) {
            let message = "names port 53, which is the cell's own name server's";
            return Some(("allow", message.to_owned()));
        }
        None
    }
}

fn rules(entries: &[String]) -> Result<Vec<Rule>, RuleError> {
    let mut rules = Vec::new();
    for entry in entries {
        match entry.strip_prefix(PRESET) {
            Some(name) => rules.extend(preset(name).map_err(|error| RuleError {
                text: entry.clone(),
                ..error
            })?),
            None => rules.push(entry.parse()?),
        }
    }
    Ok(rules)
}

impl PartialNetwork {
    /// Replaces each mirror by its hosts.
    ///
    /// # Errors
    /// This host is not configured with one.
    pub(super) fn find_mirrors(&mut self) -> Result<(), SetupError> {
        let Self::Hosts(egress) = self else {
            return Ok(());
        };
        for list in [&mut egress.allow, &mut egress.deny] {
            let mut found = Vec::new();
            for entry in list.drain(..) {
                match entry.strip_prefix(MIRROR) {
                    Some(name) => found.extend(mirrors::find(name)?),
                    None => found.push(entry),
                }
            }
            *list = found;
        }
        Ok(())
    }

    /// What an untrusted party gets that asks for this where its caller has `caller`.
    ///
    /// # Errors
    /// It asks for more.
    pub(super) fn within(self, caller: Option<&Self>) -> Result<Self, String> {
        match (self, caller) {
            (Self::None, _) => Ok(Self::None),
            (Self::Hosts(wanted), Some(Self::Host)) if !wanted.secret_headers.is_empty() => {
                Err("names secret headers, which only the caller may".to_owned())
            }
            (wanted, Some(Self::Host)) => Ok(wanted),
            (Self::Host, _) => Err("is \"host\", but the caller does not allow it".to_owned()),
            (Self::Hosts(_), None | Some(Self::None)) => {
                Err("names hosts, but the caller allows none".to_owned())
            }
            (Self::Hosts(wanted), Some(Self::Hosts(allowed))) => {
                if !wanted.secret_headers.is_empty() {
                    return Err("names secret headers, which only the caller may".to_owned());
                }
                if wanted.check_names == Some(false) && allowed.check_names != Some(false) {
                    return Err("must not disable name checks".to_owned());
                }
                let read = |egress: &PartialEgress| egress.rules().map_err(|e| e.to_string());
                let rules = read(&wanted)?.within(&read(allowed)?);
                let rules = rules.map_err(|error| error.to_string())?;
                let texts = |rules: &[Rule]| rules.iter().map(Rule::to_string).collect();
                Ok(Self::Hosts(PartialEgress {
                    allow: texts(&rules.allow),
                    deny: texts(&rules.deny),
                    check_names: wanted.check_names.or(allowed.check_names),
                    secret_headers: allowed.secrets_within(&rules),
                }))
            }
        }
    }

    /// In full.
    ///
    /// # Errors
    /// An entry that is not a rule; [`PartialEgress::fault`] has found it before.
    pub(super) fn complete(self) -> Result<Network, RuleError> {
        Ok(match self {
            Self::None => Network::None,
            Self::Host => Network::Host,
            Self::Hosts(egress) => Network::Hosts(Egress {
                rules: egress.rules()?,
                secrets: egress.secrets().unwrap_or_default(),
                check_names: match egress.check_names {
                    Some(false) => NameChecks::Off,
                    _ => NameChecks::On,
                },
            }),
        })
    }
}

impl<'de> Deserialize<'de> for PartialNetwork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NetworkVisitor)
    }
}

struct NetworkVisitor;

impl<'de> Visitor<'de> for NetworkVisitor {
    type Value = PartialNetwork;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"none\", \"host\", or a table with the list `allow`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PartialNetwork, E> {
        match text {
            "none" => Ok(PartialNetwork::None),
            "host" => Ok(PartialNetwork::Host),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PartialNetwork, A::Error> {
        PartialEgress::deserialize(MapAccessDeserializer::new(map)).map(PartialNetwork::Hosts)
    }
}

impl JsonSchema for PartialNetwork {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PartialNetwork".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let hosts = generator.subschema_for::<PartialEgress>();
        json_schema!({ "anyOf": [{ "enum": ["none", "host"] }, hosts] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(allow: &[&str]) -> PartialNetwork {
        PartialNetwork::Hosts(PartialEgress {
            allow: allow.iter().map(|host| (*host).to_owned()).collect(),
            ..PartialEgress::default()
        })
    }

    #[test]
    fn networks_are_words_or_tables() {
        let read = |text: &str| serde_json::from_str::<PartialNetwork>(text);
        assert_eq!(read("\"host\"").unwrap(), PartialNetwork::Host);
        assert_eq!(
            read("{\"allow\":[\"a.example\"]}").unwrap(),
            hosts(&["a.example"])
        );
        let error = read("\"all\"").unwrap_err().to_string();
        assert!(error.contains("allow"), "{error}");
    }

    #[test]
    fn faults_name_the_entry() {
        for (entry, why) in [
            ("http://a.example", "URL"),
            ("a.example:25", "port 25"),
            ("a.example:53", "name server"),
            ("preset:pip", "pypi"),
        ] {
            let PartialNetwork::Hosts(egress) = hosts(&[entry]) else {
                panic!()
            };
            let (field, message) = egress.fault().unwrap();
            assert_eq!(field, "allow");
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_request_ends_where_its_caller_does() {
        let operator = hosts(&["*.a.example", "preset:pypi"]);
        let none = PartialNetwork::None;
        for (wanted, caller, is_allowed) in [
            (&none, Some(&operator), true),
            (&none, None, true),
            (&hosts(&["x.a.example"]), Some(&operator), true),
            (&hosts(&["pypi.org:443"]), Some(&operator), true),
            (&hosts(&["a.example"]), Some(&operator), false),
            (&hosts(&["x.a.example:22"]), Some(&operator), false),
            (&hosts(&["x.a.example"]), Some(&none), false),
            (&hosts(&["x.a.example"]), None, false),
            (&hosts(&["x.a.example"]), Some(&PartialNetwork::Host), true),
            (&PartialNetwork::Host, Some(&operator), false),
        ] {
            let within = wanted.clone().within(caller);
            assert_eq!(within.is_ok(), is_allowed, "{wanted:?} {caller:?}");
        }
        let unchecked = PartialNetwork::Hosts(PartialEgress {
            allow: vec!["x.a.example".to_owned()],
            check_names: Some(false),
            ..PartialEgress::default()
        });
        assert!(unchecked.within(Some(&operator)).is_err());
    }
}
