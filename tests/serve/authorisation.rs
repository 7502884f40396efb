//! By no route of any door can one token's request reach anything of another token.
//!
//! Each request is first made with the other token, and then by the owner: one that fails for the
//! owner would prove nothing. The tables must have every route, so that a new one needs an entry.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::Server;
use crate::http_client::{Answer, Http};
use crate::tokens::{Two, two};

/// A request of `/v1` about a context: its method, path, body and query.
type Call = (&'static str, &'static str, Value, &'static str);

/// For each route about a context, a request that its owner can make, in this order.
fn calls() -> Vec<Call> {
    let call = |verb, path, body| (verb, path, body, "");
    vec![
        call("GET", "", json!(null)),
        call("POST", "/run", json!({"code": "1"})),
        call("POST", "/interrupt", json!({})),
        call("PUT", "/label", json!({"label": "x"})),
        call("POST", "/checkpoints", json!({})),
        ("GET", "/diff", json!(null), "?with=1"),
        call("POST", "/fork", json!({"n": 1})),
        call("POST", "/rewind", json!({"checkpoint": 1})),
        call("DELETE", "/checkpoints/1", json!(null)),
        call("POST", "/suspend", json!({})),
        call("POST", "/resume", json!({})),
        call("POST", "/restart", json!({})),
        call("POST", "/directories", json!({"path": "d"})),
        call("PUT", "/files/f", json!("content")),
        call("GET", "/files/f", json!(null)),
        call("GET", "/files", json!(null)),
        ("GET", "/stat", json!(null), "?path=f"),
        call("POST", "/move", json!({"from": "f", "to": "g"})),
        call("DELETE", "/files/g", json!(null)),
        call(
            "POST",
            "/processes",
            json!({"argv": ["cat"], "input": true}),
        ),
        call("GET", "/processes", json!(null)),
        call("POST", "/processes/1/input", json!({"data": "x"})),
        call("DELETE", "/processes/1/input", json!(null)),
        call(
            "POST",
            "/processes",
            json!({"argv": ["cat"], "terminal": {"rows": 9, "columns": 9}}),
        ),
        call(
            "PUT",
            "/processes/2/terminal",
            json!({"terminal": {"rows": 8, "columns": 8}}),
        ),
        call("POST", "/processes/2/signal", json!({"signal": "SIGTERM"})),
        call("DELETE", "", json!(null)),
    ]
}

/// Routes that stay open, which the owner of the table below does not call.
const STREAMS: [(&str, &str); 2] = [("GET", "/watch"), ("GET", "/processes/1/events")];

/// A path of OpenAPI as the table has it.
fn as_in_table(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1/contexts/{context}")?;
    let rest = rest.replace("/processes/{process}", "/processes/N");
    Some(
        rest.replace("/checkpoints/{checkpoint}", "/checkpoints/N")
            .replace("{path}", "F"),
    )
}

fn ask(http: &Http, verb: &str, path: &str, body: &Value) -> Answer {
    match body {
        Value::Null => http.request(verb, path, b""),
        body => http.request(verb, path, body.to_string().as_bytes()),
    }
}

#[test]
fn contexts_are_those_of_their_token() {
    let all = two(&["--wall", "60s"]);
    let params = json!({"request": {"language": "python"}, "context": "a", "branches": true});
    all.one.ask("POST", "/v1/contexts", &params);
    let streams = STREAMS.map(|(verb, path)| (verb, path, json!(null), ""));
    let calls: Vec<Call> = calls();
    let paths = |calls: &[Call]| -> BTreeSet<String> {
        let named = |(verb, path, ..): &Call| {
            let path = path
                .replace("/files/f", "/files/F")
                .replace("/files/g", "/files/F");
            let path = path.replace("/1", "/N").replace("/2", "/N");
            format!("{} {path}", verb.to_lowercase())
        };
        calls.iter().map(named).collect()
    };
    let known: BTreeSet<String> = &paths(&calls) | &paths(&streams);
    let described = all.one.get("/v1/openapi.json").json();
    let mut described_paths = BTreeSet::new();
    for (path, verbs) in described["paths"].as_object().unwrap() {
        for verb in verbs.as_object().unwrap().keys() {
            let open = matches!(
                (verb.as_str(), path.as_str()),
                ("get", "/v1/status" | "/v1/metrics" | "/v1/contexts")
                    | ("post", "/v1/runs" | "/v1/contexts")
            );
            match as_in_table(path) {
                Some(path) => drop(described_paths.insert(format!("{verb} {path}"))),
                None => assert!(open, "{verb} {path} is not in this test"),
            }
            // Clients without a token are refused everywhere.
            let path = path.replace(['{', '}'], "");
            let answer = all.none.request(&verb.to_uppercase(), &path, b"{}");
            assert_eq!(answer.status, 401, "{verb} {path}");
        }
    }
    assert_eq!(known, described_paths);

    for (verb, path, body, query) in calls.iter().chain(&streams) {
        let path = format!("/v1/contexts/a{path}{query}");
        let answer = ask(&all.two, verb, &path, body);
        assert_eq!(answer.status, 404, "{verb} {path}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "not_found");
    }
    assert_eq!(all.two.get("/v1/contexts").json(), json!({"contexts": []}));
    for (verb, path, body, query) in &calls {
        let path = format!("/v1/contexts/a{path}{query}");
        let answer = ask(&all.one, verb, &path, body);
        assert!(answer.status < 300, "{verb} {path}: {}", answer.text());
    }
}

/// The paths in the source of a router.
fn routes(source: &str) -> BTreeSet<&str> {
    let parts = source.split(".route(").skip(1);
    let paths = parts.filter_map(|part| part.split('"').nth(1));
    paths.collect()
}

fn create(http: &Http) -> (String, String) {
    let body = json!({"templateID": "base", "autoPause": true});
    let made = http.ask("POST", "/v2/sandboxes", &body);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("sandboxID"), text("envdAccessToken"))
}

#[test]
fn sandboxes_are_those_of_their_token() {
    let all = two(&["--e2b-pause"]);
    let (id, access) = create(&all.one);
    // Routes that name no sandbox, and routes that are tested below.
    let mut known = BTreeSet::from([
        "/v2/sandboxes",
        "/sandboxes",
        "/sandboxes/metrics",
        "/snapshots",
    ]);
    let control = [
        ("GET", "/sandboxes/{id}", json!(null)),
        ("POST", "/sandboxes/{id}/timeout", json!({"timeout": 60})),
        ("POST", "/sandboxes/{id}/refreshes", json!({"duration": 60})),
        ("GET", "/sandboxes/{id}/metrics", json!(null)),
        ("GET", "/sandboxes/{id}/logs", json!(null)),
        ("GET", "/v2/sandboxes/{id}/logs", json!(null)),
        ("POST", "/sandboxes/{id}/fork", json!({"count": 1})),
        ("POST", "/sandboxes/{id}/pause", json!({})),
        ("POST", "/sandboxes/{id}/connect", json!({"timeout": 60})),
        ("POST", "/v2/sandboxes/{id}/connect", json!({"timeout": 60})),
        ("POST", "/sandboxes/{id}/resume", json!({"timeout": 60})),
        ("DELETE", "/sandboxes/{id}", json!(null)),
    ];
    known.extend(control.iter().map(|(_, path, _)| *path));
    // These are refused to the owner, too.
    let refused = [
        ("POST", "/sandboxes/{id}/snapshots", json!({})),
        ("PUT", "/sandboxes/{id}/network", json!({})),
    ];
    known.extend(refused.iter().map(|(_, path, _)| *path));
    let source = include_str!("../../crates/doors/src/e2b/control/mod.rs");
    assert_eq!(routes(source), known);

    for (verb, path, body) in control.iter().chain(&refused) {
        let path = path.replace("{id}", &id);
        let answer = ask(&all.two, verb, &path, body);
        assert!(
            answer.status == 404 || path.ends_with("/snapshots"),
            "{verb} {path}: {answer:?}"
        );
        assert!(answer.status >= 400, "{verb} {path}: {answer:?}");
        assert_eq!(
            ask(&all.none, verb, &path, body).status,
            401,
            "{verb} {path}"
        );
    }
    for path in ["/v2/sandboxes", "/sandboxes"] {
        assert_eq!(all.two.get(path).json(), json!([]));
    }
    let of_all = all.two.get(&format!("/sandboxes/metrics?sandbox_ids={id}"));
    assert!(!of_all.text().contains(&id), "{of_all:?}");
    the_servers_of_a_sandbox_are_its_owners(&all, &id, &access);
    // One with contexts besides its own is not forked.
    let (id, _) = create(&all.one);
    for (verb, path, body) in &control {
        let path = path.replace("{id}", &id);
        let answer = ask(&all.one, verb, &path, body);
        assert!(answer.status < 300, "{verb} {path}: {answer:?}");
    }
}

fn the_servers_of_a_sandbox_are_its_owners(all: &Two, id: &str, access: &str) {
    let (own_id, own_access) = create(&all.two);
    let code = [
        ("GET", "/contexts"),
        ("POST", "/contexts"),
        ("DELETE", "/contexts/x"),
        ("POST", "/contexts/x/restart"),
        ("POST", "/execute"),
    ];
    let envd = [
        ("GET", "/envs"),
        ("GET", "/files?path=a"),
        ("POST", "/files?path=a"),
    ];
    let calls = [
        "filesystem.Filesystem/Stat",
        "filesystem.Filesystem/MakeDir",
        "filesystem.Filesystem/Move",
        "filesystem.Filesystem/ListDir",
        "filesystem.Filesystem/Remove",
        "filesystem.Filesystem/WatchDir",
        "filesystem.Filesystem/CreateWatcher",
        "filesystem.Filesystem/GetWatcherEvents",
        "filesystem.Filesystem/RemoveWatcher",
        "process.Process/Start",
        "process.Process/Connect",
        "process.Process/List",
        "process.Process/SendInput",
        "process.Process/StreamInput",
        "process.Process/CloseStdin",
        "process.Process/SendSignal",
        "process.Process/Update",
    ];
    let strip = |path: &'static str| path.split('?').next().unwrap();
    let known: BTreeSet<&str> = code.iter().map(|(_, path)| *path).collect();
    let source = include_str!("../../crates/doors/src/e2b/code/mod.rs");
    let found: BTreeSet<String> = routes(source)
        .iter()
        .map(|path| path.replace("{id}", "x"))
        .collect();
    let found: BTreeSet<&str> = found
        .iter()
        .map(String::as_str)
        .filter(|path| *path != "/health")
        .collect();
    assert_eq!(found, known);
    let known = calls.iter().map(|call| &call[call.find('/').unwrap()..]);
    let known: BTreeSet<&str> = known
        .chain(envd.iter().map(|(_, path)| strip(path)))
        .collect();
    let source = include_str!("../../crates/doors/src/e2b/envd/mod.rs");
    let mut found = routes(source);
    found.remove("/health");
    assert_eq!(found, known);

    let posts = calls.map(|call| ("POST", format!("/{call}")));
    let envd = envd.map(|(verb, path)| (verb, path.to_owned()));
    let code = code.map(|(verb, path)| (verb, path.to_owned()));
    let ports = [
        ("49999", code.to_vec()),
        ("49983", [envd.to_vec(), posts.to_vec()].concat()),
    ];
    for (port, routes) in ports {
        let to = |http: &Http, id: &str| {
            let http = http.with(&format!("e2b-sandbox-port: {port}"));
            http.with(&format!("e2b-sandbox-id: {id}"))
        };
        for (verb, path) in routes {
            // With the other token, with the access token of that token's own sandbox, and without
            // any.
            let status = |http: &Http, id: &str| to(http, id).request(verb, &path, b"{}").status;
            assert_eq!(status(&all.two, id), 502, "{verb} {path}");
            let strange = all.none.with(&format!("x-access-token: {own_access}"));
            assert_eq!(status(&strange, id), 401, "{verb} {path}");
            assert_eq!(status(&all.none, id), 401, "{verb} {path}");
            let owner = all.none.with(&format!("x-access-token: {access}"));
            let done = status(&owner, id);
            assert!(!matches!(done, 401 | 502), "{verb} {path}: {done}");
        }
    }
    // Watchers and processes of one sandbox have no names in another.
    let at = |http: &Http, id: &str, token: &str| {
        let http = http.with(&format!("x-access-token: {token}"));
        let http = http.with("content-type: application/json");
        http.with(&format!("e2b-sandbox-id: {id}"))
    };
    let (own, others) = (
        at(&all.none, id, access),
        at(&all.none, &own_id, &own_access),
    );
    let made = own.post(
        "/filesystem.Filesystem/CreateWatcher",
        &json!({"path": "/home/user"}),
    );
    let watcher = json!({"watcherId": made.json()["watcherId"]});
    for call in ["GetWatcherEvents", "RemoveWatcher"] {
        let path = format!("/filesystem.Filesystem/{call}");
        assert_eq!(others.post(&path, &watcher).status, 404, "{call}");
        assert_eq!(own.post(&path, &watcher).status, 200, "{call}");
    }
    // A link that is signed for one sandbox is for no other.
    let named = all.none.with(&format!("e2b-sandbox-id: {own_id}"));
    let forged =
        named.get("/files?path=a&signature=v1_0000000000000000000000000000000000000000000");
    assert_eq!(forged.status, 401);
    // One key of two tokens stands for two sandboxes.
    let keyed = |http: &Http| create(&http.with("idempotency-key: same")).0;
    let keys = [keyed(&all.one), keyed(&all.one), keyed(&all.two)];
    assert!(keys[0] == keys[1] && keys[0] != keys[2], "{keys:?}");
    for (http, id) in [
        (&all.one, &keys[0]),
        (&all.two, &keys[2]),
        (&all.two, &own_id),
    ] {
        assert_eq!(
            http.request("DELETE", &format!("/sandboxes/{id}"), b"")
                .status,
            204
        );
    }
}

#[test]
fn other_doors_keep_tokens_apart() {
    let all = two(&["--symlink", "/workspace:/mnt/data"]);
    // Tools of MCP.
    let mcp = |http: &Http, tool: &str, arguments: Value| {
        let http = http.with("content-type: application/json");
        let http = http.with("accept: application/json, text/event-stream");
        let params = json!({"name": tool, "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        http.post("/mcp", &body).text()
    };
    let made = mcp(&all.one, "create_context", json!({}));
    let id = made.split("\"context_id\":\"").nth(1).unwrap();
    let id = id.split('"').next().unwrap();
    let tools = [
        ("run_code", json!({"code": "1"})),
        ("run_command", json!({"command": "true"})),
        ("write_file", json!({"path": "f", "text": "x"})),
        ("read_file", json!({"path": "f"})),
        ("list_files", json!({})),
        ("fork_context", json!({})),
        ("restart_context", json!({})),
        ("close_context", json!({})),
    ];
    for (tool, arguments) in &tools {
        let mut arguments = arguments.clone();
        arguments["context_id"] = id.into();
        let refused = mcp(&all.two, tool, arguments.clone());
        assert!(
            refused.contains("\"isError\":true") && refused.contains("not_found"),
            "{tool}: {refused}"
        );
        let done = mcp(&all.one, tool, arguments);
        let cannot = done.contains("context cannot be forked") || *tool == "fork_context";
        assert!(
            done.contains("\"isError\":false") || cannot,
            "{tool}: {done}"
        );
    }
    assert!(!mcp(&all.two, "list_contexts", json!({})).contains(id));
    // Sessions of NeMo-Skills with one name are two.
    let execute = |http: &Http, code: &str| {
        let body = json!({"generated_code": code, "language": "ipython", "timeout": 60});
        http.with("x-session-id: same")
            .post("/execute", &body)
            .text()
    };
    execute(&all.one, "x = 'secret'");
    assert!(execute(&all.one, "print(x)").contains("secret"));
    let others = execute(&all.two, "print(x)");
    assert!(
        others.contains("NameError") && !others.contains("secret"),
        "{others}"
    );
    all.two.request("DELETE", "/sessions/same", b"");
    assert!(execute(&all.one, "print(x)").contains("secret"));
    // Files of LibreChat.
    let body = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nsecret\r\n--B--\r\n";
    let form = all
        .one
        .with("content-type: multipart/form-data; boundary=B");
    let made = form.request("POST", "/upload", body.as_bytes()).json();
    let session = made["storage_session_id"].as_str().unwrap();
    let file = made["files"][0]["fileId"].as_str().unwrap();
    let paths = [
        ("GET", format!("/download/{session}/{file}")),
        ("GET", format!("/files/{session}")),
        ("DELETE", format!("/files/{session}/{file}")),
    ];
    for (verb, path) in &paths {
        let refused = all.two.request(verb, path, b"");
        assert!(
            !refused.text().contains("secret") && !refused.text().contains("a.txt"),
            "{refused:?}"
        );
        assert_eq!(refused.status, 404, "{verb} {path}: {refused:?}");
    }
    for (verb, path) in &paths {
        assert!(
            all.one.request(verb, path, b"").status < 300,
            "{verb} {path}"
        );
    }
}

#[test]
fn the_users_of_a_socket_have_nothing_of_a_token() {
    let server = Server::start_http(&[]);
    let http = server.http();
    http.ask(
        "POST",
        "/v1/contexts",
        &json!({"request": {"language": "python"}, "context": "a"}),
    );
    let mut local = server.connect();
    let run = local.call("context.run", json!({"context": "a", "code": "1"}));
    assert_eq!(run["error"]["code"], "not_found", "{run}");
    let run = http.post("/v1/contexts/a/run", &json!({"code": "1"}));
    assert_eq!(run.status, 200, "{run:?}");
}
