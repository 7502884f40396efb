//! What tools and libraries ask a machine for, and what a cell answers: its own memory and
//! CPUs, with a cgroup and without one. Libraries that hosts rarely have, such as PyTorch,
//! are represented by the files that they read and how they read them; psutil and joblib
//! themselves are asked in `tests/programs`.

use crate::cells::cell::Run;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "probes",
    covers: &[],
    attacks: &[],
    scenes: &[
        scene("nproc", |stage| answers(stage, "nproc", |out| out == "1\n"))
            .needs(&[Need::Program("nproc")]),
        scene("free", |stage| {
            answers(stage, "free -b", |out| {
                let row = |name: &str| out.lines().find(|line| line.starts_with(name));
                let total = |name| row(name).and_then(|line| line.split_whitespace().nth(1));
                total("Mem:") == Some("314572800") && total("Swap:") == Some("0")
            })
        })
        .needs(&[Need::Program("free")]),
        scene("uptime", |stage| {
            answers(stage, "uptime", |out| {
                out.contains(" up ") && out.contains("load average")
            })
        })
        .needs(&[Need::Program("uptime")]),
        scene("ps-aux", |stage| {
            answers(stage, PS, |out| {
                let commands: Vec<_> = (out.lines().skip(1))
                    .filter_map(|line| line.split_whitespace().nth(10))
                    .collect();
                // Init is not among them.
                commands == ["/bin/sh", "sleep", "ps"]
            })
        })
        .needs(&[Need::Program("ps")]),
        scene("top", |stage| {
            answers(stage, "top -b -n 1", |out| {
                out.contains("MiB Mem :    300.0 total") && out.contains("MiB Swap:      0.0 total")
            })
        })
        .needs(&[Need::Program("top")]),
        scene("lscpu", |stage| {
            answers(stage, "lscpu -p=cpu", |out| {
                out.lines().filter(|line| !line.starts_with('#')).eq(["0"])
            })
        })
        .needs(&[Need::Program("lscpu")]),
        python_scene("python", |stage| code(stage, "python", PYTHON)),
        python_scene("joblib-and-pytorch", |stage| {
            code(stage, "python", LIBRARIES)
        }),
        scene("node", |stage| code(stage, "javascript", NODE)).needs(&[Need::Program("node")]),
        scene("node-workers", node_workers).needs(&[Need::Program("node")]),
        scene("java", |stage| code(stage, "java", JAVA)).needs(&[Need::Program("javac")]),
        scene("r", |stage| code(stage, "r", R)).needs(&[Need::Program("Rscript")]),
        scene("busybox-free", |stage| {
            // It reads sysinfo(2), not /proc.
            answers(stage, "busybox free", |out| {
                let row = out.lines().find(|line| line.starts_with("Mem:"));
                row.and_then(|row| row.split_whitespace().nth(1)) == Some("307200")
            })
        })
        .needs(&[Need::Program("busybox")]),
    ],
    actors: &[],
};

/// A child of the shell has the shell's name until it executes its program.
const PS: &str = "sleep 99 & until grep -q sleep /proc/$!/comm; do :; done; ps aux";

/// With the first cgroup that works, and with none.
const CGROUPS: [&str; 2] = ["auto", "none"];

/// Whether this cell had no cgroup, so that one without a cgroup shows no more.
fn is_without(run: &Run) -> bool {
    run.json["isolation"]["cgroup"].is_null()
}

/// Of every cell here, in a machine with more.
const SIZE: [&str; 2] = ["--memory=300M", "--cpus=1"];

fn answers(stage: &Stage, script: &str, is_right: fn(&str) -> bool) -> Check {
    for cgroup in CGROUPS {
        let run = stage
            .exec(["/bin/sh", "-c", script])
            .option(SIZE)
            .option(["--cgroup", cgroup])
            .run()?
            .ended(Outcome::Ok)?;
        if run.json["isolation"]["proc"] != "machine" {
            stage.note("this host's /proc is covered");
            return Ok(());
        }
        assert!(is_right(run.stdout()), "{cgroup}: {}", run.stdout());
        if is_without(&run) {
            break;
        }
    }
    Ok(())
}

/// Code that fails unless the cell's answers are right. Its argument is the cell's memory.
fn code(stage: &Stage, language: &str, code: &str) -> Check {
    for cgroup in CGROUPS {
        // Java and Node need more than the tools.
        let run = stage
            .code(language, code)
            .option(["--memory=600M", "--cpus=1", "--cgroup", cgroup])
            .arguments(["629145600"])
            .run()?;
        if run.json["isolation"]["proc"] != "machine" {
            stage.note("this host's /proc is covered");
            return Ok(());
        }
        let run = run.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "right\n", "{cgroup}: {}", run.json);
        if is_without(&run) {
            break;
        }
    }
    Ok(())
}

/// The standard library, and /proc as psutil reads it.
const PYTHON: &str = r#"
import concurrent.futures, multiprocessing, os, sys
memory = int(sys.argv[1])
assert os.cpu_count() == multiprocessing.cpu_count() == 1
assert len(os.sched_getaffinity(0)) == 1
assert os.sysconf("SC_NPROCESSORS_ONLN") == os.sysconf("SC_NPROCESSORS_CONF") == 1
assert os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") == memory
assert os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") <= memory

table = dict(line.split(":") for line in open("/proc/meminfo") if line.strip())
kilobytes = {name: int(value.split()[0]) for name, value in table.items()}
assert kilobytes["MemTotal"] * 1024 == memory, kilobytes
for name in ("MemFree", "MemAvailable", "Buffers", "Cached", "Shmem", "Active", "Inactive", "Slab", "SReclaimable"):
    assert 0 <= kilobytes[name] * 1024 <= memory, name
assert kilobytes["SwapTotal"] == kilobytes["SwapFree"] == 0
stat = open("/proc/stat").read().splitlines()
assert [line.split()[0] for line in stat if line.startswith("cpu")] == ["cpu", "cpu0"]
assert any(line.startswith("btime ") for line in stat)
assert len(open("/proc/loadavg").read().split()) == 5
assert float(open("/proc/uptime").read().split()[0]) > 0
own = open(f"/proc/{os.getpid()}/stat").read()
assert own.rsplit(")", 1)[1].split()[0] == "R"
for name in ("status", "statm", "cmdline", "smaps_rollup", "limits", "io", "maps", "task"):
    assert os.path.exists(f"/proc/self/{name}"), name
assert {int(name) for name in os.listdir("/proc") if name.isdigit()} == {os.getpid()}

with concurrent.futures.ThreadPoolExecutor(100) as pool:
    assert sum(pool.map(int, range(1000))) == 499500
print("right")
"#;

/// joblib's loky, and the cpuinfo library of PyTorch with its number of threads.
const LIBRARIES: &str = r#"
import os, re, subprocess, sys

# loky: the quota of cgroup v2, the affinity, and the cores that lscpu shows.
quota, period = open("/sys/fs/cgroup/cpu.max").read().split()
assert int(quota) / int(period) == 1
assert int(open("/sys/fs/cgroup/memory.max").read()) == int(sys.argv[1])
try:
    text = subprocess.run(["lscpu", "--parse=core"], capture_output=True, text=True, check=True).stdout
except FileNotFoundError:
    text = "0\n"
assert len({line for line in text.splitlines() if not line.startswith('#')}) == 1

# cpuinfo: the lists of processors, then a paragraph of /proc/cpuinfo for each.
def listed(name):
    text = open(f"/sys/devices/system/cpu/{name}").read().strip()
    ranges = [[int(n) for n in part.split("-")] for part in text.split(",")]
    return [n for each in ranges for n in range(each[0], each[-1] + 1)]

assert listed("possible") == listed("present") == listed("online") == [0]
processors = [p for p in open("/proc/cpuinfo").read().split("\n\n") if p.strip()]
assert len(processors) == 1
fields = dict(re.split(r"\s*: ?", line, maxsplit=1) for line in processors[0].strip().splitlines())
assert fields["processor"] == "0"
if os.uname().machine == "x86_64":
    assert fields["vendor_id"] and int(fields["cpu family"]) and "sse2" in fields["flags"].split()
# at::get_num_threads and std::thread::hardware_concurrency.
assert len(os.sched_getaffinity(0)) == 1
print("right")
"#;

const NODE: &str = r"
const os = require('node:os');
const assert = require('node:assert');
const memory = Number(process.argv[2]);
assert.equal(os.cpus().length, 1);
assert.equal(os.availableParallelism(), 1);
assert.equal(os.totalmem(), memory);
assert(os.freemem() <= memory && os.freemem() > 0);
assert.equal(os.loadavg().length, 3);
assert(os.uptime() > 0);
assert(require('node:v8').getHeapStatistics().heap_size_limit < memory);
console.log('right');
";

const JAVA: &str = r#"
public class Probes {
    public static void main(String[] args) {
        long memory = Long.parseLong(args[0]);
        var runtime = Runtime.getRuntime();
        if (runtime.availableProcessors() != 1) throw new AssertionError(runtime.availableProcessors());
        if (runtime.maxMemory() > memory) throw new AssertionError(runtime.maxMemory());
        var system = java.lang.management.ManagementFactory.getOperatingSystemMXBean();
        if (system.getAvailableProcessors() != 1) throw new AssertionError(system);
        var detailed = (com.sun.management.OperatingSystemMXBean) system;
        long total = detailed.getTotalMemorySize();
        if (total != memory) throw new AssertionError(total);
        if (java.util.concurrent.ForkJoinPool.commonPool().getParallelism() > 1)
            throw new AssertionError("common pool");
        System.out.println("right");
    }
}
"#;

const R: &str = r#"
stopifnot(parallel::detectCores() == 1)
memory <- as.numeric(commandArgs(TRUE)[1])
lines <- readLines("/proc/meminfo")
total <- as.numeric(gsub("[^0-9]", "", lines[grepl("^MemTotal", lines)]))
stopifnot(total * 1024 == memory)
cat("right
")
"#;

/// V8 reserves half a gigabyte for the code of each thread, which RLIMIT_DATA counts where
/// no cgroup bounds memory.
fn node_workers(stage: &Stage) -> Check {
    let code = "
const { Worker } = require('node:worker_threads');
const source = `require('node:worker_threads').parentPort.postMessage('x')`;
const all = Array.from({ length: 4 }, () => new Promise((resolve, reject) => {
  const worker = new Worker(source, { eval: true });
  worker.once('message', resolve);
  worker.once('error', reject);
}));
console.log((await Promise.all(all)).join(''));
console.log(Worker.name, new Worker('', { eval: true }) instanceof Worker);";
    for cgroup in CGROUPS {
        let run = stage
            .code("javascript", code)
            .option(["--cgroup", cgroup])
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "xxxx\nWorker true\n", "{cgroup}");
        if is_without(&run) {
            break;
        }
    }
    Ok(())
}
