//! Memory without a cgroup: each kind of memory that is charged to no process is
//! counted, refused, or covered by the record's `best effort`. Each is taken outside
//! first, to show that it is really used.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;

use crate::cells::cell::Run;
use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::raw;
use crate::cells::wall::Wall;

mod shared;
#[cfg(target_arch = "x86_64")]
mod tracer;

pub(crate) const SUITE: Suite = Suite {
    name: "uncounted",
    covers: &[26, 39],
    attacks: &[],
    scenes: &[
        scene("memfd", |stage| {
            take(stage, "memfd", Refused(Errno::ENOSYS))
        }),
        scene("shared-unmapped", |stage| {
            take(stage, "shared-unmapped", Refused(Errno::ENOMEM))
        }),
        scene("shared-pieces", |stage| {
            take(stage, "shared-pieces", Refused(Errno::ENOMEM))
        }),
        scene("shared-moved", |stage| {
            take(stage, "shared-moved", Refused(Errno::ENOMEM))
        }),
        scene("shared-inherited", |stage| {
            take(stage, "shared-inherited", Refused(Errno::ENOMEM))
        }),
        scene("shared-by-tracer", |stage| {
            take_by(stage, "shared-by-tracer", Refused(Errno::ENOMEM), "debug")
        }),
        scene("zero-device", |stage| {
            take(stage, "zero-device", Refused(Errno::EACCES))
        }),
        scene("sysv-segment", |stage| {
            take(stage, "sysv-segment", Refused(Errno::ENOMEM))
        }),
        scene("sysv-semaphores", |stage| {
            take(stage, "sysv-semaphores", Refused(Errno::ENOMEM))
        }),
        scene("sysv-messages", |stage| {
            take(stage, "sysv-messages", Refused(Errno::ENOMEM))
        }),
        scene("rulesets", |stage| {
            take(stage, "rulesets", Refused(Errno::ENOSYS))
        }),
        scene("futex-hash", |stage| {
            take(stage, "futex-hash", Refused(Errno::EPERM))
        }),
        scene("dead-leader", |stage| take(stage, "dead-leader", Counted)),
        scene("page-tables", |stage| take(stage, "page-tables", Counted)),
        scene("shm-file", |stage| take(stage, "shm-file", Counted)),
        scene("copied-pages", |stage| take(stage, "copied-pages", Counted)),
        scene("sockets", |stage| take(stage, "sockets", BestEffort)),
        scene("pipes", |stage| take(stage, "pipes", BestEffort)),
        scene("pages-of-files", pages_of_files),
        scene("shared-pages-count-once", shared_pages_count_once),
        scene("shared-unseen", shared_unseen),
        scene("shared-given-back", |stage| goes_on(stage, "given-back")),
        scene("shared-given-back-busily", |stage| {
            goes_on(stage, "given-back-busily")
        }),
        scene("shared-asked-in-vain", |stage| {
            goes_on(stage, "asked-in-vain")
        }),
        scene("segments-opened-again", |stage| {
            goes_on(stage, "segments-opened-again")
        }),
    ],
    actors: &[
        Actor {
            name: "hand-pages",
            run: |_| match hand_pages() {
                Ok(said) => {
                    println!("{said}");
                    0
                }
                Err(error) => {
                    println!("{error}");
                    77
                }
            },
        },
        Actor {
            name: "take",
            run: |args| {
                match run_kind(&args[0]) {
                    Ok(()) => println!("has it"),
                    Err(errno) => println!("refused with {errno:?}"),
                }
                // A check of what it holds ends it, whenever that comes.
                if args.iter().any(|arg| arg == HOLD) {
                    std::thread::sleep(Duration::from_secs(60));
                }
                77
            },
        },
        Actor {
            name: "share",
            run: |_| {
                let piece = vec![1_u8; 60 << 20];
                for _ in 0..8 {
                    let _ = raw::fork(|| {
                        std::hint::black_box(&piece);
                        std::thread::sleep(Duration::from_secs(60));
                        0
                    });
                }
                std::thread::sleep(Duration::from_millis(800));
                println!("shared");
                0
            },
        },
        Actor {
            name: "go-on",
            run: |args| {
                let done = match args[0].as_str() {
                    "given-back" => shared::given_back(),
                    "given-back-busily" => shared::given_back_busily(),
                    "asked-in-vain" => shared::asked_in_vain(),
                    "segments-opened-again" => shared::segments_opened_again(),
                    _ => Err(Errno::EINVAL),
                };
                println!("{done:?}");
                0
            },
        },
    ],
};

/// What happens to it in a cell.
enum Fate {
    Refused(Errno),
    Counted,
    BestEffort,
}
use Fate::{BestEffort, Counted, Refused};

/// The argument that has a program keep what it took.
const HOLD: &str = "hold";
const WANTED: usize = 160 << 20;
const LIMIT: u64 = 64 << 20;
/// The memory of cellblock, the probe and a template.
const SLACK: u64 = 96 << 20;

fn take(stage: &Stage, kind: &str, fate: Fate) -> Check {
    take_by(stage, kind, fate, "default")
}

/// With this system call policy.
fn take_by(stage: &Stage, kind: &str, fate: Fate, policy: &str) -> Check {
    let outside = Wall::build(kind);
    let mut command = stage.outside("uncounted/take", [kind]);
    if let Some(wall) = &outside {
        wall.around(&mut command)?;
    }
    let finished = process::finish(&mut command, stage.within(120_000))?;
    let said = String::from_utf8_lossy(&finished.stdout).into_owned();
    if said.contains("refused") {
        return Err(crate::cells::Stop::Skip(format!("this kernel {said}")));
    }
    match &outside {
        Some(wall) => {
            let peak = wall.peak()?;
            stage.note(format!("{} MiB outside", peak >> 20));
            assert!(peak > LIMIT / 2, "{kind} took no memory: {peak}");
        }
        None => stage.note("what it really uses is not measured: no memory cgroup v1".to_owned()),
    }
    drop(outside);

    let marker = Marker::new()?;
    let inside = Wall::build(kind);
    let hold = if matches!(fate, Counted) { HOLD } else { "" };
    let mut command = stage
        .probe("uncounted/take", [kind, hold, marker.word()])
        .option(["--cgroup", "none", "--seccomp", policy])
        .limit("memory", "64M")
        .limit("shm-size", "1G")
        .limit("open-files", "1024")
        .limit("wall", &stage.duration(50_000))
        .command();
    if let Some(wall) = &inside {
        wall.around(&mut command)?;
    }
    let run = Run::of(process::finish(&mut command, stage.within(120_000))?)?;
    marker.nothing_left()?;
    let limit = serde_json::to_value(&run.record.limits["memory"])?;
    assert_eq!(limit["enforced"], "best effort", "{limit}");
    match fate {
        Refused(errno) => {
            let wanted = format!("refused with {errno:?}\n");
            assert_eq!(run.stdout(), wanted, "{}", run.json);
        }
        Counted => {
            assert_eq!(run.record.outcome, Outcome::Memory, "{}", run.json);
            assert_eq!(limit["hit"], true, "{limit}");
        }
        BestEffort => {}
    }
    if let Some(wall) = &inside {
        let peak = wall.peak()?;
        stage.note(format!("{} MiB inside", peak >> 20));
        // How much of the rest is taken depends on when the check comes.
        assert!(
            !matches!(fate, Refused(_)) || peak < SLACK,
            "{kind}: {peak}"
        );
    }
    Ok(())
}

/// Pages that eight processes share are not counted eight times.
fn shared_pages_count_once(stage: &Stage) -> Check {
    let run = stage
        .probe("uncounted/share", [])
        .option(["--cgroup", "none"])
        .limit("memory", "256M")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "shared\n");
    Ok(())
}

/// Where nothing counts the calls, the watchdog does not see what they make: two and a half times
/// the limit.
fn shared_unseen(stage: &Stage) -> Check {
    let run = stage
        .probe("uncounted/take", ["shared-unmapped"])
        .option(["--cgroup", "none", "--without", "seccomp"])
        .limit("memory", "64M")
        .limit("wall", &stage.duration(50_000))
        .deadline(120_000)
        .run()?
        .ended(Outcome::Exit)?;
    assert_eq!(run.stdout(), "has it\n", "{}", run.json);
    Ok(())
}

/// What would put pages of a file into a pipe or a socket, where they stay without the file.
fn pages_of_files(stage: &Stage) -> Check {
    let mut command = stage.outside("uncounted/hand-pages", [] as [&str; 0]);
    let outside = process::finish(&mut command, stage.within(20_000))?;
    let said = String::from_utf8_lossy(&outside.stdout).into_owned();
    assert_eq!(said, "Ok(1) Ok(1) Ok(1)\n", "outside");
    for (options, expected) in [
        (&["--without", "seccomp"][..], "Ok(1) Ok(1) Ok(1)\n"),
        (&[], "Err(EINVAL) Err(EINVAL) Err(EINVAL)\n"),
    ] {
        let cell = stage.probe("uncounted/hand-pages", []);
        let cell = cell.option(["--cgroup", "none"]);
        let cell = options.iter().fold(cell, |cell, word| cell.option([*word]));
        let run = cell.run()?;
        assert_eq!(run.stdout(), expected, "{}", run.json);
    }
    Ok(())
}

/// The same byte of a file by splice(2), tee(2) and sendfile(2).
fn hand_pages() -> std::io::Result<String> {
    let path = std::env::temp_dir().join(format!("pages-{}", std::process::id()));
    std::fs::write(&path, "page")?;
    let file = std::fs::File::open(&path)?;
    std::fs::remove_file(&path)?;
    let ((_reader, writer), (full, mut filler)) = (nix::unistd::pipe()?, std::io::pipe()?);
    filler.write_all(b"x")?;
    let (socket, _other) = std::os::unix::net::UnixStream::pair()?;
    let flags = nix::fcntl::SpliceFFlags::empty();
    let spliced = nix::fcntl::splice(&file, None, &writer, None, 1, flags);
    let copied = nix::fcntl::tee(&full, &writer, 1, flags);
    let sent = nix::sys::sendfile::sendfile(&socket, &file, None, 1);
    Ok(format!("{spliced:?} {copied:?} {sent:?}"))
}

/// Memory that was given back can be had again, and calls in vain cost nothing.
fn goes_on(stage: &Stage, kind: &str) -> Check {
    let run = stage
        .probe("uncounted/go-on", [kind])
        .option(["--cgroup", "none"])
        .limit("memory", "64M")
        .limit("wall", &stage.duration(50_000))
        .deadline(120_000)
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "Ok(())\n", "{}", run.json);
    Ok(())
}

fn run_kind(kind: &str) -> Attempt {
    match kind {
        "memfd" => memfd(),
        "shared-unmapped" => shared::unmapped(),
        "shared-pieces" => shared::pieces(),
        "shared-moved" => shared::moved(),
        "shared-inherited" => shared::inherited(),
        #[cfg(target_arch = "x86_64")]
        "shared-by-tracer" => tracer::shared_by_tracer(),
        #[cfg(not(target_arch = "x86_64"))]
        // Its registers have other names.
        "shared-by-tracer" => Err(Errno::ENOSYS),
        "zero-device" => zero_device(),
        "sysv-segment" => sysv_segment(),
        "sysv-semaphores" => sysv_semaphores(),
        "sysv-messages" => sysv_messages(),
        "rulesets" => rulesets(),
        "futex-hash" => futex_hash(),
        "dead-leader" => dead_leader(),
        "page-tables" => page_tables(),
        "shm-file" => shm_file(),
        "copied-pages" => copied_pages(),
        "sockets" => sockets(),
        "pipes" => pipes(),
        _ => Err(Errno::EINVAL),
    }
}

fn write_to(fd: i64) -> Attempt {
    let piece = vec![1_u8; 1 << 20];
    for _ in 0..WANTED >> 20 {
        call!(
            SYS_write,
            fd,
            piece.as_slice().as_ptr() as usize,
            piece.len()
        )?;
    }
    Ok(())
}

fn memfd() -> Attempt {
    write_to(call!(SYS_memfd_create, c"x", 0)?)
}

fn shm_file() -> Attempt {
    let path = std::ffi::CString::new(format!("/dev/shm/uncounted-{}", std::process::id()))
        .map_err(|_| Errno::EINVAL)?;
    let flags = libc::O_RDWR | libc::O_CREAT;
    let fd = call!(SYS_openat, libc::AT_FDCWD, path.as_c_str(), flags, 0o600)?;
    call!(SYS_unlink, path.as_c_str())?;
    write_to(fd)
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Fills `length` bytes at `start`, four megabytes at a time.
fn fill(start: i64, length: usize, then: impl Fn(usize, usize) -> Attempt) -> Attempt {
    const PIECE: usize = 4 << 20;
    for offset in (0..length).step_by(PIECE) {
        let piece = start as usize + offset;
        // SAFETY: the piece lies in a mapping that the caller has just made.
        unsafe { std::ptr::write_bytes(piece as *mut u8, 1, PIECE) };
        then(piece, PIECE)?;
    }
    Ok(())
}

/// Pages stay in a shared object when no process has them in its page tables.
fn forget(piece: usize, length: usize) -> Attempt {
    call!(SYS_madvise, piece, length, libc::MADV_DONTNEED).map(drop)
}

fn zero_device() -> Attempt {
    let fd = call!(SYS_openat, libc::AT_FDCWD, c"/dev/zero", libc::O_RDWR, 0)?;
    let start = call!(SYS_mmap, 0, WANTED, READ_WRITE, libc::MAP_SHARED, fd, 0)?;
    fill(start, WANTED, forget)
}

fn sysv_segment() -> Attempt {
    let id = call!(
        SYS_shmget,
        libc::IPC_PRIVATE,
        WANTED,
        libc::IPC_CREAT | 0o600
    )?;
    let start = call!(SYS_shmat, id, 0, 0)?;
    // Goes with the last process that has it.
    call!(SYS_shmctl, id, libc::IPC_RMID, 0)?;
    fill(start, WANTED, forget)
}

fn sysv_semaphores() -> Attempt {
    const EACH: i32 = 32_000;
    let mut sets = Vec::new();
    let mut refused = None;
    for _ in 0..WANTED / (EACH as usize * 64) {
        match call!(SYS_semget, libc::IPC_PRIVATE, EACH, libc::IPC_CREAT | 0o600) {
            Ok(id) => sets.push(id),
            Err(errno) => refused = Some(errno),
        }
    }
    for id in sets {
        call!(SYS_semctl, id, 0, libc::IPC_RMID, 0)?;
    }
    refused.map_or(Ok(()), Err)
}

fn sysv_messages() -> Attempt {
    let message = [1_u64; 1024];
    let mut queues = Vec::new();
    let mut refused = None;
    for _ in 0..WANTED / 4 / 16_384 {
        match call!(SYS_msgget, libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600) {
            Ok(id) => queues.push(id),
            Err(errno) => refused = Some(errno),
        }
    }
    for id in &queues {
        while call!(SYS_msgsnd, *id, &message, 8000, libc::IPC_NOWAIT).is_ok() {}
    }
    for id in queues {
        call!(SYS_msgctl, id, libc::IPC_RMID, 0)?;
    }
    refused.map_or(Ok(()), Err)
}

fn rulesets() -> Attempt {
    const RULES: u64 = 60_000;
    for _ in 0..12 {
        // Handles only the two TCP rights.
        let handled = [0_u64, 3];
        let fd = call!(SYS_landlock_create_ruleset, &handled, 16, 0)?;
        for port in 0..RULES {
            let rule = [3_u64, port];
            call!(SYS_landlock_add_rule, fd, 2, &rule, 0)?;
        }
    }
    Ok(())
}

fn futex_hash() -> Attempt {
    const PR_FUTEX_HASH: i32 = 78;
    const PR_FUTEX_HASH_SET_SLOTS: i32 = 1;
    call!(
        SYS_prctl,
        PR_FUTEX_HASH,
        PR_FUTEX_HASH_SET_SLOTS,
        1 << 20,
        0,
        0
    )
    .map(drop)
}

/// A process whose children keep memory as long as it lives.
struct Family {
    parent: Pid,
    told: OwnedFd,
    heard: OwnedFd,
}

impl Family {
    fn new() -> nix::Result<Self> {
        let (heard, told) = nix::unistd::pipe()?;
        let parent = Pid::this();
        Ok(Self {
            parent,
            told,
            heard,
        })
    }

    /// In a child.
    fn keep(&self, piece: &[u8]) {
        std::hint::black_box(piece);
        let _ = nix::unistd::write(&self.told, b"x");
        while Pid::parent() == self.parent {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this many children have their memory.
    fn wait(&self, children: usize) -> Attempt {
        for _ in 0..children {
            nix::unistd::read(&self.heard, &mut [0])?;
        }
        Ok(())
    }
}

/// Processes whose first thread has ended: the others have the memory.
fn dead_leader() -> Attempt {
    const CHILDREN: usize = 6;
    let family = Arc::new(Family::new()?);
    for _ in 0..CHILDREN {
        let family = family.clone();
        raw::fork(|| {
            std::thread::spawn(move || {
                family.keep(&vec![1; WANTED / CHILDREN]);
                std::process::exit(0);
            });
            // Ends this thread only.
            call!(SYS_exit, 0).map_or(1, |_| 0)
        })?;
    }
    family.wait(CHILDREN)
}

/// Reads one page in every two megabytes, which needs a page table each and no other
/// page.
fn page_tables() -> Attempt {
    const STRIDE: usize = 2 << 20;
    let length = WANTED / 4096 * STRIDE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = call!(SYS_mmap, 0, length, libc::PROT_READ, flags, -1, 0)?;
    call!(SYS_madvise, start, length, libc::MADV_NOHUGEPAGE)?;
    for offset in (0..length).step_by(STRIDE) {
        // SAFETY: the address lies in the mapping just made.
        unsafe { std::ptr::read_volatile((start as usize + offset) as *const u8) };
    }
    Ok(())
}

/// Shared pages become private ones of each process.
fn copied_pages() -> Attempt {
    const CHILDREN: usize = 12;
    let family = Family::new()?;
    let mut piece = vec![1_u8; WANTED / CHILDREN];
    for _ in 0..CHILDREN {
        raw::fork(|| {
            // Until then, the check has seen shared pages.
            std::thread::sleep(Duration::from_millis(300));
            piece.fill(2);
            family.keep(&piece);
            0
        })?;
    }
    family.wait(CHILDREN)
}

fn sockets() -> Attempt {
    let piece = [1_u8; 65536];
    for _ in 0..200 {
        let mut pair = [0_i32; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        call!(SYS_socketpair, libc::AF_UNIX, kind, 0, &mut pair)?;
        for end in pair {
            while call!(SYS_write, end, &piece, piece.len()).is_ok() {}
        }
    }
    Ok(())
}

fn pipes() -> Attempt {
    let piece = [1_u8; 65536];
    for _ in 0..400 {
        let mut pair = [0_i32; 2];
        call!(SYS_pipe2, &mut pair, libc::O_NONBLOCK)?;
        let _ = call!(SYS_fcntl, pair[1], libc::F_SETPIPE_SZ, 1 << 20);
        while call!(SYS_write, pair[1], &piece, piece.len()).is_ok() {}
    }
    Ok(())
}
