//! How sandboxes begin and end.

use super::*;

#[test]
fn sandboxes_end_with_their_cells() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let id = sandbox["sandboxID"].as_str().unwrap();
    let code = at(&http, &sandbox, 49999, &[]);
    let body = json!({"code": "1", "language": "bash"});
    assert_eq!(code.post("/execute", &body).status, 200);
    let contexts = || http.get("/v1/status").json()["contexts"].clone();
    assert_eq!(contexts(), 2);
    // The sandbox's context is deleted by another interface.
    http.ask("DELETE", &format!("/v1/contexts/{id}-1"), &json!({}));
    assert_eq!(code.post("/execute", &json!({"code": "1"})).status, 502);
    assert_eq!(http.get(&format!("/sandboxes/{id}")).status, 404);
    until("the end of its contexts", || contexts() == 0);
    let body = json!({"templateID": "base", "timeout": 1});
    let short = http.ask("POST", "/v2/sandboxes", &body);
    until("its end", || {
        at(&http, &short, 49983, &[]).get("/health").status == 502
    });
    until("that of its cell", || contexts() == 0);
    for (body, part) in [
        (json!({"templateID": "none"}), "not found"),
        (json!({"templateID": "base", "mcp": {}}), "mcp"),
        (
            json!({"templateID": "base", "network": {"denyOut": ["10.0.0.0/8"]}}),
            "denyOut",
        ),
        (
            json!({"templateID": "base", "envVars": {"A=B": "x"}}),
            "A=B",
        ),
    ] {
        let answer = http.post("/v2/sandboxes", &body);
        assert!((400..500).contains(&answer.status), "{answer:?}");
        assert!(answer.text().contains(part), "{answer:?}");
    }
    assert_eq!(contexts(), 0);
    // A repeated request with the same key creates nothing.
    let keyed = http.with("idempotency-key: abc");
    let ids = [create(&keyed), create(&keyed), create(&http)].map(|made| made["sandboxID"].clone());
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
    let other = json!({"templateID": "base", "timeout": 77});
    assert_eq!(keyed.post("/v2/sandboxes", &other).status, 400);
}

#[test]
fn overlapping_requests_with_one_key_create_one_sandbox() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let created = |fields: [String; 6]| {
        let requests = fields.map(|field| {
            let http = http.with(&field);
            std::thread::spawn(move || create(&http)["sandboxID"].to_string())
        });
        let ids = requests.map(|request| request.join().unwrap());
        std::collections::BTreeSet::from(ids).len()
    };
    let listed = || http.get("/v2/sandboxes").json().as_array().unwrap().len();
    // With keys of their own they are as many.
    let own = std::array::from_fn(|number| format!("idempotency-key: {number}"));
    assert_eq!((created(own), listed()), (6, 6));
    let same = std::array::from_fn(|_| "idempotency-key: same".to_owned());
    assert_eq!((created(same), listed()), (1, 7));
    // A sandbox that has ended is created again.
    let keyed = http.with("idempotency-key: same");
    let first = create(&keyed)["sandboxID"].clone();
    let path = format!("/sandboxes/{}", first.as_str().unwrap());
    assert_eq!(http.request("DELETE", &path, b"").status, 204);
    assert_ne!(create(&keyed)["sandboxID"], first);
}

#[test]
fn what_is_refused_takes_no_room() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let code = at(&http, &sandbox, 49999, &[]);
    let contexts = || code.get("/contexts").json().as_array().unwrap().len();
    let before = contexts();
    for number in 0..40 {
        let body = json!({"code": "1", "language": format!("none{number}")});
        assert_eq!(code.post("/execute", &body).status, 400);
    }
    let long = json!({"cwd": "d".repeat(5000)});
    assert_eq!(code.post("/contexts", &long).status, 400);
    assert_ne!(code.post("/contexts", &json!({"cwd": "/none"})).status, 200);
    assert_eq!(contexts(), before);
    let json = at(&http, &sandbox, 49983, &["content-type: application/json"]);
    let watch = || {
        let path = "/filesystem.Filesystem/CreateWatcher";
        json.post(path, &json!({"path": ""})).status
    };
    let made = (0..100).take_while(|_| watch() == 200).count();
    assert_eq!((made, watch()), (16, 400));
    let half = "x".repeat(40 << 10);
    let body = json!({"templateID": "base", "metadata": {"a": half}, "envVars": {"B": half}});
    let answer = http.post("/v2/sandboxes", &body);
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[test]
fn a_paused_sandbox_has_no_clock() {
    let server = Server::start_http(&["--e2b-pause"]);
    let http = server.http();
    let sandbox = create(&http);
    let path = format!("/sandboxes/{}", sandbox["sandboxID"].as_str().unwrap());
    let code = at(&http, &sandbox, 49999, &[]);
    code.post("/execute", &json!({"code": "x = 5"}));
    let timeout = json!({"timeout": 15});
    assert_eq!(http.post(&format!("{path}/timeout"), &timeout).status, 204);
    let paused = http.request("POST", &format!("{path}/pause"), b"{}");
    assert_eq!(paused.status, 204, "{paused:?}");
    let state = || http.get(&path).json()["state"].clone();
    // The time at which it would have ended.
    std::thread::sleep(std::time::Duration::from_secs(16));
    assert_eq!(state(), "paused");
    assert_eq!(code.get("/health").status, 502);
    assert_eq!(state(), "paused");
    let connect = format!("/v2{path}/connect");
    assert_eq!(http.request("POST", &connect, b"{}").status, 201);
    assert_eq!(state(), "running");
    let ran = lines(&code.post("/execute", &json!({"code": "x"})));
    assert_eq!(ran[0]["text"], "5", "{ran:?}");
}
