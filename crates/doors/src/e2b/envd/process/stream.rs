//! A process's output and end as envd's events.

use std::time::Duration;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::Stream;
use futures_util::stream::{StreamExt as _, once, unfold};
use record::json::Object;
use record::object;
use wire::{ProcessEvent, ProcessStarted, Said};

use crate::client::Client;
use crate::e2b::connect;

/// A keepalive follows after this time without an event.
const QUIET: Duration = Duration::from_secs(30);

/// The start, output and end of a process. The hub is read from only when the client has taken the
/// events before, so a slow client slows the program.
pub(super) fn events(
    client: Client,
    started: &ProcessStarted,
) -> impl Stream<Item = Bytes> + use<> {
    let start = message(&object! {"start": object! {"pid": started.pid}});
    let rest = unfold(Some(client), |client| async {
        let mut client = client?;
        let said = match tokio::time::timeout(QUIET, client.next()).await {
            Err(_) => return Some((message(&object! {"keepalive": object! {}}), Some(client))),
            Ok(said) => said,
        };
        match said {
            Ok(Said::Event(event)) => match serde_json::from_str(event.get()) {
                Ok(event @ ProcessEvent::ProcessEnded { .. }) => {
                    let last = [message(&shown(event)), connect::end(None)].concat();
                    Some((last.into(), None))
                }
                Ok(event) => Some((message(&shown(event)), Some(client))),
                Err(_) => Some((Bytes::new(), Some(client))),
            },
            Ok(Said::Result(_)) => Some((Bytes::new(), Some(client))),
            Err(failure) => Some((connect::end(Some(&failure.into())), None)),
        }
    });
    once(async { start }).chain(rest)
}

fn message(event: &Object<'_>) -> Bytes {
    connect::message(&object! {"event": event})
}

/// An event as envd has it.
fn shown(event: ProcessEvent) -> Object<'static> {
    match event {
        ProcessEvent::ProcessOutput {
            stream,
            text,
            base64,
            ..
        } => {
            let data = base64.unwrap_or_else(|| STANDARD.encode(text));
            let name = if stream == "terminal" { "pty" } else { &stream };
            let data = Object::default().with(name, &data);
            object! {"data": data}
        }
        ProcessEvent::ProcessEnded {
            exit_code,
            signal,
            why,
            ..
        } => {
            let status = match (exit_code, &signal) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("signal: {signal}"),
                (None, None) => "its end was not seen".to_owned(),
            };
            let mut end = object! {
                "exitCode": exit_code.unwrap_or(-1),
                "exited": exit_code.is_some(),
                "status": status,
            };
            if let Some(why) = why {
                end.set("error", &why);
            } else if exit_code != Some(0) {
                end.set("error", &status);
            }
            object! {"end": end}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(event: Value) -> Value {
        serde_json::to_value(shown(serde_json::from_value(event).unwrap())).unwrap()
    }

    #[test]
    fn events_are_envds() {
        let output =
            json!({"event": "process_output", "process": 1, "stream": "stdout", "text": "a"});
        assert_eq!(of(output), json!({"data": {"stdout": "YQ=="}}));
        let raw = json!({
            "event": "process_output", "process": 1, "stream": "terminal", "text": "\u{fffd}", "base64": "/w==",
        });
        assert_eq!(of(raw), json!({"data": {"pty": "/w=="}}));
        let end = |code, signal| {
            json!({
                "event": "process_ended", "process": 1, "exit_code": code, "signal": signal, "why": null,
            })
        };
        let done = json!({"end": {"exitCode": 0, "exited": true, "status": "exit status 0"}});
        assert_eq!(of(end(Some(0), None)), done);
        let failed = of(end(Some(3), None));
        assert_eq!(failed["end"]["error"], "exit status 3");
        let killed = of(end(None, Some("SIGKILL")));
        assert_eq!(killed["end"]["exitCode"], -1);
        assert_eq!(killed["end"]["exited"], false);
    }
}
