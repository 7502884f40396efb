//! Writable views of host directories (`--overlay`): the host's stay as they are, and what
//! the program changed is listed.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use record::Change::{Created, Deleted, Modified};

use super::files::{changed, changes, refused, text};
use crate::cells::prelude::*;
use crate::cells::scratch::{Scratch, chmod, names};

pub(crate) const SUITE: Suite = Suite {
    name: "overlays",
    covers: &[33],
    attacks: &[],
    scenes: &[
        scene("host-stays-as-it-is", host_stays_as_it_is).needs(&[XATTRS]),
        scene("workspace", workspace).needs(&[XATTRS]),
        scene("one-name-in-out", one_name_in_out).needs(&[XATTRS]),
        scene("directories-made-anew", directories_made_anew).needs(&[XATTRS]),
        scene("hostile-content", hostile_content).needs(&[Need::Program("python3"), XATTRS]),
        scene("forged-marks", forged_marks).needs(&[Need::Program("python3"), XATTRS]),
        scene("layers-are-not-there", layers_are_not_there).needs(&[XATTRS]),
        scene("bounded", bounded).needs(&[Need::Program("python3"), XATTRS]),
        scene("links-on-the-host", links_on_the_host).needs(&[XATTRS]),
        scene("refused-overlays", refused_overlays),
        scene("files-of-another-user", files_of_another_user).needs(&[Need::Root, XATTRS]),
        scene("older-kernels", older_kernels),
    ],
    actors: &[],
};

/// For user extended attributes on tmpfs, where the changes are.
const XATTRS: Need = Need::Kernel(6, 6);

/// The error names a kernel that cannot keep the changes, and has a hint.
fn older_kernels(stage: &Stage) -> Check {
    if XATTRS.missing(stage).is_none() {
        stage.note("this kernel has what it takes");
        return Ok(());
    }
    let scratch = stage.scratch()?;
    let dir = text(&scratch.dir("dir", 0o755)?);
    let run = stage
        .exec(["/bin/true"])
        .option(["--overlay", &format!("{dir}:/data")])
        .run()?;
    let (error, hint) = refused(run)?;
    assert!(error.contains("EOPNOTSUPP"), "{error}");
    assert!(hint.contains("Linux 6.6"), "{hint}");
    assert!(hint.contains("--files-from"), "{hint}");
    Ok(())
}

/// A tree of the host's that every user may write to.
fn host_tree(scratch: &Scratch) -> Check<PathBuf> {
    let top = scratch.dir("tree", 0o777)?;
    fs::create_dir_all(top.join("sub/deep"))?;
    for (name, content) in [
        ("changed", "old"),
        ("kept", "kept"),
        ("removed", "removed"),
        ("touched", "touched"),
        ("sub/one", "one"),
        ("sub/deep/two", "two"),
    ] {
        fs::write(top.join(name), content)?;
        chmod(&top.join(name), 0o666)?;
    }
    for name in ["sub", "sub/deep"] {
        chmod(&top.join(name), 0o777)?;
    }
    Ok(top)
}

/// A path, its mode, the time of its last change, and its content.
type Thing = (PathBuf, u32, i64, Vec<u8>);

/// All of a tree.
fn state(top: &Path) -> Check<Vec<Thing>> {
    let mut all = Vec::new();
    for name in names(top)? {
        let path = top.join(name);
        let found = fs::symlink_metadata(&path)?;
        let content = fs::read(&path).unwrap_or_default();
        all.push((path.clone(), found.mode(), found.mtime_nsec(), content));
        if found.is_dir() {
            all.extend(state(&path)?);
        }
    }
    Ok(all)
}

const CHANGE: &str = "
set -e
cd /data
[ $(cat changed) = old ]
echo new > changed
rm removed
touch touched; chmod 600 touched
echo made > sub/made
mv sub/one sub/moved
rm -r sub/deep
cat changed sub/made sub/moved
";

fn host_stays_as_it_is(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = host_tree(&scratch)?;
    let before = state(&top)?;
    let out = scratch.dir("out", 0o700)?;
    let overlay = format!("{}:/data", text(&top));
    let run = stage
        .exec(["/bin/sh", "-c", CHANGE])
        .option(["--overlay", &overlay, "--out", &text(&out)])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "new\nmade\none");
    assert_eq!(state(&top)?, before);
    let all = changed(&[
        ("/data/changed", Modified),
        ("/data/removed", Deleted),
        ("/data/sub/deep/two", Deleted),
        ("/data/sub/made", Created),
        ("/data/sub/moved", Created),
        ("/data/sub/one", Deleted),
    ]);
    assert_eq!(changes(&run), all);
    assert_eq!(run.record.files_skipped, []);
    assert_eq!(fs::read_to_string(out.join("data/changed"))?, "new\n");
    assert_eq!(fs::read_to_string(out.join("data/sub/moved"))?, "one");
    assert_eq!(names(&out)?, ["data"]);
    assert_eq!(names(&out.join("data"))?, ["changed", "sub"]);
    let place = &run.json["isolation"]["places"][0];
    assert_eq!(place["kind"], "overlay");
    assert_eq!(place["path"], "/data");
    assert!(place["size"].as_u64() > Some(0), "{place}");

    // The same program does change what it may write to.
    stage
        .exec(["/bin/sh", "-c", CHANGE])
        .rw(&top, Path::new("/data"))
        .run()?
        .ended(Outcome::Ok)?;
    assert_ne!(state(&top)?, before);
    Ok(())
}

fn workspace(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = host_tree(&scratch)?;
    let before = state(&top)?;
    let overlay = format!("{}:/workspace", text(&top));
    let cell = stage
        .exec(["/bin/sh", "-c", "pwd; cat kept; echo x >> kept"])
        .option(["--overlay", &overlay]);
    let run = cell.clone().run()?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "/workspace\nkept");
    assert_eq!(changes(&run), changed(&[("kept", Modified)]));
    assert_eq!(state(&top)?, before);
    let file = text(&scratch.file("file", "x")?);
    let (error, _) = refused(cell.option(["--file", &file]).run()?)?;
    assert!(error.contains("is an overlay"), "{error}");
    Ok(())
}

/// Beneath `--out`, the workspace's files take precedence. A file that has no place there is still
/// listed, and the record reports that.
fn one_name_in_out(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = host_tree(&scratch)?;
    let overlay = format!("{}:/data", text(&top));
    for (code, own, missing) in [
        (
            "mkdir data && echo own > data/x && echo changed > /data/x",
            "data/x",
            "/data/x",
        ),
        (
            "echo own > data && echo changed > /data/x",
            "data",
            "/data/x",
        ),
        (
            "mkdir -p data/x && echo own > data/x/y && echo changed > /data/x",
            "data/x/y",
            "/data/x",
        ),
    ] {
        let out = scratch.dir(&own.replace('/', "-"), 0o700)?;
        let run = stage
            .exec(["/bin/sh", "-c", code])
            .option(["--overlay", &overlay, "--out", &text(&out)])
            .run()?
            .ended(Outcome::Ok)?;
        let all = changed(&[(missing, Created), (own, Created)]);
        assert_eq!(changes(&run), all, "{code}");
        assert_eq!(fs::read_to_string(out.join(own))?, "own\n", "{code}");
        let skipped = &run.record.files_skipped;
        assert_eq!(skipped.len(), 1, "{code}: {skipped:?}");
        assert_eq!(skipped[0].path.to_string(), missing);
        assert!(skipped[0].reason.starts_with("not copied out: "), "{code}");
    }
    Ok(())
}

/// The kernel marks them: what the host has below is hidden.
fn directories_made_anew(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = host_tree(&scratch)?;
    let code = "cd /data && rm -r sub && mkdir sub && echo x > sub/one && ls -R sub \
                && rm kept && mkdir kept && echo y > kept/inside && rm changed && ln -s x changed";
    let run = stage
        .exec(["/bin/sh", "-c", code])
        .option(["--overlay", &format!("{}:/data", text(&top))])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "sub:\none\n");
    let all = changed(&[
        ("/data/changed", Deleted),
        ("/data/kept", Deleted),
        ("/data/kept/inside", Created),
        ("/data/sub/deep/two", Deleted),
        ("/data/sub/one", Modified),
    ]);
    assert_eq!(changes(&run), all);
    let skipped = &run.record.files_skipped;
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert_eq!(skipped[0].path.to_string(), "/data/changed");
    Ok(())
}

const HOSTILE: &str = "
import os
os.chdir('/data')
os.symlink(SECRET, 'link')
os.symlink(os.path.dirname(SECRET), 'directory')
os.mkfifo('pipe')
os.link('kept', 'hard')
os.makedirs('/'.join(['d'] * 100))
open('sparse', 'w').truncate(200 << 20)
os.mkdir('closed'); open('closed/file', 'w').write('x'); os.chmod('closed', 0)
open(b'new\\nline\\xff', 'w').write('x')
open('good', 'w').write('good')
";

/// Nothing that lies in the layer is followed, and no more than regular files come out.
fn hostile_content(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let secret = scratch.file("secret", "a secret of the host")?;
    let top = host_tree(&scratch)?;
    let before = state(&top)?;
    let out = scratch.dir("out", 0o700)?;
    let code = format!("SECRET = {:?}\n{HOSTILE}", text(&secret));
    let run = stage
        .python(&code)
        .option(["--overlay", &format!("{}:/data", text(&top))])
        .option(["--out", &text(&out), "--inline-files"])
        .option(["--tmp-size", "64M"])
        .run()?
        .ended(Outcome::Ok)?;
    assert!(!run.json.to_string().contains("a secret of the host"));
    let listed = changes(&run);
    let has = |path: &str| listed.iter().any(|(name, _)| name == path);
    assert!(has("/data/good") && has("/data/closed/file"), "{listed:?}");
    let skipped = &run.record.files_skipped;
    for name in ["link", "directory", "pipe", "sparse"] {
        let path = format!("/data/{name}");
        assert!(!has(&path), "{path}");
        assert!(skipped.iter().any(|s| s.path.to_string() == path), "{path}");
        assert!(!out.join("data").join(name).exists(), "{path}");
    }
    assert_eq!(fs::read_to_string(out.join("data/good"))?, "good");
    assert_eq!(state(&top)?, before);
    Ok(())
}

const FORGE: &str = "
import errno, os, stat
os.chdir('/data')
def tried(what, *args):
    try:
        what(*args)
        print('done')
    except OSError as error:
        print(errno.errorcode[error.errno])
tried(os.setxattr, 'sub', 'user.overlay.opaque', b'y')
tried(os.setxattr, 'sub', 'user.overlay.redirect', b'/')
tried(os.mknod, 'kept', stat.S_IFCHR | 0o600, 0)
tried(os.mknod, 'whiteout', stat.S_IFCHR | 0o600, 0)
tried(os.setxattr, 'changed', 'user.mine', b'x')
print(sorted(os.listdir('sub')))
";

/// The program makes no marks of the kernel's, in the cell and for the record.
fn forged_marks(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = host_tree(&scratch)?;
    let cell = stage
        .python(FORGE)
        .option(["--overlay", &format!("{}:/data", text(&top))]);
    let run = cell.run()?.ended(Outcome::Ok)?;
    let lines: Vec<&str> = run.stdout().lines().collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for line in &lines[2..4] {
        assert_ne!(*line, "done", "{lines:?}");
    }
    assert_eq!(lines[5], "['deep', 'one']");
    assert_eq!(changes(&run), []);
    Ok(())
}

/// The program finds the layers nowhere, and no path of the host.
fn layers_are_not_there(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = host_tree(&scratch)?;
    let code = "echo new > /data/new; ls -A /run/cellblock/overlay/* ; cat /proc/self/mountinfo; \
                find / -xdev -name upper 2>/dev/null; true";
    let run = stage
        .exec(["/bin/sh", "-c", code])
        .option(["--overlay", &format!("{}:/data", text(&top))])
        .run()?
        .ended(Outcome::Ok)?;
    let shown = run.stdout();
    assert!(shown.contains(" /data "), "{shown}");
    assert!(!shown.contains(&text(&top)), "{shown}");
    assert!(
        !shown
            .lines()
            .any(|line| line == "upper" || line.ends_with("/upper"))
    );
    Ok(())
}

const FILL: &str = "
import errno
def fill(path, mode):
    try:
        with open(path, mode, 0) as f:
            for _ in range(16): f.write(b'x' * (1 << 20))
        print('written')
    except OSError as error:
        print(errno.errorcode[error.errno])
fill('/data/new', 'wb')
fill('/data/large', 'ab')
";

/// What is changed, also by copying a file of the host's up, has the size of a tmpfs.
fn bounded(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = host_tree(&scratch)?;
    fs::write(top.join("large"), vec![b'x'; 12 << 20])?;
    chmod(&top.join("large"), 0o666)?;
    for (size, said) in [("8M", "ENOSPC\nENOSPC\n"), ("64M", "written\nwritten\n")] {
        let run = stage
            .python(FILL)
            .option(["--overlay", &format!("{}:/data", text(&top))])
            .option(["--tmp-size", size])
            .limit("memory", "400M")
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), said, "{size}");
    }
    Ok(())
}

/// A link in the host's directory leads where it says inside, and not on the host.
fn links_on_the_host(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let secret = scratch.file("secret", "a secret of the host")?;
    let top = host_tree(&scratch)?;
    symlink(&secret, top.join("leads-out"))?;
    assert_eq!(
        fs::read_to_string(top.join("leads-out"))?,
        "a secret of the host"
    );
    let code = "cat /data/leads-out; echo x > /data/leads-out; rm /data/leads-out; echo x > /data/leads-out";
    let run = stage
        .exec(["/bin/sh", "-c", code])
        .option(["--overlay", &format!("{}:/data", text(&top))])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "");
    assert_eq!(changes(&run), changed(&[("/data/leads-out", Created)]));
    assert_eq!(fs::read_to_string(&secret)?, "a secret of the host");
    Ok(())
}

fn refused_overlays(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let file = text(&scratch.file("file", "x")?);
    let dir = text(&scratch.dir("dir", 0o755)?);
    for (overlay, reason) in [
        (format!("{file}:/data"), "ENOTDIR"),
        (format!("{dir}/missing:/data"), "ENOENT"),
        ("/:/data".to_owned(), "EINVAL"),
        (format!("{dir}:/dev/x"), "the cell's own"),
        (format!("{dir}:/"), "wants a place below it"),
    ] {
        let run = stage
            .exec(["/bin/true"])
            .option(["--overlay", &overlay])
            .run()?;
        let (error, _) = refused(run)?;
        assert!(error.contains(reason), "{overlay}: {error}");
    }
    let run = stage
        .exec(["/bin/true"])
        .option(["--overlay", &format!("{dir}:/data")])
        .ro(Path::new(&dir), Path::new("/data"))
        .run()?;
    let (error, _) = refused(run)?;
    assert!(error.contains("where something else goes"), "{error}");
    Ok(())
}

/// As in a writable bind of root's, the program has the files of the directory's owner.
fn files_of_another_user(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let top = scratch.dir("tree", 0o755)?;
    fs::write(top.join("file"), "old")?;
    for path in [&top, &top.join("file")] {
        std::os::unix::fs::chown(path, Some(12345), Some(12345))?;
    }
    let run = stage
        .exec(["/bin/sh", "-c", "echo new > /data/file; cat /data/file"])
        .option(["--overlay", &format!("{}:/data", text(&top))])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "new\n");
    assert_eq!(changes(&run), changed(&[("/data/file", Modified)]));
    assert_eq!(fs::read_to_string(top.join("file"))?, "old");
    assert_eq!(fs::metadata(top.join("file"))?.uid(), 12345);
    Ok(())
}
