//! A rootfs whose mount targets are symbolic links to somewhere else, from the
//! start or swapped in during the set-up (CVE-2025-31133, -52565, -52881).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::cells::prelude::*;
use crate::cells::scratch::{Scratch, chmod, names};
use crate::cells::swap::Swapper;

pub(crate) const SUITE: Suite = Suite {
    name: "rootfs-links",
    covers: &[4],
    attacks: &[],
    scenes: &[
        Scene {
            name: "targets-are-links",
            needs: &[],
            run: targets_are_links,
        },
        Scene {
            name: "targets-swapped-during-setup",
            needs: &[],
            run: targets_swapped_during_setup,
        },
    ],
    actors: &[],
};

/// What a cell mounts over, relative to the rootfs.
const TARGETS: [&str; 6] = ["dev", "proc", "tmp", "workspace", "dev/null", "bound"];

/// A rootfs with a probe in it, and a directory outside that nobody may touch.
struct Trap {
    scratch: Scratch,
    root: PathBuf,
    outside: PathBuf,
}

impl Trap {
    fn new(stage: &Stage) -> Check<Self> {
        let scratch = stage.scratch()?;
        let root = scratch.dir("rootfs", 0o755)?;
        for dir in ["dev", "proc", "tmp", "workspace", "bound", "etc"] {
            scratch.dir(&format!("rootfs/{dir}"), 0o755)?;
        }
        fs::copy(&stage.probe, root.join("probe"))?;
        chmod(&root.join("probe"), 0o755)?;
        // Whoever builds the cell could write there.
        let outside = scratch.dir("outside", 0o777)?;
        Ok(Self {
            scratch,
            root,
            outside,
        })
    }

    fn run(&self, stage: &Stage) -> Check<crate::cells::cell::Run> {
        let shown = self.scratch.join("rootfs/etc");
        let rootfs = self.root.to_string_lossy();
        stage
            .exec(["/probe", "--probe", "mounts/write", "/tmp/new"])
            .option(["--rootfs", &rootfs])
            .ro(&shown, Path::new("/bound"))
            .run()
    }

    fn untouched(&self) -> Check {
        let found = names(&self.outside)?;
        if found.is_empty() {
            return Ok(());
        }
        Err(fail(format!("written outside: {found:?}")))
    }
}

fn targets_are_links(stage: &Stage) -> Check {
    // The rootfs itself is a good one.
    let good = Trap::new(stage)?.run(stage)?.ended(Outcome::Ok)?;
    assert_eq!(good.stdout(), "/tmp/new Ok(())\n");

    for target in TARGETS {
        let trap = Trap::new(stage)?;
        let link = trap.root.join(target);
        if link.is_dir() {
            fs::remove_dir(&link)?;
        }
        symlink(&trap.outside, &link)?;
        // Following it by path, as one would, does end up outside.
        fs::write(link.join("canary"), "")?;
        assert_eq!(names(&trap.outside)?, ["canary"], "not live: {target}");
        fs::remove_file(trap.outside.join("canary"))?;

        let run = trap.run(stage)?.ended(Outcome::Setup)?;
        let error = run.record.setup_error.map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|text| text.contains(target)),
            "{target}: {error:?}"
        );
        trap.untouched()?;
    }
    Ok(())
}

fn targets_swapped_during_setup(stage: &Stage) -> Check {
    let mut seen = std::collections::BTreeMap::new();
    for target in ["dev", "tmp", "workspace", "bound"] {
        let trap = Trap::new(stage)?;
        let link = trap.scratch.join("link");
        symlink(&trap.outside, &link)?;
        let swapper = Swapper::start(stage, &trap.root.join(target), &link)?;
        for _ in 0..40 {
            let run = trap.run(stage)?;
            *seen.entry(format!("{:?}", run.record.outcome)).or_insert(0) += 1;
            assert!(
                matches!(run.record.outcome, Outcome::Ok | Outcome::Setup),
                "{}",
                run.json
            );
            trap.untouched()?;
        }
        swapper.stop()?;
    }
    stage.note(format!("{seen:?}"));
    Ok(())
}
