//! The acceptance cases of `cases.toml`, the programs of `tests/programs` and the golden
//! records of each language, by the `cellblock` executable as a caller would run it.
//!
//!     cargo test --test acceptance -- [--language NAME]... [--host] [--all] [CASE]...
//!
//! They need the prepared root file systems `python-data`, `node`, `r` and
//! `java` in the store (`cellblock rootfs build NAME`). A case whose language has
//! none fails; `--language` runs those of the named ones only, and `--host` lets
//! the host's interpreters stand in for default ones. `--all` adds the programs of
//! `tests/programs` that are not for every run. Without an argument this is
//! no part of `cargo test`.

mod case;
mod check;
mod context;
mod golden;

use std::process::ExitCode;

use case::{Case, Step};
use context::Contexts;
use golden::Golden;

/// What to run.
#[derive(Default)]
struct Wanted {
    languages: Vec<String>,
    parts: Vec<String>,
    on_host: bool,
    all_programs: bool,
}

impl Wanted {
    fn parse(mut words: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--language" => wanted.languages.extend(words.next()),
                "--host" => wanted.on_host = true,
                "--all" => wanted.all_programs = true,
                _ => wanted.parts.push(word),
            }
        }
        wanted
    }

    fn includes(&self, language: &str, id: &str) -> bool {
        let is_named = |name: &String| name == language;
        let language = self.languages.is_empty() || self.languages.iter().any(is_named);
        let part = |part: &String| id.contains(part.as_str());
        language && (self.parts.is_empty() || self.parts.iter().any(part))
    }
}

/// The results so far.
#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Tally {
    fn skip(&mut self, id: &str, why: &str) {
        println!("skipped {id}: {why}");
        self.skipped += 1;
    }

    fn count(&mut self, id: &str, ended: Result<(), String>) {
        match ended {
            Ok(()) => {
                println!("ok {id}");
                self.passed += 1;
            }
            Err(why) => {
                println!("FAILED {id}: {why}");
                self.failed += 1;
            }
        }
    }
}

fn main() -> ExitCode {
    let wanted = Wanted::parse(std::env::args().skip(1));
    let mut tally = Tally::default();
    for case in case::all() {
        let is_left_out = case.is_for_the_matrix() && !wanted.all_programs;
        if is_left_out || !wanted.includes(&case.language, &case.id) {
            continue;
        }
        tally.count(&case.id, run(&case, wanted.on_host));
    }
    for golden in golden::all().filter(|golden| wanted.includes(golden.language, &golden.id)) {
        match wanted.on_host {
            true => tally.skip(&golden.id, "it is of the prepared root file systems"),
            false => tally.count(&golden.id, compare(&golden)),
        }
    }
    let Tally {
        passed,
        failed,
        skipped,
    } = tally;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0 || passed == 0))
}

fn compare(golden: &Golden) -> Result<(), String> {
    let case = Case::plain(golden.language);
    let step = Step::plain(golden.code()?);
    golden.check(&execute(&case, &step, false)?.json)
}

fn run(case: &Case, on_host: bool) -> Result<(), String> {
    let mut contexts = match case.needs_a_context() {
        true => Some(Contexts::start(case, rootfs(case, on_host))?),
        false => None,
    };
    for (number, step) in case.steps().into_iter().enumerate() {
        let record = match (&mut contexts, case.context_of(&step)) {
            (Some(contexts), Some(name)) => contexts.execute(name, &step)?,
            _ => execute(case, &step, on_host)?,
        };
        if let Some(expect) = &step.expect {
            check::record(expect, &record).map_err(|why| {
                let shown = serde_json::to_string_pretty(&record.json).unwrap_or_default();
                let shown: String = shown.chars().take(4000).collect();
                format!("step {}: {why}\n{shown}", number + 1)
            })?;
        }
    }
    Ok(())
}

fn rootfs(case: &Case, on_host: bool) -> &str {
    match &case.rootfs {
        Some(rootfs) => rootfs,
        None if on_host => "host",
        None => case.default_rootfs(),
    }
}

fn execute(case: &Case, step: &Step, on_host: bool) -> Result<check::Ran, String> {
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cellblock"));
    command.args(["run", "--json", "--lang", &case.language]);
    command.args(["--rootfs", rootfs(case, on_host)]);
    if let Some(wall) = step.timeout.as_ref().or(case.timeout.as_ref()) {
        command.args(["--wall", wall]);
    }
    if let Some(memory) = &case.memory {
        command.args(["--memory", memory]);
    }
    for (name, content) in &case.files {
        let path = scratch.path().join(name);
        std::fs::write(&path, content).map_err(|e| e.to_string())?;
        command
            .arg("--file")
            .arg(format!("{}:{name}", path.display()));
    }
    let out = scratch.path().join("out");
    std::fs::create_dir(&out).map_err(|e| e.to_string())?;
    command.arg("--out").arg(&out);
    command.envs(&case.host_env);
    command.args(["-c", &step.code]);
    let output = command.output().map_err(|e| e.to_string())?;
    let json = serde_json::from_slice(&output.stdout).map_err(|e| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!("no record: {e}; {stderr}")
    })?;
    Ok(check::Ran {
        json,
        out,
        _scratch: scratch,
    })
}
