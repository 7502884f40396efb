//! A lack that a program reports itself, and words that only look like one.

use record::Category;

use super::files::text;
use crate::cells::cell::{Cell, Run};
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "reported-by-programs",
    covers: &[38],
    attacks: &[],
    scenes: &[
        scene("words-of-a-program-have-their-category", words),
        python_scene("words-and-measurements-make-the-outcome", measured),
        python_scene("a-refused-reservation-is-named-with-its-limit", reservation),
        scene("files-that-fill-the-memory-are-named", files_in_memory),
        scene("what-is-missing-is-named-as-the-caller-wrote-it", missing),
        scene("a-long-command-reaches-its-shell", long_command),
        scene("a-long-argument-is-refused-by-name", long_argument),
        python_scene("a-probe-is-no-cause", probe),
    ],
    actors: &[],
};

fn shell<'s>(stage: &'s Stage, script: &str) -> Cell<'s> {
    stage.exec(["/bin/sh", "-c", script])
}

fn context(run: &Run) -> &str {
    run.record.context.as_deref().unwrap_or_default()
}

fn words(stage: &Stage) -> Check {
    use Category::{Disk, Killed, Memory, Network, Processes, Runtime};
    for (script, category, words) in [
        (
            "echo 'what():  std::bad_alloc' >&2; kill -ABRT $$",
            Memory,
            "it wrote `bad_alloc`",
        ),
        (
            "echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$",
            Memory,
            "lack of memory",
        ),
        (
            "echo 'write: NO SPACE LEFT ON DEVICE' >&2; exit 1",
            Disk,
            "none of its disks was seen full",
        ),
        (
            "echo 'sh: 1: Cannot fork' >&2; exit 2",
            Processes,
            "the limit is 160 processes",
        ),
        (
            "echo 'curl: (6) Could not resolve host: x.example' >&2; exit 6",
            Network,
            "the cell has no network",
        ),
        // Longer words, words on stdout, words long ago.
        ("echo 'there is no room' >&2; exit 1", Runtime, "status 1"),
        ("echo 'out of memory'; exit 1", Runtime, "status 1"),
        (
            "echo 'out of memory' >&2; seq 100 >&2; exit 1",
            Runtime,
            "status 1",
        ),
        ("echo 'no room' >&2; kill -ABRT $$", Killed, "gave up"),
    ] {
        for cell in [shell(stage, script), stage.code("bash", script)] {
            let run = cell.run()?;
            let said = run.record.error_category == Some(category) && context(&run).contains(words);
            assert!(said, "{script}: {}", run.json);
        }
    }
    Ok(())
}

const FILL: &str = "all = [bytearray(b'x' * (4 << 20)) for _ in range(1000)]";

/// Each mapping counts, so Python itself reports the lack.
fn measured(stage: &Stage) -> Check {
    let run = stage
        .exec(["python3", "-c", FILL])
        .limit("memory", "256M")
        .limit("data", "256M")
        .option(["--cgroup", "none"])
        .run()?
        .ended(Outcome::Memory)?;
    assert_eq!(
        run.record.error_category,
        Some(Category::Memory),
        "{}",
        run.json
    );
    Ok(())
}

fn reservation(stage: &Stage) -> Check {
    let run = stage
        .exec(["python3", "-c", "bytearray(1 << 40)"])
        .itself()
        .option(["--cgroup", "none"])
        .limit("memory", "512M")
        .run()?
        .ended(Outcome::Exit)?;
    assert_eq!(run.record.error_category, Some(Category::Memory));
    assert!(
        context(&run).contains("up to 4608M (`data`)"),
        "{}",
        run.json
    );
    let hint = run.record.operator_hint.as_deref().unwrap_or_default();
    assert!(hint.contains("`--data none`"), "{}", run.json);
    let run = stage
        .exec(["python3", "-c", "bytearray(1 << 40)"])
        .itself()
        .option(["--cgroup", "none"])
        .limit("address-space", "700M")
        .run()?;
    assert!(
        context(&run).contains("at most 700M (`address_space`)"),
        "{}",
        run.json
    );
    Ok(())
}

fn files_in_memory(stage: &Stage) -> Check {
    let fill = "head -c 100M /dev/zero > x; head -c 200M /dev/zero | tail -c 200M";
    let run = shell(stage, fill)
        .limit("memory", "128M")
        .limit("workspace-size", "400M")
        .run()?
        .ended(Outcome::Memory)?;
    let words = "100M of it were files in /workspace, which are memory here";
    assert!(context(&run).contains(words), "{}", run.json);
    Ok(())
}

fn missing(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let script = scratch.file("script", "#!/no/such/interpreter\n")?;
    crate::cells::scratch::chmod(&script, 0o755)?;
    let target = std::path::Path::new("/opt/script");
    for (cell, words, named) in [
        (
            stage.exec(["no-such-program"]),
            "there is no such program",
            "\"no-such-program\"",
        ),
        (
            stage.exec(["./no/such"]),
            "there is no such program",
            "\"./no/such\"",
        ),
        (
            stage.exec(["true"]).option(["--cwd", "/no/such/place"]),
            "there is no such working directory",
            "\"/no/such/place\"",
        ),
        (
            stage.exec(["/opt/script"]).ro(&script, target),
            "its interpreter is not",
            "\"/opt/script\"",
        ),
    ] {
        let run = cell.itself().run()?.ended(Outcome::Setup)?;
        let said = context(&run).contains(words) && context(&run).contains(named);
        assert!(said, "{}", run.json);
    }
    Ok(())
}

fn with_argv(stage: &Stage, argv: &[&str]) -> Check<Run> {
    let scratch = stage.scratch()?;
    let spec = serde_json::json!({ "argv": argv });
    let spec = scratch.file("spec.json", spec.to_string())?;
    let cell = stage.exec::<_, &str>([]).without_operands();
    cell.option(["--spec", &text(&spec)]).run()
}

fn long_command(stage: &Stage) -> Check {
    let long = format!("x={}; echo ${{#x}} $0 $*; exit 7", "y".repeat(300_000));
    let run = with_argv(stage, &["/bin/sh", "-c", &long, "name", "a", "b"])?;
    assert_eq!(
        (run.stdout(), run.record.exit_code),
        ("300000 name a b\n", 7)
    );
    Ok(())
}

fn long_argument(stage: &Stage) -> Check {
    let run = with_argv(stage, &["/bin/echo", &"y".repeat(131_072)])?.ended(Outcome::Setup)?;
    let error = run.record.setup_error.as_ref().map(ToString::to_string);
    let error = error.unwrap_or_default();
    assert!(error.contains("argv[1]: has 131072 bytes"), "{error}");
    // The longest that fits.
    let run = with_argv(stage, &["/bin/echo", &"y".repeat(131_071)])?.ended(Outcome::Ok)?;
    assert_eq!(run.stdout().len(), 131_072);
    Ok(())
}

/// As Node tries io_uring at every start.
fn probe(stage: &Stage) -> Check {
    let code = "import ctypes; ctypes.CDLL(None).syscall(425, 1, 0); raise SystemExit(3)";
    let run = stage
        .exec(["python3", "-c", code])
        .run()?
        .ended(Outcome::Exit)?;
    let mut denied = run.record.denied.iter();
    assert!(
        denied.any(|denied| denied.name == "io_uring_setup"),
        "{}",
        run.json
    );
    assert_eq!(context(&run), "the program exited with status 3");
    assert_eq!(run.record.operator_hint, None);
    Ok(())
}
