//! What a killed cellblock leaves in the directory of `--out`: nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use record::Outcome;

use super::files::text;
use crate::cells::prelude::*;
use crate::cells::scratch::names;

pub(crate) const SUITE: Suite = Suite {
    name: "leftovers",
    covers: &[],
    attacks: &[],
    scenes: &[
        python_scene("killed-while-copying-out", killed_while_copying_out),
        python_scene("of-dead-runs-go", of_dead_runs_go),
    ],
    actors: &[],
};

const FILES: usize = 40;
const SIZE: usize = 1 << 20;

/// Names in `dir` that the program did not make.
fn foreign(dir: &Path) -> Check<Vec<String>> {
    let mut all = names(dir)?;
    all.retain(|name| !name.starts_with('f'));
    Ok(all)
}

fn killed_while_copying_out(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let code = format!(
        "for n in range({FILES}): open(f'f{{n}}', 'wb').write(b'x' * {SIZE})\nprint('done', flush=True)"
    );
    let run = |out: &Path| stage.python(&code).option(["--out", &text(out)]);
    let usual = run(&scratch.join("usual"))
        .run()?
        .ended(Outcome::Ok)?
        .process
        .elapsed;
    let mut partly = 0;
    let times = stage.times(16);
    for time in 0..times {
        let out = scratch.dir(&format!("out{time}"), 0o777)?;
        let watch = run(&out).spawn()?;
        // A run ends with copying out.
        std::thread::sleep(usual / 2 + usual * time / times / 2);
        let _ = watch.signal(Signal::SIGKILL);
        watch.until_end(stage.patience())?;
        let copied = names(&out)?.len();
        partly += u32::from((1..FILES).contains(&copied));
        assert_eq!(foreign(&out)?, [""; 0]);
        for name in names(&out)? {
            assert_eq!(
                fs::metadata(out.join(&name))?.len(),
                SIZE as u64,
                "{name} is not whole"
            );
        }
        fs::remove_dir_all(&out)?;
    }
    stage.note(format!("{partly} of {times} were in the middle of it"));
    Ok(())
}

/// Replacing a file, or a file system without O_TMPFILE, needs a temporary name.
fn of_dead_runs_go(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let out = scratch.dir("out", 0o777)?;
    let [dead, alive] =
        [".cellblock-0123456789abcdef", ".cellblock-00000000deadbeef"].map(|n| out.join(n));
    fs::write(&dead, "half")?;
    fs::write(&alive, "half")?;
    fs::write(out.join(".cellblock-notes"), "the caller's")?;
    let lock = Flock::lock(fs::File::open(&alive)?, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| fail(format!("flock: {errno}")))?;
    let code =
        "open('f', 'w').write('x')\nopen('.cellblock-ffffffffffffffff', 'w').write('planted')";
    let run = stage
        .python(code)
        .option(["--out", &text(&out)])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(
        names(&out)?,
        [".cellblock-00000000deadbeef", ".cellblock-notes", "f"]
    );
    assert_eq!(run.record.files_skipped.len(), 1, "{}", run.json);
    drop(lock);
    std::thread::sleep(Duration::from_millis(1));
    // It replaces what is there.
    let run = stage
        .python("open('f', 'w').write('y')")
        .option(["--out", &text(&out)])
        .run()?;
    run.ended(Outcome::Ok)?;
    assert_eq!(names(&out)?, [".cellblock-notes", "f"]);
    assert_eq!(fs::read_to_string(out.join("f"))?, "y");
    Ok(())
}
