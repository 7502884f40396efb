//! The shim's compiled form, which is kept in the caller's cache.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;
use crate::cells::process;
use crate::cells::scratch::{Scratch, chmod, names};
use crate::cells::start::Start;

pub(crate) const SUITE: Suite = Suite {
    name: "compiled",
    covers: &[],
    attacks: &[],
    scenes: &[
        python_scene("made-once-and-used", made_once_and_used),
        python_scene("no-other-behaviour", no_other_behaviour),
        python_scene("hostile-and-damaged", hostile_and_damaged),
        python_scene("of-another-user", of_another_user).needs(&[Need::Root]),
        python_scene("of-another-python", of_another_python),
        python_scene("two-at-once", two_at_once),
        python_scene("no-place-for-it", no_place_for_it),
        python_scene("full-disk", full_disk),
    ],
    actors: &[],
};

/// Says whether the cell has the compiled form.
const IS_THERE: &str =
    "import os; print(os.path.exists('/run/cellblock/cellblock_driver/compiled'))";

/// Changes the file in `argv[1]`: its code of `main` first prints a word, or its magic number is
/// another. The digest is the new content's.
const FORGE: &str = r#"
import hashlib, marshal, sys
content = open(sys.argv[1], "rb").read()[32:]
magic, rest = content[:4], content[4:]
places = marshal.loads(rest)
code = {name: marshal.loads(rest[-place:]) for name, place in places.items()}
if sys.argv[2] == "magic":
    magic = b"\0" + magic[1:]
code["main"] = compile("print('forged')\nexec(loads(%r))" % marshal.dumps(code["main"]), "main.py", "exec")
blob = b""
for name, module in code.items():
    blob = marshal.dumps(module) + blob
    places[name] = len(blob)
content = magic + marshal.dumps(places) + blob
open(sys.argv[1], "wb").write(hashlib.sha256(content).digest() + content)
"#;

/// A cell whose caller has this cache.
fn cell<'s>(stage: &'s Stage, cache: &Path, code: &str) -> Cell<'s> {
    stage
        .python(code)
        .caller_env("XDG_CACHE_HOME", &cache.to_string_lossy())
}

fn run(stage: &Stage, cache: &Path, code: &str) -> Check<Run> {
    cell(stage, cache, code).run()?.ended(Outcome::Ok)
}

/// What is kept in a cache.
fn kept(cache: &Path) -> Check<Vec<PathBuf>> {
    let directory = cache.join("cellblock/drivers");
    let all = names(&directory)?;
    Ok(all.into_iter().map(|name| directory.join(name)).collect())
}

/// A cache that has the compiled form, and its file. `None` where cells are started in a way that
/// uses none.
fn filled(stage: &Stage) -> Check<Option<(Scratch, PathBuf)>> {
    let cache = stage.scratch()?;
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "False\n");
    if stage.start() != Start::Cold {
        assert!(!cache.join("cellblock").exists());
        return Ok(None);
    }
    match &*kept(cache.path())? {
        [file] => Ok(Some((cache, file.clone()))),
        other => Err(fail(format!("one file is to be kept: {other:?}"))),
    }
}

fn forge(file: &Path, how: &str) -> Check {
    let status = Command::new("/usr/bin/python3")
        .args(["-I", "-c", FORGE])
        .arg(file)
        .arg(how)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(fail("the file could not be forged")),
    }
}

fn made_once_and_used(stage: &Stage) -> Check {
    let Some((cache, file)) = filled(stage)? else {
        return Ok(());
    };
    let made = file.metadata()?;
    for _ in 0..2 {
        assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "True\n");
    }
    assert_eq!(file.metadata()?.ino(), made.ino());
    assert_eq!((made.mode() & 0o777, made.nlink()), (0o600, 1));
    assert!(made.len() > 10_000, "it has no code");
    // It is not only there: what is in it runs. This is what the checks are for.
    forge(&file, "code")?;
    assert_eq!(
        run(stage, cache.path(), IS_THERE)?.stdout(),
        "forged\nTrue\n"
    );
    // The cell of another program gets none.
    let other = stage.exec(["/bin/ls", "/run/cellblock"]);
    let other = other.caller_env("XDG_CACHE_HOME", &cache.path().to_string_lossy());
    assert!(!other.run()?.json.to_string().contains("driver"));
    Ok(())
}

/// What code, and its caller, can see of how the driver began.
fn no_other_behaviour(stage: &Stage) -> Check {
    const CODE: &str = r#"
import builtins, os, site, sys
print(sys.path, sys.flags, sys.argv, sys.orig_argv if hasattr(sys, "orig_argv") else "")
print(sorted(sys.modules), [str(type(finder)) for finder in sys.meta_path])
print(sorted(vars(builtins)), sorted(globals()), site.ENABLE_USER_SITE, site.getsitepackages())
print(__name__, __file__, exit, quit, copyright, sys.prefix, sys.base_prefix, sys.exec_prefix)
print(os.environ, sys.stdout, sys.warnoptions, sys._xoptions, display.__doc__)
display({"a": 1})
def fails(): raise ValueError("é")
fails()
"#;
    let Some((cache, _)) = filled(stage)? else {
        return Ok(());
    };
    let shown = |cache: &Path| -> Check<String> {
        let run = cell(stage, cache, CODE).run()?.ended(Outcome::Error)?;
        let record = &run.record;
        Ok(format!(
            "{}{:?}{:?}{:?}",
            run.stdout(),
            record.stderr.as_ref().map(ToString::to_string),
            record.results,
            record.error
        ))
    };
    let empty = stage.scratch()?;
    let source = shown(empty.path())?;
    assert!(source.contains("ValueError"), "{source}");
    assert_eq!(shown(cache.path())?, source);
    Ok(())
}

fn hostile_and_damaged(stage: &Stage) -> Check {
    let Some((cache, file)) = filled(stage)? else {
        return Ok(());
    };
    forge(&file, "code")?;
    let forged = fs::read(&file)?;
    // Whoever can change it, or write a part of it, is not the caller alone.
    chmod(&file, 0o606)?;
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "False\n");
    // It was replaced.
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "True\n");
    for (what, content) in [
        ("half", forged[..forged.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("other digest", [&[0; 32], &forged[32..]].concat()),
        ("long", [&*forged, &[0; 2 << 20]].concat()),
    ] {
        fs::write(&file, content)?;
        let run = run(stage, cache.path(), IS_THERE)?;
        assert_eq!(run.stdout(), "False\n", "{what}");
    }
    // A link leads to nothing, though it is to a file of the caller's.
    let moved = cache.join("moved");
    fs::write(&moved, &forged)?;
    fs::remove_file(&file)?;
    std::os::unix::fs::symlink(&moved, &file)?;
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "False\n");
    assert_eq!(fs::read(&moved)?, forged, "it was written through a link");
    // Others could put a file into the directory.
    fs::write(&file, &forged)?;
    let directory = cache.join("cellblock/drivers");
    chmod(&directory, 0o777)?;
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "False\n");
    Ok(())
}

fn of_another_user(stage: &Stage) -> Check {
    let Some((cache, file)) = filled(stage)? else {
        return Ok(());
    };
    forge(&file, "code")?;
    chown(&file, Some(12345), None)?;
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "False\n");
    chown(cache.join("cellblock/drivers"), Some(12345), None)?;
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "False\n");
    // Nothing is made in another user's cache.
    let foreign = stage.scratch()?;
    chown(foreign.path(), Some(12345), None)?;
    assert_eq!(run(stage, foreign.path(), IS_THERE)?.stdout(), "False\n");
    assert!(names(foreign.path())?.is_empty());
    Ok(())
}

/// The interpreter's file is the same, but a library of it was replaced.
fn of_another_python(stage: &Stage) -> Check {
    let Some((cache, file)) = filled(stage)? else {
        return Ok(());
    };
    forge(&file, "magic")?;
    assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "True\n");
    let code = "import sys; 1 / 0";
    let run = cell(stage, cache.path(), code)
        .run()?
        .ended(Outcome::Error)?;
    let error = run.record.error.as_ref().map(|error| &*error.name);
    assert_eq!(error, Some("ZeroDivisionError"));
    Ok(())
}

fn two_at_once(stage: &Stage) -> Check {
    let cache = stage.scratch()?;
    let cells: Vec<_> = (0..3)
        .map(|n| cell(stage, cache.path(), &format!("print({n})")))
        .collect();
    let started = cells.iter().map(Cell::spawn).collect::<Check<Vec<_>>>()?;
    for (number, watch) in started.into_iter().enumerate() {
        let run = Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), format!("{number}\n"));
    }
    if stage.start() == Start::Cold {
        assert_eq!(kept(cache.path())?.len(), 1);
        assert_eq!(run(stage, cache.path(), IS_THERE)?.stdout(), "True\n");
    }
    Ok(())
}

fn no_place_for_it(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let read_only = scratch.dir("read-only", 0o555)?;
    let file = scratch.file("file", "")?;
    for place in [
        &*read_only,
        &*file,
        Path::new("/proc/self"),
        Path::new("/no/such/home"),
    ] {
        for _ in 0..2 {
            let run = run(stage, place, "print(1)")?;
            assert_eq!(run.stdout(), "1\n", "{}", place.display());
        }
    }
    if !stage.root() {
        assert!(names(&read_only)?.is_empty());
    }
    for (cache, home) in [("", ""), ("relative", "relative")] {
        let cell = stage.python("print(1)").caller_env("XDG_CACHE_HOME", cache);
        let run = cell.caller_env("HOME", home).run()?.ended(Outcome::Ok)?;
        assert_eq!(run.stdout(), "1\n");
    }
    Ok(())
}

fn full_disk(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let full = scratch.dir("full", 0o755)?;
    let command = cell(stage, &full, "x").command();
    let mut outside = stage.outside("record/on-a-full-disk", []);
    outside
        .arg(&full)
        .arg(command.get_program())
        .args(["run", "-c", IS_THERE])
        .env("XDG_CACHE_HOME", &full)
        .env("CELLBLOCK_STORE", scratch.join("no-store"));
    let run = Run::of(process::finish(&mut outside, stage.patience())?)?;
    assert_eq!(run.ended(Outcome::Ok)?.stdout(), "False\n");
    Ok(())
}
