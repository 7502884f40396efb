//! Workspaces and `/tmp` that are kept between runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use record::{Category, Change, Outcome};

use super::files::{changed, changes, refused, text, tree};
use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::scratch::names;

pub(crate) const SUITE: Suite = Suite {
    name: "kept",
    covers: &[34],
    attacks: &[],
    scenes: &[
        python_scene("what-changed", what_changed),
        python_scene("with-more-on-top", with_more_on_top),
        python_scene("however-it-ends", however_it_ends),
        python_scene("without-the-code", without_the_code),
        python_scene("within-its-quota", within_its_quota),
        python_scene("one-at-a-time", by_one_at_a_time),
        python_scene("waits-its-turn", waits_its_turn),
        python_scene("is-not-out", is_not_out),
        python_scene("modes-and-links", modes_and_links),
        python_scene("virtual-environment", virtual_environment),
        python_scene("tmp", tmp),
    ],
    actors: &[],
};

pub(super) fn with(stage: &Stage, kept: &Path, code: &str) -> Check<Run> {
    stage
        .python(code)
        .option(["--workspace", &text(kept)])
        .run()
}

fn what_changed(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.join("kept");
    // The filter stops set-user-ID bits before this point.
    let run = stage
        .python(
        "import os\nopen('stays', 'w').write('1')\nopen('goes', 'w').write('1')\nopen('changes', 'w').write('1')\n\
         os.makedirs('sub/empty')\nopen('tool', 'w').write('#!/bin/sh\\necho ran\\n')\nos.chmod('tool', 0o4755)\n\
         os.symlink('stays', 'link')\nos.mkfifo('pipe')\nos.utime('stays', (1e9, 1e9))",
        )
        .option(["--workspace", &text(&kept)])
        .without("seccomp")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.record.files.len(), 4);
    assert_eq!(fs::metadata(&kept)?.permissions().mode() & 0o7777, 0o700);
    assert_eq!(
        names(&kept)?,
        ["changes", "goes", "link", "stays", "sub", "tool"]
    );
    assert_eq!(
        fs::metadata(kept.join("tool"))?.permissions().mode() & 0o7700,
        0o700
    );

    let run = with(
        stage,
        &kept,
        "import os, subprocess\nprint(sorted(os.listdir()), os.listdir('sub'), os.stat('stays').st_mtime)\n\
         print(subprocess.run('./tool', capture_output=True, text=True).stdout)\n\
         os.remove('goes')\nopen('changes', 'w').write('2')\nopen('sub/new', 'w').write('2')\nos.rename('stays', 'moved')",
    )?
    .ended(Outcome::Ok)?;
    assert_eq!(
        run.stdout(),
        "['changes', 'goes', 'link', 'stays', 'sub', 'tool'] ['empty'] 1000000000.0\nran\n\n"
    );
    assert_eq!(
        changes(&run),
        changed(&[
            ("changes", Change::Modified),
            ("goes", Change::Deleted),
            ("moved", Change::Created),
            ("stays", Change::Deleted),
            ("sub/new", Change::Created),
        ])
    );
    assert_eq!(names(&kept)?, ["changes", "link", "moved", "sub", "tool"]);
    assert_eq!(fs::read_to_string(kept.join("changes"))?, "2");
    assert_eq!(names(&kept.join("sub"))?, ["empty", "new"]);

    let run = with(stage, &kept, "pass")?.ended(Outcome::Ok)?;
    assert_eq!(
        (run.record.files, run.record.warnings.len()),
        (Vec::new(), warnings_without(stage)?)
    );
    Ok(())
}

/// The file that the code lies in is nobody's work.
fn without_the_code(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.join("kept");
    let code = "import os\nopen('made', 'w').write(open(__file__).read())\nprint(os.listdir('.') != ['made'])";
    let run = with(stage, &kept, code)?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "True\n");
    assert_eq!(changes(&run), changed(&[("made", Change::Created)]));
    assert_eq!(names(&kept)?, ["made"]);

    // What the program makes of it is its own.
    let code = "open(__file__, 'a').write('# more')";
    let run = with(stage, &kept, code)?.ended(Outcome::Ok)?;
    assert_eq!(run.record.files.len(), 1);
    assert_eq!(run.record.files[0].change, Change::Created);
    assert_eq!(names(&kept)?.len(), 2);
    Ok(())
}

/// How many warnings every run has on this host.
fn warnings_without(stage: &Stage) -> Check<usize> {
    Ok(stage.python("pass").run()?.record.warnings.len())
}

fn with_more_on_top(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o755)?;
    let tree = tree(&scratch)?;
    fs::write(kept.join("same"), "the workspace's")?;
    fs::write(kept.join("own"), "own")?;
    let one = scratch.file("one", "one")?;
    let pair = format!("{}:goes", text(&one));
    let run = stage
        .python("import os\nprint([open(n).read() for n in ('same', 'own', 'goes')])\nos.remove('changes')")
        .option(["--workspace", &text(&kept), "--files-from", &text(&tree), "--file", &pair])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "['same', 'own', 'one']\n");
    assert_eq!(changes(&run), changed(&[("changes", Change::Deleted)]));
    // The kept workspace is what the program left.
    assert_eq!(names(&kept)?, ["goes", "link", "own", "same", "sub"]);
    assert_eq!(fs::read_to_string(kept.join("same"))?, "same");
    assert_eq!(fs::read_to_string(kept.join("goes"))?, "one");
    Ok(())
}

fn however_it_ends(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.join("kept");
    for (name, end, outcome) in [
        ("raises", "raise ValueError", Outcome::Error),
        ("exits", "import os; os._exit(3)", Outcome::Exit),
        ("sleeps", "import time; time.sleep(99)", Outcome::Timeout),
        (
            "killed",
            "import os; os.kill(os.getpid(), 9)",
            Outcome::Signal,
        ),
    ] {
        let code = format!("open('{name}', 'w').write('x')\n{end}");
        let cell = stage.python(&code).option(["--workspace", &text(&kept)]);
        let is_kept = || kept.join(name).exists();
        match outcome {
            Outcome::Timeout => cell.run_to_limit(1_500, |_| is_kept())?,
            _ => cell.run()?.ended(outcome)?,
        };
        assert!(is_kept(), "{name}");
    }
    let before = names(&kept)?;
    let file = scratch.file("file", "x")?;
    // Nothing runs: nothing is written back.
    let run = stage
        .exec(["/no/such/program"])
        .itself()
        .option(["--workspace", &text(&kept), "--file", &text(&file)])
        .run()?;
    assert_eq!(run.record.exit_code, 127);
    assert_eq!(names(&kept)?, before);
    Ok(())
}

fn within_its_quota(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.join("kept");
    let code = "
import os
try:
    with open('large', 'wb') as f:
        while True: f.write(b'x' * 65536)
except OSError as e:
    print(os.strerror(e.errno), os.stat('large').st_size)
with open('hole', 'wb') as f: pass
os.truncate('hole', 1 << 20)
os.link('large', 'alias')
";
    let limited = |code: &str| -> Check<Run> {
        stage
            .python(code)
            .option(["--workspace", &text(&kept)])
            .limit("workspace-size", "1M")
            .run()
    };
    let run = limited(code)?;
    assert_eq!(run.stdout(), "No space left on device 1048576\n");
    let size: u64 = fs::read_dir(&kept)?
        .filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()))
        .sum();
    assert_eq!(size, 1 << 20, "{:?}", names(&kept)?);
    // So the next run can begin.
    limited("import os\nfor n in os.listdir('.'): os.remove(n)")?.ended(Outcome::Ok)?;
    assert_eq!(names(&kept)?, [""; 0]);
    // A directory with the caller's own content is refused before anything starts.
    fs::write(kept.join("large"), vec![1; 2 << 20])?;
    let (error, hint) = refused(limited("print('ran')")?)?;
    assert!(
        error.contains("2097152 bytes, but /workspace has room for 1M"),
        "{error}"
    );
    assert!(hint.contains("--workspace-size"), "{hint}");
    Ok(())
}

fn by_one_at_a_time(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.join("kept");
    let option = ["--workspace", &text(&kept)];
    let signal = scratch.dir("signal", 0o777)?;
    let mut first = stage
        .python("open('/signal/here', 'w')\nimport time\ntime.sleep(600)")
        .rw(&signal, Path::new("/signal"))
        .option(option)
        .limit("wall", &stage.duration(600_000))
        .spawn()?;
    first.until_exists(&signal.join("here"), stage.patience())?;
    let error = refused(stage.exec(["/bin/true"]).option(option).run()?)?;
    assert_eq!(
        error.0,
        format!(
            "open the inputs: flock({:?}): EAGAIN (another run is using this directory)",
            kept
        )
    );
    assert!(error.1.contains("--workspace-wait"), "{}", error.1);
    let run = stage
        .exec(["/bin/true"])
        .option(option)
        .limit("workspace-wait", "100ms")
        .run()?;
    assert_eq!(
        (
            run.record.outcome,
            run.record.error_category,
            run.record.is_retryable
        ),
        (Outcome::Setup, Some(Category::Setup), true)
    );
    // What is refused for good is not.
    let run = stage
        .exec(["/bin/true"])
        .option(["--workspace", "/dev/null"])
        .run()?;
    assert!(!run.record.is_retryable, "{}", run.json);
    first.signal(Signal::SIGTERM)?;
    Run::of(first.until_end(stage.patience())?)?.ended(Outcome::Cancelled)?;
    stage
        .exec(["/bin/true"])
        .option(option)
        .run()?
        .ended(Outcome::Ok)?;
    Ok(())
}

fn is_not_out(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o777)?;
    symlink(&kept, scratch.join("other-name"))?;
    let out = text(&scratch.join("other-name"));
    let run = stage
        .exec(["/bin/true"])
        .option(["--workspace", &text(&kept), "--out", &out])
        .run()?;
    assert!(
        refused(run)?
            .0
            .contains("--out and --workspace name the same directory")
    );
    let out = scratch.join("out");
    let run = stage
        .python("open('f', 'w').write('x')")
        .option(["--workspace", &text(&kept), "--out", &text(&out)])
        .run()?;
    run.ended(Outcome::Ok)?;
    assert_eq!(
        (names(&kept)?, names(&out)?),
        (vec!["f".to_owned()], vec!["f".to_owned()])
    );
    Ok(())
}

/// Two runs at once: the second waits for the first, and both count.
fn waits_its_turn(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o777)?;
    let signal = scratch.dir("signal", 0o777)?;
    let count = "import os\nn = int(open('n').read()) if os.path.exists('n') else 0\nopen('n', 'w').write(str(n + 1))\n";
    let mut first = stage
        .python(&format!(
            "{count}open('/signal/here', 'w')\nimport time\nwhile os.path.exists('/signal/here'): time.sleep(0.01)"
        ))
        .rw(&signal, Path::new("/signal"))
        .option(["--workspace", &text(&kept)])
        .limit("wall", &stage.duration(120_000))
        .spawn()?;
    first.until_exists(&signal.join("here"), stage.patience())?;
    let second = stage
        .python(count)
        .option(["--workspace", &text(&kept), "--workspace-wait", "none"])
        .spawn()?;
    std::thread::sleep(Duration::from_millis(200));
    fs::remove_file(signal.join("here"))?;
    for watch in [first, second] {
        Run::of(watch.until_end(stage.patience())?)?.ended(Outcome::Ok)?;
    }
    assert_eq!(fs::read_to_string(kept.join("n"))?, "2");
    Ok(())
}

/// Permission bits and links are kept.
fn modes_and_links(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o777)?;
    let code = "
import os
os.umask(0)
for mode in (0o400, 0o444, 0o555, 0o600, 0o644, 0o700, 0o755):
    open(f'f{mode:o}', 'w').close(); os.chmod(f'f{mode:o}', mode)
for mode in (0o700, 0o750, 0o755):
    os.mkdir(f'd{mode:o}', mode); open(f'd{mode:o}/in', 'w').close()
os.symlink('/etc/passwd', 'absolute'); os.symlink('../../outside', 'climbs')
os.symlink('f644', 'near'); os.symlink('nowhere', 'dangling')
os.umask(0o022)
open('one', 'w').write('1'); os.link('one', 'two')
";
    let show = "
import os
for n in sorted(os.listdir('.')):
    s = os.lstat(n)
    print(n, os.readlink(n) if os.path.islink(n) else oct(s.st_mode))
";
    let first = with(stage, &kept, &format!("{code}{show}"))?.ended(Outcome::Ok)?;
    let second = with(stage, &kept, show)?.ended(Outcome::Ok)?;
    assert_eq!(first.stdout(), second.stdout());
    assert!(
        first
            .stdout()
            .contains("absolute /etc/passwd\nclimbs ../../outside\n")
    );
    assert_eq!(changes(&second), []);
    assert_eq!(second.record.files_skipped, []);
    let code = "import os\nos.unlink('near'); os.symlink('one', 'near'); os.chmod('d755', 0o700)\nos.unlink('dangling')";
    with(stage, &kept, code)?.ended(Outcome::Ok)?;
    assert_eq!(fs::read_link(kept.join("near"))?, Path::new("one"));
    assert_eq!(
        fs::metadata(kept.join("d755"))?.permissions().mode() & 0o777,
        0o700
    );
    assert!(fs::symlink_metadata(kept.join("dangling")).is_err());
    Ok(())
}

fn virtual_environment(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let kept = scratch.dir("kept", 0o777)?;
    let code = "
import subprocess, sys
subprocess.run([sys.executable, '-m', 'venv', '--without-pip', '--symlinks', 'env'], check=True)
open('env/bin/tool', 'w').write('#!/workspace/env/bin/python\\nimport sys; print(sys.prefix)\\n')
import os; os.chmod('env/bin/tool', 0o755)
";
    with(stage, &kept, code)?.ended(Outcome::Ok)?;
    let run = stage
        .exec(["/workspace/env/bin/tool"])
        .option(["--workspace", &text(&kept)])
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "/workspace/env\n");
    Ok(())
}

/// The same mechanism keeps `/tmp`.
fn tmp(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let [work, tmp] = ["work", "tmp"].map(|name| scratch.join(name));
    let options = ["--workspace", &text(&work), "--keep-tmp", &text(&tmp)];
    let code = "
import os
print(os.path.exists('/tmp/d/f'), os.path.exists('w'), oct(os.stat('/tmp').st_mode))
os.makedirs('/tmp/d', exist_ok=True); open('/tmp/d/f', 'w').close(); open('w', 'w').close()
os.mkfifo('/tmp/pipe'); os.symlink('d/f', '/tmp/link')
";
    let run = stage
        .python(code)
        .option(options)
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "False False 0o41777\n");
    assert_eq!(names(&tmp)?, ["d", "link"]);
    let code = code.replace("os.mkfifo('/tmp/pipe'); os.symlink('d/f', '/tmp/link')", "");
    let run = stage
        .python(&code)
        .option(options)
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(run.stdout(), "True True 0o41777\n");
    // One directory cannot be both, nor the destination of `--out`.
    let both = ["--workspace", &text(&work), "--keep-tmp", &text(&work)];
    let run = stage.exec(["/bin/true"]).option(both).run()?;
    assert!(
        refused(run)?
            .0
            .contains("--workspace and --keep-tmp name the same directory")
    );
    let both = ["--out", &text(&tmp), "--keep-tmp", &text(&tmp)];
    let run = stage.exec(["/bin/true"]).option(both).run()?;
    assert!(
        refused(run)?
            .0
            .contains("--out and --keep-tmp name the same directory")
    );
    // Its limit is that of /tmp.
    fs::write(tmp.join("large"), vec![1; 2 << 20])?;
    let run = stage
        .exec(["/bin/true"])
        .option(options)
        .limit("tmp-size", "1M")
        .run()?;
    let (error, hint) = refused(run)?;
    assert!(
        error.contains("2097152 bytes, but /tmp has room for 1M"),
        "{error}"
    );
    assert!(hint.contains("--tmp-size"), "{hint}");
    Ok(())
}
