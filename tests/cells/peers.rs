//! Promises that cellblock and bubblewrap share, tested with both: a wrong expectation
//! fails with both, and the test is to be corrected.

use std::path::Path;
use std::process::Command;

use crate::cells::prelude::*;
use crate::cells::process::{self, Finished};

/// Every peer.
pub(crate) const SUITES: &[&Suite] = &[&Suite {
    name: "as-bubblewrap",
    covers: &[],
    attacks: &[],
    scenes: &[
        shared("exit-status", |stage| alike(stage, "exit 7", 7, "")),
        shared("death-by-signal", |stage| {
            alike(stage, "kill -KILL $$", 137, "")
        }),
        shared("streams-pass-through", |stage| {
            alike(
                stage,
                "read -r word; echo \"$word\"; echo aside >&2",
                0,
                "given\n",
            )
        }),
        shared("pid-namespace", |stage| alike(stage, "echo $$", 0, "2\n")),
        shared("host-name", |stage| alike(stage, "uname -n", 0, "named\n")),
        shared("working-directory", |stage| {
            alike(stage, "pwd", 0, "/tmp\n")
        }),
        shared("environment-is-what-is-named", |stage| {
            alike(stage, "echo \"$GIVEN ${LEAKED-unset}\"", 0, "value unset\n")
        }),
        shared("read-only-binds", |stage| {
            alike(
                stage,
                "echo x 2>/dev/null >/ro/new || cat /ro/file",
                0,
                "content\n",
            )
        }),
        shared("writable-binds", |stage| {
            alike(stage, "echo x >/rw/new && cat /rw/new", 0, "x\n")
        }),
        shared("system-is-read-only", |stage| {
            alike(
                stage,
                "(echo x >/usr/new) 2>/dev/null || echo refused",
                0,
                "refused\n",
            )
        }),
        shared("tmp-is-empty-and-writable", |stage| {
            alike(stage, "ls -A /tmp; echo x >/tmp/new; ls /tmp", 0, "new\n")
        }),
        shared("devices", |stage| {
            alike(
                stage,
                "echo x >/dev/null; head -c 3 /dev/zero | od -An -tx1",
                0,
                " 00 00 00\n",
            )
        }),
        shared("loopback-alone", |stage| {
            alike(
                stage,
                "tail -n +3 /proc/self/net/dev | cut -d: -f1 | tr -d ' '",
                0,
                "lo\n",
            )
        }),
        shared("background-process-ends-with-it", |stage| {
            alike(stage, "sleep 60 & echo started", 0, "started\n")
        }),
        shared("no-terminal-of-the-caller", |stage| {
            alike(stage, "(: </dev/tty) 2>/dev/null || echo none", 0, "none\n")
        }),
        shared("no-capabilities", |stage| {
            alike(
                stage,
                "grep CapEff /proc/self/status",
                0,
                "CapEff:\t0000000000000000\n",
            )
        }),
        shared("no-new-privileges", |stage| {
            alike(
                stage,
                "grep NoNewPrivs /proc/self/status",
                0,
                "NoNewPrivs:\t1\n",
            )
        }),
    ],
    actors: &[],
}];

const fn shared(name: &'static str, run: fn(&Stage) -> Check) -> Scene {
    scene(name, run).needs(&[Need::Program("bwrap")])
}

/// Runs a shell script in both, configured alike.
fn alike(stage: &Stage, script: &str, code: i32, stdout: &str) -> Check {
    for sandbox in [bubblewrap, cellblock] {
        let scratch = stage.scratch()?;
        let ro = scratch.dir("ro", 0o777)?;
        scratch.file("ro/file", "content\n")?;
        let rw = scratch.dir("rw", 0o777)?;
        let stdin = scratch.file("stdin", "given\n")?;

        let mut command = sandbox(stage, script, &ro, &rw);
        command
            .env("LEAKED", "leaked")
            .stdin(std::fs::File::open(stdin)?);
        let ended = process::finish(&mut command, stage.patience())?;
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(
            (told.as_str(), ended.code()),
            (stdout, code),
            "{}",
            show(&command, &ended)
        );
    }
    Ok(())
}

fn show(command: &Command, ended: &Finished) -> String {
    format!("{} {}", command.get_program().display(), ended.complaint())
}

fn bubblewrap(_: &Stage, script: &str, ro: &Path, rw: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command
        .args([
            "--unshare-all",
            "--new-session",
            "--die-with-parent",
            "--clearenv",
        ])
        .args(["--cap-drop", "ALL"])
        .args([
            "--ro-bind",
            "/usr",
            "/usr",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ])
        .args([
            "--symlink",
            "usr/lib",
            "/lib",
            "--symlink",
            "usr/lib64",
            "/lib64",
        ])
        .args(["--symlink", "usr/bin", "/bin", "--tmpfs", "/tmp"])
        .args(["--setenv", "PATH", "/usr/bin", "--setenv", "GIVEN", "value"])
        .args(["--hostname", "named", "--chdir", "/tmp"])
        .arg("--ro-bind")
        .args([ro, Path::new("/ro")])
        .arg("--bind")
        .args([rw, Path::new("/rw")])
        .args(["/bin/sh", "-c", script]);
    command
}

fn cellblock(stage: &Stage, script: &str, ro: &Path, rw: &Path) -> Command {
    stage
        .exec(["/bin/sh", "-c", script])
        .passed_through()
        .option(["--env", "PATH=/usr/bin", "--env", "GIVEN=value"])
        .option(["--hostname", "named", "--cwd", "/tmp"])
        .ro(ro, Path::new("/ro"))
        .rw(rw, Path::new("/rw"))
        .command()
}
