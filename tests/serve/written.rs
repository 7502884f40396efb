//! What an execution writes is its own, whole, and no other's.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Client, Server};

/// More than a pipe has room for.
const LONG: usize = 900_000;

fn context(client: &mut Client, language: &str) {
    let request = json!({"language": language});
    let params = json!({"request": request, "context": language});
    client.ask("context.create", params);
}

fn lengths(result: &Value) -> [usize; 2] {
    ["stdout", "stderr"].map(|name| result["record"][name].as_str().map_or(0, str::len))
}

#[test]
fn long_output_belongs_to_its_execution() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let repeated = |code: &str| code.replace("LONG", &LONG.to_string());
    for (language, code, next) in [
        (
            "python",
            "import sys; print('x' * LONG); n = sys.stderr.write('y' * LONG)",
            "print('z')",
        ),
        (
            "javascript",
            "console.log('x'.repeat(LONG)); console.error('y'.repeat(LONG - 1))",
            "console.log('z')",
        ),
        (
            "javascript",
            "process.stdout.write('x'.repeat(LONG + 1)); process.stderr.write('y'.repeat(LONG))",
            "process.stdout.write('z\\n'); 0",
        ),
        (
            "javascript",
            "await 0; console.log('x'.repeat(LONG)); process.stderr.write('y'.repeat(LONG)); throw 1",
            "console.log('z')",
        ),
        (
            "bash",
            "head -c $((LONG + 1)) /dev/zero | tr '\\0' x; head -c LONG /dev/zero | tr '\\0' y >&2",
            "echo z",
        ),
    ] {
        if client.ask("context.list", json!({}))["contexts"]
            .as_array()
            .is_none_or(|contexts| contexts.iter().all(|it| it["context"] != language))
        {
            context(&mut client, language);
        }
        let result = client.run_in(language, &repeated(code));
        assert_eq!(lengths(&result), [LONG + 1, LONG], "{code}");
        let result = client.run_in(language, next);
        assert_eq!(result["record"]["stdout"], "z\n", "{code}");
        assert_eq!(lengths(&result), [2, 0], "{code}");
    }
    let code = "console.log('x'.repeat(LONG)); process.on('exit', () => console.error('y'.repeat(LONG - 1))); process.exit()";
    let result = client.run_in("javascript", &repeated(code));
    assert_eq!(lengths(&result), [LONG + 1, LONG], "{code}");
}

#[test]
fn text_without_a_newline_is_an_event_at_once() {
    let server = Server::start(&[]);
    // Each ends only when its text has been seen.
    for (program, language, code) in [
        (
            "python3",
            "python",
            "import time, os\nprint('seen', end='')\nwhile not os.path.exists('go'): time.sleep(0.01)",
        ),
        (
            "node",
            "javascript",
            "process.stdout.write('seen'); while (!require('fs').existsSync('go')); 0",
        ),
        ("bash", "bash", "printf seen; while [ ! -e go ]; do :; done"),
        (
            "Rscript",
            "r",
            "cat('seen'); while (!file.exists('go')) Sys.sleep(0.01)",
        ),
        (
            "java",
            "java",
            "System.out.print(\"seen\"); while (!new java.io.File(\"go\").exists()) Thread.sleep(10);",
        ),
    ] {
        if !Path::new("/usr/bin").join(program).exists() {
            eprintln!("left out, as there is no {program}");
            continue;
        }
        let mut client = server.connect();
        context(&mut client, language);
        let params = json!({"context": language, "code": code, "events": true});
        client.send(5, "context.run", params);
        let mut line = client.line();
        while line["event"]["event"] != "stdout" {
            assert!(line.get("result").is_none(), "{line}");
            line = client.line();
        }
        assert_eq!(line["event"]["text"], "seen", "{language}");
        let go = json!({"context": language, "command": "touch go"});
        client.send(6, "process.start", go);
        let answer = client.answer(5);
        assert_eq!(answer["result"]["record"]["stdout"], "seen", "{answer}");
    }
}
