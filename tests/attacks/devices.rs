//! Device nodes: created, or found in a directory that the caller binds.

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::{Mounted, chmod};
use crate::lifecycle::files::refused;

pub(crate) const SUITE: Suite = Suite {
    name: "devices",
    covers: &[17],
    attacks: &[
        attack("make-block-device", || make(SFlag::S_IFBLK))
            .live(root())
            .weaker(NO_CAPABILITY),
        attack("make-character-device", || make(SFlag::S_IFCHR))
            .live(root())
            .weaker(NO_CAPABILITY),
    ],
    scenes: &[
        scene("found-device", found_device).needs(&[Need::Root]),
        scene("named-device", named_device).needs(&[Need::Root]),
        scene("read-only-device", read_only_device).needs(&[Need::Root]),
        scene("refused-devices", refused_devices),
        scene("refused-nodes", refused_nodes).needs(&[Need::Root]),
    ],
    actors: &[
        Actor {
            name: "open",
            run: |args| {
                println!("{:?}", open(&args[0], libc::O_RDONLY));
                0
            },
        },
        // Opens a device for writing, then for reading, and has it do something.
        Actor {
            name: "use",
            run: |args| {
                const FUSE_DEV_IOC_CLONE: u64 = 0x8004_e500;
                let path = args[0].as_str();
                println!("{:?}", open(path, libc::O_RDWR));
                match std::fs::File::open(path) {
                    Ok(file) => {
                        let clone = (file.as_raw_fd(), FUSE_DEV_IOC_CLONE, &-1_i32);
                        let called = call!(SYS_ioctl, clone.0, clone.1, clone.2);
                        println!("Ok(()) {:?}", called.err());
                    }
                    Err(error) => println!("{:?}", error.raw_os_error()),
                }
                0
            },
        },
    ],
};

/// Landlock answers first, and the missing capability behind it.
const NO_CAPABILITY: &[Weaker] = &[
    (&["seccomp"], With(&[Errno::EACCES])),
    (&["seccomp", "landlock"], With(&[Errno::EPERM])),
];

fn make(kind: SFlag) -> Attempt {
    const LOOP_0: (u64, u64) = (7, 0);
    let path = format!("/tmp/device-{}", std::process::id());
    mknod(
        path.as_str(),
        kind,
        Mode::S_IRUSR,
        makedev(LOOP_0.0, LOOP_0.1),
    )?;
    nix::unistd::unlink(path.as_str())
}

/// A device node with mode 666 in a bound directory: `nodev` makes it unusable, with
/// Landlock and without.
fn found_device(stage: &Stage) -> Check {
    const ZERO: (u64, u64) = (1, 5);
    let scratch = Mounted::new(&stage.dir)?;
    let node = scratch.join("zero");
    mknod(
        &node,
        SFlag::S_IFCHR,
        Mode::empty(),
        makedev(ZERO.0, ZERO.1),
    )?;
    chmod(&node, 0o666)?;

    let path = node.to_string_lossy();
    let outside = process::finish(
        &mut stage.outside("devices/open", [path.as_ref()]),
        stage.patience(),
    )?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "Ok(())\n");

    for writable in [false, true] {
        let cell = stage.probe("devices/open", ["/found/zero"]);
        let cell = if writable {
            cell.rw(scratch.path(), Path::new("/found"))
        } else {
            cell.ro(scratch.path(), Path::new("/found"))
        };
        for cell in [cell.clone().without("landlock"), cell] {
            assert_eq!(cell.run()?.stdout(), "Err(EACCES)\n");
        }
    }
    Ok(())
}

const FUSE: (u64, u64) = (10, 229);

/// A node below `/dev`, which goes with this value.
struct Node(PathBuf);

impl Node {
    fn new(name: &str, kind: SFlag, (major, minor): (u64, u64)) -> Check<Self> {
        let path = Path::new("/dev").join(format!("cellblock-{name}-{}", std::process::id()));
        mknod(&path, kind, Mode::empty(), makedev(major, minor))?;
        let node = Self(path);
        chmod(&node.0, 0o666)?;
        Ok(node)
    }

    fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A device is there when it is named, and no other way leads to it then.
fn named_device(stage: &Stage) -> Check {
    let node = Node::new("named", SFlag::S_IFCHR, FUSE)?;
    let path = node.path();
    let cell = stage.probe("devices/open", [&path]);
    assert_eq!(cell.run()?.stdout(), "Err(ENOENT)\n");

    let named = cell.option(["--dev", &node.name()]);
    for cell in [named.clone().without("landlock"), named.clone()] {
        assert_eq!(cell.run()?.stdout(), "Ok(())\n");
    }
    let run = named.run()?;
    let places = &run.json["isolation"]["places"];
    let place = places.as_array().into_iter().flatten();
    let place = place
        .filter(|place| place["kind"] == "device")
        .collect::<Vec<_>>();
    assert_eq!(place.len(), 1, "{places}");
    assert_eq!(place[0]["path"], path.as_str());
    assert_eq!(place[0]["device"], "10:229");
    assert_eq!(place[0]["writable"], true);

    // The same node by another mount, which is `nodev` as ever.
    let other = format!("/host/{}", node.name());
    let both = stage
        .probe("devices/open", [&other])
        .ro(Path::new("/dev"), Path::new("/host"))
        .option(["--dev", &node.name()]);
    for cell in [both.clone().without("landlock"), both] {
        assert_eq!(cell.run()?.stdout(), "Err(EACCES)\n");
    }
    Ok(())
}

/// With `:ro` Landlock denies what a read-only mount lets through.
fn read_only_device(stage: &Stage) -> Check {
    let node = Node::new("read", SFlag::S_IFCHR, FUSE)?;
    let path = node.path();
    let cell = stage.probe("devices/use", [&path]);
    let whole = cell.clone().option(["--dev", &node.name()]).run()?;
    let (opened, called) = whole.stdout().split_once('\n').unwrap_or_default();
    let (opened, called) = (opened.to_owned(), called.trim_end().to_owned());
    assert_eq!(opened, "Ok(())");
    assert!(called != "Ok(()) Some(EACCES)", "not live: {called}");

    let read_only = format!("{}:ro", node.name());
    let run = cell.clone().option(["--dev", &read_only]).run()?;
    let abi = run.json["isolation"]["landlock_abi"].as_u64();
    let denied = match abi {
        Some(5..) => "Ok(()) Some(EACCES)",
        _ => called.as_str(),
    };
    assert_eq!(run.stdout(), format!("Err(EACCES)\n{denied}\n"));

    let run = cell
        .option(["--dev", &read_only])
        .without("landlock")
        .run()?;
    let (error, hint) = refused(run)?;
    assert!(error.contains("Landlock"), "{error}");
    assert!(hint.contains("does not stop writing"), "{hint}");
    Ok(())
}

fn refused_devices(stage: &Stage) -> Check {
    for (name, reason) in [
        ("zero", "its own /dev/zero"),
        ("fd/0", "its own /dev/fd/0"),
        ("pts/0", "its own /dev/pts/0"),
        ("../etc/passwd", "wants the name of a device"),
        ("/etc/passwd", "wants the name of a device"),
        ("cellblock-missing", "ENOENT"),
    ] {
        let run = stage.exec(["/bin/true"]).option(["--dev", name]).run()?;
        let (error, _) = refused(run)?;
        assert!(error.contains(reason), "{name}: {error}");
    }
    Ok(())
}

/// Devices are known by what they are, not by their names.
fn refused_nodes(stage: &Stage) -> Check {
    for (name, kind, number, reason) in [
        ("loop", SFlag::S_IFBLK, (7, 0), "block device"),
        ("mem", SFlag::S_IFCHR, (1, 1), "memory"),
        ("port", SFlag::S_IFCHR, (1, 4), "memory"),
        ("kmsg", SFlag::S_IFCHR, (1, 11), "memory"),
        ("tty", SFlag::S_IFCHR, (4, 1), "terminal"),
        ("console", SFlag::S_IFCHR, (5, 1), "terminal"),
        ("ptmx", SFlag::S_IFCHR, (5, 2), "terminal"),
        ("sg", SFlag::S_IFCHR, (21, 0), "disks"),
        ("pipe", SFlag::S_IFIFO, (0, 0), "not a character device"),
    ] {
        let node = Node::new(name, kind, number)?;
        let run = stage
            .exec(["/bin/true"])
            .option(["--dev", &node.name()])
            .run()?;
        let (error, hint) = refused(run)?;
        assert!(error.contains(reason), "{name}: {error}");
        assert!(!hint.is_empty(), "{name}: {error}");
    }
    let node = Node::new("target", SFlag::S_IFCHR, FUSE)?;
    let link = Node(PathBuf::from(node.path() + "-link"));
    symlink(&node.0, &link.0)?;
    let run = stage
        .exec(["/bin/true"])
        .option(["--dev", &link.name()])
        .run()?;
    let (error, hint) = refused(run)?;
    assert!(error.contains("ELOOP"), "{error}");
    assert!(hint.contains("symbolic link"), "{hint}");

    // Root's cells have no groups and no uid of root's.
    chmod(&node.0, 0o660)?;
    let run = stage
        .exec(["/bin/true"])
        .option(["--dev", &node.name()])
        .run()?;
    let (error, _) = refused(run)?;
    assert!(error.contains("permissions"), "{error}");
    Ok(())
}
