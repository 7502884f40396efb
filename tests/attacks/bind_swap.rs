//! The source of a bind, or a component of its path, swapped in a race: what
//! was opened counts, never the path a second time.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::cells::prelude::*;
use crate::cells::scratch::names;
use crate::cells::swap::{self, Swapper};

pub(crate) const SUITE: Suite = Suite {
    name: "bind-swap",
    covers: &[5],
    attacks: &[],
    scenes: &[
        scene("source-swapped", source_swapped),
        scene("component-swapped-for-a-link", component_swapped_for_a_link),
    ],
    actors: &[
        swap::ACTOR,
        Actor {
            name: "look",
            run: |_| {
                // Two binds of one path: if the source was looked up twice, they would
                // differ.
                for _ in 0..2 {
                    print!("{}", fs::read_to_string("/data/name").unwrap_or_default());
                }
                println!("{:?}", open("/data/new", libc::O_CREAT | libc::O_WRONLY));
                0
            },
        },
    ],
};

fn source_swapped(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    for name in ["a", "b"] {
        scratch.dir(name, 0o777)?;
        scratch.file(&format!("{name}/name"), name)?;
    }
    let (a, b) = (scratch.join("a"), scratch.join("b"));
    races(stage, &a, (&a, &b))?;
    assert_eq!(
        (names(&a)?, names(&b)?),
        (vec!["name".into()], vec!["name".into()])
    );
    Ok(())
}

fn component_swapped_for_a_link(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    scratch.dir("parent", 0o755)?;
    scratch.dir("elsewhere", 0o755)?;
    for (parent, name) in [("parent", "a"), ("elsewhere", "b")] {
        scratch.dir(&format!("{parent}/data"), 0o777)?;
        scratch.file(&format!("{parent}/data/name"), name)?;
    }
    let link = scratch.join("link");
    symlink(scratch.join("elsewhere"), &link)?;
    let parent = scratch.join("parent");
    let source = parent.join("data");
    races(stage, &source, (&parent, &link))?;
    assert_eq!(names(&scratch.join("elsewhere/data"))?, ["name"]);
    Ok(())
}

/// Shows `source` read-only while two entries of its path change places.
fn races(stage: &Stage, source: &Path, swapped: (&Path, &Path)) -> Check {
    let swapper = Swapper::start(stage, swapped.0, swapped.1)?;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..stage.times(100) {
        let run = stage
            .probe("bind-swap/look", [])
            .without("landlock")
            .ro(source, Path::new("/data"))
            .run()?;
        // A path that goes through a link may be refused.
        if run.record.outcome != Outcome::Setup {
            let run = run.ended(Outcome::Ok)?;
            let whole = ["aaErr(EROFS)\n", "bbErr(EROFS)\n"].contains(&run.stdout());
            assert!(whole, "{:?}", run.stdout());
            seen.insert(run.stdout()[..1].to_owned());
        }
    }
    stage.note(format!("saw {seen:?}"));
    swapper.stop()
}
