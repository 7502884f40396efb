//! Verdicts rest on measurements: each limit as a program reaches it, and beside it a
//! program that only claims or appears to.

use record::Category;

use crate::cells::cell::Run;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "verdicts",
    covers: &[30, 38],
    attacks: &[],
    scenes: &[
        python_scene("nothing-forged-passes-for-a-limit", |stage| {
            all(stage, FORGED)
        }),
        python_scene("limits-that-are-reached-are-named", |stage| {
            all(stage, REAL)
        }),
        scene("words-of-node-pass-for-nothing", |stage| all(stage, NODE))
            .needs(&[Need::Program("node")]),
        scene("a-disk-that-was-emptied-was-full", emptied_disk),
        scene("probes-of-node-are-not-the-codes", probes_of_node).needs(&[Need::Program("node")]),
    ],
    actors: &[],
};

/// One program, and what its record must say.
struct Row {
    language: &'static str,
    options: &'static [[&'static str; 2]],
    code: &'static str,
    /// Any of these: the mechanism decides what is measured.
    outcomes: &'static [Outcome],
    categories: &'static [Category],
    /// The one limit that was hit.
    hit: Option<&'static str>,
    /// A part of the context.
    words: &'static str,
}

use Category::{Disk, File, Killed, Memory, Permission, Processes, Runtime, Timeout};

const ONLY_SAID: &[Outcome] = &[Outcome::Error, Outcome::Exit, Outcome::Signal];

#[rustfmt::skip]
const FORGED: &[Row] = &[
    forged("python", "raise MemoryError", &[Memory], "it reports a lack of memory"),
    forged("python", "raise RuntimeError(\"can't start new thread\")", &[Processes, Runtime], "RuntimeError"),
    forged("python", "raise BlockingIOError(11, 'x')", &[Runtime], "not available at that moment"),
    forged("python", "raise OSError(28, 'No space left on device')", &[Disk], "none of its disks was seen full"),
    forged("python", "raise OSError(27, 'File too large')", &[Disk], "one file at most"),
    forged("python", "import os; os.kill(os.getpid(), 9)", &[Killed], "cellblock did not send it"),
    forged("bash", "kill -XCPU $$", &[Killed], "did not reach its limit"),
    forged("bash", "kill -XFSZ $$", &[Killed], "no file of that size"),
    forged("bash", "kill -SYS $$", &[Killed], "a process can send it too"),
    forged("bash", "echo 'main.sh: xrealloc: cannot allocate 9 bytes' >&2; exit 2", &[Memory], "it wrote `xrealloc: cannot allocate`"),
    forged("bash", "echo 'fork: retry: Resource temporarily unavailable' >&2; exit 254", &[Processes], "it wrote `fork: retry"),
];

const fn forged(
    language: &'static str,
    code: &'static str,
    categories: &'static [Category],
    words: &'static str,
) -> Row {
    Row {
        language,
        options: &[],
        code,
        outcomes: ONLY_SAID,
        categories,
        hit: None,
        words,
    }
}

const THREADS: &str = "import threading, time
for i in range(20): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()";

/// Keeps its memory until the watchdog has seen it.
const FORKS: &str = "import os, time
try:
    for i in range(20):
        if os.fork() == 0: time.sleep(60); os._exit(0)
except OSError:
    time.sleep(0.5); raise";

#[rustfmt::skip]
const REAL: &[Row] = &[
    real("python", &[["--memory", "64M"]], "x = [b'y' * 1000000 + bytes([i % 256]) for i in range(1000)]", &[Outcome::Memory], Memory, Some("memory"), "its limit of 64M"),
    // RLIMIT_DATA refuses one large allocation, which is never in use.
    real("python", &[["--memory", "64M"], ["--cgroup", "none"]], "x = bytearray(200 << 20)", &[Outcome::Error], Memory, None, "the limit is 64M, and at most "),
    real("python", &[["--processes", "8"]], THREADS, &[Outcome::Error, Outcome::Processes], Processes, None, "8 processes and threads"),
    real("python", &[["--processes", "8"]], FORKS, &[Outcome::Processes], Processes, Some("processes"), "its limit of 8"),
    real("python", &[["--cpu-time", "300ms"]], "while True: pass", &[Outcome::Timeout], Timeout, Some("cpu_time"), "its limit of 300ms"),
    real("python", &[["--file-size", "1M"]], "open('x', 'wb').write(b'x' * 3000000)", &[Outcome::Disk], Disk, Some("file_size"), "limit of 1M for one file"),
    real("bash", &[["--file-size", "1M"]], "head -c 3000000 /dev/zero > x", &[Outcome::Disk], Disk, Some("file_size"), "limit of 1M for one file"),
    real("python", &[["--open-files", "32"]], "x = [open('/dev/null') for _ in range(100)]", &[Outcome::Error], File, None, "its limit is 32 at a time"),
    real("python", &[["--tmp-size", "1M"]], "open('/tmp/x', 'wb').write(b'x' * 3000000)", &[Outcome::Disk], Disk, Some("tmp_size"), "/tmp is full (1M)"),
    real("bash", &[["--workspace-size", "1M"]], "head -c 3000000 /dev/zero > x", &[Outcome::Disk], Disk, Some("workspace_size"), "/workspace is full (1M)"),
    real("python", &[], "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", &[Outcome::Error], Permission, None, "denies that use of socket (only "),
    real("python", &[], "import subprocess; subprocess.run(['no-such-tool'])", &[Outcome::Error], File, None, "there is no program `no-such-tool`"),
    real("python", &[], "import subprocess; subprocess.run('no-such-tool', shell=True, check=True)", &[Outcome::Error], File, None, "there is no program `no-such-tool`"),
    real("bash", &[], "no-such-tool", &[Outcome::Exit], File, None, "there is no program `no-such-tool`"),
];

#[rustfmt::skip]
const NODE: &[Row] = &[
    forged("javascript", "console.error('FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory'); process.exit(3)", &[Runtime], "status 3"),
    forged("javascript", "console.error('FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory'); process.abort()", &[Memory], "it reports a lack of memory"),
    real("javascript", &[["--memory", "256M"], ["--wall", "60s"]], "const all = []; for (;;) all.push(new Array(1e5).fill(0.5))", &[Outcome::Memory], Memory, Some("memory"), "its limit of 256M"),
    real("javascript", &[], "require('child_process').execFileSync('no-such-tool')", &[Outcome::Error], File, None, "there is no program `no-such-tool`"),
    real("javascript", &[], "require('child_process').execSync('no-such-tool')", &[Outcome::Error], File, None, "there is no program `no-such-tool`"),
];

const fn real(
    language: &'static str,
    options: &'static [[&'static str; 2]],
    code: &'static str,
    outcomes: &'static [Outcome],
    category: Category,
    hit: Option<&'static str>,
    words: &'static str,
) -> Row {
    let categories: &[Category] = match category {
        Memory => &[Memory],
        Processes => &[Processes],
        Timeout => &[Timeout],
        Disk => &[Disk],
        Permission => &[Permission],
        _ => &[File],
    };
    Row {
        language,
        options,
        code,
        outcomes,
        categories,
        hit,
        words,
    }
}

fn all(stage: &Stage, rows: &[Row]) -> Check {
    rows.iter().try_for_each(|row| check(stage, row))
}

fn check(stage: &Stage, row: &Row) -> Check {
    let mut cell = stage.code(row.language, row.code).deadline(90_000);
    for option in row.options {
        cell = cell.option(*option);
    }
    let run = cell.run()?;
    let record = &run.record;
    let context = record.context.as_deref().unwrap_or_default();
    let category = record.error_category;
    let holds = row.outcomes.contains(&record.outcome)
        && row.categories.iter().any(|known| category == Some(*known))
        && context.contains(row.words);
    if !holds {
        let (words, json) = (row.words, &run.json);
        return Err(fail(format!("{}: {words:?} wanted: {json}", row.code)));
    }
    // Limits that only some mechanisms measure are in no row.
    let measured_by_some = record.outcome == Outcome::Processes && row.hit.is_none();
    let hit = hits(&run);
    let expected: Vec<&str> = row.hit.into_iter().collect();
    if hit != expected && !(measured_by_some && hit == ["processes"]) {
        return Err(fail(format!("{}: hit {hit:?}", row.code)));
    }
    Ok(())
}

/// The limits that were hit, without the CPUs, which every busy program hits.
fn hits(run: &Run) -> Vec<&str> {
    let limits = run.record.limits.iter();
    limits
        .filter(|(name, limit)| limit.hit == Some(true) && *name != "cpus")
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Whether the hit was seen depends on the moment of the check; it is never denied.
fn emptied_disk(stage: &Stage) -> Check {
    let code = "head -c 3000000 /dev/zero > /tmp/x; rm /tmp/x; exit 1";
    let run = stage.code("bash", code).limit("tmp-size", "1M").run()?;
    let record = &run.record;
    let (size, inodes) = (&record.limits["tmp_size"], &record.limits["tmp_inodes"]);
    assert_ne!(size.hit, Some(false), "{}", run.json);
    assert_eq!(inodes.hit, None, "{}", run.json);
    let expected = match size.hit {
        Some(_) => Outcome::Disk,
        None => Outcome::Exit,
    };
    assert_eq!(record.outcome, expected, "{}", run.json);
    Ok(())
}

/// Node itself tries io_uring at every start. The same call from a thread that the code
/// starts is the code's.
fn probes_of_node(stage: &Stage) -> Check {
    let node = |code| {
        let node = stage.code("javascript", code);
        node.option(["--env", "UV_USE_IO_URING=1"])
    };
    let names = |denied: &[record::Denied]| -> Vec<String> {
        denied.iter().map(|denied| denied.name.clone()).collect()
    };
    let idle = node("throw new Error('x')").run()?.ended(Outcome::Error)?;
    if idle.record.denied_to_interpreter.is_empty() {
        stage.note("this node does not try io_uring");
        return Ok(());
    }
    assert_eq!(
        names(&idle.record.denied_to_interpreter),
        ["io_uring_setup"]
    );
    assert_eq!(names(&idle.record.denied), [""; 0]);
    let context = idle.record.context.unwrap_or_default();
    assert!(!context.contains("io_uring"), "{context}");
    let events = node("1").passed_through().option(["--events", "-"]);
    let events = String::from_utf8_lossy(&events.finish()?.stdout).into_owned();
    assert!(!events.contains("\"event\":\"denied\""), "{events}");

    let code = "const {Worker} = require('worker_threads'); new Worker('1', {eval: true})";
    let own = node(code).run()?.ended(Outcome::Ok)?;
    assert_eq!(names(&own.record.denied), ["io_uring_setup"]);
    Ok(())
}
