//! Kept workspaces that a program has prepared as a trap, or whose run was killed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::signal::Signal;
use record::{Change, Outcome};

use super::files::{changed, changes, text};
use super::kept::with;
use crate::cells::prelude::*;
use crate::cells::scratch::names;

pub(crate) const SUITE: Suite = Suite {
    name: "kept-hostile",
    covers: &[34],
    attacks: &[],
    scenes: &[
        python_scene("planted-links", planted_links),
        python_scene("workspace", hostile_workspace),
        python_scene("killed-while-written-back", killed_while_written_back),
    ],
    actors: &[],
};

/// Links that lead outside stay text: nothing behind them is written, read or removed.
fn planted_links(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o777)?;
    let outside = scratch.dir("outside", 0o777)?;
    fs::write(outside.join("secret"), "secret")?;
    symlink(&outside, kept.join("dir"))?;
    symlink(outside.join("secret"), kept.join("file"))?;
    symlink("../outside", kept.join("climbs"))?;
    symlink(&outside, kept.join("stays"))?;
    // Live: a tool that follows the link reaches the file.
    fs::write(kept.join("dir/live"), "x")?;
    fs::remove_file(outside.join("live"))?;
    let code = "
import os
print(sorted(os.listdir('.')), os.path.exists('dir'), os.path.exists('file'))
for name in ('dir', 'file', 'climbs'): os.unlink(name)
os.makedirs('dir'); open('dir/secret', 'w').write('x')
open('file', 'w').write('x')
os.makedirs('climbs'); open('climbs/new', 'w').write('x')
";
    let run = with(stage, &kept, code)?.ended(Outcome::Ok)?;
    assert_eq!(
        run.stdout(),
        "['climbs', 'dir', 'file', 'stays'] False False\n"
    );
    assert_eq!(fs::read_to_string(outside.join("secret"))?, "secret");
    assert_eq!(names(&outside)?, ["secret"]);
    for (name, is_file) in [("file", true), ("dir", false), ("climbs", false)] {
        let kind = fs::symlink_metadata(kept.join(name))?.file_type();
        assert_eq!(
            (kind.is_file(), kind.is_dir()),
            (is_file, !is_file),
            "{name}"
        );
    }
    assert_eq!(fs::read_link(kept.join("stays"))?, outside);
    assert_eq!(run.record.files_skipped, []);
    Ok(())
}

/// Each trick is live: it works on a naive copy of the workspace.
fn hostile_workspace(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o777)?;
    let outside = scratch.dir("outside", 0o777)?;
    fs::write(outside.join("target"), "theirs")?;
    fs::create_dir(kept.join("d"))?;
    fs::write(kept.join("d/target"), "mine")?;
    let code = format!(
        "
import os, shutil
shutil.rmtree('d'); os.symlink('{}', 'd')
os.makedirs('.cellblock-pending'); open('.cellblock-pending/0', 'w').write('x')
f = open('sparse', 'wb'); f.truncate(250 << 20); f.close(); os.link('sparse', 'sparse2')
open('secret', 'w').write('x'); os.chmod('secret', 0)
os.mkdir('closed'); open('closed/in', 'w').write('x'); os.chmod('closed', 0)
os.mkfifo('pipe')
os.chmod('.', 0)
",
        outside.display()
    );
    let run = with(stage, &kept, &code)?.ended(Outcome::Ok)?;
    assert_eq!(
        changes(&run),
        changed(&[
            (".cellblock-pending/0", Change::Created),
            ("closed/in", Change::Created),
            ("d/target", Change::Deleted),
            ("secret", Change::Created),
            ("sparse", Change::Created),
        ])
    );
    // The link is kept as text. Following it would lead outside.
    assert_eq!(fs::read_link(kept.join("d"))?, outside);
    assert!(kept.join("d/target").exists());
    assert_eq!(names(&outside)?, ["target"]);
    assert_eq!(fs::read_to_string(outside.join("target"))?, "theirs");
    assert_eq!(names(&kept)?, ["closed", "d", "secret", "sparse"]);
    let mut skipped: Vec<String> = (run.record.files_skipped.iter())
        .map(|skipped| skipped.path.to_string())
        .collect();
    skipped.sort();
    assert_eq!(
        skipped,
        [".cellblock-pending", "pipe", "sparse2", "sparse2"]
    );
    with(stage, &kept, "print(open('closed/in').read())")?.ended(Outcome::Ok)?;
    Ok(())
}

/// Each file is either the old or the new one, whenever the kill comes.
fn killed_while_written_back(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o777)?;
    const FILES: usize = 200;
    let whole = |letter: &str| letter.repeat(20_000);
    for number in 0..FILES {
        fs::write(kept.join(number.to_string()), whole("a"))?;
    }
    let code = format!(
        "import os, sys\nl = 'ba'[open('0').read(1) == 'b']\nfor n in range({FILES}): open(str(n), 'w').write(l * 20000)\n\
         print('done', flush=True)"
    );
    let cell = stage.python(&code).option(["--workspace", &text(&kept)]);
    let usual = cell.run()?.ended(Outcome::Ok)?.process.elapsed;
    let mut partly = 0;
    let times = stage.times(24);
    for time in 0..times {
        let watch = cell.spawn()?;
        // A run ends with writing back.
        std::thread::sleep(usual / 2 + usual * time / times / 2);
        let _ = watch.signal(Signal::SIGKILL);
        watch.until_end(stage.patience())?;
        let pending = kept.join(".cellblock-pending").exists();
        partly += u32::from(pending);
        for number in 0..FILES {
            let content = fs::read_to_string(kept.join(number.to_string()))?;
            assert!(content == whole("a") || content == whole("b"), "{number}");
        }
        wait_until_free(stage, &kept)?;
    }
    stage.note(format!("{partly} of {times} were in the middle of it"));
    cell.run()?.ended(Outcome::Ok)?;
    assert_eq!(names(&kept)?.len(), FILES);
    Ok(())
}

/// A killed run's cell may hold the lock for a moment longer.
fn wait_until_free(stage: &Stage, kept: &Path) -> Check {
    stage.wait_until("the workspace is free", || {
        let dir = fs::File::open(kept)?;
        let lock = nix::fcntl::FlockArg::LockExclusiveNonblock;
        Ok(nix::fcntl::Flock::lock(dir, lock).is_ok())
    })
}
