//! Descriptors of the caller's that the program gets (`--pass-fd`), and what the caller
//! learns of a cell while it is there (`--info-fd`).

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Stdio;

use serde_json::{Value, json};

use super::files::{refused, text};
use super::refusals::with_descriptor;
use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;
use crate::cells::process;

pub(crate) const SUITE: Suite = Suite {
    name: "passed",
    covers: &[3],
    attacks: &[],
    scenes: &[
        scene("alone", alone),
        scene("spec-file", spec_file),
        scene("end-of-file", end_of_file),
        scene("kinds", kinds),
        scene("ways-out", ways_out),
        scene("network-sockets", network_sockets),
        scene("modes-of-files", modes_of_files),
        scene("numbers", numbers),
        scene("info", info),
        scene("info-of-what-ends-at-once", info_of_what_ends_at_once),
        scene("info-without-a-reader", info_without_a_reader),
    ],
    actors: &[
        // Changes the mode of a descriptor's file.
        Actor {
            name: "chmod",
            run: |args| {
                let number: i32 = args[0].parse().unwrap_or(-1);
                println!("{:?}", call!(SYS_fchmod, number, 0o604).map(drop));
                0
            },
        },
        // Connects a socket anew, which its maker had connected.
        Actor {
            name: "reconnect",
            run: |args| {
                let number: i32 = args[0].parse().unwrap_or(-1);
                let port: u16 = args[1].parse().unwrap_or(0);
                let nowhere = [0_u8; 16];
                let _ = call!(SYS_connect, number, &nowhere, 16);
                let mut there = [0_u8; 16];
                there[0] = libc::AF_INET as u8;
                there[2..4].copy_from_slice(&port.to_be_bytes());
                there[4..8].copy_from_slice(&[127, 0, 0, 1]);
                println!("{:?}", call!(SYS_connect, number, &there, 16).map(drop));
                0
            },
        },
    ],
};

fn as_file(descriptor: impl Into<OwnedFd>) -> File {
    File::from(descriptor.into())
}

fn descriptors(run: &Run) -> Value {
    run.json["isolation"]["descriptors"].clone()
}

/// Runs a cell with these descriptors of its caller's.
fn run_with(stage: &Stage, cell: &Cell<'_>, files: &[(&File, i32)]) -> Check<Run> {
    let mut command = cell.command();
    for (file, number) in files {
        with_descriptor(&mut command, file, *number);
    }
    Run::of(process::finish(&mut command, stage.patience())?)
}

/// The program has what was named, and nothing else.
fn alone(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let mine = File::open(scratch.file("mine", "passed")?)?;
    let other = File::open(scratch.file("other", "not passed")?)?;
    let files = [(&mine, 7), (&other, 8), (&other, 900)];

    let listed = stage.probe("descriptors/list", []);
    let run = run_with(stage, &listed, &files)?;
    assert_eq!(run.stdout(), "0 1 2 ");
    assert_eq!(descriptors(&run), Value::Null);

    let passed = listed.option(["--pass-fd", "7=3"]);
    let run = run_with(stage, &passed, &files)?;
    assert_eq!(run.stdout(), "0 1 2 3 ");
    let what = json!([{"number": 3, "kind": "file", "class": "named", "mode": "read"}]);
    assert_eq!(descriptors(&run), what);

    let read = stage
        .exec(["/bin/cat", "/proc/self/fd/7"])
        .option(["--pass-fd", "7"]);
    let unread = run_with(stage, &read, &files)?;
    assert_ne!(unread.stdout(), "passed", "reopened by its path");
    let read = stage
        .exec(["/bin/sh", "-c", "cat <&7; cat <&8"])
        .option(["--pass-fd", "7"]);
    let run = run_with(stage, &read, &files)?;
    assert_eq!(run.stdout(), "passed");
    let complaint = run.json["stderr"].to_string();
    assert!(complaint.contains('8'), "{complaint}");
    Ok(())
}

/// A spec file names descriptors by number; its own is none of them.
fn spec_file(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let mine = File::open(scratch.file("mine", "passed")?)?;
    let other = File::open(scratch.file("other", "not passed")?)?;
    let files = [(&mine, 7), (&other, 8)];
    let with_spec = |text: &str| -> Check<Cell<'_>> {
        let spec = scratch.file("spec.toml", text)?;
        let cell = stage.probe("descriptors/list", []);
        Ok(cell.option(["--spec", spec.to_str().unwrap_or_default()]))
    };
    let run = run_with(
        stage,
        &with_spec("[[pass_fd]]\nfrom = 7\nto = 3\n")?,
        &files,
    )?;
    assert_eq!(run.stdout(), "0 1 2 3 ");
    let what = json!([{"number": 3, "kind": "file", "class": "named", "mode": "read"}]);
    assert_eq!(descriptors(&run), what);
    // Descriptors of the flags are added.
    let both = with_spec("[[pass_fd]]\nfrom = 7\n")?.option(["--pass-fd", "8"]);
    assert_eq!(run_with(stage, &both, &files)?.stdout(), "0 1 2 7 8 ");

    for (text, reason) in [
        ("[[pass_fd]]\nfrom = 9\n", "EBADF"),
        ("[[pass_fd]]\nfrom = 2\n", "EBADF"),
        ("[[pass_fd]]\nfrom = 7\nto = 16\n", "wants 3 to 15"),
        ("pass_fd = [7]\n", "wants a table"),
    ] {
        let (error, _) = refused(run_with(stage, &with_spec(text)?, &files)?)?;
        assert!(error.contains(reason), "{text}: {error}");
    }
    let profile = scratch.file("profile.toml", "[[pass_fd]]\nfrom = 7\n")?;
    let option = ["--policy", profile.to_str().unwrap_or_default()];
    let cell = stage.exec(["/bin/true"]).option(option);
    let (error, _) = refused(run_with(stage, &cell, &files)?)?;
    assert!(error.contains("pass_fd"), "{error}");
    Ok(())
}

/// The other end sees when the program closes its own: no other process has it.
fn end_of_file(stage: &Stage) -> Check {
    let (mut reader, writer) = std::io::pipe()?;
    let mut command = stage
        .exec(["/bin/sh", "-c", "echo here >&5; exec 5>&-; sleep 60"])
        .passed_through()
        .option(["--pass-fd", "9=5"])
        .command();
    let writer = as_file(writer);
    with_descriptor(&mut command, &writer, 9);
    let mut child = command.spawn()?;
    drop((command, writer));
    let mut said = String::new();
    reader.read_to_string(&mut said)?;
    let goes_on = child.try_wait()?.is_none();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    child.wait()?;
    assert_eq!((said.as_str(), goes_on), ("here\n", true));
    Ok(())
}

fn kinds(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.file("log", "")?;
    let (reader, writer) = std::io::pipe()?;
    let (stream, _peer) = UnixStream::pair()?;
    let listener = UnixListener::bind(scratch.join("socket"))?;
    let unnamed = tempfile::tempfile_in(scratch.path())?;
    let memory = call!(SYS_memfd_create, c"x", 0)? as i32;
    let event = call!(SYS_eventfd2, 0, 0)? as i32;
    // SAFETY: the calls have just made these, for us alone.
    let [memory, event] = [memory, event].map(|fd| unsafe { File::from_raw_fd(fd) });
    let append = File::options().append(true).open(&path)?;
    for (file, kind, class, mode) in [
        (append, "file", "named", "append"),
        (unnamed, "file", "unnamed", "read+write"),
        (memory, "file", "memory", "read+write"),
        (as_file(reader), "pipe", "unnamed", "read"),
        (as_file(writer), "pipe", "unnamed", "write"),
        (as_file(stream), "socket", "unix connected", "read+write"),
        (as_file(listener), "socket", "unix listening", "read+write"),
        (File::open("/dev/null")?, "device", "1:3", "read"),
        (event, "event", "eventfd", "read+write"),
    ] {
        let cell = stage.exec(["/bin/true"]).option(["--pass-fd", "7=15"]);
        let run = run_with(stage, &cell, &[(&file, 7)])?.ended(Outcome::Ok)?;
        let what = json!([{"number": 15, "kind": kind, "class": class, "mode": mode}]);
        assert_eq!(descriptors(&run), what);
    }
    Ok(())
}

/// By these a program would reach what the cell does not have.
fn ways_out(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    scratch.file("secret", "x")?;
    // As standard input it is one: the attack works where nothing looks at it.
    let mut outside = stage.outside("descriptors/reach", []);
    let outside = outside.stdin(File::open(scratch.path())?).output()?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "Ok(())\n");

    let by_path = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(scratch.path())?;
    let pidfd = call!(SYS_pidfd_open, std::process::id(), 0)? as i32;
    let epoll = call!(SYS_epoll_create1, 0)? as i32;
    let inotify = call!(SYS_inotify_init1, 0)? as i32;
    // SAFETY: the calls have just made these, for us alone.
    let [pidfd, epoll, inotify] =
        [pidfd, epoll, inotify].map(|fd| unsafe { File::from_raw_fd(fd) });
    let cases = [
        (File::open(scratch.path())?, "directory"),
        (by_path, "O_PATH"),
        (pidfd, "pid"),
        (epoll, "eventpoll"),
        (inotify, "inotify"),
        (File::open("/proc/self/status")?, "proc"),
        (File::open("/proc/self/ns/net")?, "nsfs"),
        (
            File::open("/sys/kernel/mm/transparent_hugepage/enabled")?,
            "sysfs",
        ),
        (
            File::options().read(true).write(true).open("/dev/ptmx")?,
            "terminal",
        ),
        (as_file(UnixDatagram::pair()?.0), "Unix socket"),
        (as_file(UnixDatagram::unbound()?), "Unix socket"),
    ];
    for (file, reason) in cases {
        let cell = stage.exec(["/bin/true"]).option(["--pass-fd", "7"]);
        let (error, hint) = refused(run_with(stage, &cell, &[(&file, 7)])?)?;
        assert!(error.contains("--pass-fd 7"), "{reason}: {error}");
        assert!(error.contains(reason), "{reason}: {error}");
        assert!(!hint.is_empty(), "{reason}: {error}");
    }
    Ok(())
}

/// A socket belongs to the network that it was made in, and can be connected anew.
fn network_sockets(stage: &Stage) -> Check {
    let first = TcpListener::bind("127.0.0.1:0")?;
    let second = TcpListener::bind("127.0.0.1:0")?;
    let port = second.local_addr()?.port().to_string();
    let connect = || TcpStream::connect(first.local_addr()?).map(as_file);
    let args = ["7", port.as_str()];

    let mut outside = stage.outside("passed/reconnect", args);
    let connected = connect()?;
    with_descriptor(&mut outside, &connected, 7);
    let outside = process::finish(&mut outside, stage.patience())?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "Ok(())\n");

    let cell = stage
        .probe("passed/reconnect", args)
        .option(["--pass-fd", "7"]);
    let with_network = cell.clone().option(["--net", "host"]);
    let run = run_with(stage, &with_network, &[(&connect()?, 7)])?;
    assert_eq!(run.stdout(), "Ok(())\n");
    assert_eq!(descriptors(&run)[0]["class"], "inet connected");

    for socket in [connect()?, as_file(first.try_clone()?)] {
        let (error, hint) = refused(run_with(stage, &cell, &[(&socket, 7)])?)?;
        assert!(error.contains("connected anew"), "{error}");
        assert!(hint.contains("--net host"), "{hint}");
    }
    Ok(())
}

/// The owner of a file may change its mode by any descriptor, and outside the program has
/// the caller's uid.
fn modes_of_files(stage: &Stage) -> Check {
    if stage.root() {
        stage.note("root's programs own nothing");
        return Ok(());
    }
    let scratch = stage.scratch()?;
    let path = scratch.file("own", "")?;
    let mut outside = stage.outside("passed/chmod", ["7"]);
    let file = File::open(&path)?;
    with_descriptor(&mut outside, &file, 7);
    let outside = process::finish(&mut outside, stage.patience())?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "Ok(())\n");

    let cell = stage
        .probe("passed/chmod", ["7"])
        .option(["--pass-fd", "7"]);
    let run = run_with(stage, &cell, &[(&File::open(&path)?, 7)])?;
    assert_eq!(run.stdout(), "Err(EROFS)\n");
    Ok(())
}

fn numbers(stage: &Stage) -> Check {
    let null = File::open("/dev/null")?;
    for (options, reason) in [
        (["7=2", "8"], "wants 3 to 15"),
        (["7=16", "8"], "wants 3 to 15"),
        (["7=4", "8=4"], "which an earlier one is"),
        (["7", "7"], "EBADF"),
        (["7", "99=3"], "EBADF"),
    ] {
        let cell =
            stage
                .exec(["/bin/true"])
                .option(["--pass-fd", options[0], "--pass-fd", options[1]]);
        let (error, hint) = refused(run_with(stage, &cell, &[(&null, 7), (&null, 8)])?)?;
        assert!(error.contains(reason), "{options:?}: {error}");
        assert!(!hint.is_empty() || reason.contains("earlier"), "{error}");
    }
    let code = stage.code("bash", "true").option(["--pass-fd", "7"]);
    let (error, hint) = refused(run_with(stage, &code, &[(&null, 7)])?)?;
    assert!(error.contains("code gets no descriptors"), "{error}");
    assert!(hint.contains("exec"), "{hint}");
    Ok(())
}

/// What it says is so while the cell is there.
fn info(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let record = scratch.join("record");
    let (reader, writer) = std::io::pipe()?;
    let mut command = stage
        .exec(["/bin/sh", "-c", "read line; exit 3"])
        .passed_through()
        .option(["--record", &text(&record), "--info-fd", "9"])
        .command();
    let writer = as_file(writer);
    with_descriptor(&mut command, &writer, 9);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    drop((command, writer));
    let mut lines = BufReader::new(reader).lines();
    let first: Value = serde_json::from_str(&lines.next().ok_or_else(|| fail("no line"))??)?;
    let pid = &first["child-pid"];
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    for name in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let number = &first[format!("{name}-namespace")];
        let told = format!("{name}:[{number}]");
        let own = fs::read_link(format!("/proc/self/ns/{name}"))?;
        assert_ne!(text(&own), told);
        // Init is not dumpable, so a plain user may not look.
        if stage.root() {
            let link = fs::read_link(format!("/proc/{pid}/ns/{name}"))?;
            assert_eq!(text(&link), told);
        }
    }
    drop(child.stdin.take());
    let second: Value = serde_json::from_str(&lines.next().ok_or_else(|| fail("no end"))??)?;
    assert_eq!(second, json!({"exit-code": 3}));
    assert!(lines.next().is_none());
    assert_eq!(child.wait()?.code(), Some(3));
    let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
    let numbers: Vec<_> = numbers.unwrap_or_default().split_whitespace().collect();
    assert_eq!(numbers.last(), Some(&"1"), "{status}");
    let record: Value = serde_json::from_slice(&fs::read(&record)?)?;
    assert_eq!(first["cgroup"], record["isolation"]["cgroup"]["path"]);
    assert_eq!(record["start"], "cold");
    Ok(())
}

fn info_of_what_ends_at_once(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let path = scratch.join("info");
    for (program, count) in [("/bin/true", 2), ("/bin/missing", 0)] {
        let run = stage
            .exec([program])
            .option(["--info-fd", &text(&path)])
            .run()?;
        let lines = fs::read_to_string(&path)?;
        assert_eq!(lines.lines().count(), count, "{program}: {lines}");
        if count == 2 {
            assert_eq!(run.record.exit_code, 0);
            assert!(lines.ends_with("{\"exit-code\":0}\n"), "{lines}");
        }
    }
    // Code has it too.
    let run = stage
        .code("bash", "exit 4")
        .option(["--info-fd", &text(&path)])
        .run()?;
    assert_eq!(run.record.exit_code, 4);
    assert!(fs::read_to_string(&path)?.ends_with("{\"exit-code\":4}\n"));
    Ok(())
}

/// The call fails, and its record is complete.
fn info_without_a_reader(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let record = scratch.join("record");
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = stage
        .exec(["/bin/true"])
        .passed_through()
        .option(["--record", &text(&record), "--info-fd", "9"])
        .command();
    let writer = as_file(writer);
    with_descriptor(&mut command, &writer, 9);
    let ended = process::finish(&mut command, stage.patience())?;
    assert_eq!(ended.code(), 125);
    assert!(
        ended.complaint().contains("--info-fd"),
        "{}",
        ended.complaint()
    );
    let record: Value = serde_json::from_slice(&fs::read(&record)?)?;
    assert_eq!(record["outcome"], "ok");
    Ok(())
}
