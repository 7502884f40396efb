//! Uid 0 inside: the number alone gives nothing. A program that has it executes others,
//! changes its capabilities and its securebits, and opens what belongs to the root of its
//! user namespace.

use std::process::Command;

use crate::cells::prelude::*;
use crate::cells::process;

pub(crate) const SUITE: Suite = Suite {
    name: "root-inside",
    covers: &[17],
    attacks: ATTACKS,
    scenes: &[
        scene("has-nothing", has_nothing),
        scene("securebits-hold-alone", securebits_hold_alone),
    ],
    actors: &[Actor {
        name: "bits",
        run: |_| {
            let bits = call!(SYS_prctl, libc::PR_GET_SECUREBITS, 0, 0, 0, 0);
            println!("{bits:?}");
            0
        },
    }],
};

const ROOT: &[&str] = &["--uid", "0"];

const ATTACKS: &[Attack] = &[
    inside("capabilities-by-execve", capabilities_by_execve),
    inside("capset", || {
        // `_LINUX_CAPABILITY_VERSION_3`, and CAP_SYS_ADMIN in all three sets.
        let header = [0x2008_0522_u32, 0];
        let sets = [[1_u32 << 21; 3], [0; 3]];
        call!(SYS_capset, &header, &sets).map(drop)
    }),
    inside("securebits", || {
        call!(SYS_prctl, libc::PR_SET_SECUREBITS, 0, 0, 0, 0).map(drop)
    }),
    inside("bounding-set", || {
        call!(SYS_prctl, libc::PR_CAPBSET_DROP, 0, 0, 0, 0).map(drop)
    }),
    // It belongs to the root of the ipc namespace's owner, without any capability.
    inside("shared-memory-limit", || {
        open("/proc/sys/kernel/shmmax", libc::O_WRONLY)
    })
    .refused(&[Errno::ENOENT]),
];

const fn inside(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    attack(name, attempt).live(naive()).options(ROOT)
}

/// Root's programs get all of the bounding set, unless something forbids it.
fn capabilities_by_execve() -> Attempt {
    let output = Command::new("/bin/cat").arg("/proc/self/status").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    match set(&text, "CapEff") {
        Some(0) => Err(Errno::EPERM),
        Some(_) => Ok(()),
        None => Err(Errno::EIO),
    }
}

/// A set of capabilities in proc_pid_status(5).
fn set(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).ok()
}

fn has_nothing(stage: &Stage) -> Check {
    let script = "id -u; id -g; id -un; echo x > made; cat /proc/self/status";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .option(["--uid", "0"])
        .run()?
        .ended(Outcome::Ok)?;
    let out = run.stdout();
    assert!(out.starts_with("0\n0\nroot\n"), "{out}");
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(set(out, name), Some(0), "{name}: {out}");
    }
    assert!(out.contains("NoNewPrivs:\t1\n"), "{out}");
    let isolation = &run.json["isolation"];
    for id in ["uid", "gid"] {
        assert_eq!(isolation[id]["inside"], 0, "{isolation}");
    }
    assert_ne!(isolation["uid"]["outside"], 0, "{isolation}");
    assert_eq!(run.json["files"][0]["path"], "made");

    // No root, no fixup of ids, no ambient set, and the locks of these.
    for uid in ["0", "1000"] {
        let bits = stage
            .probe("root-inside/bits", [])
            .option(["--uid", uid])
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(bits.stdout(), format!("Ok({})\n", 0b1100_1111), "{uid}");
    }
    Ok(())
}

/// With a full bounding set and without `no_new_privs`.
fn securebits_hold_alone(stage: &Stage) -> Check {
    let status = |words: &[&str]| -> Check<String> {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]).args(words);
        command.args(["cat", "/proc/self/status"]);
        let output = process::finish(&mut command, stage.patience())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let root = status(&[])?;
    assert_ne!(set(&root, "CapEff"), Some(0), "not live: {root}");
    let locked = status(&["setpriv", "--securebits", "+noroot,+noroot_locked"])?;
    assert_ne!(set(&locked, "CapBnd"), Some(0), "{locked}");
    assert_eq!(set(&locked, "CapEff"), Some(0), "{locked}");
    Ok(())
}
