//! Bash.

use std::process::Command;

use record::bytes::RawText;

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

#[test]
fn what_ends_a_script_ends_an_execution() {
    let Some(bash) = lasting_bash() else { return };
    let mut live = Live::new(&bash);
    live.ok("x=1");
    for (code, status) in [
        ("[[ a b ]]\necho never", None),
        ("echo \"", Some(2)),
        ("cat <<X >/dev/null\na", Some(0)),
        ("fi; echo never", Some(2)),
        ("set -u; echo $undefined; echo never", Some(1)),
        (
            "set +u; f() { local x; : ${undefined?}; }; f; echo never",
            Some(1),
        ),
        ("kill -INT $$; echo never", Some(130)),
        ("set -n; echo never", Some(0)),
        ("set -o posix; readonly r; r=2; echo never", Some(1)),
    ] {
        let ended = live.run(code);
        assert!(
            status.is_none() || ended.status == status,
            "{code}: {ended:?}"
        );
        let next = live.ok("[[ $x == 1 ]]");
        assert_eq!(next.status, Some(0), "{code}");
    }
    let (_, output) = live.end();
    assert_eq!(output[0], "");
}

#[test]
fn a_handler_of_the_codes_own_is_called_once_for_an_interrupt() {
    let Some(bash) = lasting_bash() else { return };
    let mut live = Live::new(&bash);
    live.ok("trap 'echo caught' INT");
    for _ in 0..2 {
        // Each command is interrupted, again and again.
        let code = "> sign; sleep 1000; sleep 1000; sleep 1000; echo on";
        let ended = live.interrupted(code, Some("sign"));
        assert_eq!(ended.outcome(), Ok(None));
    }
    live.ok("trap - INT");
    let ended = live.interrupted("> sign; sleep 1000; echo never", Some("sign"));
    assert_eq!(ended.outcome(), Err("Interrupted"));
    assert_eq!(live.end().1[0], "caught\non\n".repeat(2));
}

#[test]
fn an_interrupt_shows_nothing_of_the_driver() {
    let Some(bash) = lasting_bash() else { return };
    let mut live = Live::new(&bash);
    live.ok("trap 'echo \"before: $BASH_COMMAND\"' DEBUG");
    live.ok("set -v");
    let ended = live.interrupted(": > sign; wait; sleep 1000", Some("sign"));
    assert_eq!(ended.outcome(), Err("Interrupted"));
    live.ok("echo $LINENO");
    let (_, output) = live.end();
    let commands = ["set -v", ": > sign", "wait", "sleep 1000", "echo $LINENO"];
    let before = commands.map(|command| format!("before: {command}\n"));
    assert_eq!(output[0], before.concat() + "1\n");
    // As in a script, `set -v` shows what a trap executes, too.
    let trap = "echo \"before: $BASH_COMMAND\"\n";
    let lines = [
        ": > sign; wait; sleep 1000\n",
        &trap.repeat(3),
        "echo $LINENO\n",
        trap,
    ];
    assert_eq!(output[1], lines.concat());
}

#[test]
fn a_bash_that_cannot_load_the_driver_says_why() {
    let Some(bash) = lasting_bash() else { return };
    let directory = tempfile::tempdir().unwrap();
    let driver = languages::find("bash").unwrap().lasting();
    for (path, content) in driver.files_for(&RawText::default()) {
        // As if the object was of another machine.
        let content = match path.extension() {
            Some(extension) if extension == "so" => b"",
            _ => content.as_bytes(),
        };
        std::fs::write(directory.path().join(path.file_name().unwrap()), content).unwrap();
    }
    let output = Command::new(bash.interpreter())
        .args([directory.path().join("shim.sh").as_os_str(), "3".as_ref()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("driver.so: file too short"), "{said}");
    assert!(said.contains("needs Bash 4.4 or later"), "{said}");
}
