//! What tools answer.

use serde_json::{Value, json};

use super::client::Client;

/// Each tool's answers have the form that it declares, errors of the code among them.
#[test]
fn answers_have_the_declared_form() {
    let mut client = Client::start(&[]);
    let tools = client.ask("tools/list", json!({}));
    let forms: Vec<(String, jsonschema::Validator)> = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let name = tool["name"].as_str().unwrap().to_owned();
            let form = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
            (name, form)
        })
        .collect();
    let context = client.create(json!({"label": "forms", "forkable": true}));
    let mut called = vec!["create_context"];
    for (name, arguments) in [
        ("run_code", json!({"code": "print('hi')\n6 * 7"})),
        ("run_code", json!({"code": "1 / 0"})),
        (
            "run_code",
            json!({"code": "import os; os.kill(os.getpid(), 9)", "context_id": context}),
        ),
        (
            "run_code",
            json!({"code": "open('a', 'w').write('b')", "context_id": context}),
        ),
        ("run_command", json!({"command": "exit 3"})),
        (
            "run_command",
            json!({"command": "cat a", "context_id": context}),
        ),
        ("list_contexts", json!({})),
        (
            "write_file",
            json!({"context_id": context, "path": "d/e", "base64": "/wA="}),
        ),
        ("read_file", json!({"context_id": context, "path": "d/e"})),
        (
            "list_files",
            json!({"context_id": context, "recursive": true}),
        ),
        ("fork_context", json!({"context_id": context})),
        ("restart_context", json!({"context_id": context})),
        ("close_context", json!({"context_id": context})),
    ] {
        let result = client.tool(name, arguments);
        let form = &forms.iter().find(|(of, _)| of == name).unwrap().1;
        let data = &result["structuredContent"];
        assert!(data.is_object(), "{name}: {result}");
        let wrong: Vec<String> = form
            .iter_errors(data)
            .map(|error| error.to_string())
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}: {data}");
        called.push(name);
    }
    for (name, _) in &forms {
        assert!(called.contains(&name.as_str()), "{name} is not called here");
    }
}

#[test]
fn a_run_without_a_context_is_fresh() {
    let mut client = Client::start(&[]);
    let run = client.data(
        "run_code",
        json!({"code": "x = 1; open('left', 'w').close()"}),
    );
    assert_eq!(run["outcome"], "ok", "{run}");
    let next = client.tool(
        "run_code",
        json!({"code": "import os; os.listdir(), 'x' in globals()"}),
    );
    assert_eq!(next["structuredContent"]["value"], "([], False)", "{next}");
    let command = client.data("run_command", json!({"command": "echo $0; pwd"}));
    assert!(
        command["stdout"]
            .as_str()
            .unwrap()
            .ends_with("/workspace\n"),
        "{command}"
    );
}

#[test]
fn inputs_reach_the_code() {
    let mut client = Client::start(&[]);
    let files = json!([{"path": "d/a", "text": "ü"}, {"path": "b", "base64": "/w=="}]);
    let code = "import sys; sys.stdin.read(), open('d/a').read(), open('b', 'rb').read()";
    let run = client.data(
        "run_code",
        json!({"code": code, "stdin": "in", "files": files}),
    );
    assert_eq!(run["value"], "('in', 'ü', b'\\xff')", "{run}");
    let run = client.tool(
        "run_code",
        json!({"code": "exit 4", "language": "bash", "timeout": 5}),
    );
    assert_eq!(run["structuredContent"]["exit_code"], 4, "{run}");
}

#[test]
fn code_that_fails_says_why() {
    let mut client = Client::start(&[]);
    let failed = client.tool("run_code", json!({"code": "\nundefined_name"}));
    assert_eq!(failed["isError"], true, "{failed}");
    let data = &failed["structuredContent"];
    assert_eq!(data["error"]["name"], "NameError", "{failed}");
    assert_eq!(data["error"]["line"], 2, "{failed}");
    let text = failed["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("NameError"), "{text}");
    let slow = client.tool(
        "run_code",
        json!({"code": "while True: pass", "timeout": 0.5}),
    );
    assert_eq!(slow["structuredContent"]["outcome"], "timeout", "{slow}");
    let denied = client.data(
        "run_code",
        json!({"code": "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)"}),
    );
    assert_eq!(denied["denied"][0]["name"], "ptrace", "{denied}");
}

/// A picture of so many pixels in a square, which hardly compresses, as the code that
/// displays it.
fn picture(side: usize) -> String {
    format!(
        "import base64, os, struct, zlib\n\
         def chunk(name, data):\n\
         \x20   body = name + data\n\
         \x20   return struct.pack('>I', len(data)) + body + struct.pack('>I', zlib.crc32(body))\n\
         rows = b''.join(b'\\0' + os.urandom(3 * {side}) for _ in range({side}))\n\
         png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', {side}, {side}, 8, 2, 0, 0, 0))\n\
         png += chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')\n\
         class P:\n\
         \x20   def _repr_png_(self): return png\n\
         P()"
    )
}

fn parts<'a>(result: &'a Value, kind: &str) -> Vec<&'a Value> {
    let parts = result["content"].as_array().unwrap().iter();
    parts.filter(|part| part["type"] == kind).collect()
}

#[test]
fn pictures_are_parts_and_large_ones_are_links() {
    let mut client = Client::start(&["--results", "16M"]);
    let small = client.tool("run_code", json!({"code": picture(32)}));
    assert_eq!(
        parts(&small, "image")[0]["mimeType"],
        "image/png",
        "{small}"
    );
    let large = client.tool("run_code", json!({"code": picture(800)}));
    assert!(parts(&large, "image").is_empty());
    let links = parts(&large, "resource_link");
    let uri = links[0]["uri"].as_str().unwrap();
    let read = client.ask("resources/read", json!({"uri": uri}));
    let content = &read["contents"][0];
    assert_eq!(
        (&content["uri"], &content["mimeType"]),
        (&json!(uri), &json!("image/png"))
    );
    let size = links[0]["size"].as_u64().unwrap() as usize;
    assert_eq!(
        content["blob"].as_str().unwrap().len(),
        size.div_ceil(3) * 4
    );
}

#[test]
fn files_are_links_that_can_be_read() {
    let mut client = Client::start(&[]);
    let code =
        "open('t.csv', 'w').write('a,b\\n'); open('z.bin', 'wb').write(bytes(range(200, 256)))";
    let run = client.tool("run_code", json!({"code": code}));
    let links = parts(&run, "resource_link");
    let uris: Vec<&str> = links
        .iter()
        .map(|link| link["uri"].as_str().unwrap())
        .collect();
    assert!(
        uris[0].starts_with("cellblock://run/") && uris[0].ends_with("/files/t.csv"),
        "{uris:?}"
    );
    let text = client.ask("resources/read", json!({"uri": uris[0]}));
    assert_eq!(text["contents"][0]["text"], "a,b\n", "{text}");
    let binary = client.ask("resources/read", json!({"uri": uris[1]}));
    assert!(
        binary["contents"][0]["blob"]
            .as_str()
            .unwrap()
            .starts_with("yMnKy8zN"),
        "{binary}"
    );

    let context = client.create(json!({}));
    let run = client.tool("run_code", json!({"code": code, "context_id": context}));
    let uri = parts(&run, "resource_link")[0]["uri"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(uri, format!("cellblock://context/{context}/files/t.csv"));
    let text = client.ask("resources/read", json!({"uri": uri}));
    assert_eq!(text["contents"][0]["text"], "a,b\n", "{text}");
    client.data("close_context", json!({"context_id": context}));
    let id = client.send("resources/read", json!({"uri": uri}));
    assert_eq!(client.answer(id)["error"]["code"], -32002);
}

#[test]
fn names_from_a_cell_lead_nowhere_else() {
    let mut client = Client::start(&[]);
    let context = client.create(json!({}));
    let code = "import os\n\
        os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo'); os.makedirs('a\\nb')\n\
        open('a\\nb/%2e%2e', 'w').write('odd')";
    client.data("run_code", json!({"code": code, "context_id": context}));
    for path in ["link", "../etc/passwd", "/etc/passwd", "fifo", ""] {
        let read = client.tool("read_file", json!({"context_id": context, "path": path}));
        assert_eq!(read["isError"], true, "{path}: {read}");
        let uri = format!("cellblock://context/{context}/files/{path}");
        let id = client.send("resources/read", json!({"uri": uri}));
        assert!(client.answer(id)["error"].is_object(), "{path}");
    }
    let odd = format!("cellblock://context/{context}/files/a%0Ab/%252e%252e");
    let read = client.ask("resources/read", json!({"uri": odd}));
    assert_eq!(read["contents"][0]["text"], "odd", "{read}");
}

/// The most memory that the server had, in KiB, since proc(5)'s clear_refs was written.
fn peak(client: &Client) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let peak = line.unwrap().split_whitespace().nth(1);
    peak.unwrap().parse().unwrap()
}

/// What is small as text may take a hundred times as much when it is parsed.
#[test]
fn messages_take_some_copies_of_their_text() {
    let mut client = Client::start(&[]);
    client.ask("tools/list", json!({}));
    let bomb = format!("[{}]", vec![r#"{"":0}"#; 1 << 20].join(","));
    for form in [
        r#""params":?"#,
        r#""params":{"_meta":{"x":?}}"#,
        r#""params":{"name":"run_code","arguments":{"x":?}}"#,
        r#""params":{"name":"run_code","arguments":{"code":"1","files":?}}"#,
        r#""params":{"name":"read_file","arguments":?}"#,
    ] {
        std::fs::write(format!("/proc/{}/clear_refs", client.child.id()), "5").unwrap();
        let params = form.replacen('?', &bomb, 1);
        client.write(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call",{params}}}"#,
            form.len()
        ));
        client.answer(form.len() as i64);
        let peak = peak(&client);
        assert!(peak < 80 << 10, "{form}: {peak} KiB");
    }
}
