//! A rootfs whose mount targets are symbolic links to somewhere else, from the
//! start or swapped in during the set-up (CVE-2025-31133, -52565, -52881).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::scratch::{Scratch, chmod, names};
use crate::cells::swap::Swapper;

pub(crate) const SUITE: Suite = Suite {
    name: "rootfs-links",
    covers: &[4],
    attacks: &[],
    scenes: &[
        scene("own-places-ignore-links", own_places_ignore_links),
        scene("binds-follow-no-links", binds_follow_no_links),
        scene("swapped-during-setup", swapped_during_setup),
    ],
    actors: &[],
};

/// The cell's own mounts, whatever a rootfs has under these names.
const OWN: [&str; 6] = ["dev", "dev/null", "dev/shm", "proc", "tmp", "workspace"];
/// Targets of binds: the last component, or one on the way to it.
const BOUND: [(&str, &str); 2] = [("bound", "/bound"), ("bound", "/bound/below")];

/// A rootfs with a probe in it, and a directory outside that must stay untouched.
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
        // The user who builds the cell could write there.
        let outside = scratch.dir("outside", 0o777)?;
        Ok(Self {
            scratch,
            root,
            outside,
        })
    }

    /// Makes `name` of the rootfs a link to the directory outside, and shows that
    /// following it by path writes there.
    fn spring(&self, name: &str) -> Check {
        let link = self.root.join(name);
        if link.is_dir() {
            fs::remove_dir(&link)?;
        }
        symlink(&self.outside, &link)?;
        fs::write(link.join("canary"), "")?;
        assert_eq!(names(&self.outside)?, ["canary"], "not live: {name}");
        fs::remove_file(self.outside.join("canary"))?;
        Ok(())
    }

    fn run(&self, stage: &Stage, bound: &str) -> Check<Run> {
        let shown = self.scratch.join("rootfs/etc");
        let rootfs = self.root.to_string_lossy();
        stage
            .exec([
                "/probe",
                "--probe",
                "mounts/write",
                "/tmp/new",
                "/workspace/new",
                "/dev/shm/new",
            ])
            .option(["--rootfs", &rootfs])
            .ro(&shown, Path::new(bound))
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

const OWN_PLACES_WORK: &str = "/tmp/new Ok(())\n/workspace/new Ok(())\n/dev/shm/new Ok(())\n";

fn own_places_ignore_links(stage: &Stage) -> Check {
    for name in OWN {
        let trap = Trap::new(stage)?;
        trap.spring(name)?;
        let run = trap.run(stage, "/bound")?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), OWN_PLACES_WORK, "{name}");
        trap.untouched()?;
    }
    Ok(())
}

fn binds_follow_no_links(stage: &Stage) -> Check {
    // The rootfs works when nothing is swapped.
    Trap::new(stage)?.run(stage, "/bound")?.ended(Outcome::Ok)?;

    for (link, target) in BOUND {
        let trap = Trap::new(stage)?;
        trap.spring(link)?;
        let run = trap.run(stage, target)?.ended(Outcome::Setup)?;
        let error = run.record.setup_error;
        let told = error
            .as_ref()
            .is_some_and(|error| error.to_string().contains(target));
        assert!(told, "{target}: {error:?}");
        trap.untouched()?;
    }
    Ok(())
}

fn swapped_during_setup(stage: &Stage) -> Check {
    let mut seen = BTreeMap::new();
    for name in ["dev", "tmp", "workspace", "bound", "etc"] {
        let trap = Trap::new(stage)?;
        let link = trap.scratch.join("link");
        symlink(&trap.outside, &link)?;
        let swapper = Swapper::start(stage, &trap.root.join(name), &link)?;
        for _ in 0..stage.times(20) {
            let run = trap.run(stage, "/bound")?;
            let outcome = run.record.outcome;
            *seen.entry(format!("{outcome:?}")).or_insert(0) += 1;
            assert!(
                [Outcome::Ok, Outcome::Setup].contains(&outcome),
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
