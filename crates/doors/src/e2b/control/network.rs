//! A sandbox's network as its client describes it, and as a request to the hub has it.
//!
//! E2B's network is open unless something is closed; here the server's options say what is
//! open, and a client can only close more.

use axum::Extension;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use serve::Party;
use serve::protocol::{Code, Failure};

use super::refused;
use crate::answer::Answer;
use crate::front::Guarded;

/// All addresses.
const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The fields that have an effect here.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Network {
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    egress_proxy: Option<Value>,
    dns_servers: Option<Value>,
    rules: Option<Value>,
}

impl Network {
    /// # Errors
    /// It is not a network, or has fields that are not supported here.
    pub(super) fn read(given: Option<&Value>) -> Result<Self, Failure> {
        let Some(given) = given.filter(|given| !given.is_null()) else {
            return Ok(Self::default());
        };
        let network = Self::deserialize(given)
            .map_err(|error| Failure::new(Code::BadParams, format!("network: {error}")))?;
        let absent = [
            ("egressProxy", network.egress_proxy.is_some()),
            ("dnsServers", network.dns_servers.is_some()),
            (
                "rules",
                network
                    .rules
                    .as_ref()
                    .is_some_and(|rules| *rules != json!({})),
            ),
        ];
        match absent.iter().find(|(_, is_given)| *is_given) {
            Some((field, _)) => {
                let message = format!("network.{field}: is not supported here");
                Err(Failure::new(Code::BadParams, message))
            }
            None => Ok(network),
        }
    }

    /// The network as it is shown to clients: the fields that have an effect.
    pub(super) fn shown(&self) -> Value {
        let lists = [("allowOut", &self.allow_out), ("denyOut", &self.deny_out)];
        let given = lists.into_iter();
        let given = given.filter_map(|(name, list)| Some((name, json!(list.as_ref()?))));
        let fields: Map<_, _> = given.map(|(name, list)| (name.to_owned(), list)).collect();
        match fields.is_empty() {
            true => Value::Null,
            false => Value::Object(fields),
        }
    }
}

/// The network of a sandbox's requests; `None` for the server's.
///
/// # Errors
/// The rules would close only a part of what is open, which is not possible.
pub(super) fn request(internet: Option<bool>, network: &Network) -> Result<Option<Value>, Failure> {
    let denied = network.deny_out.as_deref().unwrap_or_default();
    let allowed = network.allow_out.as_deref().unwrap_or_default();
    let is_all = |entry: &String| ALL.contains(&entry.as_str());
    if internet == Some(false) || denied.iter().any(is_all) {
        let allowed: Vec<_> = allowed.iter().filter(|entry| !is_all(entry)).collect();
        return Ok(Some(match allowed.is_empty() {
            true => json!("none"),
            false => json!({"allow": allowed}),
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
    use super::*;

    fn of(internet: Option<bool>, network: &Value) -> Result<Option<Value>, String> {
        let network = Network::read(Some(network)).map_err(|failure| failure.message)?;
        request(internet, &network).map_err(|failure| failure.message)
    }

    #[test]
    fn nothing_else_is_kept() {
        let given = json!({"denyOut": ["0.0.0.0/0"], "x": "y".repeat(100), "rules": {}});
        let network = Network::read(Some(&given)).unwrap();
        assert_eq!(network.shown(), json!({"denyOut": ["0.0.0.0/0"]}));
        assert_eq!(Network::default().shown(), Value::Null);
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
    }
}
