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
    if !is_there("bash", "bash_completes_options_and_values") {
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

/// Lines and what is offered for their last words, in each shell.
const COMMON: [(&str, &str); 6] = [
    ("cellblock con", "context"),
    ("cellblock run --workspace-s", "--workspace-size"),
    ("cellblock run --lang py", "python"),
    ("cellblock exec --policy str", "strict"),
    ("cellblock rootfs build python-d", "python-data"),
    ("cellblock show rec", "record.json"),
];

/// Whether the shell is installed; prints the test's name if it is not.
fn is_there(shell: &str, test: &str) -> bool {
    let is_there = Command::new(shell).arg("--version").output().is_ok();
    if !is_there {
        println!("{test}: no {shell} here");
    }
    is_there
}

/// Runs `script` in a directory with a file to complete; returns what it prints.
fn runs(bin: &Path, shell: &[&str], script: &str, line: &str) -> String {
    std::fs::write(bin.join("record.json"), "{}").unwrap();
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", script])
        .env("PATH", path(bin))
        .env("HOME", bin)
        .env("LINE", line)
        .env("CELLBLOCK_STORE", bin.join("no-store"))
        .current_dir(bin)
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn fish_completes_options_and_values() {
    if !is_there("fish", "fish_completes_options_and_values") {
        return;
    }
    let bin = bin();
    let script = "cellblock completions fish | source; complete --do-complete $LINE";
    for (line, expected) in COMMON {
        let offered = runs(bin.path(), &["fish", "--no-config"], script, line);
        // A description follows a tab.
        let offered: Vec<&str> = (offered.lines())
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert_eq!(offered, [expected], "{line}");
    }
}

/// zsh completes only where a line is edited, so it gets a terminal of its own (zshmodules(1),
/// zpty), in which a key is bound to print the line.
#[test]
fn zsh_completes_options_and_values() {
    if !is_there("zsh", "zsh_completes_options_and_values") {
        return;
    }
    let bin = bin();
    let script = r#"
        zmodload zsh/zpty
        zpty inner zsh -f -i
        zpty -w inner 'PS1=; autoload -U compinit; compinit -D -u; eval "$(cellblock completions zsh)"'
        zpty -w inner 'show() { print -r -- "$BUFFER" > shown; exit }; zle -N show; bindkey "^Xs" show'
        zpty -w inner 'print set"-"up'
        zpty -r inner ready '*set-up*'
        zpty -w -n inner "$LINE"$'\t\Cxs'
        while zpty -t inner && zpty -r inner; do :; done > /dev/null
        cat shown
    "#;
    for (line, expected) in COMMON {
        let shown = runs(bin.path(), &["zsh", "-f"], script, line);
        let (start, _) = line.rsplit_once(' ').unwrap();
        assert_eq!(shown.trim_end(), format!("{start} {expected}"), "{line}");
    }
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
