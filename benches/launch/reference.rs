//! The executable of a fixed commit, which every build is compared with: small losses from
//! build to build add up unseen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The commit.
pub(crate) fn commit() -> &'static str {
    include_str!("REFERENCE").trim()
}

/// Its executable, which is built if no earlier run has done so.
pub(crate) fn executable() -> Result<PathBuf> {
    let folder = Path::new(ROOT).join("target/bench");
    let kept = folder.join(format!("cellblock-{}", commit()));
    if kept.exists() {
        return Ok(kept);
    }
    eprintln!("launch: building the reference, once: {}", kept.display());
    fs::create_dir_all(&folder)?;
    let source = tempfile::tempdir_in(&folder)?;
    let archive = source.path().join("source.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", "--output"]);
    done(git.arg(&archive).arg(commit()).current_dir(ROOT))?;
    let mut tar = Command::new("tar");
    done(tar.arg("-xf").arg(&archive).current_dir(source.path()))?;
    // As packaging/release builds it.
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.args([
        "build",
        "--locked",
        "--profile",
        "dist",
        "--bin",
        "cellblock",
    ]);
    cargo.args(["--target", &target, "--target-dir", "target"]);
    done(cargo.current_dir(source.path()))?;
    let built = source.path().join("target").join(target);
    fs::rename(built.join("dist/cellblock"), &kept)?;
    Ok(kept)
}

fn done(command: &mut Command) -> Result<()> {
    let status = (command.status()).map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}").into()),
    }
}
