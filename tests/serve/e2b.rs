//! E2B's wire, as hostile and hurried clients use it. tests/doors has the SDKs themselves.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{Server, until};
use crate::http_client::{Answer, Http, chunk, read};

const ONE: &str = "0123456789abcdef";
const OTHER: &str = "fedcba9876543210";

/// A server with two tokens.
fn guarded() -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, format!("{ONE}\n{OTHER}\n")).unwrap();
    let server = Server::start_http(&["--http-token", file.to_str().unwrap()]);
    (server, directory)
}

fn with_key(http: &Http, key: &str) -> Http {
    http.with(&format!("x-api-key: {key}"))
}

fn create(http: &Http) -> Value {
    let body = json!({"templateID": "code-interpreter-v1", "timeout": 300});
    http.ask("POST", "/v2/sandboxes", &body)
}

/// Requests to a port of a sandbox, with these additional fields.
fn at(http: &Http, sandbox: &Value, port: u16, fields: &[&str]) -> Http {
    let id = sandbox["sandboxID"].as_str().unwrap();
    let http = http.with(&format!("e2b-sandbox-id: {id}"));
    let http = http.with(&format!("e2b-sandbox-port: {port}"));
    fields.iter().fold(http, |http, field| http.with(field))
}

fn token(sandbox: &Value, name: &str) -> String {
    sandbox[name].as_str().unwrap().to_owned()
}

fn lines(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Reads the head of an answer whose body is read in chunks.
fn skip_head(socket: &mut BufReader<TcpStream>) {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        socket.read_line(&mut line).unwrap();
    }
}

#[test]
fn no_request_reaches_the_sandbox_of_another_token() {
    let (server, _directory) = guarded();
    let http = server.http();
    let (own, others) = (with_key(&http, ONE), with_key(&http, OTHER));
    let sandbox = create(&own);
    let id = sandbox["sandboxID"].as_str().unwrap();
    let path = format!("/sandboxes/{id}");
    // All of these requests work for the owner: see below.
    for (verb, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("GET", format!("{path}/metrics")),
        ("GET", format!("{path}/logs")),
        ("POST", format!("{path}/timeout")),
        ("POST", format!("{path}/refreshes")),
        ("POST", format!("{path}/pause")),
        ("POST", format!("{path}/fork")),
        ("POST", format!("/v2{path}/connect")),
    ] {
        let answer = others.request(verb, &path, b"{}");
        assert_eq!(answer.status, 404, "{verb} {path}: {answer:?}");
        assert_eq!(answer.json()["code"], 404);
    }
    assert_eq!(others.get("/v2/sandboxes").json(), json!([]));
    assert_eq!(http.get("/v2/sandboxes").status, 401);
    assert_eq!(own.get("/v2/sandboxes").json()[0]["sandboxID"], id);

    let key = format!("x-api-key: {OTHER}");
    let access = format!("x-access-token: {}", token(&sandbox, "envdAccessToken"));
    let traffic = format!(
        "e2b-traffic-access-token: {}",
        token(&sandbox, "trafficAccessToken")
    );
    let status =
        |port, fields: &[&str], path: &str| at(&http, &sandbox, port, fields).get(path).status;
    let envd = "/files?path=none";
    for (fields, code, files) in [
        (vec![], 401, 401),
        (vec!["x-access-token: wrong"], 401, 401),
        (vec!["e2b-traffic-access-token: wrong"], 401, 401),
        (vec![key.as_str()], 502, 502),
        // The token of one port does not work for the other.
        (vec![traffic.as_str()], 200, 401),
        (vec![access.as_str()], 200, 404),
    ] {
        assert_eq!(status(49999, &fields, "/contexts"), code, "{fields:?}");
        assert_eq!(status(49983, &fields, envd), files, "{fields:?}");
    }
    let mut unknown = sandbox.clone();
    unknown["sandboxID"] = "0000".into();
    let gone = at(&http, &unknown, 49983, &[&access]).get("/health");
    assert_eq!(gone.status, 502, "{gone:?}");
    assert!(gone.text().contains("was not found"), "{gone:?}");
    // Contexts of sandboxes are the token's own in every other interface.
    let context = format!("/v1/contexts/{id}-1");
    assert_eq!(others.get(&context).status, 404);
    assert_eq!(own.get(&context).status, 200);
    assert_eq!(own.request("DELETE", &path, b"").status, 204);
    assert_eq!(status(49999, &[&access], "/contexts"), 502);
}

#[test]
fn pages_reach_no_sandbox() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let status = |fields: &[&str]| at(&http, &sandbox, 49999, fields).get("/contexts").status;
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&["origin: http://evil.example"]), 403);
    assert_eq!(status(&["sec-fetch-site: cross-site"]), 403);
    let named = at(&http.as_host("evil.example"), &sandbox, 49999, &[]);
    assert_eq!(named.get("/contexts").status, 403);
}

#[test]
fn executions_are_streams() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let code = at(&http, &sandbox, 49999, &[]);
    let body = json!({"code": "import time\nprint(1, flush=True)\ntime.sleep(7)\n2"});
    let mut socket = code.send("POST", "/execute", body.to_string().as_bytes());
    skip_head(&mut socket);
    let mut kinds = Vec::new();
    while let Some(line) = chunk(&mut socket) {
        let line: Value = serde_json::from_slice(&line[..]).unwrap_or_else(|_| {
            // The last lines come together.
            json!({"type": String::from_utf8_lossy(&line)})
        });
        kinds.push(line["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds[..3], ["stdout", "keepalive", "result"], "{kinds:?}");
    assert!(kinds[3].contains("end_of_execution"), "{kinds:?}");

    // When a client goes, its code is interrupted, and the state stays.
    let endless = json!({"code": "x = 5\nprint('begun', flush=True)\nwhile True: pass"});
    let mut socket = code.send("POST", "/execute", endless.to_string().as_bytes());
    skip_head(&mut socket);
    let first = chunk(&mut socket).unwrap();
    assert!(
        String::from_utf8_lossy(&first).contains("begun"),
        "{first:?}"
    );
    drop(socket);
    let ran = lines(&code.post("/execute", &json!({"code": "x"})));
    assert_eq!(ran[0]["text"], "5", "{ran:?}");

    for (body, status) in [
        (
            json!({"code": "1", "context_id": "x", "language": "python"}),
            400,
        ),
        (json!({"code": "1", "context_id": "none"}), 404),
        (json!({"code": "1", "env_vars": {"A B": "x"}}), 400),
        (json!({"language": "python"}), 400),
    ] {
        assert_eq!(code.post("/execute", &body).status, status, "{body}");
    }
}

#[test]
fn languages_of_a_sandbox_have_one_file_system() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let code = at(&http, &sandbox, 49999, &[]);
    let run = |body: Value| {
        let ran = lines(&code.post("/execute", &body));
        let texts = ran.iter().filter_map(|line| line["text"].as_str());
        (texts.collect::<Vec<_>>().concat(), ran.clone())
    };
    let (written, ran) = run(json!({"code": "open('a.txt', 'w').write('shared')"}));
    assert_eq!(written, "6", "{ran:?}");
    let (read, ran) = run(json!({"code": "cat a.txt; echo of bash > b.txt", "language": "bash"}));
    assert_eq!(read, "shared", "{ran:?}");
    let (read, ran) = run(json!({"code": "print(open('b.txt').read())"}));
    assert_eq!(read, "of bash\n\n", "{ran:?}");
    assert_eq!(http.get("/v1/status").json()["cells"]["used"], 1);
    // A context of its own, in a directory that the first one has made; it begins anew when the
    // cell was made anew.
    run(json!({"code": "import os; os.mkdir('sub')"}));
    let context = code.ask(
        "POST",
        "/contexts",
        &json!({"language": "bash", "cwd": "/workspace/sub"}),
    );
    let id = context["id"].as_str().unwrap();
    let (here, ran) = run(json!({"code": "pwd; x=5", "context_id": id}));
    assert_eq!(here, "/workspace/sub\n", "{ran:?}");
    run(json!({"code": "os._exit(1)"}));
    let (anew, ran) = run(json!({"code": "pwd; echo ${x-none}; cat ../b.txt", "context_id": id}));
    assert_eq!(anew, "/workspace/sub\nnone\nof bash\n", "{ran:?}");
    assert_eq!(
        code.request("DELETE", &format!("/contexts/{id}"), b"")
            .status,
        200
    );
    assert_eq!(http.get("/v1/status").json()["cells"]["used"], 1);
}

#[test]
fn what_a_program_leaves_leads_nowhere_else() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let code = at(&http, &sandbox, 49999, &[]);
    let program = "import os\nos.symlink('/etc', 'etc')\nos.symlink('/etc/hostname', 'file')\n\
                   os.mkfifo('fifo')\nopen(b'\\xff', 'w').close()\nos.mkdir('d')";
    let ran = lines(&code.post("/execute", &json!({"code": program})));
    assert!(ran.iter().all(|line| line["type"] != "error"), "{ran:?}");
    let envd = at(&http, &sandbox, 49983, &["content-type: application/json"]);
    let call =
        |name: &str, body: &Value| envd.post(&format!("/filesystem.Filesystem/{name}"), body);
    let status = |name: &str, body: &Value| call(name, body).status;
    assert_eq!(status("Stat", &json!({"path": "d"})), 200);
    for path in ["etc/passwd", "file", "fifo", "../x", "/etc/passwd", "d"] {
        let answer = envd.get(&format!("/files?path={path}"));
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
        let mut socket = envd.send("POST", &format!("/files?path={path}/x"), b"text");
        let written = read(&mut socket).status;
        let is_directory = path == "d";
        assert_eq!(written == 200, is_directory, "{path}: {written}");
    }
    for (from, to) in [
        ("etc/passwd", "p"),
        ("d/x", "etc/x"),
        ("d", "d/y"),
        ("d", "../d"),
    ] {
        let answer = call("Move", &json!({"source": from, "destination": to}));
        assert!(
            (400..500).contains(&answer.status),
            "{from} {to}: {answer:?}"
        );
    }
    for name in ["MakeDir", "Remove", "ListDir"] {
        assert_eq!(status(name, &json!({"path": "etc/x"})), 400, "{name}");
        assert_eq!(status(name, &json!({"path": ".."})), 400, "{name}");
    }
    assert_eq!(status("MakeDir", &json!({"path": "d"})), 409);
    // A link itself is moved and removed, not its target.
    assert_eq!(
        status("Move", &json!({"source": "etc", "destination": "e"})),
        200
    );
    assert_eq!(status("Remove", &json!({"path": "e"})), 200);
    let listed = call("ListDir", &json!({"path": ""})).json();
    let names = listed["entries"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["d", "fifo", "file", "\u{fffd}"]);
}

#[test]
fn odd_requests_are_refused() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let json = at(&http, &sandbox, 49983, &["content-type: application/json"]);
    let plain = at(&http, &sandbox, 49983, &[]);
    let stat = "/filesystem.Filesystem/Stat";
    assert_eq!(json.request("POST", stat, b"{").status, 400);
    assert_eq!(plain.request("POST", stat, b"{}").status, 501);
    assert_eq!(
        json.with("content-encoding: gzip")
            .request("POST", stat, b"{}")
            .status,
        501
    );
    assert_eq!(
        json.request("POST", "/filesystem.Filesystem/None", b"{}")
            .status,
        404
    );
    assert_eq!(at(&http, &sandbox, 8000, &[]).get("/").status, 502);
    let stream = at(
        &http,
        &sandbox,
        49983,
        &["content-type: application/connect+json"],
    );
    for body in [
        &b""[..],
        b"\0\0\0\0\x02{",
        b"\x01\0\0\0\0",
        b"\0\xff\xff\xff\xff",
        b"\0\0\0\0\x01{",
    ] {
        let answer = stream.request("POST", "/filesystem.Filesystem/WatchDir", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body[0], 2, "{answer:?}");
        assert!(answer.text().contains("error"), "{answer:?}");
    }
    for (field, path, body) in [
        (
            "content-type: multipart/form-data; boundary=x",
            "/files",
            &b"--x--\r\n"[..],
        ),
        (
            "content-type: multipart/form-data; boundary=x",
            "/files",
            b"--x\r\n",
        ),
        ("content-type: application/octet-stream", "/files", b"x"),
        ("x-metadata-a: b", "/files?path=a", b"x"),
    ] {
        let answer = plain.with(field).request("POST", path, body);
        assert_eq!(answer.status, 400, "{field}: {answer:?}");
    }
    // An upload whose client goes leaves nothing waiting.
    let mut socket = plain.connect();
    let id = sandbox["sandboxID"].as_str().unwrap();
    let head = format!(
        "POST /files?path=half HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: {id}\r\n\
         content-length: 1000\r\n\r\nhalf"
    );
    socket.write_all(head.as_bytes()).unwrap();
    drop(socket);
    until("the end of its client", || {
        http.get("/v1/status").json()["clients"] == 1
    });
    assert_eq!(plain.get("/files?path=half").status, 404);
}

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

/// A message in its envelope.
fn envelope(message: &Value) -> Vec<u8> {
    let text = message.to_string().into_bytes();
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), &text].concat()
}

#[test]
fn programs_outlive_the_client_that_started_them() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let json = at(&http, &sandbox, 49983, &["content-type: application/json"]);
    let stream = at(
        &http,
        &sandbox,
        49983,
        &["content-type: application/connect+json"],
    );
    let call = |name: &str, body: &Value| json.post(&format!("/process.Process/{name}"), body);
    let running = || {
        let listed = call("List", &json!({})).json();
        listed["processes"].as_array().unwrap().len()
    };
    let program = json!({"cmd": "sh", "args": ["-c", "echo begun; exec cat"]});
    let start = envelope(&json!({"process": program, "tag": "own", "stdin": true}));
    let mut socket = stream.send("POST", "/process.Process/Start", &start);
    skip_head(&mut socket);
    let mut seen = String::new();
    while !seen.contains("YmVndW4K") {
        seen += &String::from_utf8_lossy(&chunk(&mut socket).unwrap());
    }
    let start = seen.find("\"start\"").unwrap();
    assert!(start < seen.find("\"data\"").unwrap(), "{seen}");
    drop(socket);
    until("the end of its client", || {
        http.get("/v1/status").json()["clients"] == 1
    });
    assert_eq!(running(), 1);
    let own = json!({"tag": "own"});
    let input = json!({"process": own, "input": {"stdin": "?"}});
    assert_eq!(call("SendInput", &input).status, 400);
    let signal = |name: &str| call("SendSignal", &json!({"process": own, "signal": name})).status;
    assert_eq!(signal("SIGNAL_SIGSTOP"), 400);
    // A second client gets the output from now on, and the end.
    let connect = envelope(&json!({"process": own}));
    let mut socket = stream.send("POST", "/process.Process/Connect", &connect);
    until("its connection", || {
        http.get("/v1/status").json()["clients"] == 2
    });
    let input = json!({"process": own, "input": {"stdin": "aW4="}});
    assert_eq!(call("SendInput", &input).status, 200);
    assert_eq!(call("CloseStdin", &json!({"process": own})).status, 200);
    let rest = read(&mut socket).text();
    assert!(
        rest.contains("aW4=") && rest.contains("exit status 0"),
        "{rest}"
    );
    until("its end", || running() == 0);
    assert_eq!(signal("SIGNAL_SIGKILL"), 404);
    for body in [
        json!({}),
        json!({"process": {}}),
        json!({"process": {"pid": -1}}),
    ] {
        let status = call("CloseStdin", &body).status;
        assert!(matches!(status, 400 | 404), "{body}: {status}");
    }
}

#[test]
fn a_link_is_for_one_file() {
    let (server, _directory) = guarded();
    let http = server.http();
    let sandbox = create(&with_key(&http, ONE));
    let access = token(&sandbox, "envdAccessToken");
    let code = at(
        &http,
        &sandbox,
        49999,
        &[&format!("x-access-token: {access}")],
    );
    let program = format!(
        "import base64, hashlib, urllib.parse\nopen('a', 'w').write('text')\n\
         digest = hashlib.sha256(b'a:read::{access}').digest()\n\
         urllib.parse.quote(base64.b64encode(digest).rstrip(b'='), safe='')"
    );
    let ran = lines(&code.post("/execute", &json!({"code": program})));
    let signature = ran[0]["text"].as_str().unwrap().trim_matches('\'');
    let query = format!("path=a&signature=v1_{signature}");
    let link = format!("/files?{query}");
    // The link gives access to that file, from any page.
    for http in [
        http.with("sec-fetch-site: cross-site"),
        at(&http, &sandbox, 49983, &[]),
    ] {
        let answer = http.get(&link);
        assert_eq!((answer.status, answer.text()), (200, "text".to_owned()));
    }
    // It gives access to nothing else.
    let envd = at(&http, &sandbox, 49983, &["content-type: application/json"]);
    assert_eq!(envd.get(&format!("/envs?{query}")).status, 401);
    assert_eq!(envd.get(&link.replace("path=a", "path=b")).status, 401);
    let list = format!("/filesystem.Filesystem/ListDir?{query}");
    assert_eq!(envd.post(&list, &json!({"path": ""})).status, 401);
    assert_eq!(envd.request("POST", &link, b"x").status, 401);
}

#[test]
fn contents_are_any_bytes() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let envd = at(&http, &sandbox, 49983, &[]);
    let id = sandbox["sandboxID"].as_str().unwrap();
    // A NUL takes six bytes as JSON.
    let zeros = vec![0; 4 << 20];
    let put = format!("/v1/contexts/{id}-1/files/put");
    assert_eq!(http.request("PUT", &put, &zeros).status, 200);
    assert_eq!(
        envd.request("POST", "/files?path=posted", &zeros).status,
        200
    );
    for path in ["put", "posted"] {
        let read = envd.get(&format!("/files?path={path}"));
        assert!(read.status == 200 && read.body == zeros, "{path}");
    }
    let boundless = envd.with("content-type: multipart/form-data; boundary=x");
    assert_eq!(boundless.request("POST", "/files", &zeros).status, 400);
}

#[test]
fn variables_are_those_of_one_execution() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let code = at(&http, &sandbox, 49999, &[]);
    let own = json!({
        "code": "import os, time\nprint('begun', flush=True)\ntime.sleep(1)\nos.environ['A']",
        "env_vars": {"A": "own"},
    });
    let mut socket = code.send("POST", "/execute", own.to_string().as_bytes());
    skip_head(&mut socket);
    chunk(&mut socket).unwrap();
    let body = json!({"code": "import os\nos.environ.get('A', 'none')"});
    let others = lines(&code.post("/execute", &body));
    assert_eq!(others[0]["text"], "none", "{others:?}");
    // When a client goes, its variables are removed.
    drop(socket);
    let mut socket = code.send("POST", "/execute", own.to_string().as_bytes());
    skip_head(&mut socket);
    chunk(&mut socket).unwrap();
    drop(socket);
    let after = lines(&code.post("/execute", &body));
    assert_eq!(after[0]["text"], "none", "{after:?}");
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
    let timeout = json!({"timeout": 4});
    assert_eq!(http.post(&format!("{path}/timeout"), &timeout).status, 204);
    let paused = http.request("POST", &format!("{path}/pause"), b"{}");
    assert_eq!(paused.status, 204, "{paused:?}");
    let state = || http.get(&path).json()["state"].clone();
    // The time at which it would have ended.
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(state(), "paused");
    assert_eq!(code.get("/health").status, 502);
    assert_eq!(state(), "paused");
    let connect = format!("/v2{path}/connect");
    assert_eq!(http.request("POST", &connect, b"{}").status, 201);
    assert_eq!(state(), "running");
    let ran = lines(&code.post("/execute", &json!({"code": "x"})));
    assert_eq!(ran[0]["text"], "5", "{ran:?}");
}
