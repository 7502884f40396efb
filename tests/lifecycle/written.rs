//! What the code has written before its end is in its record, whole and in order.

use crate::cells::cell::Run;
use crate::cells::prelude::*;

pub(crate) const SUITE: Suite = Suite {
    name: "written",
    covers: &[],
    attacks: &[],
    scenes: &[
        scene("javascript-that-ends-suddenly", javascript).needs(&[Need::Program("node")]),
        scene("javascript-in-order", in_order).needs(&[Need::Program("node")]),
        scene("heaps-of-javascript", heaps).needs(&[Need::Program("node")]),
        python_scene("text-without-a-newline-at-a-limit", at_a_limit),
        scene("text-of-javascript-at-a-limit", javascript_at_a_limit)
            .needs(&[Need::Program("node")]),
        scene("text-of-r-at-a-limit", r_at_a_limit).needs(&[Need::Program("Rscript")]),
        scene("text-of-java-at-a-limit", java_at_a_limit).needs(&[Need::Program("java")]),
        scene("text-of-bash-at-a-limit", bash_at_a_limit).needs(&[Need::Program("bash")]),
    ],
    actors: &[],
};

/// More than a pipe has room for.
const LONG: usize = 900_000;

fn javascript(stage: &Stage) -> Check {
    let text = format!("'x'.repeat({LONG})");
    for end in [
        "process.exit()",
        "throw 1",
        "Promise.reject(1)",
        "'ends by itself'",
    ] {
        for write in [
            format!("console.log({text})"),
            format!("process.stdout.write({text} + '\\n')"),
            format!("require('fs').writeSync(1, {text} + '\\n')"),
        ] {
            written(stage, &format!("{write}; {end}"), LONG + 1)?;
        }
    }
    written(
        stage,
        &format!("process.on('exit', () => console.log({text}))"),
        LONG + 1,
    )?;
    let later = format!("setTimeout(() => {{ console.log({text}); process.exit() }}, 1)");
    written(stage, &later, LONG + 1)?;
    // A child shares the pipe, and may make it non-blocking.
    let child = "['-e', 'process.stdout.write(\"y\")']";
    let spawn = "require('child_process').spawnSync";
    let code = format!(
        "{spawn}(process.execPath, {child}, {{stdio: 'inherit'}}); console.log({text}); process.exit()"
    );
    written(stage, &code, LONG + 2)
}

fn written(stage: &Stage, code: &str, length: usize) -> Check {
    let run = stage.code("javascript", code).limit("output", "4M").run()?;
    assert_eq!(run.stdout().len(), length, "{code}");
    Ok(())
}

fn in_order(stage: &Stage) -> Check {
    let code = "console.log('a'); process.stdout.write('b\\n'); console.log('c');
        const own = process.stdout.write; let seen = '';
        process.stdout.write = (text) => { seen += text; return true };
        console.log('d'); process.stdout.write = own; console.error('e');
        process.stdout.write('f', () => console.log('g', seen.trim()));";
    let run = stage.code("javascript", code).run()?;
    assert_eq!(run.stdout(), "a\nb\nc\nfg d\n");
    let stderr = run.record.stderr.as_ref().map(ToString::to_string);
    assert_eq!(stderr.as_deref(), Some("e\n"));
    // A stream takes milliseconds to make.
    let code = "const before = new Set(process.moduleLoadList); console.log(1); console.error(2);
        process.moduleLoadList.filter((it) => !before.has(it) && /(net|tty|stream)$/.test(it))";
    let run = stage.code("javascript", code).run()?;
    assert_eq!(run.record.results[0].text.as_deref(), Some("[]"));
    Ok(())
}

/// The driver takes the limit of the heap back for a moment (builtins.cjs).
fn heaps(stage: &Stage) -> Check {
    let code = "const {Worker} = require('worker_threads');
        const look = \"console.log(require('v8').getHeapStatistics().heap_size_limit / 2 ** 20)\";
        eval(look); new Worker(look, {eval: true}); undefined";
    let run = stage
        .code("javascript", code)
        .limit("memory", "512M")
        .run()?;
    let limits: Vec<f64> = (run.stdout().lines())
        .filter_map(|line| line.parse().ok())
        .collect();
    let [main, thread] = limits[..] else {
        panic!("{}", run.json);
    };
    // Besides, V8 has some for young objects.
    assert!(main < 512.0 && thread < 512.0, "{}", run.json);
    Ok(())
}

fn javascript_at_a_limit(stage: &Stage) -> Check {
    let code = "process.stdout.write('seen'); process.stderr.write('this'); while (true) {}";
    seen_at_limits(stage, "javascript", code)
}

fn r_at_a_limit(stage: &Stage) -> Check {
    let code = "cat('seen'); cat('this', file = stderr()); repeat {}";
    seen_at_limits(stage, "r", code)
}

fn java_at_a_limit(stage: &Stage) -> Check {
    let code = "System.out.print(\"seen\"); System.err.print(\"this\"); while (true) {}";
    seen_at_limits(stage, "java", code)
}

fn bash_at_a_limit(stage: &Stage) -> Check {
    let code = "printf seen; printf this >&2; while :; do :; done";
    seen_at_limits(stage, "bash", code)
}

/// The code writes `seen` and `this`, and then uses up wall and CPU time.
fn seen_at_limits(stage: &Stage, language: &str, code: &str) -> Check {
    let streams = |run: &Run| {
        let stderr = run.record.stderr.as_ref().map(ToString::to_string);
        (run.stdout().to_owned(), stderr.unwrap_or_default())
    };
    let seen = ("seen".to_owned(), "this".to_owned());
    let cell = stage.code(language, code);
    let run = cell
        .clone()
        .run_to_limit(2000, |run| !run.stdout().is_empty())?;
    assert_eq!(streams(&run), seen, "{}", run.json);
    let run = (cell.limit("cpu-time", "5s").limit("wall", "300s"))
        .run()?
        .ended(Outcome::Timeout)?;
    assert_eq!(streams(&run), seen, "{}", run.json);
    Ok(())
}

fn at_a_limit(stage: &Stage) -> Check {
    let has_come = |run: &Run| !run.stdout().is_empty();
    for (language, code, length) in [
        ("python", "print('seen', end='')\nwhile True: pass", 4),
        (
            "python",
            "import sys, time; sys.stdout.buffer.write(b'seen'); time.sleep(1000)",
            4,
        ),
    ] {
        let run = stage.code(language, code).run_to_limit(1000, has_come)?;
        assert_eq!(run.stdout().len(), length, "{code}: {}", run.json);
        assert_eq!(run.record.outcome, Outcome::Timeout, "{}", run.json);
    }
    let code = "import sys; sys.stderr.write('seen')\nwhile True: pass";
    let run = stage
        .python(code)
        .limit("cpu-time", "1s")
        .limit("wall", "60s")
        .run()?;
    let stderr = run.record.stderr.as_ref().map(ToString::to_string);
    assert_eq!(stderr.as_deref(), Some("seen"), "{}", run.json);
    Ok(())
}
