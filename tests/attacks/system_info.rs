//! sysinfo(2), which cellblock answers by writing into the program's memory: the values, and
//! addresses that must not be written to.

use std::fs;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::wait::WaitStatus;

use crate::cells::prelude::*;
use crate::cells::raw;

pub(crate) const SUITE: Suite = Suite {
    name: "system-info",
    covers: &[18],
    attacks: &[],
    scenes: &[
        scene("shows-the-cell", shows_the_cell),
        scene("wrong-addresses", wrong_addresses),
        scene("callers-of-all-kinds", callers),
        scene("memory-that-changes", memory_that_changes),
        scene("flood", flood),
    ],
    actors: &[
        Actor {
            name: "show",
            run: |_| match info() {
                Ok(info) => {
                    let loads = info.loads.iter().sum::<libc::c_ulong>();
                    let unit = u64::from(info.mem_unit);
                    let [total, free] = [info.totalram * unit, info.freeram * unit];
                    println!("{total} {free} {loads} {} {}", info.procs, info.totalswap);
                    i32::from(info.uptime <= 0)
                }
                Err(errno) => errno as i32,
            },
        },
        Actor {
            name: "addresses",
            run: |args| addresses(Path::new(args[0].as_str())),
        },
        Actor {
            name: "callers",
            run: |_| {
                let thread = thread::spawn(|| info().is_ok()).join().unwrap_or(false);
                let child = raw::in_child(|| i32::from(info().is_err()));
                let child = matches!(child, Ok(WaitStatus::Exited(_, 0)));
                println!("{thread} {child}");
                0
            },
        },
        Actor {
            name: "undumpable",
            run: |_| {
                let set = call!(SYS_prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
                println!("{set:?} {:?}", info().map(drop));
                0
            },
        },
        Actor {
            name: "changing",
            run: |args| changing(args[0].parse().unwrap_or(0)),
        },
        Actor {
            name: "flood",
            run: |_| {
                for _ in 0..4 {
                    let _ = raw::fork(|| {
                        loop {
                            let _ = info();
                        }
                    });
                }
                loop {
                    let _ = info();
                }
            },
        },
    ],
};

const SIZE: usize = size_of::<libc::sysinfo>();
const PAGE: usize = 4096;

fn info() -> Result<libc::sysinfo, Errno> {
    // SAFETY: plain data, for which all zeroes is valid.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    call!(SYS_sysinfo, &mut info)?;
    Ok(info)
}

/// Memory of `pages` pages at any address.
fn map(pages: usize, protection: i32, flags: i32, fd: i32) -> usize {
    let any = std::ptr::null_mut();
    // SAFETY: a new mapping replaces none.
    unsafe { libc::mmap(any, pages * PAGE, protection, flags, fd, 0) as usize }
}

/// Prints the error number of the call for each address.
fn addresses(file: &Path) -> i32 {
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let Ok(file) = File::open(file) else {
        return 1;
    };
    // The structure does not fit before the end of the only page.
    let pair = map(2, writable, anonymous, -1);
    // SAFETY: of the mapping just made, which nothing else uses.
    unsafe { libc::munmap((pair + PAGE) as *mut libc::c_void, PAGE) };
    for (name, address) in [
        ("null", 0),
        ("one", 1),
        ("kernel", usize::MAX - PAGE + 1),
        ("last", usize::MAX - 8),
        ("beyond", 1 << 63),
        ("end", pair + PAGE - SIZE / 2),
        (
            "file",
            map(1, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd()),
        ),
        ("fits", pair + PAGE - SIZE),
    ] {
        let errno = call!(SYS_sysinfo, address).map_or_else(|errno| errno as i32, |_| 0);
        println!("{name} {errno}");
    }
    // These are written to as by a debugger: the pages are the program's own.
    for protection in [libc::PROT_NONE, libc::PROT_READ] {
        let own = map(1, protection, libc::MAP_PRIVATE, file.as_raw_fd());
        let _ = call!(SYS_sysinfo, own);
    }
    0
}

/// Another thread unmaps the memory again and again while calls wait. Each call succeeds
/// or fails with EFAULT.
fn changing(calls: u32) -> i32 {
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let place = map(1, writable, anonymous, -1);
    let goes_on = AtomicBool::new(true);
    let strange = thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on.load(Ordering::Relaxed) {
                let flags = anonymous | libc::MAP_FIXED;
                let place = place as *mut libc::c_void;
                // SAFETY: only the kernel writes there meanwhile.
                unsafe {
                    libc::munmap(place, PAGE);
                    libc::mmap(place, PAGE, writable, flags, -1, 0);
                }
            }
        });
        let strange = (0..calls).find_map(|_| match call!(SYS_sysinfo, place) {
            Ok(_) | Err(Errno::EFAULT) => None,
            Err(errno) => Some(errno),
        });
        goes_on.store(false, Ordering::Relaxed);
        strange
    });
    println!("{strange:?}");
    0
}

fn shows_the_cell(stage: &Stage) -> Check {
    let host = nix::sys::sysinfo::sysinfo()?.ram_total();
    let shown = |options: &[&str]| -> Check<String> {
        let cell = stage.probe("system-info/show", []);
        let cell = (options.iter()).fold(cell, |cell, option| cell.option([option]));
        let run = cell.run()?.ended(Outcome::Ok)?;
        assert_eq!(run.json["denied"], serde_json::json!([]));
        Ok(run.stdout().to_owned())
    };
    let open = shown(&["--without=seccomp", "--memory=300M"])?;
    assert!(open.starts_with(&format!("{host} ")), "not live: {open}");

    for options in [
        &["--memory=300M"][..],
        &["--memory=300M", "--cgroup=none"],
        &["--memory=300M", "--proc=processes"],
        &["--memory=300M", "--seccomp=strict"],
        &["--memory=300M", "--uid=0"],
    ] {
        assert_eq!(
            shown(options)?,
            "314572800 314572800 0 1 0\n",
            "{options:?}"
        );
    }
    // Without a limit, the cell has all the memory of the host.
    let all = shown(&["--memory=none"])?;
    assert_eq!(all, format!("{host} {host} 0 1 0\n"));
    Ok(())
}

fn wrong_addresses(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let file = scratch.path().join("file");
    let content = vec![b'x'; PAGE];
    fs::write(&file, &content)?;
    let inside = Path::new("/mnt/file");
    let run = stage
        .probe("system-info/addresses", ["/mnt/file"])
        .ro(&file, inside)
        .run()?
        .ended(Outcome::Ok)?;
    for line in run.stdout().lines() {
        let wanted = match line.starts_with("fits ") {
            true => "fits 0".to_owned(),
            false => format!("{} {}", line.split(' ').next().unwrap_or(""), libc::EFAULT),
        };
        assert_eq!(line, wanted);
    }
    assert_eq!(run.stdout().lines().count(), 8);
    assert!(fs::read(&file)? == content, "the host's file has changed");
    assert_eq!(run.json["denied"], serde_json::json!([]));
    Ok(())
}

fn callers(stage: &Stage) -> Check {
    let run = stage.probe("system-info/callers", []).run()?;
    assert_eq!(run.ended(Outcome::Ok)?.stdout(), "true true\n");

    // In `/proc`, the memory of a process that is not dumpable belongs to root.
    let run = stage.probe("system-info/undumpable", []).run()?;
    let run = run.ended(Outcome::Ok)?;
    let denied = &run.json["denied"];
    match stage.root() {
        true => assert_eq!(run.stdout(), "Ok(0) Ok(())\n"),
        false => {
            assert_eq!(run.stdout(), "Ok(0) Err(ENOSYS)\n");
            assert_eq!(denied[0]["name"], "sysinfo", "{denied}");
        }
    }
    Ok(())
}

fn memory_that_changes(stage: &Stage) -> Check {
    let run = stage
        .probe("system-info/changing", [&stage.times(2000).to_string()])
        .limit("wall", &stage.duration(120_000))
        .limit("cpu-time", &stage.duration(60_000))
        .deadline(180_000)
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "None\n");
    Ok(())
}

/// Endless calls do not delay the limit on time, and are not counted as denials.
fn flood(stage: &Stage) -> Check {
    let run = stage
        .probe("system-info/flood", [])
        .limit("wall", &stage.duration(500))
        .deadline(60_000)
        .run()?
        .ended(Outcome::Timeout)?;
    assert_eq!(run.json["denied"], serde_json::json!([]));
    Ok(())
}
