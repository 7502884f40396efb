//! Which requests reach which sandbox.

use super::*;

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
