//! Executions of code.

use super::*;

#[test]
fn executions_are_streams() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let sandbox = create(&http);
    let code = at(&http, &sandbox, 49999, &[]);
    let body = json!({"code": "import time\nprint(1, flush=True)\ntime.sleep(7)\n2"});
    let ran = lines(&code.post("/execute", &body));
    let kinds = ran.iter().map(|line| line["type"].as_str().unwrap());
    // On a busy host there are more of these, and one before the code has begun.
    let mut kinds: Vec<&str> = kinds.skip_while(|kind| *kind == "keepalive").collect();
    kinds.dedup();
    let expected = [
        "stdout",
        "keepalive",
        "result",
        "number_of_executions",
        "end_of_execution",
    ];
    assert_eq!(kinds, expected, "{ran:?}");

    // When a client goes, its code is interrupted, and the state stays.
    let endless = json!({"code": "x = 5\nprint('begun', flush=True)\nwhile True: pass"});
    let mut socket = code.send("POST", "/execute", endless.to_string().as_bytes());
    skip_head(&mut socket);
    wait_for(&mut socket, "begun");
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
    wait_for(&mut socket, "begun");
    let body = json!({"code": "import os\nos.environ.get('A', 'none')"});
    let others = lines(&code.post("/execute", &body));
    assert_eq!(others[0]["text"], "none", "{others:?}");
    // When a client goes, its variables are removed.
    drop(socket);
    let mut socket = code.send("POST", "/execute", own.to_string().as_bytes());
    skip_head(&mut socket);
    wait_for(&mut socket, "begun");
    drop(socket);
    let after = lines(&code.post("/execute", &body));
    assert_eq!(after[0]["text"], "none", "{after:?}");
}
