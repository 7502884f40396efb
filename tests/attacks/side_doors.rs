//! Calls whose arguments let a program reach, watch or delay others, or take what no
//! limit counts.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::Mode;

use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::scratch::{Scratch, chmod};

pub(crate) const SUITE: Suite = Suite {
    name: "side-doors",
    covers: &[41],
    attacks: ATTACKS,
    scenes: &[
        scene("lease-on-a-shared-file", lease_on_a_shared_file),
        scene("no-set-user-id-file-on-the-host", no_set_user_id_file),
        scene("inotify-on-shared-files", inotify_on_shared_files),
        scene("locks-on-shared-files", locks_on_shared_files),
    ],
    actors: ACTORS,
};

const F_SETLEASE: i32 = 1024;
const F_NOTIFY: i32 = 1026;
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

const ATTACKS: &[Attack] = &[
    attack("lease", || {
        let name = Named::new();
        let file = name.create()?;
        call!(SYS_fcntl, file.as_raw_fd(), F_SETLEASE, libc::F_RDLCK).map(drop)
    })
    .live(without(&["seccomp"])),
    // The kernel takes the command as 32 bits.
    attack("lease-with-high-bits", || {
        let name = Named::new();
        let file = name.create()?;
        let command = F_SETLEASE as u64 | 1 << 32;
        call!(SYS_fcntl, file.as_raw_fd(), command, libc::F_RDLCK).map(drop)
    })
    .live(without(&["seccomp"])),
    attack("directory-notification", || {
        const DN_ACCESS: i32 = 1;
        let bin = fs::File::open("/usr/bin").map_err(|_| Errno::ENOENT)?;
        call!(SYS_fcntl, bin.as_raw_fd(), F_NOTIFY, DN_ACCESS).map(drop)
    })
    .live(without(&["seccomp"]).unless(&[Errno::EINVAL])),
    // Out-of-band data
    out_of_band("out-of-band-sendto", || {
        let (one, _other) = pair()?;
        let args = [0_u8];
        call!(SYS_sendto, one.as_raw_fd(), &args, 1, libc::MSG_OOB, 0, 0).map(drop)
    }),
    out_of_band("out-of-band-sendmsg", || {
        let (one, _other) = pair()?;
        let byte = [0_u8];
        let vector = [std::ptr::from_ref(&byte) as usize, 1];
        let header = message(&vector);
        call!(SYS_sendmsg, one.as_raw_fd(), &header, libc::MSG_OOB).map(drop)
    }),
    out_of_band("out-of-band-sendmmsg", || {
        let (one, _other) = pair()?;
        let byte = [0_u8];
        let vector = [std::ptr::from_ref(&byte) as usize, 1];
        let header = message(&vector);
        let headers = [
            header[0], header[1], header[2], header[3], header[4], header[5], header[6], 0,
        ];
        call!(SYS_sendmmsg, one.as_raw_fd(), &headers, 1, libc::MSG_OOB).map(drop)
    }),
    // Socket options
    option("udp-encapsulation", || {
        const UDP_ENCAP_ESPINUDP: i32 = 2;
        set(libc::SOCK_DGRAM, libc::SOL_UDP, 100, &[UDP_ENCAP_ESPINUDP])
    })
    .live(bare().unless(&[Errno::ENOPROTOOPT])),
    option("transmit-times", || {
        set(
            libc::SOCK_DGRAM,
            libc::SOL_SOCKET,
            61,
            &[libc::CLOCK_MONOTONIC, 0],
        )
    })
    .live(bare()),
    option("zero-copy", || {
        set(libc::SOCK_STREAM, libc::SOL_SOCKET, 60, &[1])
    })
    .live(bare()),
    option("socket-filter", || attach_filter(26)).live(bare()),
    // Behind the filter: the option is for socket groups only.
    option("reuseport-filter", || attach_filter(51)).live(bare().behind(Errno::EINVAL)),
    option("tcp-repair", || {
        set(libc::SOCK_STREAM, libc::SOL_TCP, 19, &[1])
    })
    .live(naive()),
    option("kernel-tls", || {
        set(libc::SOCK_STREAM, libc::SOL_TCP, 31, b"tls\0")
    })
    .live(bare().behind(Errno::ENOTCONN).unless(&[Errno::ENOENT])),
    attack("packets-as-an-internet-socket", || {
        const SOCK_PACKET: i32 = 10;
        call!(SYS_socket, libc::AF_INET, SOCK_PACKET, libc::IPPROTO_TCP).map(drop)
    })
    .refused(&[Errno::EAFNOSUPPORT])
    .live(naive().unless(&[Errno::EINVAL])),
    // Memory and CPUs shared with others
    attack("mergeable-pages", || {
        const PAGE: usize = 4096;
        let pages = [0_u8; 3 * PAGE];
        let start = (std::ptr::from_ref(&pages) as usize).next_multiple_of(PAGE);
        call!(SYS_madvise, start, PAGE, libc::MADV_MERGEABLE).map(drop)
    })
    .refused(&[Errno::EINVAL])
    .live(bare().unless(&[Errno::EINVAL])),
    attack("merged-memory", || prctl([67, 1, 0])).live(bare().unless(&[Errno::EINVAL])),
    attack("core-scheduling", || prctl([62, 1, 0]))
        .live(bare().unless(&[Errno::EINVAL, Errno::ENODEV])),
    attack("futex-hash", || prctl([78, 1, 256])).live(bare().unless(&[Errno::EINVAL])),
    // Set-user-ID files, by every call that sets a mode
    attack("set-user-id-by-fchmod", || {
        let name = Named::new();
        let file = name.create()?;
        call!(SYS_fchmod, file.as_raw_fd(), S_ISUID | 0o755).map(drop)
    })
    .live(bare()),
    attack("set-group-id-by-fchmod", || {
        let name = Named::new();
        let file = name.create()?;
        call!(SYS_fchmod, file.as_raw_fd(), S_ISGID | 0o755).map(drop)
    })
    .live(bare()),
    attack("set-user-id-by-fchmodat", || {
        let name = Named::new();
        name.create()?;
        call!(
            SYS_fchmodat,
            libc::AT_FDCWD,
            name.0.as_c_str(),
            S_ISUID | 0o755
        )
        .map(drop)
    })
    .live(bare()),
    attack("set-user-id-by-fchmodat2", || {
        let name = Named::new();
        name.create()?;
        call!(
            SYS_fchmodat2,
            libc::AT_FDCWD,
            name.0.as_c_str(),
            S_ISUID | 0o755,
            0
        )
        .map(drop)
    })
    .live(bare().unless(&[Errno::ENOSYS])),
    attack("set-user-id-by-openat", || {
        let name = Named::new();
        let flags = libc::O_CREAT | libc::O_WRONLY;
        let mode = S_ISUID | 0o755;
        call!(SYS_openat, libc::AT_FDCWD, name.0.as_c_str(), flags, mode).map(drop)
    })
    .live(bare()),
    attack("set-user-id-by-temporary-file", || {
        let flags = libc::O_TMPFILE | libc::O_WRONLY;
        call!(SYS_openat, libc::AT_FDCWD, c"/tmp", flags, S_ISGID | 0o755).map(drop)
    })
    .live(bare().unless(&[Errno::EOPNOTSUPP])),
    attack("set-user-id-by-openat2", || {
        let name = Named::new();
        // Flags, mode, resolve.
        let how = [
            (libc::O_CREAT | libc::O_WRONLY) as u64,
            u64::from(S_ISUID | 0o755),
            0,
        ];
        let size = size_of_val(&how);
        call!(SYS_openat2, libc::AT_FDCWD, name.0.as_c_str(), &how, size).map(drop)
    })
    .refused(&[Errno::ENOSYS])
    .live(bare()),
    attack("set-user-id-by-mknodat", || {
        let name = Named::new();
        let mode = libc::S_IFREG | S_ISUID | 0o755;
        call!(SYS_mknodat, libc::AT_FDCWD, name.0.as_c_str(), mode, 0).map(drop)
    })
    .live(bare()),
];

/// The answer of a socket that has no such data.
const fn out_of_band(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    attack(name, attempt)
        .refused(&[Errno::EOPNOTSUPP])
        .live(bare().unless(&[Errno::EOPNOTSUPP]))
}

const fn option(name: &'static str, attempt: fn() -> Attempt) -> Attack {
    attack(name, attempt).refused(&[Errno::ENOPROTOOPT])
}

fn set<T>(kind: i32, level: i32, name: i32, value: &[T]) -> Attempt {
    let socket = call!(SYS_socket, libc::AF_INET, kind, 0)?;
    let size = size_of_val(value);
    let first = &value[0];
    call!(SYS_setsockopt, socket, level, name, first, size).map(drop)
}

/// A filter that accepts all.
fn attach_filter(name: i32) -> Attempt {
    const RETURN: u64 = 6;
    let program = [RETURN | 0xffff << 32];
    // `struct sock_fprog`: a length and a pointer.
    let filter = [1, std::ptr::from_ref(&program) as usize];
    set(libc::SOCK_DGRAM, libc::SOL_SOCKET, name, &filter)
}

fn prctl(args: [u64; 3]) -> Attempt {
    call!(SYS_prctl, args[0], args[1], args[2], 0, 0).map(drop)
}

fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::empty(),
    )
}

/// `struct msghdr` with these pieces and nothing else.
fn message(vector: &[usize; 2]) -> [usize; 7] {
    [0, 0, std::ptr::from_ref(vector) as usize, 1, 0, 0, 0]
}

/// A name in `/tmp`; the file is removed on drop.
struct Named(CString);

impl Named {
    fn new() -> Self {
        let name = format!("/tmp/side-door-{}", std::process::id());
        Self(CString::new(name).unwrap_or_default())
    }

    /// Creates it and opens it for reading: the kernel gives no read lease to writers.
    fn create(&self) -> nix::Result<OwnedFd> {
        open_file(&self.0, OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDONLY)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = nix::unistd::unlink(self.0.as_c_str());
    }
}

fn open_file(path: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
    nix::fcntl::open(path, flags, Mode::from_bits_truncate(0o600))
}

const ACTORS: &[Actor] = &[
    // Takes a lease on its own file, and ignores the signal that a lease break sends.
    Actor {
        name: "hold-lease",
        run: |args| {
            let mut ignored = SigSet::empty();
            ignored.add(Signal::SIGIO);
            let _ = ignored.thread_block();
            let file = open_file(c"/shared/file", OFlag::O_CREAT | OFlag::O_RDONLY);
            let lease = file
                .as_ref()
                .map_err(|errno| *errno)
                .and_then(|file| call!(SYS_fcntl, file.as_raw_fd(), F_SETLEASE, libc::F_RDLCK));
            println!("{lease:?}");
            until_done(args)
        },
    },
    Actor {
        name: "hold-lock",
        run: |args| {
            let file = open_file(c"/shared/file", OFlag::O_RDONLY);
            let lock = file
                .as_ref()
                .map_err(|errno| *errno)
                .and_then(|file| call!(SYS_flock, file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB));
            println!("{lock:?}");
            until_done(args)
        },
    },
    Actor {
        name: "watch",
        run: |args| {
            let watch = call!(SYS_inotify_init1, libc::IN_NONBLOCK).and_then(|instance| {
                call!(SYS_inotify_add_watch, instance, c"/shared", libc::IN_OPEN).map(|_| instance)
            });
            until_done(args);
            let seen = watch.and_then(|instance| {
                let mut events = [0_u8; 4096];
                let size = size_of_val(&events);
                call!(SYS_read, instance, &mut events, size)
            });
            println!("{:?}", seen.map(|bytes| bytes > 0));
            0
        },
    },
    Actor {
        name: "mark",
        run: |_| {
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
            let marked = open_file(c"/shared/file", flags)
                .and_then(|file| call!(SYS_fchmod, file.as_raw_fd(), S_ISUID | 0o755));
            println!("{marked:?}");
            0
        },
    },
];

/// Says that it is ready, and waits for the harness.
fn until_done(args: &[String]) -> i32 {
    let sync = Path::new(&args[0]);
    let _ = fs::write(sync.join("ready"), "");
    while !sync.join("done").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    0
}

/// A directory shown at `/shared` while an actor is at work there.
struct Shared<'s> {
    stage: &'s Stage,
    scratch: Scratch,
}

impl<'s> Shared<'s> {
    fn new(stage: &'s Stage) -> Check<Self> {
        let scratch = stage.scratch()?;
        scratch.dir("shared", 0o777)?;
        Ok(Self { stage, scratch })
    }

    fn path(&self) -> PathBuf {
        self.scratch.join("shared")
    }

    /// Runs `outside` while the actor waits; returns both outputs.
    fn during<T>(
        &self,
        actor: &str,
        writable: bool,
        options: &[[&str; 2]],
        outside: impl FnOnce(&Path) -> T,
    ) -> Check<(String, T)> {
        let sync = Scratch::new(self.scratch.path())?;
        chmod(sync.path(), 0o777)?;
        let cell = self.stage.probe(actor, ["/sync"]);
        let cell = cell.rw(sync.path(), Path::new("/sync"));
        let (source, target) = (self.path(), Path::new("/shared"));
        let cell = match writable {
            true => cell.rw(&source, target),
            false => cell.ro(&source, target),
        };
        let cell = options.iter().fold(cell, |cell, pair| cell.option(*pair));
        let mut running = cell.spawn()?;
        running.until_exists(&sync.join("ready"), self.stage.patience())?;
        let said = outside(&self.path().join("file"));
        fs::write(sync.join("done"), "")?;
        let run = Run::of(running.until_end(self.stage.patience())?)?;
        let run = run.ended(Outcome::Ok)?;
        Ok((run.stdout().trim().to_owned(), said))
    }
}

/// Opening a file for writing waits until its lease is given back, or for 45 seconds.
fn lease_on_a_shared_file(stage: &Stage) -> Check {
    let write = |path: &Path| {
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK;
        nix::fcntl::open(path, flags, Mode::empty()).map(drop)
    };
    let shared = Shared::new(stage)?;
    let without = [["--without", "seccomp"]];
    let live = shared.during("side-doors/hold-lease", true, &without, write)?;
    assert_eq!(live, ("Ok(0)".to_owned(), Err(Errno::EWOULDBLOCK)));

    let shared = Shared::new(stage)?;
    let held = shared.during("side-doors/hold-lease", true, &[], write)?;
    assert_eq!(held, ("Err(EPERM)".to_owned(), Ok(())));
    Ok(())
}

fn no_set_user_id_file(stage: &Stage) -> Check {
    for (options, said, mark) in [
        (&[["--without", "seccomp"]][..], "Ok(0)", S_ISUID),
        (&[], "Err(EPERM)", 0),
    ] {
        let shared = Shared::new(stage)?;
        let cell = stage.probe("side-doors/mark", []);
        let cell = cell.rw(&shared.path(), Path::new("/shared"));
        let cell = options.iter().fold(cell, |cell, pair| cell.option(*pair));
        let run = cell.run()?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout().trim(), said);
        let mode = fs::metadata(shared.path().join("file"))?
            .permissions()
            .mode();
        assert_eq!(mode & (S_ISUID | S_ISGID), mark, "{mode:o}");
    }
    Ok(())
}

/// SECURITY.md states this of `default`; `strict` has no inotify.
fn inotify_on_shared_files(stage: &Stage) -> Check {
    let shared = Shared::new(stage)?;
    shared.scratch.file("shared/file", "x")?;
    let read = |path: &Path| fs::read(path).is_ok();
    for (options, seen) in [
        (&[][..], "Ok(true)"),
        (&[["--seccomp", "strict"]], "Err(EPERM)"),
    ] {
        let said = shared.during("side-doors/watch", false, options, read)?;
        assert_eq!(said, (seen.to_owned(), true), "{options:?}");
    }
    Ok(())
}

/// SECURITY.md states this: file locks have no namespace.
fn locks_on_shared_files(stage: &Stage) -> Check {
    let shared = Shared::new(stage)?;
    shared.scratch.file("shared/file", "x")?;
    let lock = |path: &Path| {
        let file = nix::fcntl::open(path, OFlag::O_RDONLY, Mode::empty())?;
        call!(SYS_flock, file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB)
    };
    let said = shared.during("side-doors/hold-lock", false, &[], lock)?;
    assert_eq!(said, ("Ok(0)".to_owned(), Err(Errno::EWOULDBLOCK)));
    Ok(())
}
