//! Bash.

use crate::harness::bash;

#[test]
fn the_exit_status_is_the_scripts() {
    let Some(bash) = bash() else { return };
    let run = bash.run("set -e\nseq 3 | paste -sd+ -\nexit 3\n");
    assert_eq!(run.stdout, "1+2+3\n");
    assert_eq!(run.status.code(), Some(3));
}

#[test]
fn arguments_arrive_whole() {
    let Some(bash) = bash() else { return };
    let run = bash.run_with(b"printf '%s|' \"$@\"", &["a b".into(), "-c".into(), "".into()]);
    assert_eq!(run.stdout, "a b|-c||");
}

#[test]
fn it_is_bash_and_not_another_shell() {
    let Some(bash) = bash() else { return };
    assert_eq!(bash.run("x=(a b); echo ${x[1]} ${x[0]^^}").stdout, "b A\n");
}
