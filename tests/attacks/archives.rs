//! Hostile archives as the initial workspace and as a rootfs: nothing lands outside,
//! nothing takes more than its share, and nothing hangs.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use record::Outcome;

use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::{Scratch, names};

pub(crate) const SUITE: Suite = Suite {
    name: "archives",
    covers: &[33],
    attacks: &[],
    scenes: &[
        python_scene("files-from", files_from),
        python_scene("import", import),
    ],
    actors: &[],
};

const MAKER: &str = include_str!("hostile_archives.py");

/// The archives, and a directory outside that their names lead to.
struct Archives {
    scratch: Scratch,
    target: PathBuf,
    all: Vec<PathBuf>,
}

impl Archives {
    fn make(stage: &Stage) -> Check<Self> {
        let scratch = stage.scratch()?;
        let target = scratch.dir("target", 0o777)?;
        fs::write(target.join("secret"), "theirs")?;
        let dir = scratch.dir("archives", 0o777)?;
        let made = Command::new("python3")
            .args(["-c", MAKER])
            .arg(&target)
            .current_dir(&dir)
            .status()?;
        assert!(made.success());
        let all: Vec<PathBuf> = names(&dir)?.iter().map(|name| dir.join(name)).collect();
        assert_eq!(all.len(), 16);
        let archives = Self {
            scratch,
            target,
            all,
        };
        archives.assert_live()?;
        Ok(archives)
    }

    /// A tool that trusts the names writes outside.
    fn assert_live(&self) -> Check {
        let naive = self.scratch.dir("naive", 0o777)?;
        let code = "import sys, tarfile\ntarfile.TarFile.extraction_filter = None\n\
                    for n in sys.argv[2:]:\n    t = tarfile.open(n)\n    for m in t:\n        try: t.extract(m, sys.argv[1], **({'filter': 'fully_trusted'} if hasattr(tarfile, 'fully_trusted_filter') else {}))\n        except OSError: pass\n";
        let archives = ["climbs.tar", "links.tar", "hardlinks.tar"];
        Command::new("python3")
            .args(["-c", code])
            .arg(&naive)
            .args(archives.map(|name| self.scratch.join("archives").join(name)))
            .status()?;
        let planted = names(&self.target)?;
        assert!(planted.len() > 3, "not live: {planted:?}");
        assert_ne!(
            fs::read_to_string(self.target.join("secret"))?,
            "theirs",
            "not live"
        );
        for name in planted {
            fs::remove_file(self.target.join(name))?;
        }
        fs::write(self.target.join("secret"), "theirs")?;
        fs::remove_dir_all(&naive)?;
        Ok(())
    }

    fn assert_untouched(&self, by: &Path) -> Check {
        assert_eq!(names(&self.target)?, ["secret"], "{}", by.display());
        let secret = self.target.join("secret");
        assert_eq!(fs::read_to_string(&secret)?, "theirs", "{}", by.display());
        assert_eq!(fs::metadata(&secret)?.nlink(), 1, "{}", by.display());
        Ok(())
    }
}

fn files_from(stage: &Stage) -> Check {
    let archives = Archives::make(stage)?;
    for archive in &archives.all {
        let run = stage
            .exec([
                "/bin/sh",
                "-c",
                "find . -perm /7000; find . ! -type f ! -type d ! -type l",
            ])
            .option([
                "--files-from",
                &archive.to_string_lossy(),
                "--workspace-size",
                "16M",
            ])
            .run()?;
        let name = archive.display();
        match run.record.outcome {
            Outcome::Ok => assert_eq!(run.stdout(), "", "{name}"),
            Outcome::Setup => assert!(
                run.record
                    .setup_error
                    .as_ref()
                    .is_some_and(|e| e.hint.is_some()),
                "{name}: {}",
                run.json
            ),
            other => return Err(fail(format!("{name}: {other:?}: {}", run.json))),
        }
        archives.assert_untouched(archive)?;
    }
    Ok(())
}

fn import(stage: &Stage) -> Check {
    let archives = Archives::make(stage)?;
    let store = archives.scratch.join("store");
    for archive in &archives.all {
        let name = archive.display();
        if ["bomb.tar.gz", "many.tar"]
            .iter()
            .any(|large| archive.ends_with(large))
        {
            // Too large for a workspace but not for a rootfs, so only workspaces refuse
            // them.
            continue;
        }
        let mut command = Command::new(&stage.cellblock);
        command
            .args(["rootfs", "import", "some"])
            .arg(archive)
            .arg("--store")
            .arg(&store);
        let ended = process::finish(&mut command, stage.patience())?;
        assert!(
            matches!(ended.code(), 0 | 125),
            "{name}: {}",
            ended.complaint()
        );
        archives.assert_untouched(archive)?;
        assert_harmless(&store)?;
    }
    Ok(())
}

/// No devices, no set-user-ID bits, and no link was followed.
fn assert_harmless(store: &Path) -> Check {
    let mut open = vec![store.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let (kind, path) = entry.and_then(|e| Ok((e.file_type()?, e.path())))?;
            assert!(
                !kind.is_char_device() && !kind.is_block_device() && !kind.is_fifo(),
                "{path:?}"
            );
            let metadata = fs::symlink_metadata(&path)?;
            assert!(
                kind.is_symlink() || metadata.mode() & 0o6000 == 0,
                "{path:?}"
            );
            assert!(metadata.blocks() * 512 < 64 << 20, "{path:?}");
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    Ok(())
}
