//! Programs that the program made itself, executed from a writable place or from memory
//! under a policy that forbids it.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::wait::WaitStatus;

use crate::cells::prelude::*;
use crate::cells::raw;
use crate::cells::scratch::chmod;

pub(crate) const SUITE: Suite = Suite {
    name: "no-exec",
    covers: &[19],
    attacks: ATTACKS,
    scenes: &[],
    actors: &[],
};

const ATTACKS: &[Attack] = &[
    attack("from-tmp", || {
        let path = format!("/tmp/program-{}", std::process::id());
        fs::copy("/proc/self/exe", &path).map_err(errno)?;
        let came = chmod(path.as_ref(), 0o755)
            .map_err(|_| Errno::EIO)
            .and_then(|()| execute(&path));
        let _ = fs::remove_file(&path);
        came
    })
    // Room for this executable.
    .options(&["--no-exec", "--tmp-size=256M", "--file-size=256M"])
    .live(without(&["landlock"]))
    .refused(&[Errno::EACCES]),
    // Landlock does not cover files outside every directory.
    attack("from-memory", || {
        let mut file = fs::File::from(memfd_create(c"program", MFdFlags::empty())?);
        file.write_all(&fs::read("/proc/self/exe").map_err(errno)?)
            .map_err(errno)?;
        execute(&format!("/proc/self/fd/{}", file.as_raw_fd()))
    })
    .options(&["--no-exec"])
    .live(without(&["seccomp"])),
    attack("from-memory-by-descriptor", || {
        let file = memfd_create(c"program", MFdFlags::empty())?;
        let none = [0_usize];
        match raw::in_child(|| {
            call!(
                SYS_execveat,
                file.as_raw_fd(),
                c"",
                &none,
                &none,
                libc::AT_EMPTY_PATH
            )
            .map_or_else(|errno| errno as i32, |_| 0)
        })? {
            WaitStatus::Exited(_, number) => Err(Errno::from_raw(number)),
            other => panic!("{other:?}"),
        }
    })
    // An empty file is not executable, but the kernel checks that after the permission.
    .options(&["--no-exec"])
    .live(without(&["seccomp"]).behind(Errno::ENOEXEC)),
];

/// Executes a copy of this program.
fn execute(path: &str) -> Attempt {
    Command::new(path)
        .arg("--list")
        .stdout(Stdio::null())
        .status()
        .map(drop)
        .map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
