//! Limits without a cgroup: CPUs, CPU time, the number of processes, and what the
//! record claims of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde_json::json;

use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::raw;
use crate::cells::wall::Wall;
use crate::lifecycle::memory::take_non_utf8_name;

pub(crate) const SUITE: Suite = Suite {
    name: "fallback",
    covers: &[26, 40],
    attacks: &[],
    scenes: &[
        scene("oom-score", oom_score),
        scene("oom-takes-the-cell", oom_takes_the_cell).needs(&[Need::Root]),
        scene("cells-are-spread", cells_are_spread),
        scene("affinity-stays", affinity_stays),
        scene("more-cpus-than-there-are", more_cpus_than_there_are),
        scene("threads-follow-cpus", threads_follow_cpus),
        scene("time-of-the-unwaited", time_of_the_unwaited),
        scene("time-of-non-utf8-name", time_of_non_utf8_name),
        scene("fast-forks-are-unknown", fast_forks_are_unknown),
        scene("full-at-the-end", full_at_the_end),
        scene("few-processes-are-known", few_processes_are_known),
    ],
    actors: &[
        Actor {
            name: "oom-score",
            run: |args| {
                const FILE: &str = "/proc/self/oom_score_adj";
                if args[0] == "raise" {
                    println!("{:?}", std::fs::write(FILE, "1000").is_ok());
                }
                let score = || std::fs::read_to_string(FILE).unwrap_or_default();
                let before = score();
                let lowered = std::fs::write(FILE, "0").is_ok();
                println!("{} {lowered} {}", before.trim(), score().trim());
                0
            },
        },
        Actor {
            name: "take-memfds",
            run: |_| {
                let piece = vec![1_u8; 1 << 20];
                let address = piece.as_slice().as_ptr() as usize;
                if let Ok(fd) = call!(SYS_memfd_create, c"x", 0) {
                    for _ in 0..1000 {
                        let _ = call!(SYS_write, fd, address, piece.len());
                    }
                }
                0
            },
        },
        Actor {
            name: "hold-memory",
            run: |_| {
                let piece = vec![1_u8; 200 << 20];
                std::hint::black_box(&piece);
                std::thread::sleep(Duration::from_secs(60));
                0
            },
        },
        Actor {
            name: "cpus",
            run: |args| {
                // Waits for the others.
                if let [directory] = args {
                    let directory = Path::new(directory);
                    let _ = std::fs::write(directory.join("ready"), "");
                    while !directory.join("done").exists() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                let mut all = CpuSet::new();
                for cpu in 0..64 {
                    let _ = all.set(cpu);
                }
                let before = own_cpus();
                let widened = call!(SYS_sched_setaffinity, 0, size_of_val(&all), &all);
                println!("{before:?} {:?} {:?}", widened.map(drop), own_cpus());
                0
            },
        },
        Actor {
            name: "variables",
            run: |_| {
                for (name, value) in std::env::vars().filter(|(name, _)| name.contains("THREADS")) {
                    println!("{name}={value}");
                }
                0
            },
        },
        Actor {
            name: "burn-in-children",
            run: |args| {
                let seconds: u64 = args[0].parse().unwrap_or(1);
                if args.len() > 1 {
                    let _ = take_non_utf8_name();
                }
                // SAFETY: SIG_IGN installs no handler.
                unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
                let end = Instant::now() + Duration::from_secs(seconds);
                while Instant::now() < end {
                    let _ = raw::fork(|| {
                        let end = Instant::now() + Duration::from_millis(200);
                        while Instant::now() < end {}
                        0
                    });
                    // Fails once there are no more children.
                    // SAFETY: a null status is allowed.
                    unsafe { libc::wait(std::ptr::null_mut()) };
                }
                // SAFETY: rusage is plain data, and valid for writing.
                let usage = unsafe {
                    let mut usage: libc::rusage = std::mem::zeroed();
                    libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
                    usage
                };
                println!("{}", usage.ru_utime.tv_sec);
                0
            },
        },
        Actor {
            name: "fork-and-end",
            run: |args| {
                for _ in 0..args[0].parse().unwrap_or(0) {
                    let _ = raw::in_child(|| 0);
                }
                0
            },
        },
        Actor {
            name: "fork-until-refused",
            run: |_| {
                while raw::fork(|| {
                    std::thread::sleep(Duration::from_secs(60));
                    0
                })
                .is_ok()
                {}
                0
            },
        },
    ],
};

fn own_cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect()
}

fn cell<'s, const N: usize>(stage: &'s Stage, actor: &str, args: [&str; N]) -> Cell<'s> {
    stage
        .probe(&format!("fallback/{actor}"), args)
        .option(["--cgroup", "none"])
}

fn limit(run: &Run, name: &str) -> serde_json::Value {
    run.json["limits"][name].clone()
}

fn oom_score(stage: &Stage) -> Check {
    let mut outside = stage.outside("fallback/oom-score", ["raise"]);
    let outside = process::finish(&mut outside, stage.patience())?;
    stage.note(format!(
        "outside: {}",
        String::from_utf8_lossy(&outside.stdout).replace('\n', ", ")
    ));
    for cgroup in ["auto", "none"] {
        let run = stage
            .probe("fallback/oom-score", ["leave"])
            .option(["--cgroup", cgroup])
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "1000 false 1000\n", "{cgroup}");
    }
    // Without the read-only /proc and the policy's rules on it, the kernel keeps root's
    // value as the minimum, but not another user's.
    let run = cell(stage, "oom-score", ["leave"])
        .without("landlock")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "1000 false 1000\n");
    Ok(())
}

/// Memory that is charged to no process: by default the kernel kills the largest
/// process, which is not the one that took it.
fn oom_takes_the_cell(stage: &Stage) -> Check {
    let survives = |name: &str, eater: &mut std::process::Command| -> Check<bool> {
        let Some(wall) = Wall::build(name) else {
            return Err(crate::cells::Stop::Skip(
                "needs the memory controller of cgroup v1".into(),
            ));
        };
        let mut victim = stage.outside("fallback/hold-memory", []);
        wall.around(&mut victim)?;
        let mut victim = victim.spawn()?;
        wall.around(eater)?;
        let ended = process::finish(eater, stage.patience());
        let alive = victim.try_wait()?.is_none();
        victim.kill()?;
        victim.wait()?;
        ended?;
        Ok(alive)
    };
    let mut outside = stage.outside("fallback/take-memfds", []);
    assert!(!survives("oom-outside", &mut outside)?, "the attack works");
    let mut inside = cell(stage, "take-memfds", [])
        .limit("memory", "none")
        .command();
    assert!(survives("oom-inside", &mut inside)?);
    Ok(())
}

/// Other cells may run meanwhile, so the CPUs need not get equal numbers.
fn cells_are_spread(stage: &Stage) -> Check {
    if own_cpus().len() < 2 {
        return Err(crate::cells::Stop::Skip("needs two CPUs".into()));
    }
    let scratch = stage.scratch()?;
    let shared = |number: u32| scratch.dir(&number.to_string(), 0o777);
    let directories = (0..6).map(shared).collect::<Check<Vec<_>>>()?;
    let start = |directory: &PathBuf| {
        let cell = cell(stage, "cpus", ["/shared"]).limit("cpus", "1");
        cell.rw(directory, Path::new("/shared")).spawn()
    };
    let mut cells = directories.iter().map(start).collect::<Check<Vec<_>>>()?;
    for (cell, directory) in cells.iter_mut().zip(&directories) {
        cell.until_exists(&directory.join("ready"), stage.patience())?;
    }
    for directory in &directories {
        std::fs::write(directory.join("done"), "")?;
    }
    let mut used = std::collections::BTreeMap::new();
    for cell in cells {
        let run = Run::of(cell.until_end(stage.patience())?)?.ended(Outcome::Ok)?;
        let cpu = run
            .stdout()
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned();
        *used.entry(cpu).or_insert(0) += 1;
    }
    stage.note(format!("{used:?}"));
    assert!(used.len() >= 2, "{used:?}");
    Ok(())
}

fn affinity_stays(stage: &Stage) -> Check {
    if own_cpus().len() < 2 {
        return Err(crate::cells::Stop::Skip("needs two CPUs".into()));
    }
    let run = cell(stage, "cpus", []).limit("cpus", "1").run()?;
    assert!(run.stdout().contains("Err(ENOSYS)"), "{}", run.stdout());
    assert_eq!(limit(&run, "cpus")["enforced"], json!(1));
    // Without the filter the call works, and the record claims nothing else.
    let run = cell(stage, "cpus", [])
        .limit("cpus", "1")
        .without("seccomp")
        .run()?;
    let words: Vec<&str> = run.stdout().trim().split("Ok(())").collect();
    assert!(words.len() == 2 && words[0].trim() != words[1].trim());
    assert_eq!(limit(&run, "cpus")["enforced"], "best effort");
    Ok(())
}

fn more_cpus_than_there_are(stage: &Stage) -> Check {
    let run = cell(stage, "cpus", []).limit("cpus", "99").run()?;
    let cpus = limit(&run, "cpus");
    assert_eq!(cpus["requested"], json!(99));
    assert_eq!(cpus["enforced"], json!(own_cpus().len()));
    Ok(())
}

fn threads_follow_cpus(stage: &Stage) -> Check {
    let threads = |cpus: &str, options: [&str; 2]| -> Check<String> {
        let run = cell(stage, "variables", [])
            .limit("cpus", cpus)
            .option(options)
            .run()?
            .ended(Outcome::Ok)?;
        Ok(run.stdout().to_owned())
    };
    let one = threads("1", ["--env", "MKL_NUM_THREADS=7"])?;
    assert!(one.contains("OMP_NUM_THREADS=1\n"), "{one}");
    assert!(one.contains("MKL_NUM_THREADS=7\n"), "{one}");
    let all = threads("99", ["--hostname", "x"])?;
    let count = own_cpus().len();
    assert!(
        all.contains(&format!("OPENBLAS_NUM_THREADS={count}\n")),
        "{all}"
    );
    assert_eq!(threads("none", ["--hostname", "x"])?, "");
    Ok(())
}

/// The kernel does not account the time of children that nothing waits for.
fn time_of_the_unwaited(stage: &Stage) -> Check {
    let mut outside = stage.outside("fallback/burn-in-children", ["1"]);
    let outside = process::finish(&mut outside, stage.patience())?;
    assert_eq!(outside.stdout, b"0\n", "the attack works");
    burn(cell(stage, "burn-in-children", ["40"]), stage)
}

/// Of a process whose name is not UTF-8, as of any other.
fn time_of_non_utf8_name(stage: &Stage) -> Check {
    burn(cell(stage, "burn-in-children", ["40", "non-utf8"]), stage)
}

/// The limit on CPU time ends it.
fn burn(cell: Cell<'_>, stage: &Stage) -> Check {
    let run = cell
        .limit("cpu-time", "500ms")
        .limit("wall", &stage.duration(39_000))
        .deadline(120_000)
        .run()?
        .ended(Outcome::Timeout)?;
    let limits = (limit(&run, "cpu_time"), limit(&run, "wall"));
    assert_eq!(limits.0["hit"], true, "{limits:?}");
    assert_eq!(limits.0["enforced"], "best effort");
    assert_eq!(limits.1["hit"], false, "{limits:?}");
    let usage = &run.record.usage;
    let used = usage.cpu_user_ms.unwrap_or(0.0) + usage.cpu_system_ms.unwrap_or(0.0);
    assert!(used >= 500.0, "{usage:?}");
    Ok(())
}

fn fast_forks_are_unknown(stage: &Stage) -> Check {
    let run = cell(stage, "fork-and-end", ["60"])
        .limit("processes", "8")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(limit(&run, "processes")["hit"], serde_json::Value::Null);
    assert_eq!(run.record.usage.processes_peak, None);
    Ok(())
}

fn full_at_the_end(stage: &Stage) -> Check {
    let run = cell(stage, "fork-until-refused", [])
        .limit("processes", "8")
        .run()?;
    assert_eq!(limit(&run, "processes")["hit"], true, "{}", run.json);
    assert_eq!(run.record.usage.processes_peak, Some(8));
    Ok(())
}

fn few_processes_are_known(stage: &Stage) -> Check {
    let run = cell(stage, "fork-and-end", ["3"])
        .limit("processes", "8")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(limit(&run, "processes")["hit"], false);
    Ok(())
}
