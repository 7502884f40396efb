//! What a caller puts into a cell's file system besides binds: tmpfs, directories,
//! links, files, and binds of what may not exist.

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;

use super::files::{refused, text};
use super::refusals::with_descriptor;
use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::names;

pub(crate) const SUITE: Suite = Suite {
    name: "places",
    covers: &[],
    attacks: &[],
    scenes: &[
        scene("are-there", are_there),
        scene("workspace-at-other-paths", workspace_at_other_paths),
        scene("below-come-later", below_come_later),
        scene("are-not-the-hosts", are_not_the_hosts),
        python_scene("tmpfs-is-bounded", tmpfs_is_bounded),
        python_scene("tmpfs-counts-as-memory", tmpfs_counts_as_memory),
        scene("links-of-a-rootfs-are-not-followed", links_are_not_followed),
        scene("optional-binds", optional_binds),
        scene("files-from-descriptors", files_from_descriptors),
        scene("other-descriptors-are-refused", other_descriptors),
        scene("kept-directories-are-left-alone", kept_directories),
        scene("environment", environment),
    ],
    actors: &[],
};

/// Path, kind and whether it is writable, as the record has it.
fn places(run: &Run) -> Vec<(String, String, bool)> {
    let isolation = run.record.isolation.as_ref();
    let all = isolation.map(|isolation| isolation.places.clone());
    let all = all.unwrap_or_default().into_iter();
    all.map(|place| (place.path, place.kind, place.writable))
        .collect()
}

fn owned(places: &[(&str, &str, bool)]) -> Vec<(String, String, bool)> {
    let all = places.iter();
    all.map(|(path, kind, writable)| ((*path).to_owned(), (*kind).to_owned(), *writable))
        .collect()
}

const LOOK: &str = "
for path in /cache /data/deep /tmp/own /link /etc/own /etc/passwd; do
    if [ -L $path ]; then echo $path says $(readlink $path)
    elif [ -d $path ]; then if touch $path/x 2>/dev/null; then echo $path is writable; else echo $path is read-only; fi
    elif [ -e $path ]; then echo $path holds $(head -c 5 $path); (echo x > $path) 2>/dev/null && echo and is writable
    else echo $path is missing; fi
done; true
";

fn are_there(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let file = text(&scratch.file("file", "mine\n")?);
    // Without the options there is nothing of it.
    let run = stage.exec(["/bin/sh", "-c", LOOK]).run()?;
    let run = run.ended(Outcome::Ok)?;
    for path in ["/cache", "/data/deep", "/tmp/own", "/link", "/etc/own"] {
        assert!(run.stdout().contains(&format!("{path} is missing\n")));
    }
    assert_eq!(places(&run), []);

    let run = stage
        .exec(["/bin/sh", "-c", LOOK])
        .option(["--tmpfs", "/cache:1M"])
        .option(["--dir", "/data/deep"])
        .option(["--dir", "/tmp/own"])
        .option(["--symlink", "cache/nowhere:/link"])
        .option(["--file", &format!("{file}:/etc/own")])
        .option(["--file", &format!("{file}:/etc/passwd")])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(
        run.stdout(),
        "/cache is writable\n/data/deep is read-only\n/tmp/own is writable\n\
         /link says cache/nowhere\n/etc/own holds mine\n/etc/passwd holds mine\n"
    );
    assert_eq!(
        places(&run),
        owned(&[
            ("/cache", "tmpfs", true),
            ("/data/deep", "directory", false),
            ("/etc/own", "file", false),
            ("/etc/passwd", "file", false),
            ("/link", "symlink", false),
            ("/tmp/own", "directory", true),
        ])
    );
    assert_eq!(run.json["isolation"]["places"][0]["size"], 1 << 20);
    Ok(())
}

/// The workspace at the paths that other platforms have: by a link, or by a bind where the
/// rootfs has a directory.
fn workspace_at_other_paths(stage: &Stage) -> Check {
    let script = "cd $1 && echo a > made && mkdir sub && mv made sub/ && cat /workspace/sub/made && \
                  touch /workspace/other && ls";
    for path in ["/mnt/data", "/home/user", "/root", "/content", "/usr/share"] {
        let run = stage
            .exec(["/bin/sh", "-c", script, "sh", path])
            .option(["--workspace-at", path])
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "a\nother\nsub\n", "{path}");
        assert_eq!(places(&run), owned(&[(path, "workspace", true)]));
        let files: Vec<_> = (run.record.files.iter())
            .map(|file| file.path.to_string())
            .collect();
        assert_eq!(files, ["other", "sub/made"], "{path}");
    }
    // Where the program works there, its directory has that name.
    let script = "pwd -P && cd /workspace && pwd -P && echo b > c && ls /home/user";
    let run = stage
        .exec(["/bin/sh", "-c", script])
        .option(["--workspace-at", "/home/user", "--cwd", "/home/user"])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "/home/user\n/workspace\nc\n");
    // A spec has it, too, and a place that is taken or cannot be is refused.
    for (path, words) in [
        ("/workspace", "another place than /workspace itself"),
        ("/workspace/x", "another place than /workspace itself"),
        ("/", "wants a place below it"),
        ("/proc/x", "/proc is the cell's own"),
    ] {
        let run = stage
            .exec(["true"])
            .option(["--workspace-at", path])
            .run()?;
        let (error, _) = refused(run)?;
        assert!(error.contains(words), "{path}: {error}");
    }
    Ok(())
}

/// Whatever the order of the options, nothing hides what lies beneath it.
fn below_come_later(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let upper = scratch.dir("upper", 0o777)?;
    fs::create_dir(upper.join("sub"))?;
    let lower = scratch.dir("lower", 0o777)?;
    fs::write(lower.join("seen"), "")?;
    let (upper, lower) = (text(&upper), text(&lower));
    for options in [
        [
            "--ro",
            &format!("{lower}:/data/sub"),
            "--rw",
            &format!("{upper}:/data"),
        ],
        [
            "--rw",
            &format!("{lower}:/data/sub"),
            "--ro",
            &format!("{upper}:/data"),
        ],
        ["--ro", &format!("{lower}:/data/sub"), "--dir", "/data"],
        ["--rw", &format!("{lower}:/data/sub"), "--tmpfs", "/data"],
    ] {
        let run = stage.exec(["/bin/ls", "/data/sub"]).option(options).run()?;
        assert_eq!(run.ended(Outcome::Ok)?.stdout(), "seen\n", "{options:?}");
    }
    Ok(())
}

/// Nothing is made in a bind of the host's, however writable.
fn are_not_the_hosts(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let dir = scratch.dir("dir", 0o777)?;
    let file = text(&scratch.file("file", "x")?);
    let file = format!("{file}:/data/new");
    for option in [
        ["--tmpfs", "/data/new"],
        ["--dir", "/data/new"],
        ["--symlink", "x:/data/new"],
        ["--file", &file],
    ] {
        let run = stage
            .exec(["/bin/true"])
            .rw(&dir, Path::new("/data"))
            .option(option)
            .run()?;
        let (error, hint) = refused(run)?;
        assert!(error.contains("/data/new"), "{option:?}: {error}");
        assert!(!hint.is_empty(), "{option:?}: {error}");
        assert_eq!(names(&dir)?, Vec::<String>::new(), "{option:?}");
    }
    Ok(())
}

const FILL: &str = "
import errno
try:
    with open('/big/file', 'wb', 0) as f:
        for _ in range(200): f.write(b'x' * (1 << 20))
    print('written')
except OSError as error:
    print(errno.errorcode[error.errno])
";

fn tmpfs_is_bounded(stage: &Stage) -> Check {
    for (size, said) in [("8M", "ENOSPC\n"), ("400M", "written\n")] {
        let run = stage
            .python(FILL)
            .option(["--tmpfs", &format!("/big:{size}")])
            .limit("memory", "400M")
            .run()?
            .ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), said, "{size}");
    }
    Ok(())
}

/// Also where no cgroup counts it.
fn tmpfs_counts_as_memory(stage: &Stage) -> Check {
    let code = format!("{FILL}\nimport time; time.sleep(60)");
    let cell = stage
        .python(&code)
        .option(["--tmpfs", "/big:400M", "--cgroup", "none"]);
    let unlimited = cell.clone().limit("memory", "none");
    unlimited.run_to_limit(2_000, |run| run.stdout() == "written\n")?;
    cell.limit("memory", "64M").run()?.ended(Outcome::Memory)?;
    Ok(())
}

/// A rootfs with a link that leads out of it at, or on the way to, what the caller names.
fn links_are_not_followed(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let root = scratch.dir("rootfs", 0o755)?;
    let outside = scratch.dir("outside", 0o777)?;
    for dir in ["etc", "usr"] {
        scratch.dir(&format!("rootfs/{dir}"), 0o755)?;
    }
    for link in ["trap", "usr/trap"] {
        symlink(&outside, root.join(link))?;
        // Followed by its path, it leads outside.
        fs::write(root.join(link).join("canary"), "")?;
        assert_eq!(names(&outside)?, ["canary"], "not live: {link}");
        fs::remove_file(outside.join("canary"))?;
    }
    let file = text(&scratch.file("file", "x")?);
    for target in ["/trap/new", "/usr/trap", "/usr/trap/new"] {
        for option in [
            ["--tmpfs", target],
            ["--dir", target],
            ["--symlink", &format!("x:{target}")],
            ["--file", &format!("{file}:{target}")],
        ] {
            let run = stage
                .exec(["/bin/true"])
                .option(["--rootfs", &text(&root)])
                .option(option)
                .run()?;
            let (error, _) = refused(run)?;
            assert!(error.contains(target), "{option:?}: {error}");
            assert_eq!(names(&outside)?, Vec::<String>::new(), "{option:?}");
        }
    }
    Ok(())
}

fn optional_binds(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let there = text(&scratch.file("there", "x")?);
    symlink("nowhere", scratch.join("dangling"))?;
    let dangling = text(&scratch.join("dangling"));
    let run = stage
        .exec(["/bin/sh", "-c", "ls -d /a /b /c 2>/dev/null"])
        .option(["--ro-try", &format!("{there}:/a")])
        .option(["--ro-try", &format!("{there}/below:/b")])
        .option(["--rw-try", &format!("{dangling}:/c")])
        .run()?;
    assert_eq!(run.stdout(), "/a\n");
    assert_eq!(
        places(&run),
        owned(&[
            ("/a", "bind", false),
            ("/b", "absent", false),
            ("/c", "absent", false),
        ])
    );
    Ok(())
}

fn files_from_descriptors(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let mut command = stage
        .exec(["/bin/cat", "/etc/given", "/workspace/given"])
        .option(["--file", "fd:7:/etc/given", "--file", "fd:9:given"])
        .command();
    let files = [
        File::open(scratch.file("one", "one ")?)?,
        File::open(scratch.file("two", "two")?)?,
    ];
    with_descriptor(&mut command, &files[0], 7);
    with_descriptor(&mut command, &files[1], 9);
    let process = process::finish(&mut command, stage.patience())?;
    let run = Run::of(process)?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "one two");
    Ok(())
}

fn other_descriptors(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let file = scratch.file("file", "x")?;
    let large = scratch.file("large", vec![b'x'; (16 << 20) + 1])?;
    let by_path = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(&file)?;
    let for_writing = File::options().write(true).open(&file)?;
    for (file, wanted) in [
        (by_path, "EACCES"),
        (for_writing, "EACCES"),
        (File::open(scratch.path())?, "EISDIR"),
        (File::open(large)?, "larger than 16M"),
    ] {
        let mut command = stage
            .exec(["/bin/true"])
            .option(["--file", "fd:7:/etc/given"])
            .command();
        with_descriptor(&mut command, &file, 7);
        let run = Run::of(process::finish(&mut command, stage.patience())?)?;
        let (error, _) = refused(run)?;
        assert!(error.contains(wanted) && error.contains("fd:7"), "{error}");
    }
    let run = stage
        .exec(["/bin/true"])
        .option(["--file", "fd:99:/etc/given"])
        .run()?;
    let (error, _) = refused(run)?;
    assert!(error.contains("EBADF"), "{error}");
    Ok(())
}

fn kept_directories(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = text(&scratch.dir("kept", 0o700)?);
    for option in [["--dir", "/tmp/x"], ["--symlink", "/etc:/tmp/x"]] {
        let run = stage
            .exec(["/bin/true"])
            .option(["--keep-tmp", &kept])
            .option(option)
            .run()?;
        let (error, _) = refused(run)?;
        assert!(error.contains("is kept"), "{error}");
    }
    Ok(())
}

fn environment(stage: &Stage) -> Check {
    let list = |options: &[&str]| -> Check<Vec<String>> {
        let mut cell = stage.exec(["/usr/bin/env"]);
        for word in options {
            cell = cell.option([word]);
        }
        let run = cell.run()?.ended(Outcome::Ok)?;
        let names = run
            .stdout()
            .lines()
            .filter_map(|line| line.split('=').next());
        Ok(names.map(str::to_owned).collect())
    };
    let usual = list(&[])?;
    for name in ["HOME", "LANG", "OMP_NUM_THREADS", "PATH"] {
        assert!(usual.iter().any(|usual| usual == name), "{usual:?}");
    }
    assert_eq!(list(&["--env-clear"])?, Vec::<String>::new());
    assert_eq!(list(&["--env-clear", "--env", "A=1"])?, ["A"]);
    let left = list(&["--env-unset", "LANG", "--env-unset", "OMP_NUM_THREADS"])?;
    let wanted = usual
        .iter()
        .filter(|name| !matches!(name.as_str(), "LANG" | "OMP_NUM_THREADS"));
    assert_eq!(left, wanted.cloned().collect::<Vec<_>>());
    let set = list(&["--env-unset", "LANG", "--env", "LANG=x"])?;
    assert_eq!(set, usual);
    Ok(())
}
