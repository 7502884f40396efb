//! What a program can see of the host: memory, logs, symbols, names, processes, mounts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cells::cell::Run;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "host-view",
    covers: &[18],
    attacks: ATTACKS,
    scenes: &[
        scene("processes", processes),
        scene("host-name", host_name),
        scene("mounts", mounts),
        scene("all-of-proc", all_of_proc),
        scene("machine-of-the-cell-s-size", machine),
        scene("processes-only", processes_only),
        scene("cgroup-path", cgroup_path),
    ],
    actors: &[
        Actor {
            name: "cat",
            run: |args| {
                for path in args {
                    print!("{}", fs::read_to_string(path).unwrap_or_default());
                }
                0
            },
        },
        Actor {
            name: "readable",
            run: |_| {
                for path in readable(Path::new("/proc")) {
                    println!("{}", path.display());
                }
                for path in readable(Path::new("/sys")) {
                    println!("{}", path.display());
                }
                0
            },
        },
        Actor {
            name: "pids",
            run: |_| {
                for pid in pids() {
                    match pid == std::process::id() {
                        true => println!("own"),
                        false => println!("{pid}"),
                    }
                }
                0
            },
        },
    ],
};

const ATTACKS: &[Attack] = &[
    absent("kernel-log-device", || read("/dev/kmsg")).live(root().unless(GONE)),
    absent("memory", || read("/dev/mem")).live(root().unless(GONE)),
    absent("ports", || read("/dev/port")).live(root().unless(GONE)),
    absent("disk", || read("/dev/vda")).live(root().unless(GONE)),
    absent("fuse", || read("/dev/fuse")).live(root().unless(GONE)),
    absent("virtual-machines", || read("/dev/kvm")).live(bare().unless(GONE)),
    covered("kernel-memory", || read("/proc/kcore")).live(root().unless(GONE)),
    covered("kernel-symbols", || read("/proc/kallsyms")).live(bare().unless(GONE)),
    covered("kernel-command-line", || read("/proc/cmdline")).live(bare()),
    covered("kernel-modules", || read("/proc/modules")).live(bare().unless(GONE)),
    covered("partitions", || read("/proc/partitions")).live(bare()),
    covered("interrupts", || read("/proc/interrupts")).live(bare()),
    covered("memory-map", || read("/proc/iomem")).live(bare().unless(GONE)),
    covered("keys", || read("/proc/keys")).live(bare().unless(GONE)),
    covered("kernel-log", || read("/proc/kmsg")).live(root().unless(GONE)),
    covered("kernel-memory-map", || read("/proc/vmallocinfo")).live(root().unless(GONE)),
    covered("pages", || read("/proc/kpagecount")).live(root().unless(GONE)),
    covered("timers", || read("/proc/timer_list")).live(root().unless(GONE)),
    absent("settings", || read("/proc/sys/kernel/core_pattern")).live(bare()),
    absent("firmware", || read("/sys/firmware")).live(bare().unless(GONE)),
    absent("kernel-objects", || read("/sys/kernel")).live(bare()),
    absent("block-devices", || read("/sys/block")).live(bare()),
    absent("cgroups", || read("/sys/fs/cgroup/system.slice")).live(bare().unless(GONE)),
    absent("passwords", || read("/etc/shadow")).live(root().unless(GONE)),
    absent("ssh-host-keys", || read("/etc/ssh")).live(root().unless(GONE)),
    absent("home-of-root", || read("/root")).live(root().unless(GONE)),
    absent("homes", || read("/home")).live(bare().unless(GONE)),
    absent("boot", || read("/boot")).live(bare().unless(GONE)),
    absent("logs", || read("/var/log")).live(bare().unless(GONE)),
    absent("sockets-of-daemons", || read("/run/systemd")).live(bare().unless(GONE)),
];

/// A machine or a minimal image may lack this, or hide it from root as well.
const GONE: &[Errno] = &[Errno::ENOENT, Errno::EPERM, Errno::EACCES, Errno::ENXIO];

const fn absent(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    attack(name, attempt).refused(&[Errno::ENOENT])
}

/// Its place in `/proc` is covered, or only the host's root may open it; a kernel without it has
/// nothing to cover.
const fn covered(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    attack(name, attempt).refused(&[Errno::EACCES, Errno::ENOENT])
}

fn read(path: &str) -> Attempt {
    open(path, libc::O_RDONLY | libc::O_NONBLOCK)
}

fn pids() -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn processes(stage: &Stage) -> Check {
    assert!(pids().contains(&std::process::id()), "not live");
    let run = stage
        .probe("host-view/pids", [])
        .run()?
        .ended(Outcome::Ok)?;
    // Not even init, which does not belong to the program.
    assert_eq!(run.stdout(), "own\n");

    // The pid of a process outside names no process inside.
    let harness = format!("/proc/{}/status", std::process::id());
    let run = stage.probe("host-view/cat", [&harness]).run()?;
    assert_eq!(run.stdout(), "");
    Ok(())
}

fn host_name(stage: &Stage) -> Check {
    let host = nix::unistd::gethostname()?;
    let host = host.to_string_lossy();
    let run = stage
        .exec(["/usr/bin/uname", "-n"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_ne!(run.stdout().trim(), host);
    let named = stage
        .exec(["/usr/bin/uname", "-n"])
        .option(["--hostname", "other"])
        .run()?;
    assert_eq!(named.stdout(), "other\n");
    Ok(())
}

/// Every mount inside was requested. The old root has been detached and is not among
/// them.
fn mounts(stage: &Stage) -> Check {
    const ALLOWED: [&str; 13] = [
        "/",
        "/sys",
        "/run/cellblock/machine",
        "/run/cellblock/machine/proc/sys/kernel/random/uuid",
        "/usr",
        "/etc",
        "/opt",
        "/dev",
        "/proc",
        "/tmp",
        "/workspace",
        "/probe",
        "/var",
    ];
    let points = |mountinfo: &str| -> Vec<String> {
        mountinfo
            .lines()
            .filter_map(|line| line.split(' ').nth(4).map(str::to_owned))
            .collect()
    };
    let strange = |points: &[String]| -> Vec<String> {
        points
            .iter()
            .filter(|point| {
                !ALLOWED.contains(&point.as_str())
                    && !["/dev/", "/etc/", "/usr/", "/var/lib/"]
                        .iter()
                        .any(|dir| point.starts_with(dir))
            })
            .cloned()
            .collect()
    };
    let outside = points(&fs::read_to_string("/proc/self/mountinfo")?);
    assert!(!strange(&outside).is_empty(), "not live: {outside:?}");

    let run = stage
        .probe("host-view/cat", ["/proc/self/mountinfo"])
        .run()?
        .ended(Outcome::Ok)?;
    let inside = points(run.stdout());
    assert!(inside.contains(&"/proc".to_owned()), "{inside:?}");
    let (covers, others): (Vec<_>, Vec<_>) =
        (inside.into_iter()).partition(|point| point.starts_with("/proc/"));
    assert!(strange(&others).is_empty(), "{:?}", strange(&others));
    // What covers `/proc` is the cell's own, but for one source of random numbers.
    for line in run.stdout().lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if covers.iter().any(|cover| cover == fields[4]) {
            let is_own = line.contains(" - tmpfs ") && fields[5].starts_with("ro,");
            assert!(is_own || fields[4] == UUID, "{line}");
        }
    }
    Ok(())
}

const UUID: &str = "/proc/sys/kernel/random/uuid";

/// The files in `top` that can be opened, without those of processes.
fn readable(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(top) else {
        return found;
    };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let is_process = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !is_process => found.extend(readable(&path)),
            // Some files answer only once something happens.
            Ok(kind) if kind.is_file() && !path.ends_with("kmsg") => {
                let open = open(&path.to_string_lossy(), libc::O_RDONLY | libc::O_NONBLOCK);
                found.extend(open.is_ok().then_some(path));
            }
            _ => {}
        }
    }
    found
}

/// Nothing in `/proc` and `/sys` can be opened but what the cell shows on purpose, by
/// name. What else a kernel has there is covered, whatever it is.
fn all_of_proc(stage: &Stage) -> Check {
    const SHOWN: [&str; 42] = [
        "/proc/cgroups",
        "/proc/cpuinfo",
        "/proc/diskstats",
        "/proc/filesystems",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/swaps",
        "/proc/uptime",
        "/proc/version",
        "/proc/vmstat",
        "/proc/sys/fs/file-max",
        "/proc/sys/fs/nr_open",
        "/proc/sys/kernel/cap_last_cap",
        "/proc/sys/kernel/domainname",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/ngroups_max",
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/ostype",
        "/proc/sys/kernel/pid_max",
        "/proc/sys/kernel/random/boot_id",
        "/proc/sys/kernel/random/entropy_avail",
        "/proc/sys/kernel/random/poolsize",
        UUID,
        "/proc/sys/kernel/threads-max",
        "/proc/sys/kernel/version",
        "/proc/sys/net/core/somaxconn",
        "/proc/sys/vm/max_map_count",
        "/proc/sys/vm/overcommit_memory",
        "/sys/devices/system/cpu/cpu0/topology/core_id",
        "/sys/devices/system/cpu/cpu0/topology/core_siblings_list",
        "/sys/devices/system/cpu/cpu0/topology/physical_package_id",
        "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "/sys/devices/system/cpu/cpu0/topology/core_siblings",
        "/sys/devices/system/cpu/cpu0/topology/thread_siblings",
        "/sys/devices/system/cpu/online",
        "/sys/devices/system/cpu/possible",
        "/sys/devices/system/cpu/present",
        "/sys/fs/cgroup/cpu.max",
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory.high",
        "/sys/fs/cgroup/pids.max",
    ];
    const ALSO: [&str; 2] = [
        "/sys/fs/cgroup/cgroup.controllers",
        "/sys/fs/cgroup/memory.swap.max",
    ];
    let strange = |run: &str| -> Vec<String> {
        let is_shown = |path: &&str| SHOWN.contains(path) || ALSO.contains(path);
        (run.lines().filter(|path| !is_shown(path)))
            .map(str::to_owned)
            .collect()
    };
    let open = (stage.probe("host-view/readable", []).without("proc")).run()?;
    let others = strange(open.stdout());
    let leaks = ["/proc/interrupts", "/proc/sys/kernel/core_pattern"];
    assert!(
        leaks.iter().all(|leak| others.iter().any(|o| o == leak)),
        "not live: {others:?}"
    );
    let run = stage
        .probe("host-view/readable", [])
        .run()?
        .ended(Outcome::Ok)?;
    assert!(strange(run.stdout()).is_empty(), "{}", run.stdout());
    if shows_machine(&run) {
        let missing: Vec<_> = (SHOWN.iter().chain(&ALSO))
            .filter(|path| !run.stdout().lines().any(|line| line == **path))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    Ok(())
}

/// Where the host's own `/proc` is covered, as in containers, the kernel mounts no whole
/// one for the cell.
fn shows_machine(run: &Run) -> bool {
    let isolation = run.record.isolation.as_ref();
    isolation.is_some_and(|isolation| isolation.proc == "machine")
}

/// What a cell shows is its own size and name, and nothing that differs from host to
/// host: not the time since the host began to count, nor its load, nor who it is.
fn machine(stage: &Stage) -> Check {
    let shown = |path: &str, options: &[&str]| -> Check<Run> {
        let cell = stage.probe("host-view/cat", [path]);
        let cell = (options.iter()).fold(cell, |cell, option| cell.option([option]));
        cell.run()?.ended(Outcome::Ok)
    };
    let run = shown("/proc/meminfo", &["--memory=300M"])?;
    if !shows_machine(&run) {
        stage.note("this host's /proc is covered");
        return Ok(());
    }
    let host = fs::read_to_string("/proc/meminfo")?;
    assert_ne!(host.lines().next(), run.stdout().lines().next());
    assert!(
        run.stdout().starts_with("MemTotal:         307200 kB\n"),
        "{}",
        run.stdout()
    );
    for (path, wanted) in [
        ("/sys/fs/cgroup/memory.max", "314572800\n"),
        ("/sys/fs/cgroup/pids.max", "33\n"),
        ("/sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ("/sys/devices/system/cpu/online", "0\n"),
        ("/proc/sys/kernel/hostname", "other\n"),
        ("/proc/sys/kernel/threads-max", "33\n"),
        ("/proc/loadavg", "0.00 0.00 0.00 1/1 2\n"),
        ("/proc/diskstats", ""),
    ] {
        let options = [
            "--memory=300M",
            "--processes=33",
            "--cpus=0.5",
            "--hostname=other",
        ];
        assert_eq!(shown(path, &options)?.stdout(), wanted, "{path}");
    }
    let boot_id = "/proc/sys/kernel/random/boot_id";
    let ids = [shown(boot_id, &[])?, shown(boot_id, &[])?];
    let host = fs::read_to_string(boot_id)?;
    assert!(
        ids.iter()
            .all(|run| run.stdout().len() == host.len() && run.stdout() != host)
    );
    assert_ne!(ids[0].stdout(), ids[1].stdout());

    let run = shown("/proc/stat", &[])?;
    let counts = |name: &str| {
        let line = run.stdout().lines().find(|line| line.starts_with(name));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(
        (counts("intr"), counts("ctxt")),
        ("intr 0".into(), "ctxt 0".into())
    );
    let cpuinfo = shown("/proc/cpuinfo", &["--cpus=1"])?;
    assert_eq!(cpuinfo.stdout().matches("processor\t").count(), 1);
    for hidden in ["MHz", "microcode", "bugs"] {
        assert!(!cpuinfo.stdout().contains(hidden), "{hidden}");
    }
    Ok(())
}

/// The choice without a machine has no such entries at all.
fn processes_only(stage: &Stage) -> Check {
    let run = stage
        .probe("host-view/readable", [])
        .option(["--proc", "processes"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "");
    let isolation = run.record.isolation;
    assert_eq!(
        isolation.map(|isolation| isolation.proc).as_deref(),
        Some("processes")
    );
    Ok(())
}

/// In a cgroup namespace of its own, the cell's cgroup is the root.
fn cgroup_path(stage: &Stage) -> Check {
    let run = stage
        .probe("host-view/cat", ["/proc/self/cgroup"])
        .run()?
        .ended(Outcome::Ok)?;
    assert!(!run.stdout().is_empty());
    for line in run.stdout().lines() {
        assert!(line.ends_with(":/"), "{line}");
    }
    Ok(())
}
