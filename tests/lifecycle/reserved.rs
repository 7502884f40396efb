//! Programs that map much more memory than they use start in a default cell, and what they use is
//! limited all the same.

use record::{Category, Enforced};

use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "limits-of-programs",
    covers: &[26],
    attacks: &[],
    scenes: &[
        scene("a-reservation-fits-into-a-default-cell", reservations),
        scene("data-is-a-limit-of-its-own", own_limit),
        scene("data-is-recorded", recorded),
        scene("what-is-touched-is-limited-without-data", touched),
        scene(
            "what-is-touched-in-children-is-limited-without-data",
            |stage| touched_by(stage, "touch-in-children"),
        ),
        python_scene("a-request-far-above-the-limit-is-refused", far_above),
        scene("sanitizers-run-without-data", sanitizers).needs(&[Need::Program("gcc")]),
        scene(
            "threads-of-node-start-in-programs-and-scripts",
            node_workers,
        )
        .needs(&[Need::Program("node")]),
        python_scene("programs-of-python-may-reserve-more", children_of_python),
        scene("programs-of-r-may-reserve-more", children_of_r).needs(&[Need::Program("Rscript")]),
        scene("programs-of-java-may-reserve-more", children_of_java)
            .needs(&[Need::Program("java")]),
        scene(
            "descriptors-are-few-unless-a-cgroup-counts-them",
            descriptors,
        ),
    ],
    actors: &[
        Actor {
            name: "reserve",
            run: |args| match reserve(mebibytes(args)) {
                Ok(_) => report("reserved"),
                Err(errno) => report(&format!("{errno:?}")),
            },
        },
        Actor {
            name: "touch",
            run: |args| {
                let size = mebibytes(args);
                match reserve(size).map(|start| touch(start, size)) {
                    Ok(()) => report("touched it all"),
                    Err(errno) => report(&format!("{errno:?}")),
                }
            },
        },
        Actor {
            name: "touch-in-children",
            run: |args| {
                let size = mebibytes(args) / 4;
                for _ in 0..4 {
                    let child = crate::cells::raw::fork(|| {
                        let _ = reserve(size).map(|start| touch(start, size));
                        std::thread::sleep(std::time::Duration::from_secs(60));
                        0
                    });
                    if child.is_err() {
                        return report("no child");
                    }
                }
                while let Ok(status) = nix::sys::wait::wait() {
                    std::hint::black_box(status);
                }
                report("touched it all")
            },
        },
    ],
};

fn mebibytes(args: &[String]) -> usize {
    let number = args.first().and_then(|arg| arg.parse::<usize>().ok());
    number.unwrap_or_default() << 20
}

fn report(words: &str) -> i32 {
    println!("{words}");
    0
}

/// A private writable mapping, as a Lisp has for its heap.
fn reserve(size: usize) -> Result<*mut u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    Ok(call!(SYS_mmap, 0, size, protection, flags, -1, 0)? as *mut u8)
}

fn touch(start: *mut u8, size: usize) {
    for offset in (0..size).step_by(4096) {
        // SAFETY: the offset lies in the caller's mapping, which is never unmapped.
        unsafe { start.add(offset).write_volatile(1) };
    }
}

/// Whether something else than a cgroup bounds the memory of this cell.
fn is_counted_by_mapping(run: &Run) -> bool {
    run.record.limits["memory"].by.starts_with("rlimit")
}

fn says<'s>(stage: &'s Stage, actor: &str, size: &str) -> Cell<'s> {
    let name = format!("limits-of-programs/{actor}");
    // Code in Python would have less to reserve.
    stage.probe(&name, [size]).itself()
}

fn reservations(stage: &Stage) -> Check {
    for size in ["1024", "3072"] {
        let run = says(stage, "reserve", size).run()?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "reserved\n", "{size}");
    }
    Ok(())
}

fn own_limit(stage: &Stage) -> Check {
    let with = |data| says(stage, "reserve", "1024").limit("data", data).run();
    assert_eq!(with("512M")?.ended(Outcome::Ok)?.stdout(), "ENOMEM\n");
    assert_eq!(with("2G")?.ended(Outcome::Ok)?.stdout(), "reserved\n");
    let run = says(stage, "reserve", "9000000")
        .limit("data", "none")
        .run()?;
    assert_eq!(run.ended(Outcome::Ok)?.stdout(), "reserved\n");
    let refused = says(stage, "reserve", "1").limit("data", "1").finish()?;
    let why = String::from_utf8_lossy(&refused.stdout).into_owned() + &refused.complaint();
    assert!(why.contains("4M or more, none or auto"), "{why}");
    Ok(())
}

fn recorded(stage: &Stage) -> Check {
    const SIZE: f64 = (1_u64 << 30) as f64;
    let run = says(stage, "reserve", "1").limit("data", "1G").run()?;
    let limit = &run.record.limits["data"];
    let recorded = (limit.requested, limit.enforced, limit.by.as_str());
    assert_eq!(recorded, (SIZE, Some(Enforced::Exactly(SIZE)), "rlimit"));
    let lifted = says(stage, "reserve", "1").limit("data", "none").run()?;
    assert!(
        !lifted.record.limits.contains_key("data"),
        "{}",
        lifted.json
    );
    let chosen = says(stage, "reserve", "1").limit("memory", "1G").run()?;
    let data = chosen
        .record
        .limits
        .get("data")
        .map(|limit| limit.requested);
    let expected = is_counted_by_mapping(&chosen).then_some(5.0 * SIZE);
    assert_eq!(data, expected, "{}", chosen.json);
    Ok(())
}

/// First with the limit on memory off, where the same program gets it all.
fn touched(stage: &Stage) -> Check {
    let run = says(stage, "touch", "400")
        .limit("data", "none")
        .limit("memory", "none")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "touched it all\n");
    touched_by(stage, "touch")
}

fn touched_by(stage: &Stage, actor: &str) -> Check {
    let run = says(stage, actor, "4000")
        .limit("data", "none")
        .limit("memory", "64M")
        .limit("wall", &stage.duration(50_000))
        .deadline(120_000)
        .run()?
        .ended(Outcome::Memory)?;
    assert_eq!(run.record.limits["memory"].hit, Some(true), "{}", run.json);
    stage.note(format!("{:?}", run.record.usage.memory_peak_bytes));
    Ok(())
}

/// Code in Python still gets an exception, which it can handle.
fn far_above(stage: &Stage) -> Check {
    let code = "
try:
    bytearray(3 << 30)
except MemoryError:
    print('refused')";
    let run = stage.code("python", code).limit("cgroup", "none").run()?;
    assert_eq!(run.ended(Outcome::Ok)?.stdout(), "refused\n");
    let uncaught = stage
        .code("python", "bytearray(3 << 30)")
        .limit("cgroup", "none")
        .run()?
        .ended(Outcome::Error)?;
    assert_eq!(uncaught.record.error_category, Some(Category::Memory));
    Ok(())
}

const BUILD: &str = "
printf '%s\\n' '#include <stdio.h>' '#include <stdlib.h>' \\
  'int main(void) { int *p = malloc(4); *p = 6; printf(\"%d\\n\", *p * 7); free(p); return 0; }' > a.c
gcc -fsanitize=address a.c -o a && ASAN_OPTIONS=detect_leaks=0 ./a";

fn sanitizers(stage: &Stage) -> Check {
    let build = |data: &str| {
        let cell = stage.exec(["/bin/sh", "-c", BUILD]).limit("cgroup", "none");
        cell.limit("data", data).limit("memory", "1G").run()
    };
    let run = build("none")?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "42\n");
    // Its reservation is what fails without that.
    assert_ne!(build("auto")?.record.outcome, Outcome::Ok);
    Ok(())
}

/// More than fit with V8's own reservation for the code of each.
const WORKERS: &str = "
const { Worker } = require('node:worker_threads');
let count = 0;
for (let i = 0; i < 20; i++) {
  const worker = new Worker('require(`worker_threads`).parentPort.postMessage(0)', { eval: true });
  if (i === 0) console.log(worker.resourceLimits.codeRangeSizeMb);
  worker.once('message', () => { if (++count === 20) console.log('all'); });
}";

fn node_workers(stage: &Stage) -> Check {
    let usual = "const { Worker } = require('node:worker_threads');";
    let module = WORKERS.replace(usual, "import { Worker } from 'node:worker_threads';");
    let script = format!("cat > a.mjs <<'END'\n{module}\nEND\nnode a.mjs");
    let in_python = |call: &str| {
        let code = format!("code = r\"\"\"{WORKERS}\"\"\"\n{call}");
        stage.code("python", &code).limit("memory", "512M")
    };
    let cells = [
        stage.exec(["node", "-e", WORKERS]),
        stage.code("bash", &script).limit("memory", "512M"),
        stage.code("javascript", WORKERS),
        in_python("import subprocess\nsubprocess.run(['node', '-e', code])"),
        in_python("open('a.js', 'w').write(code)\nimport os\nos.system('node a.js')"),
    ];
    for cell in cells {
        let run = cell.limit("cgroup", "none").run()?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "64\nall\n");
    }
    // What the caller sets stays.
    let set = stage
        .exec([
            "node",
            "-p",
            "process.env.NODE_OPTIONS + process.traceDeprecation",
        ])
        .option(["--env", "NODE_OPTIONS=--trace-deprecation"])
        .run()?
        .ended(Outcome::Ok)?;
    let expected = "--require=/run/cellblock/workers.cjs --trace-deprecationtrue\n";
    assert_eq!(set.stdout(), expected);
    Ok(())
}

/// Maps more than a cell's memory, and uses none of it.
const RESERVES: &str = "import mmap; mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE); print(1)";

/// Python's own requests are bounded by its memory, and those of programs that it starts are not.
const CHILDREN: &str = "
import os, subprocess, sys, threading
child = [sys.executable, 'child.py']
subprocess.run(child)
os.system('python3 child.py')
print(os.popen('python3 child.py').read())
runs = [threading.Thread(target=subprocess.run, args=[child]) for _ in range(4)]
for run in runs: run.start()
for run in runs: run.join()
def refused():
    try:
        bytearray(3 << 30)
    except MemoryError:
        print('refused')
refused()
if not os.fork():
    refused()
    os._exit(0)
os.wait()";

fn children_of_python(stage: &Stage) -> Check {
    let code = format!("open('child.py', 'w').write({RESERVES:?})\n{CHILDREN}");
    let run = stage
        .code("python", &code)
        .limit("cgroup", "none")
        .limit("memory", "512M")
        .run()?
        .ended(Outcome::Ok)?;
    let expected = "1\n1\n1\n\n1\n1\n1\n1\nrefused\nrefused\n";
    assert_eq!(run.stdout(), expected);
    Ok(())
}

fn children_of_r(stage: &Stage) -> Check {
    let code = format!("system2('python3', c('-c', shQuote('{RESERVES}')))\nx <- numeric(4e8)");
    children_of(stage, "r", &code)
}

fn children_of_java(stage: &Stage) -> Check {
    let code = format!(
        "new ProcessBuilder(\"python3\", \"-c\", {RESERVES:?}).inheritIO().start().waitFor();
var x = new long[400_000_000];"
    );
    children_of(stage, "java", &code)
}

/// The code starts a program that reserves much, and then needs too much itself, which is an
/// exception.
fn children_of(stage: &Stage, language: &str, code: &str) -> Check {
    let run = stage
        .code(language, code)
        .limit("cgroup", "none")
        .run()?
        .ended(Outcome::Error)?;
    assert_eq!(run.stdout(), "1\n", "{}", run.json);
    assert_eq!(run.record.error_category, Some(Category::Memory));
    assert!(run.record.error.is_some(), "{}", run.json);
    Ok(())
}

fn descriptors(stage: &Stage) -> Check {
    let run = says(stage, "reserve", "1").run()?;
    let expected = match is_counted_by_mapping(&run) {
        true => 256.0,
        false => 1024.0,
    };
    let limit = &run.record.limits["open_files"];
    assert_eq!(limit.requested, expected, "{}", run.json);
    let rlimits = run
        .record
        .isolation
        .as_ref()
        .map(|isolation| &isolation.rlimits);
    let locked = (rlimits.into_iter().flatten())
        .find(|limit| limit.resource == "RLIMIT_MEMLOCK")
        .and_then(|limit| limit.soft);
    assert_eq!(locked == Some(64 << 10), expected == 256.0, "{}", run.json);
    Ok(())
}
