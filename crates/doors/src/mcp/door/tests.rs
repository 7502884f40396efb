//! The door between a client and a server that the test plays.

use serde_json::{Value, json};

use super::*;
use crate::mcp::pending::OUTPUT_EVERY;
use crate::mcp::rpc::INTERNAL_ERROR;

struct Play {
    door: Door,
    now: Instant,
}

impl Play {
    fn new() -> Self {
        let python = super::super::instructions::Interpreter {
            language: "python".into(),
            ..Default::default()
        };
        let about = About {
            interpreters: vec![python],
            wall: Some(std::time::Duration::from_secs(30)),
            ..About::default()
        };
        Self {
            door: Door::new(about),
            now: Instant::now(),
        }
    }

    /// The client asks for something.
    fn ask(&mut self, id: i64, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.door
            .take_from_client(line.to_string().as_bytes(), self.now);
    }

    fn tool(&mut self, id: i64, name: &str, arguments: Value) {
        self.ask(
            id,
            "tools/call",
            json!({"name": name, "arguments": arguments}),
        );
    }

    fn notify(&mut self, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.door
            .take_from_client(line.to_string().as_bytes(), self.now);
    }

    /// The server says something.
    fn say(&mut self, line: Value) {
        self.door
            .take_from_server(line.to_string().as_bytes(), self.now);
    }

    fn for_client(&mut self) -> Value {
        match self.door.next_line() {
            Some(Line::Client(line)) => serde_json::from_str(&line).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn for_server(&mut self) -> Value {
        match self.door.next_line() {
            Some(Line::Server(line)) => serde_json::from_str(&line).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn silent(&mut self) {
        assert_eq!(self.door.next_line(), None);
    }

    fn create(&mut self, id: i64, context: &str) {
        self.tool(id, "create_context", json!({}));
        let call = self.for_server();
        let made =
            json!({"context": context, "language": "python", "rootfs": "host", "start": "cold"});
        self.say(json!({"id": call["id"], "result": made}));
        assert_eq!(
            self.for_client()["result"]["structuredContent"]["context_id"],
            context
        );
    }
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

#[test]
fn either_way_of_beginning_is_answered() {
    let mut play = Play::new();
    play.ask(1, "server/discover", modern(json!({})));
    let discovered = play.for_client();
    let result = &discovered["result"];
    assert_eq!(
        result["supportedVersions"],
        json!([STATELESS]),
        "{discovered}"
    );
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["cacheScope"], "public");
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "cellblock"
    );
    play.ask(2, "initialize", json!({"protocolVersion": "2025-06-18"}));
    let greeting = play.for_client();
    assert_eq!(
        greeting["result"]["protocolVersion"], "2025-06-18",
        "{greeting}"
    );
    assert!(greeting["result"].get("resultType").is_none(), "{greeting}");
    play.notify("notifications/initialized", json!({}));
    play.ask(3, "ping", json!({}));
    assert_eq!(play.for_client()["result"], json!({}));
    play.ask(4, "ping", modern(json!({})));
    assert_eq!(play.for_client()["error"]["code"], METHOD_NOT_FOUND);
    play.silent();
}

#[test]
fn a_tool_makes_one_call_and_its_failure_is_an_answer() {
    let mut play = Play::new();
    play.tool(1, "run_code", json!({"code": "1", "timeout": 2.5}));
    let call = play.for_server();
    assert_eq!(call["method"], "run");
    let request = json!({"language": "python", "code": "1", "limits": {"wall": "2s 500ms"}});
    assert_eq!(call["params"]["request"], request);
    let busy = json!({"code": "busy", "message": "too much goes on", "retry_after_ms": 1500});
    play.say(json!({"id": call["id"], "error": busy}));
    let answer = play.for_client();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("busy") && text.contains("try again after 2 s"),
        "{text}"
    );
    assert_eq!(answer["result"]["_meta"]["cellblock/error"]["code"], "busy");
    play.silent();
}

#[test]
fn wrong_arguments_are_told_to_the_model() {
    let mut play = Play::new();
    play.tool(1, "run_code", json!({"cod": "1"}));
    let answer = play.for_client();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    play.tool(2, "no_such_tool", json!({}));
    assert_eq!(play.for_client()["error"]["code"], INVALID_PARAMS);
    play.ask(
        3,
        "tools/call",
        json!({"name": "run_code", "arguments": []}),
    );
    assert_eq!(play.for_client()["error"]["code"], INVALID_PARAMS);
    play.ask(4, "resources/read", json!({"uri": "file:///etc/passwd"}));
    assert_eq!(play.for_client()["error"]["code"], rpc::RESOURCE_NOT_FOUND);
    play.ask(
        5,
        "resources/read",
        modern(json!({"uri": "file:///etc/passwd"})),
    );
    assert_eq!(play.for_client()["error"]["code"], INVALID_PARAMS);
    play.silent();
}

#[test]
fn a_command_in_a_context_is_a_process_whose_end_is_the_answer() {
    let mut play = Play::new();
    let arguments = json!({"command": "ls", "context_id": "a", "timeout": 60});
    play.tool(1, "run_command", arguments);
    let call = play.for_server();
    let params = json!({
        "context": "a", "argv": ["bash", "-c", "ls"], "events": true, "attached": true, "wall": "30s",
    });
    assert_eq!(
        (&call["method"], &call["params"]),
        (&json!("process.start"), &params)
    );
    let id = &call["id"];
    play.say(json!({"id": id, "result": {"context": "a", "process": 3, "pid": 9}}));
    let output = |stream: &str, text: &str| {
        json!({"id": id, "event": {"event": "process_output",
        "process": 3, "stream": stream, "text": text}})
    };
    play.say(output("stdout", "a\n"));
    play.say(output("stderr", "b\n"));
    play.silent();
    play.say(
        json!({"id": id, "event": {"event": "process_ended", "process": 3,
        "exit_code": 2, "signal": null, "why": null}}),
    );
    let answer = play.for_client();
    let data = &answer["result"]["structuredContent"];
    for (field, value) in [
        ("outcome", json!("exit")),
        ("exit_code", json!(2)),
        ("stdout", json!("a\n")),
        ("stderr", json!("b\n")),
        ("truncated", json!([])),
        ("files", json!(null)),
        ("context_id", json!("a")),
    ] {
        assert_eq!(data[field], value, "{field}: {answer}");
    }
    play.tool(2, "run_command", json!({"command": "ls"}));
    assert_eq!(play.for_server()["params"]["request"]["language"], "bash");
}

#[test]
fn a_command_that_is_cancelled_is_killed_whether_it_has_begun_or_not() {
    let mut play = Play::new();
    let begun = |play: &mut Play, id: &Value| {
        play.say(json!({"id": id, "result": {"context": "a", "process": 3, "pid": 9}}));
    };
    for (request, is_early) in [(1, true), (2, false)] {
        let arguments = json!({"command": "sleep 9", "context_id": "a"});
        play.tool(request, "run_command", arguments);
        let call = play.for_server();
        if !is_early {
            begun(&mut play, &call["id"]);
        }
        play.notify("notifications/cancelled", json!({"requestId": request}));
        if is_early {
            assert_eq!(play.for_server()["method"], "cancel");
            begun(&mut play, &call["id"]);
        }
        let kill = play.for_server();
        assert_eq!(kill["method"], "process.signal");
        assert_eq!(
            kill["params"],
            json!({"context": "a", "process": 3, "signal": "SIGKILL"})
        );
        play.say(
            json!({"id": call["id"], "event": {"event": "process_ended", "process": 3,
            "exit_code": null, "signal": "SIGKILL", "why": null}}),
        );
        play.silent();
        assert!(play.door.is_idle());
    }
}

#[test]
fn what_is_cancelled_is_interrupted_and_not_answered() {
    let mut play = Play::new();
    play.create(1, "a");
    for id in [2, 3] {
        play.tool(
            id,
            "run_code",
            json!({"code": "while True: pass", "context_id": "a"}),
        );
    }
    let (first, second) = (play.for_server(), play.for_server());
    play.notify("notifications/cancelled", json!({"requestId": 3}));
    let cancel = play.for_server();
    assert_eq!(
        (&cancel["method"], &cancel["params"]["call"]),
        (&json!("cancel"), &second["id"])
    );
    play.notify("notifications/cancelled", json!({"requestId": 2}));
    // It names the call: the context may execute another one by then.
    let interrupt = play.for_server();
    assert_eq!(interrupt["method"], "cancel");
    assert_eq!(
        interrupt["params"],
        json!({"call": first["id"], "grace": "2s"})
    );
    for id in [&first["id"], &second["id"], &cancel["id"], &interrupt["id"]] {
        let failure = json!({"code": "cancelled", "message": "gone"});
        play.say(json!({"id": id, "error": failure}));
    }
    play.notify("notifications/cancelled", json!({"requestId": 2}));
    play.silent();
}

#[test]
fn progress_is_reported_if_it_was_asked_for_and_only_grows() {
    let mut play = Play::new();
    let arguments = json!({"code": "work()"});
    let params =
        json!({"name": "run_code", "arguments": arguments, "_meta": {"progressToken": "t"}});
    play.ask(1, "tools/call", params);
    let call = play.for_server();
    assert_eq!(call["params"]["events"], true);
    play.door.tick(play.now);
    play.silent();
    play.now += PROGRESS_EVERY;
    assert!(play.door.next_tick() <= Some(play.now));
    play.door.tick(play.now);
    let report = play.for_client();
    assert_eq!(report["method"], "notifications/progress");
    assert_eq!(report["params"]["progressToken"], "t");
    let event = json!({"event": "stdout", "text": "epoch 1\nepoch 2\n"});
    play.say(json!({"id": call["id"], "event": event}));
    play.silent();
    play.now += OUTPUT_EVERY;
    play.say(json!({"id": call["id"], "event": event}));
    let next = play.for_client();
    assert_eq!(next["params"]["message"], "epoch 2");
    assert!(next["params"]["progress"].as_f64() > report["params"]["progress"].as_f64());
}

#[test]
fn nonsense_of_either_side_harms_nothing() {
    let mut play = Play::new();
    for line in [
        "",
        "{",
        "null",
        "{\"id\": 99, \"result\": {}}",
        "{\"id\": null, \"event\": {}}",
    ] {
        play.door.take_from_server(line.as_bytes(), play.now);
    }
    play.silent();
    play.tool(1, "list_contexts", json!({}));
    let call = play.for_server();
    play.tool(1, "list_contexts", json!({}));
    assert_eq!(play.for_client()["error"]["code"], INVALID_PARAMS);
    play.say(json!({"id": call["id"], "result": {"contexts": 5}}));
    assert_eq!(play.for_client()["error"]["code"], INTERNAL_ERROR);
}
