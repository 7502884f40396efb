//! A shell that goes on executes code as `bash main.sh` executes a script.

use std::path::Path;
use std::process::{Command, Stdio};

use super::harness::{Bench, lasting_bash};
use super::live::Live;

/// Sequences of executions: each begins with `## ` and its name, and `--` is between two executions.
/// Of those without another, the executions are what a script with all of them does.
const SEQUENCES: &str = include_str!("scripts.txt");

/// How a shell ended, and what it wrote to stdout and stderr.
type Ended = (Option<i32>, [String; 2]);

#[test]
fn code_is_executed_as_a_script_is() {
    let sequences = SEQUENCES.trim_start_matches("## ").split("\n## ");
    let mut differing = Vec::new();
    for sequence in sequences {
        let (name, code) = sequence.split_once('\n').unwrap();
        let pieces: Vec<&str> = code.split("\n--\n").collect();
        let Some(bash) = lasting_bash() else { return };
        let expected = scripted(bash.interpreter(), &pieces);
        let found = executed(&bash, &pieces);
        if found != expected {
            differing.push(format!(
                "{name}:\n  script: {expected:?}\n  shell:  {found:?}"
            ));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn scripted(interpreter: &Path, pieces: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("main.sh"), pieces.join("\n")).unwrap();
    crate::dispositions::restore();
    let output = Command::new(interpreter)
        .arg("main.sh")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TMPDIR", directory.path())
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| plain(&String::from_utf8_lossy(bytes), pieces.len() > 1);
    (
        output.status.code(),
        [text(&output.stdout), text(&output.stderr)],
    )
}

fn executed(bash: &Bench, pieces: &[&str]) -> Ended {
    // A script is a file beside the others.
    bash.write("main.sh", "");
    let mut live = Live::new(bash);
    let (last, before) = pieces.split_last().unwrap();
    for piece in before {
        live.run(piece);
    }
    live.begin(last);
    live.started();
    let (status, output) = live.end();
    let [stdout, stderr] = &output[..] else {
        panic!("{output:?}")
    };
    let text = |text: &str| plain(text, pieces.len() > 1);
    (status.code(), [text(stdout), text(stderr)])
}

/// A text without the ids of processes and, where a script is in pieces, the numbers of lines, which
/// begin again with each piece.
fn plain(text: &str, has_pieces: bool) -> String {
    let line = |line: &str| {
        let Some((name, rest)) = line.split_once(": line ") else {
            return line.to_owned();
        };
        let (number, rest) = rest.split_once(": ").unwrap_or((rest, ""));
        let number = if has_pieces { "N" } else { number };
        let rest = rest.trim_start();
        let is_id = rest.starts_with(|first: char| first.is_ascii_digit());
        let rest = match rest.split_once(' ') {
            Some((id, rest)) if is_id && id.parse::<u32>().is_ok() => rest.trim_start(),
            _ => rest,
        };
        format!("{name}: line {number}: {rest}")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
