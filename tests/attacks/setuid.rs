//! Programs that run as their owner: set-user-id, set-group-id and file
//! capabilities give nothing inside.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::{Mounted, Scratch, chmod};

pub(crate) const SUITE: Suite = Suite {
    name: "setuid",
    covers: &[17],
    attacks: &[],
    scenes: &[
        scene("set-user-id", set_user_id).needs(&[Need::Root]),
        scene("file-capabilities", file_capabilities).needs(&[Need::Root]),
    ],
    actors: &[Actor {
        name: "who",
        run: |_| {
            println!(
                "uid {} gid {} capabilities {}",
                nix::unistd::geteuid(),
                nix::unistd::getegid(),
                effective_capabilities(),
            );
            0
        },
    }],
};

const SOMEBODY: u32 = 4242;

fn set_user_id(stage: &Stage) -> Check {
    let scratch = Mounted::new(&stage.dir)?;
    let program = copy_of_probe(stage, &scratch)?;
    // Owned by root, who runs this test.
    chmod(&program, 0o6755)?;

    let outside = who(stage, &program)?;
    assert!(outside.starts_with("uid 0 gid 0 "), "not live: {outside}");
    gains_nothing(stage, &scratch)
}

fn file_capabilities(stage: &Stage) -> Check {
    let scratch = Mounted::new(&stage.dir)?;
    let program = copy_of_probe(stage, &scratch)?;
    const DAC_OVERRIDE: u32 = 1 << 1;
    // Revision 2, effective; permitted and inheritable, lower and upper half.
    let mark = [0x0200_0001_u32, DAC_OVERRIDE, 0, 0, 0];
    let path = std::ffi::CString::new(program.as_os_str().as_encoded_bytes())
        .map_err(|error| fail(error.to_string()))?;
    let size = size_of_val(&mark);
    call!(
        SYS_setxattr,
        path.as_c_str(),
        c"security.capability",
        &mark,
        size,
        0
    )?;

    let outside = who(stage, &program)?;
    assert!(
        !outside.ends_with("capabilities 0000000000000000"),
        "not live: {outside}"
    );
    gains_nothing(stage, &scratch)
}

fn copy_of_probe(stage: &Stage, scratch: &Scratch) -> Check<PathBuf> {
    let program = scratch.join("program");
    fs::copy(&stage.probe, &program)?;
    chmod(&program, 0o755)?;
    Ok(program)
}

/// The ids and capabilities of the program when a plain user starts it outside.
fn who(stage: &Stage, program: &Path) -> Check<String> {
    let mut command = std::process::Command::new(program);
    command
        .args(["--probe", "setuid/who"])
        .uid(SOMEBODY)
        .gid(SOMEBODY);
    let process = process::finish(&mut command, stage.patience())?;
    Ok(String::from_utf8_lossy(&process.stdout).trim().to_owned())
}

/// Inside it has those of a program without these marks.
fn gains_nothing(stage: &Stage, scratch: &Scratch) -> Check {
    let plain = stage.probe("setuid/who", []).run()?.ended(Outcome::Ok)?;
    assert!(plain.stdout().ends_with("capabilities 0000000000000000\n"));
    assert!(!plain.stdout().starts_with("uid 0 "), "{}", plain.stdout());

    let marked = stage
        .exec(["/marked/program", "--probe", "setuid/who"])
        .ro(scratch.path(), Path::new("/marked"))
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(marked.stdout(), plain.stdout());
    Ok(())
}

fn effective_capabilities() -> String {
    fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap_or("?")
        .trim()
        .to_owned()
}
