//! Bash.

use super::harness::{bash, lasting_bash};
use super::live::Live;

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
    let run = bash.run_with(
        b"printf '%s|' \"$@\"",
        &["a b".into(), "-c".into(), "".into()],
    );
    assert_eq!(run.stdout, "a b|-c||");
}

#[test]
fn it_is_bash_and_not_another_shell() {
    let Some(bash) = bash() else { return };
    assert_eq!(bash.run("x=(a b); echo ${x[1]} ${x[0]^^}").stdout, "b A\n");
}

#[test]
fn a_shell_keeps_its_state() {
    let Some(bash) = lasting_bash() else { return };
    let mut live = Live::new(&bash);
    for (code, status) in [
        (
            "x=1; f() { echo \"f $x\"; }; cd /; shopt -s extglob; exec 3</dev/null",
            0,
        ),
        ("f; echo \"$PWD\"; declare y=2; shopt -q extglob", 0),
        ("if", 2),
        ("echo $?; nonsense", 127),
        ("echo $((1 / 0)); echo never\necho on", 0),
        ("break; continue; return 3; echo \"still $y\"", 0),
        ("set -u; echo $undefined", 1),
        ("sleep 1000 & pid=$!", 0),
        (
            "kill -0 $pid && kill $pid; [ -e /dev/fd/3 ]; cat; ! (: >&200)",
            0,
        ),
        ("false", 1),
    ] {
        let ended = live.ok(code);
        assert_eq!(ended.status, Some(status), "{code}");
    }
    let (status, output) = live.end();
    assert_eq!(status.code(), Some(1), "that of the last code");
    assert_eq!(output[0], "f 1\n/\n2\non\nstill 2\n");
}

#[test]
fn exit_ends_a_shell() {
    let Some(bash) = lasting_bash() else { return };
    let mut live = Live::new(&bash);
    live.ok("trap 'echo bye' EXIT");
    live.begin("exit 7");
    live.started();
    let (status, output) = live.end();
    assert_eq!((status.code(), &*output[0]), (Some(7), "bye\n"));
}
