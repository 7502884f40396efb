//! Random mixes of hostile verbs, against a model of what may be true afterwards.
//!
//! Each mix is a Python program made of [`Verb`]s. What the record then says must
//! follow from the limits and from what cellblock measured; a cell that runs at
//! the same time, and the host's files, must not have noticed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::cells::cell::Run;
use crate::cells::left::Marker;
use crate::cells::prelude::*;
use crate::cells::process::Watch;

mod model;
mod verbs;

use model::Bounds;
use verbs::Verb;

pub(crate) const SUITE: Suite = Suite {
    name: "mix",
    covers: &[22, 25, 26, 27, 30],
    attacks: &[],
    scenes: &[
        python_scene(
            "verbs-do-what-they-say-outside",
            verbs_do_what_they_say_outside,
        ),
        python_scene("any-verbs-in-any-order", any_verbs_in_any_order),
    ],
    actors: &[],
};

/// How many mixes are tried: by default, and with `CELLS_LONG`.
const MIXES: [u32; 2] = [10, 100];

/// A mix proves nothing if its verbs do nothing: without a cell around them, the
/// harmless ones all succeed.
fn verbs_do_what_they_say_outside(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    for verb in verbs::harmless_outside() {
        let code = verbs::program(&[verb], "outside");
        let output = std::process::Command::new("python3")
            .args(["-c", &code])
            .current_dir(scratch.path())
            .output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            told.lines().any(|line| line == "done 1 of 1"),
            "{verb:?}: {told}"
        );
    }
    Ok(())
}

fn any_verbs_in_any_order(stage: &Stage) -> Check {
    let cases = MIXES[usize::from(stage.long())];
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        // Each shrinking step runs a cell.
        max_shrink_iters: 24,
        ..Config::default()
    });
    let mixes = proptest::collection::vec(verbs::any_verb(), 1..7);
    let held = runner.run(&mixes, |mix| {
        try_mix(stage, &mix).map_err(|stop| TestCaseError::fail(format!("{stop:?}")))
    });
    held.map_err(fail)
}

fn try_mix(stage: &Stage, mix: &[Verb]) -> Check {
    let scratch = stage.scratch()?;
    let canary = Canary::make(scratch.path())?;
    let marker = Marker::new()?;
    let bystander = Bystander::start(stage)?;
    let bounds = Bounds::standard(stage);
    let run = bounds
        .apply(stage.python(&verbs::program(mix, marker.word())))
        .arguments([marker.word()])
        .ro(&canary.dir, Path::new("/srv"))
        .deadline(60_000)
        .run()?;
    assert_eq!(marker.processes()?, [""; 0], "left behind");
    bounds.check(mix, &run)?;
    bystander.undisturbed(stage)?;
    marker.nothing_left()?;
    canary.untouched()
}

/// A host file that the cell sees.
struct Canary {
    dir: std::path::PathBuf,
    before: fs::Metadata,
}

const SONG: &str = "still here";

impl Canary {
    fn make(scratch: &Path) -> Check<Self> {
        let dir = scratch.join("mine");
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let file = dir.join("file");
        fs::write(&file, SONG)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        let before = fs::metadata(&file)?;
        Ok(Self { dir, before })
    }

    fn untouched(&self) -> Check {
        let file = self.dir.join("file");
        let after = fs::metadata(&file)?;
        assert_eq!(after.permissions(), self.before.permissions());
        assert_eq!(after.modified()?, self.before.modified()?);
        assert_eq!(fs::read_to_string(&file)?, SONG);
        assert_eq!(fs::read_dir(&self.dir)?.count(), 1);
        Ok(())
    }
}

/// Another cell, which must not notice.
struct Bystander(Watch);

impl Bystander {
    fn start(stage: &Stage) -> Check<Self> {
        let code = "import os, time\n\
            open('kept', 'w').write('mine')\n\
            time.sleep(0.3)\n\
            seen = sorted(os.listdir('.')), os.listdir('/tmp'), os.listdir('/dev/shm')\n\
            others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]\n\
            print(seen, others, open('kept').read())";
        Ok(Self(stage.python(code).limit("wall", "60s").spawn()?))
    }

    fn undisturbed(self, stage: &Stage) -> Check {
        let run = Run::of(self.0.until_end(stage.within(60_000))?)?;
        let run = run.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "(['kept'], [], []) [] mine\n");
        Ok(())
    }
}
