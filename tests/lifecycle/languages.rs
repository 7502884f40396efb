//! Languages other than Python: what needs a cell to be tested, such as memory limits
//! and a channel of two pipes between two users.

use record::Category;

use crate::cells::cell::Run;
use crate::cells::prelude::*;
use crate::cells::process;

pub(crate) const SUITE: Suite = Suite {
    name: "languages",
    covers: &[30],
    attacks: &[],
    scenes: &[
        scene("javascript-has-values-files-and-arguments", |stage| {
                let code = "require('fs').writeFileSync('out.txt', 'x'); await 1; {a: 1}";
                let run = stage.code("js", code).run()?.ended(Outcome::Ok)?;
                assert_eq!(texts(&run), ["{ a: 1 }"]);
                assert_eq!(run.record.files[0].path.to_string(), "out.txt");
                Ok(())
            }).needs(&[Need::Program("node")]),
        scene("javascript-that-fills-its-heap-is-out-of-memory", |stage| {
                let code = "const all = []; for (;;) all.push(new Array(1e5).fill(0.5))";
                out_of_memory(stage, "js", code)
            }).needs(&[Need::Program("node")]),
        scene("javascript-that-spoils-the-channel-spoils-its-results", |stage| {
                let code = "require('fs').writeSync(4, 'x'.repeat(1 << 16)); console.log(1); 5";
                spoils(stage, "js", code)
            }).needs(&[Need::Program("node")]),
        scene("r-draws-and-computes", |stage| {
                let code = "plot(1:3)\nmean(c(2, 4, 6))";
                let run = stage.code("R", code).run()?.ended(Outcome::Ok)?;
                let shown: Vec<_> = (run.record.results.iter())
                    .map(|result| result.formats.keys().next().cloned().unwrap_or_default())
                    .collect();
                assert!(shown.contains(&"text/plain".to_owned()), "{shown:?}");
                assert!(
                    shown
                        .iter()
                        .any(|form| form.contains('/') && form != "text/plain")
                );
                assert!(run.record.files.is_empty(), "{}", run.json);
                Ok(())
            }).needs(&[Need::Program("Rscript")]),
        scene("r-that-fills-its-heap-is-out-of-memory", |stage| {
                let code = "all <- list(); repeat all[[length(all) + 1]] <- numeric(1e6)";
                out_of_memory(stage, "r", code)
            }).needs(&[Need::Program("Rscript")]),
        scene("r-that-spoils-the-channel-spoils-its-results", |stage| {
                let code = "to <- file('/proc/self/fd/4', 'wb', raw = TRUE); writeBin(as.raw(rep(255, 2^20)), to); close(to); cat('1\\n'); 5";
                spoils(stage, "r", code)
            }).needs(&[Need::Program("Rscript")]),
        scene("java-has-values-and-finds-classes", java_class_path)
            .needs(&[Need::Program("javac")]),
        scene("java-that-fills-its-heap-is-out-of-memory", |stage| {
                let code =
                    "List<int[]> all = new ArrayList<>(); while (true) all.add(new int[1 << 20]);";
                out_of_memory(stage, "java", code)
            }).needs(&[Need::Program("javac")]),
        scene("java-with-no-memory-at-all-is-out-of-memory", |stage| {
                let run = stage.code("java", "1").limit("memory", "48M").run()?;
                let record = &run.record;
                // Refused memory was never used and shows in no figure.
                assert!(
                    matches!(record.outcome, Outcome::Memory | Outcome::Exit),
                    "{}",
                    run.json
                );
                assert_eq!(record.error_category, Some(Category::Memory));
                let context = record.context.as_deref().unwrap_or_default();
                assert!(context.contains("48M"), "{context}");
                Ok(())
            }).needs(&[Need::Program("javac")]),
    ],
    actors: &[],
};

fn texts(run: &Run) -> Vec<String> {
    let text = |result: &record::ResultItem| result.text.clone().unwrap_or_default();
    run.record.results.iter().map(text).collect()
}

/// The verdict is the same whichever mechanism noticed first.
fn out_of_memory(stage: &Stage, language: &str, code: &str) -> Check {
    let wall = stage.duration(60_000);
    let run = stage
        .code(language, code)
        .limit("memory", "512M")
        .limit("wall", &wall)
        .run()?
        .ended(Outcome::Memory)?;
    let context = run.record.context.as_deref().unwrap_or_default();
    assert!(context.contains("512M"), "{context}");
    Ok(())
}

/// No writer waits for the supervisor, whose record explains the end.
fn spoils(stage: &Stage, language: &str, code: &str) -> Check {
    let run = stage.code(language, code).run()?;
    assert_eq!(run.stdout(), "1\n", "{}", run.json);
    assert!(run.record.results.is_empty(), "{}", run.json);
    let warnings = run.record.warnings.join("\n");
    assert!(warnings.contains("not the protocol"), "{warnings}");
    Ok(())
}

fn java_class_path(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let classes = scratch.dir("classes", 0o755)?;
    let source = scratch.file(
        "Hi.java",
        "package lib; public class Hi { public static int n = 7; }",
    )?;
    let mut javac = std::process::Command::new("javac");
    javac.arg("-d").arg(&classes).arg(&source);
    let compiled = process::finish(&mut javac, stage.within(60_000))?;
    assert_eq!(compiled.code(), 0, "{}", compiled.complaint());
    let run = |code: &str| {
        let cell = stage.code("jshell", code).arguments(["a b"]);
        cell.ro(&classes, std::path::Path::new("/classes"))
            .option(["--env", "CLASSPATH=/classes"])
            .run()?
            .ended(Outcome::Ok)
    };
    let snippets = run("import lib.Hi;\nint x = 40;\nSystem.out.println(args[0] + Hi.n);\nx + 2")?;
    assert_eq!(
        (texts(&snippets), snippets.stdout()),
        (vec!["42".to_owned()], "a b7\n")
    );
    let program = run(
        "import lib.Hi; class M { public static void main(String[] a) { System.out.print(Hi.n); } }",
    )?;
    assert_eq!(program.stdout(), "7");
    Ok(())
}
