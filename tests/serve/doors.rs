//! Other servers' interfaces, as their clients use them.

use std::io::{BufReader, Write as _};

use serde_json::{Value, json};

use crate::harness::{Server, until, wall};
use crate::http_client::{Http, read};

fn run_code(http: &Http, body: &Value) -> Value {
    let answer = http.post("/run_code", body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn sandbox_fusion_runs_code() {
    let server = Server::start_http(&[]);
    let http = server.http();
    assert_eq!(http.get("/v1/ping").json(), "pong");
    // As verl sends it.
    let ran = run_code(
        &http,
        &json!({
            "compile_timeout": 10, "run_timeout": 10, "memory_limit_MB": 1024,
            "code": "print(int(input()) * 2)\n3 + 4", "stdin": "21\n", "language": "python",
            "files": {}, "fetch_files": [],
        }),
    );
    assert_eq!(ran["status"], "Success", "{ran}");
    assert_eq!(ran["compile_result"], Value::Null);
    let result = &ran["run_result"];
    assert_eq!(result["status"], "Finished");
    assert_eq!(result["return_code"], 0);
    assert_eq!(
        (&result["stdout"], &result["stderr"]),
        (&json!("42\n"), &json!(""))
    );
    assert!(result["execution_time"].as_f64().unwrap() > 0.0);

    let raised = run_code(
        &http,
        &json!({"code": "print(1)\n1 / 0", "language": "python"}),
    );
    assert_eq!(raised["status"], "Failed", "{raised}");
    let result = &raised["run_result"];
    assert_eq!(
        (&result["status"], &result["return_code"]),
        (&json!("Finished"), &json!(1))
    );
    assert_eq!(result["stdout"], "1\n");
    let stderr = result["stderr"].as_str().unwrap();
    assert!(
        stderr.starts_with("Traceback (most recent call last):\n"),
        "{stderr}"
    );
    assert!(
        stderr.ends_with("ZeroDivisionError: division by zero\n"),
        "{stderr}"
    );

    let exited = run_code(&http, &json!({"code": "exit 3", "language": "bash"}));
    assert_eq!(exited["run_result"]["return_code"], 3, "{exited}");
}

/// Whether code comes so far before its time is over: on a busy host, it may not have begun in the
/// shortest of these times.
fn in_one_of_these_times(comes_so_far: impl FnMut(f64) -> bool) -> bool {
    [0.5, 5.0, 50.0].into_iter().any(comes_so_far)
}

#[test]
fn sandbox_fusion_keeps_limits() {
    let server = Server::start_http(&["--wall", &wall()]);
    let http = server.http();
    let has_come = in_one_of_these_times(|seconds| {
        let code = "print(1, flush=True)\nimport time; time.sleep(60)";
        let late = json!({"code": code, "language": "python", "run_timeout": seconds});
        let late = run_code(&http, &late);
        assert_eq!(late["status"], "Failed", "{late}");
        let result = &late["run_result"];
        assert_eq!(result["status"], "TimeLimitExceeded");
        assert_eq!(result["return_code"], Value::Null);
        result["stdout"] == "1\n"
    });
    assert!(has_come, "no output of code whose time is over");
    // More than this server allows is what this server allows.
    let long = json!({"code": "print(1)", "language": "python", "run_timeout": 600, "memory_limit_MB": 1_000_000});
    assert_eq!(run_code(&http, &long)["status"], "Success");
    let code = "x = bytearray(300 << 20)\nprint(len(x))";
    let big = json!({"code": code, "language": "python", "memory_limit_MB": 100});
    let big = run_code(&http, &big);
    assert_eq!(big["status"], "Failed", "{big}");
    assert_eq!(big["run_result"]["stdout"], "");
    let said = big["run_result"]["stderr"].as_str().unwrap();
    assert!(said.to_lowercase().contains("memory"), "{big}");
    let enough = json!({"code": code, "language": "python", "memory_limit_MB": 600});
    assert_eq!(run_code(&http, &enough)["status"], "Success");
}

#[test]
fn sandbox_fusion_moves_files() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let code = "data = open('in/a.bin', 'rb').read()\nopen('out.bin', 'wb').write(data[::-1])";
    let ran = run_code(
        &http,
        &json!({
            "code": code, "language": "python",
            "files": {"in/a.bin": "AP8BAg==", "none": null},
            "fetch_files": ["out.bin", "missing"],
        }),
    );
    assert_eq!(ran["status"], "Success", "{ran}");
    assert_eq!(ran["files"], json!({"out.bin": "AgH/AA=="}));
    until("its context's end", || {
        http.get("/v1/status").json()["cells"]["used"] == 0
    });
    for (body, part) in [
        (json!({"code": "", "language": "cobol"}), "cobol"),
        (
            json!({"code": "", "language": "python", "files": {"../x": "AA=="}}),
            "files[0].path",
        ),
        (
            json!({"code": "", "language": "python", "files": {"x": "?"}}),
            "base64",
        ),
    ] {
        let refused = run_code(&http, &body);
        assert_eq!(refused["status"], "SandboxError", "{refused}");
        assert!(
            refused["message"].as_str().unwrap().contains(part),
            "{refused}"
        );
        assert_eq!(refused["run_result"], Value::Null);
    }
    let many = json!({"code": "", "language": "python", "fetch_files": vec!["f"; 257]});
    let many = http.post("/run_code", &many);
    assert_eq!(many.status, 422, "{many:?}");
    assert!(many.text().contains("fetch_files: has more than 256"));
    let invalid = http.post("/run_code", &json!({"language": "python"}));
    assert_eq!(invalid.status, 422, "{invalid:?}");
    assert!(
        invalid.text().contains("missing field `code`"),
        "{invalid:?}"
    );
}

#[test]
fn sandbox_fusion_without_room_says_504() {
    let server = Server::start_http(&["--max-cells", "1", "--max-queue", "0"]);
    let http = server.http();
    let body = json!({"code": "import time; time.sleep(1000)", "language": "python"}).to_string();
    let busy = http.send("POST", "/run_code", body.as_bytes());
    until("the run", || {
        http.get("/v1/status").json()["cells"]["used"] == 1
    });
    let refused = http.post("/run_code", &json!({"code": "1", "language": "python"}));
    assert_eq!(refused.status, 504, "{refused:?}");
    assert!(refused.field("retry-after").is_some(), "{refused:?}");
    assert_eq!(refused.json()["status"], "SandboxError");
    drop(busy);
    until("room", || {
        http.post("/run_code", &json!({"code": "1", "language": "python"}))
            .status
            == 200
    });
}

#[test]
fn sandbox_fusion_runs_notebooks() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let cells = [
        "x = 20",
        "print(x)\nx + 1",
        "1 / 0",
        "open('f', 'w').write('done')\nx",
    ];
    let ran = http.ask(
        "POST",
        "/run_jupyter",
        &json!({"cells": cells, "cell_timeout": 0, "total_timeout": 45, "fetch_files": ["f"]}),
    );
    assert_eq!(ran["status"], "Success", "{ran}");
    assert_eq!(ran["driver"]["status"], "Finished");
    let cells = ran["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    assert_eq!(cells[1]["stdout"], "20\n");
    assert_eq!(cells[1]["display"][0]["text/plain"], "21");
    assert_eq!(cells[2]["error"][0]["ename"], "ZeroDivisionError");
    assert_eq!(cells[3]["error"], json!([]));
    assert_eq!(ran["files"], json!({"f": "ZG9uZQ=="}));
    let has_come = in_one_of_these_times(|seconds| {
        let cells = ["1", "import time; time.sleep(60)", "2"];
        let late = json!({"cells": cells, "total_timeout": seconds});
        let late = http.ask("POST", "/run_jupyter", &late);
        assert_eq!(late["status"], "Failed", "{late}");
        assert_eq!(late["driver"]["status"], "TimeLimitExceeded");
        late["cells"].as_array().unwrap().len() == 2
    });
    assert!(
        has_come,
        "no results of cells before the one whose time is over"
    );
    let many = json!({"cells": vec![""; 1001]});
    let many = http.post("/run_jupyter", &many);
    assert_eq!(many.status, 422, "{many:?}");
    assert!(many.text().contains("cells: has more than 1000"));
}

#[test]
fn sandbox_fusion_ends_notebooks_without_a_time() {
    let server = Server::start_http(&["--wall", "1s"]);
    let cells = vec!["import time; time.sleep(0.6)"; 50];
    let body = json!({"cells": cells, "total_timeout": 0});
    let ran = server.http().ask("POST", "/run_jupyter", &body);
    assert_eq!(ran["driver"]["status"], "TimeLimitExceeded", "{ran}");
    assert!(ran["cells"].as_array().unwrap().len() < 50);
}

fn execute(http: &Http, session: &str, code: &str, timeout: f64) -> Value {
    let http = http.with(&format!("x-session-id: {session}"));
    let body = json!({
        "generated_code": code, "std_input": "", "timeout": timeout, "language": "ipython",
        "max_output_characters": 1000, "traceback_verbosity": "Plain",
    });
    http.ask("POST", "/execute", &body)
}

#[test]
fn nemo_skills_has_sessions() {
    let server = Server::start_http(&[]);
    let http = server.http();
    assert_eq!(http.get("/health").json()["status"], "healthy");
    let first = execute(&http, "s 1/ü", "x = 20", 10.0);
    assert_eq!(first["process_status"], "completed", "{first}");
    assert_eq!(first["new_session_created"], true);
    let second = execute(&http, "s 1/ü", "print('out')\nx + 1", 10.0);
    assert_eq!(second["stdout"], "out\n21\n", "{second}");
    assert_eq!(second["new_session_created"], false);
    let raised = execute(&http, "s 1/ü", "x / 0", 10.0);
    assert_eq!(raised["process_status"], "error", "{raised}");
    assert!(
        raised["stdout"]
            .as_str()
            .unwrap()
            .contains("ZeroDivisionError")
    );
    let late = execute(
        &http,
        "s 1/ü",
        "import time\nprint('seen', end='')\ntime.sleep(60)",
        0.5,
    );
    assert_eq!(late["process_status"], "timeout", "{late}");
    assert_eq!(late["stdout"], "seen");
    assert_eq!(late["stderr"], "Execution timed out after 0.5 seconds\n");
    assert_eq!(late["new_session_created"], false);
    assert_eq!(execute(&http, "s 1/ü", "x", 10.0)["stdout"], "20\n");
    let other = execute(&http, "s2", "x", 10.0);
    assert!(
        other["stdout"].as_str().unwrap().contains("NameError"),
        "{other}"
    );
    let ended = execute(&http, "s2", "import os; os._exit(1)", 10.0);
    assert_eq!(ended["new_session_created"], true, "{ended}");
    let listed = http.get("/sessions").json();
    assert_eq!(listed["sessions"].as_object().unwrap().len(), 2, "{listed}");
    assert_eq!(http.request("DELETE", "/sessions/s2", b"").status, 200);
    assert_eq!(http.request("DELETE", "/sessions/s2", b"").status, 404);
    let long = execute(&http, "s 1/ü", "print('y' * 2000)", 10.0);
    let stdout = long["stdout"].as_str().unwrap();
    assert_eq!(stdout, format!("{}<output cut>", "y".repeat(1000)));
    let without = json!({"generated_code": "1", "timeout": 5});
    assert_eq!(http.post("/execute", &without).status, 400);
    // Two such names would otherwise be one session.
    let mut socket = http.connect();
    let body = without.to_string();
    let head = "POST /execute HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-session-id: \u{e9}\r\n";
    let head = format!("{head}content-length: {}\r\n\r\n", body.len());
    let head = head.chars().map(|c| u8::try_from(c).unwrap());
    socket.write_all(&head.collect::<Vec<_>>()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    assert_eq!(read(&mut BufReader::new(socket)).status, 400);
}

#[test]
fn nemo_skills_runs_programs() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let run = |language: &str, code: &str, timeout: f64| {
        let body = json!({
            "generated_code": code, "std_input": "5", "timeout": timeout, "language": language,
        });
        http.ask("POST", "/execute", &body)
    };
    let ran = run(
        "python",
        "print(int(input()) + 1)\nraise SystemExit(3)",
        10.0,
    );
    assert_eq!(ran["process_status"], "completed", "{ran}");
    assert_eq!(ran["stdout"], "6\n");
    assert_eq!(run("shell", "echo $((6 * 7))", 10.0)["stdout"], "42\n");
    assert_eq!(run("shell", "exit 4", 10.0)["process_status"], "error");
    for (language, code) in [
        ("python3", "print('seen', end='')\nwhile True: pass"),
        ("shell", "printf seen; while :; do :; done"),
    ] {
        let late = run(language, code, 0.5);
        assert_eq!(late["process_status"], "timeout", "{late}");
        assert_eq!(late["stdout"], "seen", "{language}");
    }
    assert_eq!(run("lean4", "example", 5.0)["process_status"], "error");
}

#[test]
fn sessions_are_those_of_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    let (one, two) = ("1".repeat(20), "2".repeat(20));
    std::fs::write(&file, format!("{one}\n{two}\n")).unwrap();
    let server = Server::start_http(&["--http-token", file.to_str().unwrap()]);
    let http = server.http();
    let one = http.with(&format!("x-api-key: {one}"));
    let two = http.with(&format!("x-api-key: {two}"));
    execute(&one, "same", "x = 1", 10.0);
    let other = execute(&two, "same", "x", 10.0);
    assert_eq!(other["new_session_created"], true);
    assert_eq!(other["process_status"], "error", "{other}");
    assert_eq!(two.request("DELETE", "/sessions/same", b"").status, 200);
    assert_eq!(execute(&one, "same", "x", 10.0)["stdout"], "1\n");
}

/// A form with one file.
fn upload(http: &Http, name: &str, content: &[u8]) -> Value {
    let http = http.with("content-type: multipart/form-data; boundary=XX");
    let mut body = format!(
        "--XX\r\ncontent-disposition: form-data; name=\"kind\"\r\n\r\nuser\r\n--XX\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(content);
    body.extend_from_slice(b"\r\n--XX--\r\n");
    let answer = http.request("POST", "/upload", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn librechat_runs_code_with_files() {
    let server = Server::start_http(&["--symlink", "/workspace:/mnt/data"]);
    let http = server.http();
    let uploaded = upload(&http, "in.bin", b"\x00\xffabc");
    assert_eq!(uploaded["message"], "success");
    let storage = uploaded["storage_session_id"].as_str().unwrap();
    let id = uploaded["files"][0]["fileId"].as_str().unwrap();
    assert_eq!((storage.len(), id.len()), (21, 21), "{uploaded}");
    let code = "import sys\ndata = open('/mnt/data/in.bin', 'rb').read()\nprint(len(data), sys.argv[1:])\nopen('/mnt/data/out.bin', 'wb').write(data * 2)";
    let body = json!({
        "lang": "py", "code": code, "args": ["x"], "user_id": "u",
        "files": [{"id": id, "name": "in.bin", "storage_session_id": storage, "kind": "user"}],
    });
    let mut both = body.clone();
    both["files"][0]["session_id"] = json!(storage);
    let mut old = both.clone();
    old["files"][0]["storage_session_id"].take();
    for body in [both, old] {
        let ran = http.ask("POST", "/exec", &body);
        assert_eq!(ran["stdout"], "5 ['x']\n", "{ran}");
    }
    let mut none = body.clone();
    none["files"][0]["storage_session_id"].take();
    let refused = http.post("/exec", &none);
    assert_eq!(refused.status, 400, "{refused:?}");
    let ran = http.ask("POST", "/exec", &body);
    assert_eq!(ran["stdout"], "5 ['x']\n", "{ran}");
    assert_eq!(ran["stderr"], "");
    let left = ran["files"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{ran}");
    assert_eq!(left[0]["name"], "out.bin");
    let session = ran["session_id"].as_str().unwrap();
    let file = left[0]["id"].as_str().unwrap();
    let found = http.get(&format!("/download/{session}/{file}?kind=user&id=u"));
    assert_eq!(found.body, b"\x00\xffabc\x00\xffabc");
    let name = "attachment; filename=\"out.bin\"";
    assert_eq!(found.field("content-disposition"), Some(name));
    let listed = http.get(&format!("/files/{session}?detail=summary")).json();
    let names = listed.as_array().unwrap().iter();
    let names: Vec<&Value> = names
        .map(|file| &file["metadata"]["original-filename"])
        .collect();
    assert_eq!(names, ["in.bin", "out.bin"]);
    let path = format!("/files/{session}/{file}");
    assert_eq!(http.request("DELETE", &path, b"").status, 200);
    assert_eq!(http.request("DELETE", &path, b"").status, 404);
    assert_eq!(http.get(&format!("/download/{session}/{file}")).status, 404);
}

#[test]
fn librechat_serves_files_beside_odd_ones() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let code = "import os\nopen('f', 'w').write('x')\nopen(b'\\xff', 'w').close()\n\
                open('back\\\\', 'w').close()\nos.utime('f', (1 << 40, 1 << 40))";
    let ran = http.ask("POST", "/exec", &json!({"lang": "py", "code": code}));
    let left = ran["files"].as_array().unwrap().iter();
    let names: Vec<&Value> = left.clone().map(|file| &file["name"]).collect();
    assert_eq!(names, ["back\\", "f"], "{ran}");
    let session = ran["session_id"].as_str().unwrap();
    let found: Vec<_> = left
        .map(|file| {
            http.get(&format!(
                "/download/{session}/{}",
                file["id"].as_str().unwrap()
            ))
        })
        .collect();
    let name = |index: usize| found[index].field("content-disposition");
    assert_eq!(name(0), Some("attachment; filename=\"back\""));
    assert_eq!((found[1].status, found[1].text()), (200, "x".to_owned()));
    let listed = http.get(&format!("/files/{session}")).json();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(listed[1]["lastModified"], "9999-12-31T23:59:59Z");
}

#[test]
fn librechat_clients_that_vanish_leave_no_session() {
    let server = Server::start_http(&[]);
    let http = server.http();
    let body = json!({"lang": "py", "code": "import time; time.sleep(1000)"}).to_string();
    let socket = http.send("POST", "/exec", body.as_bytes());
    until("the execution", || {
        http.get("/v1/status").json()["contexts"] == 1
    });
    drop(socket);
    until("no session", || {
        http.get("/v1/status").json()["contexts"] == 0
    });
}

#[test]
fn librechat_keeps_nothing_of_what_failed() {
    let server = Server::start_http(&[]);
    let http = server.http();
    for (lang, code, stdout, stderr) in [
        (
            "py",
            "open('f', 'w').write('x')\nprint(1)\n1 / 0",
            "1\n",
            "ZeroDivisionError: division by zero\n",
        ),
        (
            "bash",
            "echo 1 > f; echo out; echo why >&2; exit 3",
            "out\n",
            "why\n",
        ),
        ("py", "print(2)", "2\n", ""),
    ] {
        let ran = http.ask("POST", "/exec", &json!({"lang": lang, "code": code}));
        assert_eq!(
            (&ran["stdout"], &ran["files"]),
            (&json!(stdout), &json!([])),
            "{ran}"
        );
        assert!(ran["stderr"].as_str().unwrap().contains(stderr), "{ran}");
        assert_eq!(ran["session_id"].as_str().unwrap().len(), 21);
    }
    until("no session", || {
        http.get("/v1/status").json()["contexts"] == 0
    });
    let gone = json!({
        "lang": "py", "code": "import os; print(os.listdir())",
        "files": [{"id": "a", "name": "a", "session_id": "gone"}],
    });
    assert_eq!(http.ask("POST", "/exec", &gone)["stdout"], "[]\n");
    let other = http.post("/exec", &json!({"lang": "cobol", "code": ""}));
    assert_eq!(other.status, 400, "{other:?}");
    let many = vec![json!({"id": "a", "name": "a", "session_id": "gone"}); 257];
    let many = json!({"lang": "py", "code": "", "files": many});
    assert_eq!(http.post("/exec", &many).status, 400);
    assert_eq!(http.request("POST", "/upload", b"x").status, 400);
}
