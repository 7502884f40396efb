//! The example of docs/PROTOCOL.md.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::harness::cellblock;

#[test]
fn the_documented_example_works() {
    let text = include_str!("../../docs/PROTOCOL.md");
    let mut blocks = text.split("```json\n").skip(1);
    let calls = blocks.next().unwrap().split("```").next().unwrap();
    let answers = blocks.next().unwrap().split("```").next().unwrap();
    let mut server = cellblock()
        .args(["serve", "--rootfs", "host"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    let mut found: Vec<Value> = Vec::new();
    let mut lines = calls.lines();
    // The first answer comes first; what follows may overtake.
    for line in lines.by_ref().take(4) {
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        if found.is_empty() {
            found.push(read(&mut output));
        }
    }
    while found.len() < 4 {
        found.push(read(&mut output));
    }
    for line in lines {
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    drop(stdin);
    found.push(read(&mut output));
    assert!(server.wait().unwrap().success());
    found.sort_by_key(|line| line["id"].as_u64());
    for (line, documented) in found.iter().zip(answers.lines()) {
        let shown = documented.replace("{…}", "{}");
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let keys = |value: &Value| -> Vec<String> {
            let fields = value["result"]
                .as_object()
                .unwrap_or_else(|| panic!("{value}"));
            fields.keys().cloned().collect()
        };
        assert_eq!(keys(line), keys(&shown));
    }
    assert_eq!(found[2]["result"]["record"]["results"][0]["text"], "21");
}

fn read(output: &mut impl std::io::BufRead) -> Value {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}
