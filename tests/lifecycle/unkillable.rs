//! A process that cannot be killed for now: it waits in the kernel for a file system
//! that does not answer. The call must not wait with it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2, read, write};

use crate::cells::cell::Run;
use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::cells::{private, process, raw};

pub(crate) const SUITE: Suite = Suite {
    name: "unkillable",
    covers: &[24],
    attacks: &[],
    scenes: &[scene(
        "blocked-in-a-dead-file-system",
        blocked_in_a_dead_file_system,
    )
    .needs(&[Need::Device("/dev/fuse")])],
    actors: &[
        Actor {
            name: "look",
            run: |args| {
                let names = std::fs::read_dir(&args[0]).map(Iterator::count);
                println!("{names:?}");
                0
            },
        },
        // Runs a command while a file system that never answers is mounted, and cancels it once it
        // waits for that.
        Actor {
            name: "with-dead-file-system",
            run: |args| match with_dead_file_system(&args[0], &args[1..]) {
                Ok(code) => code,
                Err(stop) => {
                    eprintln!("{stop:?}");
                    96
                }
            },
        },
    ],
};

fn blocked_in_a_dead_file_system(stage: &Stage) -> Check {
    let marker = Marker::new()?;
    let scratch = stage.scratch()?;
    let dir = scratch.dir("dead", 0o755)?;
    let cell = stage
        .probe("unkillable/look", ["/dead", marker.word()])
        .limit("wall", &stage.duration(120_000))
        .ro(&dir, Path::new("/dead"))
        .command();
    let mut outside = stage.outside("unkillable/with-dead-file-system", []);
    outside
        .arg(&dir)
        .arg(cell.get_program())
        .args(cell.get_args());

    let process = process::finish(&mut outside, stage.patience())?;
    let run = Run::of(process)?.ended(Outcome::Cancelled)?;
    assert!(
        !run.record.warnings.is_empty(),
        "nothing told: {}",
        run.json
    );
    // Ending the server ends the file system, and with it the wait.
    marker.nothing_left_unattended(stage)
}

fn with_dead_file_system(dir: &str, command: &[String]) -> Check<i32> {
    private::enter()?;
    // The kernel demands that a process of the mount's user namespace opens it.
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let options = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},allow_other",
        device.as_raw_fd()
    );
    mount(
        Some("dead"),
        dir,
        Some("fuse"),
        MsFlags::empty(),
        Some(options.as_str()),
    )?;
    let (waits, says) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
    let server = raw::fork(|| serve(&device, &says))?;
    drop(device);
    let status = cancelled_when_it_waits(&waits, command);
    kill(server, Signal::SIGKILL)?;
    waitpid(server, None)?;
    Ok(status?.code().unwrap_or(95))
}

fn cancelled_when_it_waits(waits: &OwnedFd, command: &[String]) -> Check<ExitStatus> {
    let mut child = Command::new(&command[0]).args(&command[1..]).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if read(waits, &mut [0]) == Ok(1) {
            kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM)?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Answers the mount and the look at the directory, but no access inside, of which it tells
/// (`linux/fuse.h`).
fn serve(mut device: &File, says: &OwnedFd) -> i32 {
    const GETATTR: u32 = 3;
    const INIT: u32 = 26;
    const OPENDIR: u32 = 27;
    let mut request = vec![0; 1 << 17];
    while device.read(&mut request).is_ok() {
        let word =
            |at: usize| -> u32 { request[at..at + 4].try_into().map_or(0, u32::from_ne_bytes) };
        let (opcode, unique) = (word(4), &request[8..16]);
        let answer = match opcode {
            INIT => Ok(init()),
            GETATTR => Ok(attributes()),
            OPENDIR => {
                let _ = write(says, b"x");
                continue;
            }
            _ => Err(Errno::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-(errno as i32), Vec::new()),
        };
        let mut reply = Vec::new();
        reply.extend(((16 + body.len()) as u32).to_ne_bytes());
        reply.extend(error.to_ne_bytes());
        reply.extend(unique);
        reply.extend(body);
        // Some requests expect no answer.
        let _ = device.write_all(&reply);
    }
    0
}

/// `struct fuse_init_out` of protocol 7.19: major, minor, read-ahead, flags,
/// two 16-bit bounds on what is under way, the size of writes.
fn init() -> Vec<u8> {
    [7_u32, 19, 0, 0, 0, 4096]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect()
}

/// `struct fuse_attr_out`: how long it is valid, and a directory.
fn attributes() -> Vec<u8> {
    let valid = [3600_u64, 0];
    // Number, size, blocks, three times.
    let wide = [1_u64, 0, 0, 0, 0, 0];
    // Nanoseconds of the three, mode, links, uid, gid, device, block size, flags.
    let narrow = [0_u32, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0];
    valid
        .into_iter()
        .chain(wide)
        .flat_map(u64::to_ne_bytes)
        .chain(narrow.into_iter().flat_map(u32::to_ne_bytes))
        .collect()
}
