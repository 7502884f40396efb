//! A sandbox's network as its client describes it, and as a request to the hub has it.
//!
//! E2B's network is open unless something is closed; here the server's options say what is
//! open, and a client can only close more.

use axum::Extension;
use axum::extract::{Path, State};
use record::json::List;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wire::{Code, Failure, Party};

use super::refused;
use crate::answer::Answer;
use crate::front::Guarded;

/// All addresses.
const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

record::bounds! {
    /// Rules that open the network.
    MostAllowed = "network.allowOut", 4096;
    /// Rules that close it.
    MostDenied = "network.denyOut", 4096;
}

/// The fields that have an effect here, as clients see them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::e2b) struct Network {
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_out: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deny_out: Option<Vec<String>>,
}

/// A network that is smaller than the server's, as requests to the hub have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(in crate::e2b) enum Closed {
    All(&'static str),
    But { allow: Vec<String> },
}

impl Network {
    /// # Errors
    /// It is not a network, or has fields that are not supported here.
    pub(super) fn read(given: Option<&RawValue>) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Given<'a> {
            #[serde(default)]
            allow_out: Option<List<String, MostAllowed>>,
            #[serde(default)]
            deny_out: Option<List<String, MostDenied>>,
            #[serde(default)]
            egress_proxy: Option<IgnoredAny>,
            #[serde(default)]
            dns_servers: Option<IgnoredAny>,
            #[serde(borrow, default)]
            rules: Option<&'a RawValue>,
        }
        let Some(given) = given else {
            return Ok(Self::default());
        };
        let given: Given<'_> = serde_json::from_str(given.get())
            .map_err(|error| Failure::new(Code::BadParams, format!("network: {error}")))?;
        let has_rules = |rules: &RawValue| {
            let inside = rules.get().trim_start_matches('{');
            !inside.trim_ascii().starts_with('}')
        };
        let absent = [
            ("egressProxy", given.egress_proxy.is_some()),
            ("dnsServers", given.dns_servers.is_some()),
            ("rules", given.rules.is_some_and(has_rules)),
        ];
        match absent.iter().find(|(_, is_given)| *is_given) {
            Some((field, _)) => {
                let message = format!("network.{field}: is not supported here");
                Err(Failure::new(Code::BadParams, message))
            }
            None => Ok(Self {
                allow_out: given.allow_out.map(List::into_inner),
                deny_out: given.deny_out.map(List::into_inner),
            }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The network of a sandbox's requests; `None` for the server's.
///
/// # Errors
/// The rules would close only a part of what is open, which is not possible.
pub(super) fn request(
    internet: Option<bool>,
    network: &Network,
) -> Result<Option<Closed>, Failure> {
    let denied = network.deny_out.as_deref().unwrap_or_default();
    let allowed = network.allow_out.as_deref().unwrap_or_default();
    let is_all = |entry: &String| ALL.contains(&entry.as_str());
    if internet == Some(false) || denied.iter().any(is_all) {
        let allow = allowed.iter().filter(|entry| !is_all(entry)).cloned();
        let allow: Vec<String> = allow.collect();
        return Ok(Some(match allow.is_empty() {
            true => Closed::All("none"),
            false => Closed::But { allow },
        }));
    }
    match denied.is_empty() {
        true => Ok(None),
        false => {
            let message = "network.denyOut: a part of the network cannot be closed alone";
            let hint = "deny 0.0.0.0/0, and allow what is needed with allowOut";
            Err(Failure::new(Code::BadParams, message).hint(hint))
        }
    }
}

/// Refused: the rules of a cell are made with the cell.
pub(super) async fn update(
    State(guarded): State<Guarded>,
    Extension(party): Extension<Party>,
    Path(id): Path<String>,
) -> Answer {
    let message = "the network of a sandbox cannot be changed: give it when the sandbox is created";
    refused(&guarded, party, &id, message)
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::*;

    fn read(network: &Value) -> Result<Network, Failure> {
        let text = to_raw_value(network).unwrap();
        Network::read(Some(&*text).filter(|text| text.get() != "null"))
    }

    fn of(internet: Option<bool>, network: &Value) -> Result<Option<Value>, String> {
        let network = read(network).map_err(|failure| failure.message)?;
        let closed = request(internet, &network).map_err(|failure| failure.message)?;
        Ok(closed.map(|closed| serde_json::to_value(closed).unwrap()))
    }

    #[test]
    fn nothing_else_is_kept() {
        let given = json!({"denyOut": ["0.0.0.0/0"], "x": "y".repeat(100), "rules": {}});
        let network = read(&given).unwrap();
        let shown = serde_json::to_value(&network).unwrap();
        assert_eq!(shown, json!({"denyOut": ["0.0.0.0/0"]}));
        assert!(Network::default().is_empty() && !network.is_empty());
    }

    #[test]
    fn what_is_closed_is_what_the_hub_closes() {
        let none = Ok(Some(json!("none")));
        assert_eq!(of(None, &json!({})), Ok(None));
        assert_eq!(
            of(Some(true), &json!({"allowOut": ["a.example"]})),
            Ok(None)
        );
        assert_eq!(of(Some(false), &Value::Null), none);
        assert_eq!(of(None, &json!({"denyOut": ["0.0.0.0/0"]})), none);
        let some = json!({"denyOut": ["0.0.0.0/0"], "allowOut": ["a.example", "10.0.0.0/8"]});
        let allowed = json!({"allow": ["a.example", "10.0.0.0/8"]});
        assert_eq!(of(None, &some), Ok(Some(allowed)));
        // A rule that cannot be enforced is refused, not ignored silently.
        assert!(of(None, &json!({"denyOut": ["10.0.0.0/8"]})).is_err());
        for absent in ["egressProxy", "dnsServers"] {
            assert!(of(None, &json!({absent: {}})).unwrap_err().contains(absent));
        }
        assert!(of(None, &json!({"allowOut": 3})).is_err());
        let rules = json!({"rules": {"a.example": []}});
        assert!(of(None, &rules).unwrap_err().contains("rules"));
    }
}
