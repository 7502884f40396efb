//! Device nodes: created, or found in a directory that the caller binds.

use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::{Mounted, chmod};

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
    scenes: &[scene("found-device", found_device).needs(&[Need::Root])],
    actors: &[Actor {
        name: "open",
        run: |args| {
            println!("{:?}", open(&args[0], libc::O_RDONLY));
            0
        },
    }],
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
        stage.within(5_000),
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
