//! Files, and what programs leave.

use super::*;

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
    let seen = wait_for(&mut socket, "YmVndW4K");
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
    skip_head(&mut socket);
    wait_for(&mut socket, "\"start\"");
    let input = json!({"process": own, "input": {"stdin": "aW4="}});
    assert_eq!(call("SendInput", &input).status, 200);
    assert_eq!(call("CloseStdin", &json!({"process": own})).status, 200);
    let rest = wait_for(&mut socket, "exit status 0");
    assert!(rest.contains("aW4="), "{rest}");
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
fn contents_are_any_bytes() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let envd = at(&http, &sandbox, 49983, &[]);
    let id = sandbox["sandboxID"].as_str().unwrap();
    // A NUL takes six bytes as JSON, and these are more than a line may have.
    let zeros = vec![0; 3 << 20];
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
