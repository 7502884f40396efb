//! Changing the mounts from inside: to uncover what a mount hides, or to make
//! writable what is read-only.

use std::fs;
use std::path::Path;

use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "mounts",
    covers: &[10],
    attacks: ATTACKS,
    scenes: SCENES,
    actors: ACTORS,
};

/// If the filter ever failed: Landlock forbids mounts, and the program has no
/// capability for them.
const LATER: &[Weaker] = &[
    (&["seccomp"], With(&[Errno::EPERM])),
    (&["seccomp", "landlock"], With(&[Errno::EPERM])),
];

const ATTACKS: &[Attack] = &[
    attack("mount-tmpfs", || mount(c"none", c"/tmp", c"tmpfs", 0))
        .live(naive())
        .weaker(LATER),
    attack("mount-proc", || mount(c"none", c"/tmp", c"proc", 0))
        .live(naive())
        .weaker(LATER),
    attack("bind", || mount(c"/usr", c"/tmp", c"", libc::MS_BIND))
        .live(naive())
        .weaker(LATER),
    attack("remount", || {
        mount(c"", c"/", c"", libc::MS_BIND | libc::MS_REMOUNT)
    })
    .live(naive())
    .weaker(LATER),
    attack("make-shared", || mount(c"", c"/", c"", libc::MS_SHARED))
        .live(naive())
        .weaker(LATER),
    attack("umount", || {
        call!(SYS_umount2, c"/tmp", libc::MNT_DETACH).map(drop)
    })
    .live(naive())
    .weaker(LATER),
    attack("open-tree-clone", || {
        call!(SYS_open_tree, libc::AT_FDCWD, c"/tmp", OPEN_TREE_CLONE).map(drop)
    })
    .live(naive())
    .weaker(LATER),
    attack("move-mount", || {
        call!(
            SYS_move_mount,
            libc::AT_FDCWD,
            c"/tmp",
            libc::AT_FDCWD,
            c"/usr",
            0
        )
        .map(drop)
    })
    .live(naive())
    .weaker(LATER),
    attack("mount-setattr", || {
        /// The kernel's `struct mount_attr`.
        #[repr(C)]
        struct MountAttr {
            set: u64,
            clear: u64,
            propagation: u64,
            userns: u64,
        }
        const RDONLY: u64 = 1;
        let attr = MountAttr {
            set: 0,
            clear: RDONLY,
            propagation: 0,
            userns: 0,
        };
        let size = size_of::<MountAttr>();
        call!(SYS_mount_setattr, libc::AT_FDCWD, c"/tmp", 0, &attr, size).map(drop)
    })
    .live(naive())
    .weaker(LATER),
    attack("pivot-root", || {
        nix::unistd::chdir("/tmp")?;
        call!(SYS_pivot_root, c".", c".").map(drop)
    })
    .live(naive())
    .weaker(LATER),
    // Landlock does not restrict chroot: behind the filter, only the missing capability
    // refuses it.
    attack("chroot", || call!(SYS_chroot, c"/tmp").map(drop))
        .live(naive())
        .weaker(LATER),
];

const SCENES: &[Scene] = &[scene("read-only-stays", read_only_stays)];

const ACTORS: &[Actor] = &[Actor {
    name: "write",
    run: |args| {
        for path in args {
            let created = open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_EXCL);
            println!("{path} {created:?}");
        }
        0
    },
}];

/// Only what the caller asked for is writable. A directory that the program could write
/// outside is read-only when it is bound read-only.
fn read_only_stays(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let ro = scratch.dir("ro", 0o777)?;
    let rw = scratch.dir("rw", 0o777)?;

    let run = stage
        .probe(
            "mounts/write",
            [
                "/new", "/usr/new", "/etc/new", "/ro/new", "/rw/new", "/tmp/new",
            ],
        )
        .without("landlock")
        .ro(&ro, Path::new("/ro"))
        .rw(&rw, Path::new("/rw"))
        .run()?
        .ended(Outcome::Ok)?;

    assert_eq!(
        run.stdout(),
        "/new Err(EROFS)\n/usr/new Err(EROFS)\n/etc/new Err(EROFS)\n\
         /ro/new Err(EROFS)\n/rw/new Ok(())\n/tmp/new Ok(())\n"
    );
    assert!(fs::exists(rw.join("new"))? && !fs::exists(ro.join("new"))?);
    Ok(())
}

const OPEN_TREE_CLONE: u32 = 1;

fn mount(
    source: &std::ffi::CStr,
    target: &std::ffi::CStr,
    kind: &std::ffi::CStr,
    flags: u64,
) -> Attempt {
    call!(SYS_mount, source, target, kind, flags, Arg::NULL).map(drop)
}
