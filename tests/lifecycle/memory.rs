//! Every kind of memory is charged to the cell, which ends by its limit while
//! supervisor and host go on.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use record::Enforced;

use crate::cells::left::Marker;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "memory",
    covers: &[26],
    attacks: &[],
    scenes: &[
        // Without a cgroup, the watchdog and RLIMIT_DATA limit these.
        scene("heap", |stage| eat(stage, "heap")),
        scene("heap-in-children", |stage| eat(stage, "heap-in-children")),
        scene("heap-in-non-utf8-children", |stage| {
            eat(stage, "heap-in-non-utf8-children")
        }),
        scene("shared-mapping", |stage| eat(stage, "shared-mapping")),
        scene("tmpfs", |stage| eat(stage, "tmpfs")),
        scene("thread-stacks", |stage| eat(stage, "thread-stacks")),
        // Only a cgroup is charged for these.
        scene("dev-shm", |stage| eat(stage, "dev-shm")).needs(&[Need::Cgroup]),
        scene("memfd", |stage| eat(stage, "memfd")).needs(&[Need::Cgroup]),
        scene("pipes", |stage| eat(stage, "pipes")).needs(&[Need::Cgroup]),
        scene("sockets", |stage| eat(stage, "sockets")).needs(&[Need::Cgroup]),
        scene("page-tables", |stage| eat(stage, "page-tables")).needs(&[Need::Cgroup]),
        scene("kept-within", kept_within),
    ],
    actors: &[Actor {
        name: "eat",
        run: |args| {
            let kept = match args[0].as_str() {
                "heap" => eat_heap(),
                "heap-in-children" => eat_heap_in_children(),
                // Children inherit the name, which is in the files that show their memory.
                "heap-in-non-utf8-children" => {
                    take_non_utf8_name().and_then(|()| eat_heap_in_children())
                }
                "shared-mapping" => eat_shared_mapping(),
                "tmpfs" => eat_file("/tmp/eaten"),
                "dev-shm" => eat_file("/dev/shm/eaten"),
                "thread-stacks" => eat_thread_stacks(),
                "memfd" => eat_memfd(),
                "pipes" => eat_pipes(),
                "sockets" => eat_sockets(),
                "page-tables" => eat_page_tables(),
                _ => return 2,
            };
            match kept {
                Ok(()) => println!("ate it all"),
                Err(errno) => println!("refused with {errno:?}"),
            }
            // A check of what it holds ends it, whenever that comes.
            if kept.is_ok() && args.len() > 1 {
                std::thread::sleep(Duration::from_secs(60));
            }
            77
        },
    }],
};

/// How much the programs try to get, and how much they may have.
const WANTED: usize = 400 << 20;
const LIMIT: u64 = 64 << 20;
const PIECE: usize = 1 << 20;

fn eat(stage: &Stage, kind: &str) -> Check {
    let marker = Marker::new()?;
    let run = stage
        .probe("memory/eat", [kind, marker.word()])
        .limit("memory", "64M")
        .limit("tmp-size", "1G")
        .limit("shm-size", "1G")
        .limit("open-files", "4096")
        .limit("wall", &stage.duration(50_000))
        .deadline(120_000)
        .run()?;
    marker.nothing_left()?;
    let limit = &run.record.limits["memory"];
    let holds = match limit.by.as_str() {
        "cgroup" => Enforced::Exactly(LIMIT as f64),
        _ => Enforced::BEST_EFFORT,
    };
    assert_eq!(limit.enforced, Some(holds), "{limit:?}");
    // Refused by RLIMIT_DATA, or by the system call policy when no cgroup limits
    // memory.
    let refused = ["ENOMEM", "EPERM"]
        .iter()
        .any(|errno| run.stdout().starts_with(&format!("refused with {errno}")));
    let died = run.record.outcome == Outcome::Memory;
    assert!(
        died || (refused && limit.by.starts_with("rlimit")),
        "{}",
        run.json
    );
    if died {
        assert_eq!(limit.hit, Some(true), "{limit:?}");
        stage.note(format!(
            "{} at {:?}",
            limit.by, run.record.usage.memory_peak_bytes
        ));
    }
    Ok(())
}

/// Memory within the limit is granted.
fn kept_within(stage: &Stage) -> Check {
    let run = stage
        .probe("memory/eat", ["heap"])
        .limit("memory", "1G")
        .run()?
        .ended(Outcome::Exit)?;
    assert_eq!((run.stdout(), run.record.exit_code), ("ate it all\n", 77));
    assert_ne!(run.record.limits["memory"].hit, Some(true));
    Ok(())
}

fn eat_heap() -> Attempt {
    let pattern = vec![1_u8; PIECE];
    let mut kept = Vec::new();
    for _ in 0..WANTED / PIECE {
        let mut piece: Vec<u8> = Vec::new();
        piece.try_reserve_exact(PIECE).map_err(|_| Errno::ENOMEM)?;
        piece.extend_from_slice(&pattern);
        kept.push(piece);
    }
    // Held until the harness has measured.
    std::mem::forget(kept);
    Ok(())
}

/// Sixteen processes that each stay below the limit.
fn eat_heap_in_children() -> Attempt {
    const CHILDREN: usize = 16;
    for _ in 0..CHILDREN {
        crate::cells::raw::fork(|| {
            let piece = vec![1_u8; WANTED / CHILDREN];
            std::hint::black_box(&piece);
            std::thread::sleep(Duration::from_secs(60));
            0
        })?;
    }
    Ok(())
}

/// Gives the caller a name that is not UTF-8.
pub(crate) fn take_non_utf8_name() -> Attempt {
    call!(SYS_prctl, libc::PR_SET_NAME, c"\xff) \xfe").map(drop)
}

fn eat_shared_mapping() -> Attempt {
    let length = std::num::NonZeroUsize::new(WANTED).ok_or(Errno::EINVAL)?;
    fill_mapping(length, libc::MAP_SHARED, 4096)
}

fn eat_page_tables() -> Attempt {
    // One page in every two megabytes needs a page table of its own, which doubles the
    // memory.
    let length = std::num::NonZeroUsize::new(1 << 38).ok_or(Errno::EINVAL)?;
    fill_mapping(length, libc::MAP_PRIVATE | libc::MAP_NORESERVE, 2 << 20)
}

/// Writes a byte every `stride` bytes of a new mapping.
fn fill_mapping(length: std::num::NonZeroUsize, flags: i32, stride: usize) -> Attempt {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags | libc::MAP_ANONYMOUS;
    let start = call!(SYS_mmap, 0, length.get(), protection, flags, -1, 0)? as *mut u8;
    for offset in (0..length.get()).step_by(stride) {
        // SAFETY: the offset lies in the mapping just made, which nobody else
        // knows and which is never unmapped.
        unsafe { start.add(offset).write_volatile(1) };
    }
    Ok(())
}

fn eat_file(path: &str) -> Attempt {
    fill_file(File::create(path).map_err(errno)?)
}

fn eat_memfd() -> Attempt {
    let file = File::from(memfd_create(c"eaten", MFdFlags::empty())?);
    let kept = file.try_clone().map_err(errno)?;
    std::mem::forget(kept);
    fill_file(file)
}

fn fill_file(mut file: File) -> Attempt {
    let piece = vec![1_u8; PIECE];
    for _ in 0..WANTED / PIECE {
        file.write_all(&piece).map_err(errno)?;
    }
    Ok(())
}

fn eat_thread_stacks() -> Attempt {
    const STACK: usize = 16 << 20;
    for _ in 0..WANTED / STACK {
        std::thread::Builder::new()
            .stack_size(STACK + (1 << 20))
            .spawn(|| {
                let stack = [1_u8; STACK];
                std::hint::black_box(&stack);
                std::thread::sleep(Duration::from_secs(60));
            })
            .map_err(|_| Errno::ENOMEM)?;
    }
    Ok(())
}

fn eat_pipes() -> Attempt {
    let mut kept: Vec<(OwnedFd, OwnedFd)> = Vec::new();
    let piece = vec![1_u8; PIECE];
    let mut eaten = 0;
    while eaten < WANTED {
        let (read, write) = nix::unistd::pipe2(OFlag::O_NONBLOCK)?;
        // Beyond the user's share of large pipes, they stay small.
        let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIECE as i32));
        while let Ok(count) = nix::unistd::write(&write, &piece) {
            eaten += count;
        }
        kept.push((read, write));
    }
    std::mem::forget(kept);
    Ok(())
}

fn eat_sockets() -> Attempt {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    let mut kept = Vec::new();
    let piece = vec![1_u8; PIECE];
    let mut eaten = 0;
    while eaten < WANTED {
        let (one, other) = socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_NONBLOCK,
        )?;
        for write in [&one, &other] {
            while let Ok(count) = nix::unistd::write(write, &piece) {
                eaten += count;
            }
        }
        kept.push((one, other));
    }
    std::mem::forget(kept);
    Ok(())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
