//! Completion as a shell does it, with the script that `cellblock completions` prints.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A directory with `cellblock` in it, for PATH.
fn bin() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let executable = env!("CARGO_BIN_EXE_cellblock");
    symlink(executable, directory.path().join("cellblock")).unwrap();
    directory
}

fn path(bin: &Path) -> String {
    let usual = std::env::var("PATH").unwrap_or_default();
    format!("{}:{usual}", bin.display())
}

/// What bash offers for the last of these words.
fn offered(bin: &Path, line: &str) -> Vec<String> {
    let script = r#"
        eval "$(cellblock completions bash)"
        COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9
        [ "${COMP_WORDS[COMP_CWORD]}" = _ ] && COMP_WORDS[COMP_CWORD]=
        _clap_complete_cellblock cellblock "${COMP_WORDS[COMP_CWORD]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["-c", script, "bash", line])
        .env("PATH", path(bin))
        .env("CELLBLOCK_STORE", bin.join("no-store"))
        .current_dir(bin)
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_options_and_values() {
    if Command::new("bash").arg("--version").output().is_err() {
        println!("bash_completes_options_and_values: no bash here");
        return;
    }
    let bin = bin();
    for (line, expected) in [
        ("cellblock con", &["context"][..]),
        ("cellblock run --workspace-s", &["--workspace-size"]),
        ("cellblock run --lang py", &["python"]),
        ("cellblock run --lang type", &["typescript"]),
        ("cellblock exec --policy str", &["strict"]),
        ("cellblock exec --seccomp no-u", &["no-unix-sockets"]),
        ("cellblock run --without land", &["landlock"]),
        ("cellblock run --rootfs _", &["auto", "host"]),
        ("cellblock run --format anth", &["anthropic"]),
        ("cellblock policy show pyth", &["python"]),
        ("cellblock rootfs build python-d", &["python-data"]),
        ("cellblock context delete no-such", &[]),
    ] {
        assert_eq!(offered(bin.path(), line), expected, "{line}");
    }
    // Files, where an option takes one.
    std::fs::write(bin.path().join("record.json"), "{}").unwrap();
    assert_eq!(offered(bin.path(), "cellblock show rec"), ["record.json"]);
}

#[test]
fn each_shell_has_a_script() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(env!("CARGO_BIN_EXE_cellblock"))
            .args(["completions", shell])
            .output()
            .unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("CELLBLOCK_COMPLETE"), "{shell}: {script}");
        assert!(!script.contains("target/"), "{shell}: {script}");
    }
}
