//! Programs of the host in a cell: what their packages keep in `/etc` and `/var/lib`, and the calls
//! that they need.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::mount::{MsFlags, mount};

use super::files::refused;
use crate::cells::cell::Cell;
use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::scratch::chmod;
use crate::cells::{private, process};

pub(crate) const SUITE: Suite = Suite {
    name: "programs-host",
    covers: &[],
    attacks: ATTACKS,
    scenes: &[
        scene("usual-places", usual_places),
        scene("policy-of-the-host-is-in-force", policy_of_the_host).needs(&[Need::Root]),
        scene("refused-package-data", refused_package_data).needs(&[Need::Root]),
        scene("missing-path-is-named", missing_path).needs(&[Need::Root]),
        scene("var-tmp-of-the-callers", var_tmp_of_the_callers),
        scene("foreign-owners", foreign_owners),
        scene("images-are-unpacked", images_are_unpacked).needs(&[Need::Program("tar")]),
        scene("large-uids", large_uids),
        scene("topology", topology),
        python_scene("personality", personality),
        scene("debuggers", debuggers).needs(&[Need::Program("strace"), Need::Program("python3")]),
        scene("executable-inputs", executable_inputs),
        scene("own-name", own_name),
        scene("quiet", quiet),
        python_scene("pipes-of-the-caller-block", pipes_block),
    ],
    actors: &[Actor {
        name: "with-etc",
        run: |args| match with_etc(args) {
            Ok(code) => code,
            Err(stop) => {
                eprintln!("{stop:?}");
                96
            }
        },
    }],
};

const ATTACKS: &[Attack] = &[
    // Another owner than the cell's would be another user of the host's.
    attack("foreign-owner", || {
        let file = File::create("/tmp/owned").map_err(|_| Errno::EIO)?;
        call!(SYS_fchown, file.as_raw_fd(), 33, 33).map(drop)
    })
    .live(root()),
    attack("message-queue", || {
        let flags = libc::O_RDWR | libc::O_CREAT;
        call!(SYS_mq_open, c"queue", flags, 0o600, Arg::NULL).map(drop)
    })
    .live(without(&["seccomp", "landlock"]))
    .refused(&[Errno::ENOSYS]),
];

fn usual_places(stage: &Stage) -> Check {
    let script =
        "command -v chroot; echo x > /var/tmp/a && cat /tmp/a; . /etc/os-release; echo $ID";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .run()?
        .ended(Outcome::Ok)?;
    let host = fs::read_to_string("/etc/os-release")?;
    let id = host.lines().find_map(|line| line.strip_prefix("ID="));
    let id = id.unwrap_or_default().trim_matches('"');
    let lines: Vec<&str> = run.stdout().lines().collect();
    assert_eq!(lines, ["/usr/sbin/chroot", "x", id]);
    Ok(())
}

/// Runs a command with the files of a directory over this host's `/etc`.
fn with_etc(args: &[String]) -> Check<i32> {
    private::enter()?;
    let options = format!("lowerdir={}:/etc", args[0]);
    let kind = Some("overlay");
    mount(kind, "/etc", kind, MsFlags::MS_RDONLY, Some(&*options))?;
    let status = Command::new(&args[1]).args(&args[2..]).status()?;
    Ok(status.code().unwrap_or(95))
}

/// The record of a cell on a host whose `/etc` has these files as well.
fn run_with_etc(stage: &Stage, own: &Path, cell: &Cell<'_>) -> Check<Run> {
    let cell = cell.command();
    let mut outside = stage.outside("programs-host/with-etc", []);
    outside
        .arg(own)
        .arg(cell.get_program())
        .args(cell.get_args());
    for (name, value) in cell.get_envs() {
        outside.env(name, value.unwrap_or_default());
    }
    Run::of(process::finish(&mut outside, stage.patience())?)
}

fn policy_of_the_host(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let own = scratch.dir("etc", 0o755)?;
    fs::create_dir(own.join("ImageMagick-6"))?;
    let policy = own.join("ImageMagick-6/policy.xml");
    fs::write(
        &policy,
        "<policy domain=\"coder\" rights=\"none\" pattern=\"PDF\"/>\n",
    )?;
    chmod(&own.join("ImageMagick-6"), 0o755)?;
    chmod(&policy, 0o644)?;
    let look = "cat /etc/ImageMagick-6/policy.xml; echo x > /etc/ImageMagick-6/policy.xml";
    let run = run_with_etc(stage, &own, &stage.exec(["/bin/sh", "-c", look]))?;
    let run = run.ended(Outcome::Exit)?;
    assert_eq!(run.stdout(), fs::read_to_string(&policy)?);
    Ok(())
}

fn refused_package_data(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let own = scratch.dir("etc", 0o755)?;
    let secret = scratch.dir("secret", 0o755)?;
    fs::write(secret.join("key"), "key")?;
    for (name, mode) in [("racket", 0o750), ("mono", 0o777), ("chromium.d", 0o755)] {
        fs::create_dir(own.join(name))?;
        fs::write(own.join(name).join("key"), name)?;
        chmod(&own.join(name), mode)?;
    }
    symlink(&secret, own.join("texmf"))?;
    fs::create_dir(own.join("erlang"))?;
    nix::unistd::chown(&own.join("erlang"), Some(33.into()), None)?;
    let look = "cd /etc; cat chromium.d/key texmf/key; ls -d racket mono erlang";
    let run = run_with_etc(stage, &own, &stage.exec(["/bin/sh", "-c", look]))?;
    assert_eq!(run.stdout(), "chromium.d");
    Ok(())
}

fn missing_path(stage: &Stage) -> Check {
    let words = |path: &str| {
        let script = format!("echo \"cannot open {path}: No such file\" >&2; exit 2");
        stage.exec(["/bin/sh", "-c", &script])
    };
    let hint = |run: Run| -> Check<Option<String>> {
        let run = run.ended(Outcome::Exit)?;
        let context = run.record.context.clone().unwrap_or_default();
        assert!(!context.contains("--ro"), "{context}");
        Ok(run.record.operator_hint.clone())
    };
    // Some files of Debian's and of others' that no cell has.
    let files = [
        "/etc/login.defs",
        "/etc/profile",
        "/etc/shells",
        "/etc/host.conf",
    ];
    let there = files
        .into_iter()
        .find(|file| fs::exists(file).unwrap_or_default());
    let there = there.ok_or_else(|| fail("this host has none of these files"))?;
    let named = hint(words(there).run()?)?.unwrap_or_default();
    assert!(named.contains(&format!("`--ro {there}`")), "{named}");
    for nothing in [
        "/etc/shadow",
        "/etc/no-such",
        "/usr/bin",
        "/net/some.host/x",
    ] {
        assert_eq!(hint(words(nothing).run()?)?, None, "{nothing}");
    }
    // What is on another mount is not looked at.
    let scratch = stage.scratch()?;
    let own = scratch.dir("etc", 0o755)?;
    fs::create_dir(own.join("own-package"))?;
    chmod(&own.join("own-package"), 0o755)?;
    let run = run_with_etc(stage, &own, &words("/etc/own-package"))?;
    assert_eq!(hint(run)?, None);
    Ok(())
}

fn var_tmp_of_the_callers(stage: &Stage) -> Check {
    let look = "stat -f -c %T /var/tmp; ls -d /var/tmp/*; ls /tmp";
    let run = stage
        .exec(["/bin/sh", "-c", look])
        .option(["--tmpfs", "/var/tmp/deep", "--dir", "/var/tmp/made"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "tmpfs\n/var/tmp/deep\n/var/tmp/made\n");
    let run = stage
        .exec(["/bin/sh", "-c", "echo x > /var/tmp/a; ls /tmp"])
        .option(["--tmpfs", "/var/tmp"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "");
    Ok(())
}

fn foreign_owners(stage: &Stage) -> Check {
    let script =
        "touch a; chown 33:33 a; echo $?; chown $(id -u):$(id -g) a; echo $?; stat -c %u:%g a";
    for (uid, status) in [("1000", 1), ("0", 0), ("61234", 1)] {
        let run = stage
            .exec(["/bin/sh", "-c", script])
            .option(["--uid", uid])
            .run()?
            .ended(Outcome::Ok)?;
        let wanted = format!("{status}\n0\n{uid}:{uid}\n");
        assert_eq!(run.stdout(), wanted, "as {uid}");
        let stderr = run.record.stderr.as_ref().map(|text| text.end(1000));
        let says = stderr
            .unwrap_or_default()
            .contains("Operation not permitted");
        assert_eq!(says, status == 1, "as {uid}");
        assert!(run.record.denied.is_empty(), "{:?}", run.record.denied);
    }
    Ok(())
}

/// An archive of files of other users, as images are made of.
fn images_are_unpacked(stage: &Stage) -> Check {
    let script = "set -e
        mkdir from to; echo x > from/a
        tar --owner=33 --group=44 -cf a.tar from
        tar -xpf a.tar -C to --same-owner; cat to/from/a
        cp -a to/from copied; cp -a /usr/bin/env . ; cat copied/a";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .option(["--uid", "0"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "x\nx\n");
    Ok(())
}

fn large_uids(stage: &Stage) -> Check {
    for uid in ["65533", "65535", "100000", "4294967294"] {
        let run = stage
            .exec(["/bin/sh", "-c", "id -u; id -g"])
            .option(["--uid", uid])
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), format!("{uid}\n{uid}\n"));
    }
    for uid in ["65534", "4294967295"] {
        let run = stage.exec(["/bin/true"]).option(["--uid", uid]).run()?;
        let (message, _) = refused(run)?;
        assert!(message.contains("4294967294"), "{message}");
    }
    Ok(())
}

fn topology(stage: &Stage) -> Check {
    let script = "cd /sys/devices/system/cpu/cpu0/topology; cat core_siblings thread_siblings";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .limit("cpus", "1")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "1\n1\n");
    Ok(())
}

/// What GCL does when it starts.
fn personality(stage: &Stage) -> Check {
    let code = "
import ctypes
c = ctypes.CDLL(None)
print([c.personality(flags) >= 0 for flags in (0x400000, 0x40000, 0x440000, 0x200000, 0)])";
    for (options, works) in [
        (&[][..], true),
        (&["--no-exec"], false),
        (&["--seccomp", "strict"], false),
    ] {
        let mut cell = stage.exec(["python3", "-c", code]);
        for option in options {
            cell = cell.option([option]);
        }
        let run = cell.run()?.ended(Outcome::Ok)?;
        let shown = |is: bool| if is { "True" } else { "False" };
        let gcl = shown(works);
        assert_eq!(
            run.stdout(),
            format!("[{gcl}, True, {gcl}, False, True]\n"),
            "{options:?}"
        );
    }
    Ok(())
}

fn debuggers(stage: &Stage) -> Check {
    let trace = || {
        stage.exec([
            "strace",
            "-f",
            "-o",
            "/tmp/trace",
            "/bin/sh",
            "-c",
            "echo traced",
        ])
    };
    let run = trace()
        .option(["--seccomp", "debug"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "traced\n");
    let run = trace().run()?.ended(Outcome::Exit)?;
    let denied = run
        .record
        .denied
        .iter()
        .find(|denied| denied.name == "ptrace");
    let reason = denied
        .and_then(|denied| denied.reason.clone())
        .unwrap_or_default();
    assert!(reason.contains("--seccomp debug"), "{reason}");
    // Its child, and init.
    let code = "
import ctypes, os, signal, time
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
c = ctypes.CDLL(None, use_errno=True)
print(c.ptrace(16, child, 0, 0), c.ptrace(16, 1, 0, 0), ctypes.get_errno())
os.kill(child, signal.SIGKILL)";
    let run = stage
        .exec(["python3", "-c", code])
        .option(["--seccomp", "debug"])
        .run()?;
    assert_eq!(run.stdout(), "0 -1 1\n");
    // Its own words, without a compiler.
    let script = "echo '==2==LeakSanitizer has encountered a fatal error.' >&2; exit 1";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .run()?
        .ended(Outcome::Exit)?;
    let context = run.record.context.clone().unwrap_or_default();
    assert!(context.contains("ASAN_OPTIONS=detect_leaks=0"), "{context}");
    let hint = run.record.operator_hint.clone().unwrap_or_default();
    assert!(hint.contains("--seccomp debug"), "{hint}");
    Ok(())
}

fn executable_inputs(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let program = scratch.file("program", "#!/bin/sh\necho started $0\n")?;
    chmod(&program, 0o755)?;
    let at = |target: &str| format!("{}:{target}", program.display());
    for target in ["/workspace/program", "/opt/program", "/usr/bin/env"] {
        let name = target.strip_prefix("/workspace/").unwrap_or(target);
        let run = stage
            .exec([target])
            .option(["--file", &at(name)])
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), format!("started {target}\n"));
    }
    let shell = format!(
        "exec 7< {}; exec \"$@\" --file fd:7:x -- ./x",
        program.display()
    );
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &shell, "sh"])
        .arg(&stage.cellblock)
        .args(["exec"]);
    let ended = process::finish(&mut command, stage.patience())?;
    assert_eq!(
        String::from_utf8_lossy(&ended.stdout),
        "started ./x\n",
        "{}",
        ended.complaint()
    );
    // What is not executable stays so, and so does everything under --no-exec.
    let run = stage
        .exec(["./program"])
        .option(["--file", &at("program"), "--no-exec"])
        .run()?;
    assert_eq!(run.record.outcome, Outcome::Setup);
    chmod(&program, 0o644)?;
    let run = stage
        .exec(["./program"])
        .option(["--file", &at("program")])
        .run()?;
    assert_eq!(run.record.outcome, Outcome::Setup);
    Ok(())
}

fn own_name(stage: &Stage) -> Check {
    let run = stage
        .exec([
            "/bin/sh",
            "-c",
            "echo $0; tr '\\0' '\\n' < /proc/$$/cmdline | head -1",
        ])
        .option(["--argv0", "-login"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "-login\n-login\n");
    let run = stage.code("shell", "true").option(["--argv0", "x"]).run()?;
    let (message, _) = refused(run)?;
    assert!(message.contains("interpreter"), "{message}");
    Ok(())
}

fn quiet(stage: &Stage) -> Check {
    let spin = ["/bin/sh", "-c", "echo own >&2; while :; do :; done"];
    for (cell, own) in [
        (stage.exec(["/no/such"]), ""),
        (stage.exec(spin).limit("wall", "200ms"), "own\n"),
        (stage.exec(["/bin/true"]).limit("memory", "nonsense"), ""),
    ] {
        let stderr = |cell: Cell<'_>| -> Check<String> {
            let ended = process::finish(&mut cell.passed_through().command(), stage.patience())?;
            assert_ne!(ended.code(), 0);
            Ok(String::from_utf8_lossy(&ended.stderr).into_owned())
        };
        assert_eq!(stderr(cell.option(["--quiet"]))?, own);
    }
    Ok(())
}

fn pipes_block(stage: &Stage) -> Check {
    let code = "import os; [os.set_blocking(n, False) for n in (0, 1, 2)]";
    let (reader, writer) = nix::unistd::pipe()?;
    let (input, feed) = nix::unistd::pipe()?;
    let mut command = stage
        .exec(["python3", "-c", code])
        .passed_through()
        .command();
    command
        .stdin(input.try_clone()?)
        .stdout(writer.try_clone()?);
    let status = command.status()?;
    assert!(status.success(), "{status}");
    for ours in [&input, &writer] {
        let flags = OFlag::from_bits_retain(fcntl(ours, FcntlArg::F_GETFL)?);
        assert!(!flags.contains(OFlag::O_NONBLOCK), "{flags:?}");
    }
    drop((reader, feed));
    Ok(())
}
