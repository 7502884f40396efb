//! Binds at, above and below the directories that a program writes to: they belong to
//! the host.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use record::Outcome;

use super::files::{changes, refused, text};
use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::scratch::{chmod, names};

pub(crate) const SUITE: Suite = Suite {
    name: "binds",
    covers: &[42],
    attacks: &[],
    scenes: &[
        python_scene("workspace", workspace),
        python_scene("tmp", tmp),
        python_scene("read-only-workspace", read_only_workspace),
        python_scene("beneath-the-workspace", beneath_the_workspace),
        python_scene("nothing-goes-in", nothing_goes_in),
        python_scene("closed-workspace", closed_workspace),
        scene("of-root", of_root).needs(&[Need::Root]),
        scene(
            "of-root-that-cannot-be-mapped",
            of_root_that_cannot_be_mapped,
        )
        .needs(&[Need::Root]),
    ],
    actors: &[],
};

/// A name, its mode and content.
type Thing = (String, u32, Option<Vec<u8>>);

/// The entries of `dir`.
fn state(dir: &Path) -> Check<Vec<Thing>> {
    let mut all = Vec::new();
    for name in names(dir)? {
        let path = dir.join(&name);
        let mode = fs::symlink_metadata(&path)?.mode();
        all.push((name, mode, fs::read(path).ok()));
    }
    Ok(all)
}

/// The limits of `place`, none of which is enforced.
fn assert_unlimited(run: &Run, place: &str) {
    for name in [format!("{place}_size"), format!("{place}_inodes")] {
        let limit = &run.record.limits[&name];
        assert_eq!(
            (limit.enforced, limit.by.as_str(), limit.hit),
            (None, "bind", None),
            "{name}"
        );
        assert!(limit.requested > 0.0, "{name}");
    }
}

fn host_files(stage: &Stage) -> Check<(crate::cells::scratch::Scratch, std::path::PathBuf)> {
    let scratch = stage.scratch()?;
    let dir = scratch.dir("dir", 0o777)?;
    fs::write(dir.join("old"), "old")?;
    chmod(&dir.join("old"), 0o200)?;
    fs::create_dir(dir.join("closed"))?;
    chmod(&dir.join("closed"), 0o000)?;
    Ok((scratch, dir))
}

fn workspace(stage: &Stage) -> Check {
    let (_scratch, dir) = host_files(stage)?;
    // Live: the host's disk is used far beyond this limit.
    let fs = nix::sys::statvfs::statvfs(&dir)?;
    let used = (fs.blocks() - fs.blocks_free()) * fs.fragment_size();
    if used < 64 << 20 {
        stage.note("this file system is nearly empty: metering it would go unnoticed");
    }
    let before = state(&dir)?;
    let run = stage
        .python("import time; time.sleep(0.3); open('new', 'w').write('x')")
        .rw(&dir, Path::new("/workspace"))
        .limit("memory", "64M")
        .option(["--cgroup", "none", "--inline-files"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(changes(&run), []);
    assert_eq!(run.record.files_skipped, []);
    assert_unlimited(&run, "workspace");
    assert!(run.record.limits["tmp_size"].enforced.is_some());
    let told = |w: &&String| w.contains("/workspace is a bind") && w.contains(&text(&dir));
    assert_eq!(
        run.record.warnings.iter().filter(told).count(),
        1,
        "{:?}",
        run.record.warnings
    );
    let mut after = state(&dir)?;
    after.retain(|(name, ..)| name != "new");
    assert_eq!(after, before);
    assert_eq!(fs::read_to_string(dir.join("new"))?, "x");
    Ok(())
}

fn tmp(stage: &Stage) -> Check {
    let (_scratch, dir) = host_files(stage)?;
    let before = state(&dir)?;
    let run = stage
        .python("import time; time.sleep(0.3); open('new', 'w').write('x')")
        .rw(&dir, Path::new("/tmp"))
        .limit("memory", "64M")
        .option(["--cgroup", "none"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(changes(&run), [("new".to_owned(), record::Change::Created)]);
    assert_unlimited(&run, "tmp");
    assert!(run.record.limits["workspace_size"].enforced.is_some());
    assert_eq!(state(&dir)?, before);
    Ok(())
}

fn read_only_workspace(stage: &Stage) -> Check {
    let (_scratch, dir) = host_files(stage)?;
    let before = state(&dir)?;
    let run = stage
        .python("import os\ntry: open('new', 'w')\nexcept OSError as e: print(e.errno)")
        .ro(&dir, Path::new("/workspace"))
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "30\n");
    assert!(!run.record.warnings.iter().any(|w| w.contains("is a bind")));
    assert_unlimited(&run, "workspace");
    assert_eq!(state(&dir)?, before);
    Ok(())
}

fn beneath_the_workspace(stage: &Stage) -> Check {
    let (scratch, dir) = host_files(stage)?;
    let file = scratch.file("file", "host's")?;
    let kept = scratch.dir("kept", 0o777)?;
    // The existing entries at the binds' targets do not come out.
    fs::create_dir_all(kept.join("data/deep"))?;
    fs::write(kept.join("data/x"), "kept's")?;
    symlink("nowhere", kept.join("links"))?;
    fs::write(kept.join("own"), "1")?;
    let out = scratch.join("out");
    let before = state(&dir)?;
    let run = stage
        .python("import os\nos.chmod('own', 0o600)\nopen('own', 'w').write('2')\nopen('data/new', 'w').write('x')\nprint(sorted(os.listdir('data')), open('links/a/file').read())")
        .rw(&dir, Path::new("/workspace/data"))
        .ro(&file, Path::new("/workspace/links/a/file"))
        .option(["--workspace", &text(&kept), "--out", &text(&out), "--inline-files"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "['closed', 'new', 'old'] host's\n");
    assert_eq!(
        changes(&run),
        [("own".to_owned(), record::Change::Modified)]
    );
    assert_eq!(run.record.files_skipped, []);
    let left_out =
        |w: &&String| w.starts_with("--workspace: ") && w.ends_with("it is covered by a bind");
    assert_eq!(
        run.record.warnings.iter().filter(left_out).count(),
        4,
        "{:?}",
        run.record.warnings
    );
    assert_eq!(names(&out)?, ["own"]);
    assert_eq!(fs::read_to_string(kept.join("own"))?, "2");
    assert_eq!(fs::read_to_string(kept.join("data/x"))?, "kept's");
    assert_eq!(names(&kept.join("data"))?, ["deep", "x"]);
    let mut after = state(&dir)?;
    after.retain(|(name, ..)| name != "new");
    assert_eq!(after, before);
    assert!(run.record.limits["workspace_size"].enforced.is_some());
    Ok(())
}

/// Copying into or out of a host directory is refused.
fn nothing_goes_in(stage: &Stage) -> Check {
    let (scratch, dir) = host_files(stage)?;
    let file = text(&scratch.file("file", "x")?);
    let other = text(&scratch.dir("other", 0o777)?);
    let beneath = format!("{file}:data/file");
    for (target, option, wanted) in [
        (
            "/workspace",
            ["--file", &file],
            "nothing is copied into the host's directories",
        ),
        (
            "/workspace",
            ["--files-from", &other],
            "nothing is copied into the host's directories",
        ),
        ("/workspace", ["--out", &other], "are not copied out"),
        (
            "/workspace",
            ["--workspace", &other],
            "keeps its content anyway",
        ),
        ("/tmp", ["--keep-tmp", &other], "keeps its content anyway"),
        ("/workspace/data", ["--file", &beneath], "lies in a bind"),
    ] {
        let run = stage
            .exec(["/bin/true"])
            .rw(&dir, Path::new(target))
            .option(option)
            .run()?;
        let (error, hint) = refused(run)?;
        assert!(error.contains(wanted), "{error}");
        assert!(!hint.is_empty());
    }
    assert_eq!(names(&dir)?, ["closed", "old"]);
    Ok(())
}

/// Closing its own workspace neither hides anything from the caller nor breaks the run.
fn closed_workspace(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let out = scratch.join("out");
    let run = stage
        .python(
            "import os\nopen('f', 'w').write('x')\nos.chmod('/workspace', 0)\nos.chmod('/tmp', 0)",
        )
        .option(["--out", &text(&out)])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(changes(&run).len(), 1);
    assert_eq!(names(&out)?, ["f"]);
    Ok(())
}

/// Root's files belong to the program inside, and the program's new files belong to
/// root outside; files of other users stay theirs.
fn of_root(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let dir = scratch.dir("dir", 0o755)?;
    let theirs = scratch.join("dir/theirs");
    for name in ["own", "theirs", "secret"] {
        fs::write(dir.join(name), name)?;
    }
    chown(&theirs, Some(777), Some(777))?;
    chmod(&theirs, 0o666)?;
    chown(dir.join("secret"), Some(777), Some(777))?;
    chmod(&dir.join("secret"), 0o600)?;
    let code = "
import os
print(os.getuid(), os.stat('/data').st_uid, os.stat('/data/own').st_uid, os.stat('/data/theirs').st_uid)
open('/data/own', 'a').write('+'); open('/data/new', 'w').write('x'); os.makedirs('/data/a/b')
for what in (lambda: open('/data/theirs', 'a'), lambda: open('/data/secret'), lambda: os.chown('/data/new', 777, 777), lambda: os.chmod('/data/new', 0o4755),
    lambda: os.open('/data/suid', os.O_CREAT | os.O_WRONLY, 0o4755)):
    try: what(); print('no')
    except OSError as e: print('refused')
";
    let run = stage
        .python(code)
        .rw(&dir, Path::new("/data"))
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(
        run.stdout(),
        "1000 1000 1000 65534\nrefused\nrefused\nrefused\nrefused\nrefused\n"
    );
    for name in ["own", "new", "a", "a/b"] {
        let metadata = fs::metadata(dir.join(name))?;
        assert_eq!((metadata.uid(), metadata.gid()), (0, 0), "{name}");
    }
    assert_eq!(fs::read_to_string(dir.join("own"))?, "own+");
    assert_eq!(fs::metadata(&theirs)?.uid(), 777);
    // The program's outer uid is not root.
    let run = stage
        .exec(["/bin/sleep", "30"])
        .rw(&dir, Path::new("/data"))
        .limit("wall", &stage.duration(300))
        .run()?
        .ended(Outcome::Timeout)?;
    let isolation = run.json["isolation"].to_string();
    assert!(!isolation.contains("\"outer_uid\":0"), "{isolation}");
    Ok(())
}

fn of_root_that_cannot_be_mapped(stage: &Stage) -> Check {
    // sysfs has no idmapped mounts.
    let run = stage
        .exec(["/bin/true"])
        .rw(Path::new("/sys/kernel"), Path::new("/data"))
        .run()?;
    let (error, hint) = refused(run)?;
    assert!(
        error.starts_with("mount: mount_setattr(\"/sys/kernel\"): EINVAL"),
        "{error}"
    );
    assert!(
        hint.contains("--outer-uid") && hint.contains("--ro"),
        "{hint}"
    );
    // Without a filter, the program could make set-user-ID files of root.
    let scratch = stage.scratch()?;
    let dir = scratch.dir("dir", 0o755)?;
    let cell = || {
        stage
            .exec(["/bin/touch", "/data/x"])
            .rw(&dir, Path::new("/data"))
    };
    let (error, _) = refused(cell().without("seccomp").run()?)?;
    assert!(error.contains("set-user-ID"), "{error}");
    // The caller's policy may allow what the built-in ones deny.
    let policy = scratch.file(
        "own.json",
        r#"{"name": "own", "description": "a test", "extends": "default", "rules": [
            {"action": "allow", "reason": "a test", "calls": ["chmod"]}]}"#,
    )?;
    let own = policy.to_string_lossy();
    let (error, _) = refused(cell().option(["--seccomp", &own]).run()?)?;
    assert!(error.contains("set-user-ID"), "{error}");
    // The ways out that the hint names.
    chown(&dir, Some(777), Some(777))?;
    cell()
        .option(["--outer-uid", "777"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(fs::metadata(dir.join("x"))?.uid(), 777);
    assert_eq!(fs::metadata(&dir)?.permissions().mode() & 0o777, 0o755);
    Ok(())
}
