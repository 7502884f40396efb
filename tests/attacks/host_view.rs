//! What a program can see of the host: memory, logs, symbols, names, processes, mounts.

use std::collections::BTreeSet;
use std::fs;

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "host-view",
    covers: &[18],
    attacks: ATTACKS,
    scenes: &[
        scene("processes", processes),
        scene("host-name", host_name),
        scene("mounts", mounts),
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
            name: "pids",
            run: |_| {
                for pid in pids() {
                    println!("{pid}");
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
    absent("kernel-memory", || read("/proc/kcore")).live(root().unless(GONE)),
    absent("kernel-symbols", || read("/proc/kallsyms")).live(bare().unless(GONE)),
    absent("kernel-command-line", || read("/proc/cmdline")).live(bare()),
    absent("kernel-modules", || read("/proc/modules")).live(bare().unless(GONE)),
    absent("partitions", || read("/proc/partitions")).live(bare()),
    absent("interrupts", || read("/proc/interrupts")).live(bare()),
    absent("memory-map", || read("/proc/iomem")).live(bare().unless(GONE)),
    absent("keys", || read("/proc/keys")).live(bare().unless(GONE)),
    absent("timers", || read("/proc/timer_list")).live(root().unless(GONE)),
    absent("settings", || read("/proc/sys/kernel/hostname")).live(bare()),
    absent("firmware", || read("/sys/firmware")).live(bare().unless(GONE)),
    absent("kernel-objects", || read("/sys/kernel")).live(bare()),
    absent("block-devices", || read("/sys/block")).live(bare()),
    absent("cgroups", || read("/sys/fs/cgroup")).live(bare()),
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
    assert_eq!(run.stdout(), "2\n");

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
    const ALLOWED: [&str; 10] = [
        "/",
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
                    && !["/dev/", "/etc/", "/usr/"]
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
    assert!(strange(&inside).is_empty(), "{:?}", strange(&inside));
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
