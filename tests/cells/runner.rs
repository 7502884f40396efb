//! Runs the table, as root and as a plain user, and reports.

use std::any::Any;
use std::cell::RefCell;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::attack::Attack;
use super::raw::call;
use super::scratch::{Scratch, chmod};
use super::{Check, Need, Scene, Stage, Stop, Suite, fail, naive, probe};

/// The user that stands in for an unprivileged one when root runs the tests.
/// It needs no entry in the user database.
const PLAIN_USER: u32 = 4242;

const USAGE: &str = "usage: cells [--list] [--require N] [--must PREFIX]... [FILTER...]

  --list         show the names, run nothing
  --require N    fail when fewer than N tests pass
  --must PREFIX  fail when a test whose name starts so is skipped
  FILTER         run the tests whose names contain one of these

environment: CELLBLOCK_BIN, the executable to test;
             CELLS_PATIENCE, a factor for every deadline;
             CELLS_LONG, set to run the tests that take long as well";

#[derive(Default)]
struct Options {
    list: bool,
    require: usize,
    must: Vec<String>,
    filters: Vec<String>,
    /// Given by the runner to itself when it becomes the plain user.
    stage: Option<PathBuf>,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// A row of the table.
struct Row<'a> {
    name: String,
    needs: &'static [Need],
    body: Body<'a>,
}

enum Body<'a> {
    Attack(&'a Attack),
    Scene(&'a Scene),
}

/// Parses the command line and does what it says. Returns the exit status.
pub(crate) fn main(suites: &[&Suite]) -> i32 {
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    match args.as_slice() {
        [flag, name, rest @ ..] if flag == "--probe" => probe::play(suites, name, rest),
        [flag, name, rest @ ..] if flag == "--naive" => {
            naive::sandbox(|| probe::play(suites, name, rest)).unwrap_or_else(|stop| {
                eprintln!("{stop:?}");
                97
            })
        }
        _ => match parse(args) {
            Ok(options) => run(suites, &options).unwrap_or_else(|stop| {
                eprintln!("cells: {stop:?}");
                1
            }),
            Err(why) => {
                eprintln!("cells: {why}\n{USAGE}");
                2
            }
        },
    }
}

fn parse(args: Vec<String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--list" => options.list = true,
            "--require" => {
                options.require = value()?
                    .parse()
                    .map_err(|_| "--require needs a number".to_owned())?;
            }
            "--must" => options.must.push(value()?),
            "--stage" => options.stage = Some(value()?.into()),
            // What cargo test users pass to every harness.
            "--nocapture" | "--quiet" | "-q" => {}
            _ if arg.starts_with('-') => return Err(format!("unknown option {arg}")),
            _ => options.filters.push(arg),
        }
    }
    Ok(options)
}

fn table<'a>(suites: &[&'a Suite]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for suite in suites {
        rows.extend(suite.scenes.iter().map(|scene| Row {
            name: format!("{}/{}", suite.name, scene.name),
            needs: scene.needs,
            body: Body::Scene(scene),
        }));
        rows.extend(suite.attacks.iter().map(|attack| Row {
            name: format!("{}/{}", suite.name, attack.name),
            needs: &[],
            body: Body::Attack(attack),
        }));
    }
    rows
}

fn run(suites: &[&Suite], options: &Options) -> Check<i32> {
    let rows: Vec<Row<'_>> = table(suites)
        .into_iter()
        .filter(|row| {
            options.filters.is_empty()
                || options
                    .filters
                    .iter()
                    .any(|filter| row.name.contains(filter.as_str()))
        })
        .collect();
    if options.list {
        for row in &rows {
            println!("{}", row.name);
        }
        return Ok(0);
    }
    keep_panics_short();
    // What the caller left open is not to be mistaken for a leak.
    const CLOSE_ON_EXEC: u32 = 4;
    call!(SYS_close_range, 3, u32::MAX, CLOSE_ON_EXEC)?;
    let mut tally = Tally::default();
    if let Some(dir) = &options.stage {
        run_rows(&rows, &at(dir), options, &mut tally)?;
    } else {
        let home = make_stage()?;
        run_rows(&rows, &at(home.path()), options, &mut tally)?;
        if nix::unistd::geteuid().is_root() {
            run_as_plain_user(home.path(), &mut tally)?;
        }
    }
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    if tally.passed < options.require {
        println!("FAILED: {} tests must pass", options.require);
        return Ok(1);
    }
    Ok(i32::from(tally.failed > 0))
}

/// Copies both executables to where every user may run them.
fn make_stage() -> Check<Scratch> {
    let home = Scratch::new(&std::env::temp_dir())?;
    let cellblock = std::env::var_os("CELLBLOCK_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_cellblock")),
        PathBuf::from,
    );
    for (source, name) in [
        (cellblock, "cellblock"),
        (std::env::current_exe()?, "cells"),
    ] {
        let target = home.join(name);
        fs::copy(&source, &target)
            .map_err(|error| fail(format!("cannot copy {}: {error}", source.display())))?;
        chmod(&target, 0o755)?;
    }
    let plain = home.dir("plain", 0o755)?;
    home.dir("root", 0o755)?;
    if nix::unistd::geteuid().is_root() {
        chown(&plain, Some(PLAIN_USER), Some(PLAIN_USER))?;
    }
    Ok(home)
}

fn at(home: &Path) -> Stage {
    let dir = if nix::unistd::geteuid().is_root() {
        "root"
    } else {
        "plain"
    };
    Stage::new(home.join("cellblock"), home.join("cells"), home.join(dir))
}

fn run_rows(rows: &[Row<'_>], stage: &Stage, options: &Options, tally: &mut Tally) -> Check {
    let who = if stage.root() { "root" } else { "user" };
    for row in rows {
        let name = format!("{who}:{}", row.name);
        let started = Instant::now();
        let came = run_row(row, stage);
        let notes = stage.take_notes();
        let slow = started.elapsed() > stage.within(1_000);
        match came {
            Ok(()) => {
                tally.passed += 1;
                let mut line = format!("ok {name}");
                for note in notes {
                    line.push_str(&format!(" ({note})"));
                }
                if slow {
                    line.push_str(&format!(" [{:.1} s]", started.elapsed().as_secs_f64()));
                }
                println!("{line}");
            }
            Err(Stop::Skip(why)) if options.must.iter().any(|must| row.name.starts_with(must)) => {
                tally.failed += 1;
                println!("FAILED {name}: may not be skipped: {why}");
            }
            Err(Stop::Skip(why)) => {
                tally.skipped += 1;
                println!("skip {name}: {why}");
            }
            Err(Stop::Fail(why)) => {
                tally.failed += 1;
                println!("FAILED {name}: {why}");
            }
        }
    }
    Ok(())
}

fn run_row(row: &Row<'_>, stage: &Stage) -> Check {
    if let Some(why) = row.needs.iter().find_map(|need| need.missing(stage)) {
        return Err(Stop::Skip(why));
    }
    // A failed `assert!` fails its test, not the table.
    panic::catch_unwind(AssertUnwindSafe(|| match row.body {
        Body::Attack(attack) => attack.run(stage, &row.name),
        Body::Scene(scene) => (scene.run)(stage),
    }))
    .unwrap_or_else(|payload| Err(fail(panic_message(payload.as_ref()))))
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps a panic's message and place for the line of its test.
fn keep_panics_short() {
    panic::set_hook(Box::new(|info| {
        PANIC.set(Some(info.to_string()));
    }));
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    PANIC
        .take()
        .or_else(|| {
            payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
        })
        .unwrap_or_else(|| "panicked".to_owned())
        .replace('\n', " ")
}

/// Runs the table once more in a process of the plain user's.
fn run_as_plain_user(home: &Path, tally: &mut Tally) -> Check {
    let mut child = Command::new(home.join("cells"))
        .args(std::env::args_os().skip(1))
        .arg("--stage")
        .arg(home)
        .args(["--require", "0"])
        .uid(PLAIN_USER)
        .gid(PLAIN_USER)
        .current_dir("/")
        .stdout(Stdio::piped())
        .spawn()?;
    let Some(output) = child.stdout.take() else {
        return Err(fail("the plain user's run has no output"));
    };
    let mut told = None;
    for line in BufReader::new(output).lines() {
        let line = line?;
        match read_tally(&line) {
            Some(theirs) => told = Some(theirs),
            None => println!("{line}"),
        }
    }
    child.wait()?;
    let theirs = told.ok_or_else(|| fail("the plain user's run broke off"))?;
    tally.passed += theirs.passed;
    tally.failed += theirs.failed;
    tally.skipped += theirs.skipped;
    Ok(())
}

fn read_tally(line: &str) -> Option<Tally> {
    let (passed, rest) = line.split_once(" passed, ")?;
    let (failed, rest) = rest.split_once(" failed, ")?;
    Some(Tally {
        passed: passed.parse().ok()?,
        failed: failed.parse().ok()?,
        skipped: rest.strip_suffix(" skipped")?.parse().ok()?,
    })
}
