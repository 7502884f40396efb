//! Files that a program leaves for its caller, who opens, copies and names them
//! outside: links, pipes, devices, deep trees, names that climb.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;
use crate::cells::scratch::{Scratch, names};

pub(crate) const SUITE: Suite = Suite {
    name: "output-files",
    covers: &[33, 34],
    attacks: &[],
    scenes: &[
        python_scene("no-regular-files", no_regular_files),
        python_scene("hard-links", hard_links),
        python_scene("deep-and-many", deep_and_many),
        python_scene("sparse-and-growing", sparse_and_growing),
        python_scene("links-in-the-destination", links_in_the_destination),
        python_scene("destination-swapped", destination_swapped),
        python_scene("executable-and-setuid", executable_and_setuid),
        scene("inputs-that-climb", inputs_that_climb),
        scene("inputs-through-links", inputs_through_links),
    ],
    actors: &[],
};

/// Somewhere for files to go, and a secret beside it.
struct Place {
    _scratch: Scratch,
    out: PathBuf,
    secret: PathBuf,
}

const SECRET: &str = "a secret of the host";

impl Place {
    fn new(stage: &Stage) -> Check<Self> {
        let scratch = stage.scratch()?;
        Ok(Self {
            out: scratch.dir("out", 0o777)?,
            secret: scratch.file("secret", SECRET)?,
            _scratch: scratch,
        })
    }

    fn run(&self, stage: &Stage, code: &str) -> Check<Run> {
        self.cell(stage, code).run()
    }

    fn cell<'s>(&self, stage: &'s Stage, code: &str) -> Cell<'s> {
        let out = self.out.to_string_lossy();
        stage.python(code).option(["--out", &out])
    }

    /// Everything copied is a plain file or a directory, and none holds what
    /// the program could not read.
    fn holds_files_only(&self) -> Check {
        let mut todo = vec![self.out.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                assert!(
                    kind.is_file() || kind.is_dir(),
                    "{:?}: {kind:?}",
                    entry.path()
                );
                if kind.is_dir() {
                    todo.push(entry.path());
                } else {
                    let content = fs::read(entry.path())?;
                    assert!(
                        !content
                            .windows(SECRET.len())
                            .any(|part| part == SECRET.as_bytes())
                    );
                }
            }
        }
        assert_eq!(fs::read_to_string(&self.secret)?, SECRET);
        Ok(())
    }
}

fn skipped(run: &Run) -> Vec<String> {
    let mut names: Vec<String> = run
        .record
        .files_skipped
        .iter()
        .map(|file| file.path.to_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn no_regular_files(stage: &Stage) -> Check {
    let place = Place::new(stage)?;
    let secret = place.secret.display();
    let run = place.run(
        stage,
        &format!(
            r#"
import os, socket
os.symlink({:?}, "link")
os.symlink("/etc/passwd", "passwd")
os.symlink("../../secret", "climbing")
os.symlink(".", "loop")
os.symlink("/proc/self/environ", "environ")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open("plain", "w").write("plain")
"#,
            secret.to_string()
        ),
    )?;
    let run = run.ended(Outcome::Ok)?;
    assert_eq!(names(&place.out)?, ["plain"]);
    assert_eq!(run.record.files.len(), 1, "{}", run.json);
    assert_eq!(
        skipped(&run),
        [
            "climbing", "environ", "link", "loop", "passwd", "pipe", "socket"
        ]
    );
    place.holds_files_only()
}

fn hard_links(stage: &Stage) -> Check {
    let place = Place::new(stage)?;
    let input = place.secret.with_file_name("input");
    fs::write(&input, "input")?;
    let run = stage
        .python("import os\nos.link('input', 'alias')\nopen('alias', 'w').write('changed')\n")
        .option(["--file", &input.to_string_lossy()])
        .option(["--out", &place.out.to_string_lossy()])
        .run()?;
    // The workspace got a copy, so the caller's own file is unchanged.
    assert_eq!(fs::read_to_string(&input)?, "input");
    assert!(run.record.outcome == Outcome::Ok, "{}", run.json);
    place.holds_files_only()
}

fn deep_and_many(stage: &Stage) -> Check {
    let place = Place::new(stage)?;
    let run = place.run(
        stage,
        r#"
import os
for number in range(3000):
    open(f"many-{number}", "w").close()
for _ in range(2000):
    os.mkdir("d")
    os.chdir("d")
open("deep", "w").write("x")
"#,
    )?;
    assert!(run.json.to_string().len() < 16 << 20);
    let cut = run.record.truncated.contains_key("files") || !run.record.files_skipped.is_empty();
    assert!(
        cut,
        "nothing told of what is missing: {}",
        run.record.files.len()
    );
    place.holds_files_only()
}

fn sparse_and_growing(stage: &Stage) -> Check {
    const BOUND: u64 = 16 << 20;
    let place = Place::new(stage)?;
    let code = r#"
import os
with open("sparse", "wb") as file:
    try:
        os.truncate(file.fileno(), 1 << 40)
    except OSError:
        os.truncate(file.fileno(), 200 << 20)
if os.fork() == 0:
    os.setsid()
    with open("growing", "ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
"#;
    let run = stage
        .python(code)
        .limit("workspace-size", "16M")
        .option(["--out", &place.out.to_string_lossy()])
        .run()?;
    // The workspace's size is the limit, and holes count in full.
    let told: u64 = run.record.files.iter().filter_map(|file| file.size).sum();
    let mut copied = 0;
    for name in names(&place.out)? {
        copied += fs::metadata(place.out.join(name))?.len();
    }
    assert!(
        told <= BOUND && copied <= BOUND,
        "{told} and {copied} bytes: {}",
        run.json
    );
    place.holds_files_only()
}

/// The destination belongs to the caller and may hold anything: no link in it is
/// followed.
fn links_in_the_destination(stage: &Stage) -> Check {
    let place = Place::new(stage)?;
    let elsewhere = place.secret.with_file_name("elsewhere");
    fs::create_dir(&elsewhere)?;
    symlink(&place.secret, place.out.join("file"))?;
    symlink(&elsewhere, place.out.join("dir"))?;
    let run = place.run(
        stage,
        r#"
import os
open("file", "w").write("overwritten")
os.mkdir("dir")
open("dir/file", "w").write("overwritten")
"#,
    )?;
    assert_eq!(fs::read_to_string(&place.secret)?, SECRET, "{}", run.json);
    assert_eq!(names(&elsewhere)?, Vec::<String>::new());
    Ok(())
}

/// The destination was opened at the start; another that takes its name later
/// gets nothing.
fn destination_swapped(stage: &Stage) -> Check {
    let place = Place::new(stage)?;
    let victim = place.secret.with_file_name("victim");
    let moved = place.secret.with_file_name("moved");
    fs::create_dir(&victim)?;
    let sync = stage.scratch()?;
    let shared = sync.dir("shared", 0o777)?;
    let code = r#"
import os, time
open("/sync/begun", "w").close()
while not os.path.exists("/sync/swapped"):
    time.sleep(0.01)
open("file", "w").write("x")
"#;
    let mut watch = (place.cell(stage, code).rw(&shared, Path::new("/sync"))).spawn()?;
    watch.until_exists(&shared.join("begun"), stage.patience())?;
    fs::rename(&place.out, &moved)?;
    symlink(&victim, &place.out)?;
    fs::write(shared.join("swapped"), "")?;
    let run = Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Ok)?;
    assert_eq!(names(&victim)?, Vec::<String>::new(), "{}", run.json);
    assert_eq!(names(&moved)?, ["file"]);
    Ok(())
}

/// Mode bits that have an effect outside are not copied.
fn executable_and_setuid(stage: &Stage) -> Check {
    let place = Place::new(stage)?;
    let code = "import os\nopen('program', 'w').write('#!/bin/sh')\nos.chmod('program', 0o6777)\n";
    // The filter stops set-user-ID bits before this point.
    let run = place.cell(stage, code).without("seccomp").run()?;
    let mode = fs::metadata(place.out.join("program"))?
        .permissions()
        .mode();
    assert_eq!(mode & 0o7022, 0, "{mode:o}: {}", run.json);
    Ok(())
}

fn inputs_that_climb(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let input = scratch.file("input", "x")?;
    for target in [
        "../x",
        "a/../../x",
        "/proc/x",
        "/etc/../x",
        ".",
        "a/..",
        "\n/../x",
    ] {
        let run = stage
            .exec(["/bin/true"])
            .option(["--file", &format!("{}:{target}", input.display())])
            .finish()?;
        assert!(
            [2, 125].contains(&run.code()),
            "{target}: {}",
            run.complaint()
        );
    }
    Ok(())
}

/// The caller names the input and may use links; the target inside must not pass
/// through any.
fn inputs_through_links(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let input = scratch.file("input", "first")?;
    let run = stage
        .probe("host-view/cat", ["/workspace/a/b/input"])
        .option(["--file", &format!("{}:a/b/input", input.display())])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "first");
    let missing = scratch.join("missing");
    let run = stage
        .exec(["/bin/true"])
        .option(["--file", &missing.to_string_lossy()])
        .run()?
        .ended(Outcome::Setup)?;
    let told = run
        .record
        .setup_error
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(told.contains(&*missing.to_string_lossy()), "{told}");
    Ok(())
}
