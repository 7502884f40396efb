//! Contexts of Bash in real cells.

use serde_json::json;

use crate::harness::Server;

/// Bash has another interpreter for contexts than for runs.
#[test]
fn contexts_keep_their_state() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let request = json!({"language": "bash"});
    client.ask(
        "context.create",
        json!({"request": request, "context": "a"}),
    );
    client.run_in("a", "x=7; cd /tmp; f() { echo \"$x $PWD\"; }");
    let run = client.run_in("a", "f; (exit 3)");
    assert_eq!(
        (&run["state"], &run["record"]["stdout"]),
        (&json!("kept"), &json!("7 /tmp\n")),
        "{run}"
    );
    // The first that the shell chooses, as in a script.
    let run = client.run_in("a", "exec {fd}>&1; echo $fd");
    assert_eq!(run["record"]["stdout"], "10\n", "{run}");
    let request = json!({"language": "bash", "code": "echo $-; exit 3"});
    let run = client.ask("run", json!({"request": request}));
    assert_eq!(run["record"]["exit_code"], 3, "{run}");
    assert!(
        !run["record"]["stdout"].as_str().unwrap().contains('i'),
        "{run}"
    );
}

#[test]
fn contexts_load_their_driver_under_every_policy() {
    for options in [
        &[][..],
        &["--no-exec"],
        &["--seccomp", "strict"],
        &["--uid", "0"],
    ] {
        let server = Server::start(options);
        let mut client = server.connect();
        let request = json!({"request": {"language": "bash"}, "context": "a"});
        client.ask("context.create", request);
        let code = "x=7; cd /run/cellblock
            for f in driver.so shim.sh; do
                { : > $f; } 2>/dev/null || rm -f $f 2>/dev/null || echo $f
                [[ -w $f ]] && echo writable
            done
            mv driver.so other 2>/dev/null || ln -s x new 2>/dev/null || echo folder";
        let run = client.run_in("a", code);
        let shown = "driver.so\nshim.sh\nfolder\n";
        assert_eq!(run["record"]["stdout"], shown, "{options:?}: {run}");
        let run = client.run_in("a", "echo $x");
        assert_eq!(run["record"]["stdout"], "7\n", "{options:?}: {run}");
    }
}
