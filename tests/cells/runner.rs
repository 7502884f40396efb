//! Runs the table, as root and as a plain user, and reports.

use std::any::Any;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::chown;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

use super::attack::Attack;
use super::raw::call;
use super::scratch::{Scratch, chmod};
use super::start::Start;
use super::starts::Starts;
use super::{Check, Need, Scene, Stage, Stop, Suite, fail, naive, private, probe};

/// The uid of the plain user when root runs the tests. It needs no entry in the user
/// database.
const PLAIN_USER: u32 = 4242;

/// So many tests may fail first and then prove themselves: one fails now and then on a machine
/// under load.
const MOST_PROVED: usize = 3;

const USAGE: &str = "usage: cells [--list] [--require N] [--must PREFIX]... [--slowest N]
             [--start WAY] [--cells N] [--prove N] [FILTER...]

  --list         show the names, run nothing
  --require N    fail when fewer than N tests pass
  --must PREFIX  fail when a test whose name starts so is skipped
  --start WAY    how cells are started: cold (the default), blank, forked or carried
  --cells N      fail when fewer than N cells were started so, by their records
  --slowest N    list the N tests that took longest
  --prove N      let a scene that fails prove itself by passing N times in a row, with a
                 notice, at most three of them; an attack that succeeds once is a failure
  FILTER         run the tests whose names contain one of these

Root runs every test twice, the second time as a plain user. Both runs go on at the
same time, except for the tests that need the machine alone.

environment: CELLBLOCK_BIN, the executable to test;
             CELLS_OPTIONS, options to add to those on the command line;
             CELLS_UID, the uid that programs have inside;
             CELLS_PATIENCE, a factor for every deadline;
             CELLS_LONG, set to run the tests that take long as well";

#[derive(Default)]
struct Options {
    list: bool,
    require: usize,
    must: Vec<String>,
    slowest: usize,
    prove: usize,
    start: Start,
    cells: usize,
    filters: Vec<String>,
    /// The stage of the runner that started this one as the plain user.
    stage: Option<PathBuf>,
    /// Given with `stage`: the rows to run, by [`Part::name`].
    part: String,
}

/// Which rows a pass over the table runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Shared,
    Alone,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Alone => "alone",
        }
    }

    fn has(self, row: &Row<'_>) -> bool {
        row.needs.contains(&Need::Alone) == (self == Self::Alone)
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Those among the passed ones that had failed first.
    proved: usize,
    times: Vec<(Duration, String)>,
    starts: Starts,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.proved += other.proved;
        self.times.extend(other.times);
        self.starts.add(other.starts);
    }

    fn print_slowest(&mut self, count: usize) {
        self.times.sort_by(|one, other| other.cmp(one));
        for (time, name) in self.times.iter().take(count) {
            println!("{:6.2} s {name}", time.as_secs_f64());
        }
    }
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
        _ => match parse(&args) {
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

/// The words of `CELLS_OPTIONS`, then those of the command line.
fn parse(args: &[String]) -> Result<Options, String> {
    let added = std::env::var("CELLS_OPTIONS").unwrap_or_default();
    let mut words = added
        .split_whitespace()
        .chain(args.iter().map(String::as_str));
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word {
            "--list" => options.list = true,
            "--require" => options.require = number(word, value()?)?,
            "--cells" => options.cells = number(word, value()?)?,
            "--must" => options.must.push(value()?.to_owned()),
            "--slowest" => options.slowest = number(word, value()?)?,
            "--prove" => options.prove = number(word, value()?)?,
            "--start" => {
                let name = value()?;
                options.start =
                    Start::named(name).ok_or_else(|| format!("no way to start: {name}"))?;
            }
            "--stage" => options.stage = Some(value()?.into()),
            "--part" => options.part = value()?.to_owned(),
            // Options that are often passed to every harness.
            "--nocapture" | "--quiet" | "-q" => {}
            _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
            _ => options.filters.push(word.to_owned()),
        }
    }
    Ok(options)
}

fn number(option: &str, value: &str) -> Result<usize, String> {
    value
        .parse()
        .map_err(|_| format!("{option} needs a number, got {value:?}"))
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
    crate::dispositions::restore();
    // Descriptors that the caller left open must not look like a leak.
    const CLOSE_ON_EXEC: u32 = 4;
    call!(SYS_close_range, 3, u32::MAX, CLOSE_ON_EXEC)?;
    if let Some(home) = &options.stage {
        return as_plain_user(&rows, home, options);
    }
    let home = make_stage(options.start)?;
    let stage = at(home.path(), options.start);
    let mut tally = Tally::default();
    if geteuid().is_root() {
        // Mounts that others make meanwhile must not look like a leak.
        private::enter()?;
        let plain = PlainUser::start(home.path(), Part::Shared)?;
        run_rows(&rows, Some(Part::Shared), &stage, options, &mut tally);
        tally.add(plain.finish()?);
        run_rows(&rows, Some(Part::Alone), &stage, options, &mut tally);
        tally.add(PlainUser::start(home.path(), Part::Alone)?.finish()?);
    } else {
        run_rows(&rows, None, &stage, options, &mut tally);
    }
    tally.print_slowest(options.slowest);
    tally.starts.print(options.start);
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    if tally.passed < options.require {
        println!("FAILED: {} tests must pass", options.require);
        return Ok(1);
    }
    if tally.proved > MOST_PROVED {
        println!("FAILED: {} tests failed first", tally.proved);
        return Ok(1);
    }
    let cells = tally.starts.count(options.start);
    if cells < options.cells {
        println!(
            "FAILED: {} cells must be started as {}",
            options.cells,
            options.start.name()
        );
        return Ok(1);
    }
    Ok(i32::from(tally.failed > 0))
}

/// Copies both executables to where every user may run them.
fn make_stage(start: Start) -> Check<Scratch> {
    let home = Scratch::new(&std::env::temp_dir())?;
    let cellblock = std::env::var_os("CELLBLOCK_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_cellblock")),
        PathBuf::from,
    );
    let own = std::env::current_exe()?;
    let player = start.executable().map(|name| (own.clone(), name));
    for (source, name) in [(cellblock, "cellblock"), (own, "cells")]
        .into_iter()
        .chain(player)
    {
        let target = home.join(name);
        fs::copy(&source, &target)
            .map_err(|error| fail(format!("cannot copy {}: {error}", source.display())))?;
        chmod(&target, 0o755)?;
    }
    let plain = home.dir("plain", 0o755)?;
    home.dir("root", 0o755)?;
    if geteuid().is_root() {
        chown(&plain, Some(PLAIN_USER), Some(PLAIN_USER))?;
    }
    Ok(home)
}

fn at(home: &Path, start: Start) -> Stage {
    let dir = if geteuid().is_root() { "root" } else { "plain" };
    let cellblock = home.join(start.executable().unwrap_or("cellblock"));
    Stage::new(cellblock, home.join("cells"), home.join(dir))
}

/// Runs the rows of `part`, or all of them.
fn run_rows(
    rows: &[Row<'_>],
    part: Option<Part>,
    stage: &Stage,
    options: &Options,
    tally: &mut Tally,
) {
    let who = if stage.root() { "root" } else { "user" };
    for row in rows {
        if part.is_some_and(|part| !part.has(row)) {
            continue;
        }
        let name = match options.start {
            Start::Cold => format!("{who}:{}", row.name),
            start => format!("{who}:{}:{}", start.name(), row.name),
        };
        let started = Instant::now();
        let mut came = run_row(row, stage);
        if let (Err(Stop::Fail(why)), Body::Scene(_), 1..) = (&came, &row.body, options.prove) {
            came = prove(row, stage, options.prove, why);
            tally.proved += usize::from(came.is_ok());
        }
        let took = started.elapsed();
        let notes = stage.take_notes();
        tally.starts.end_of(&row.name, options.start);
        match came {
            Ok(()) => {
                tally.passed += 1;
                let mut line = format!("ok {name}");
                for note in notes {
                    line.push_str(&format!(" ({note})"));
                }
                if took > stage.within(1_000) {
                    line.push_str(&format!(" [{:.1} s]", took.as_secs_f64()));
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
        tally.times.push((took, name));
    }
}

/// Lets a scene that failed because of `why` pass if it then passes so many `times` in a row.
fn prove(row: &Row<'_>, stage: &Stage, times: usize, why: &str) -> Check {
    for _ in 0..times {
        stage.take_notes();
        run_row(row, stage)?;
    }
    stage.note(format!(
        "NOTICE: failed once, then passed {times} times: {why}"
    ));
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

/// A run of one part of the table in a process of the plain user's.
struct PlainUser {
    process: Child,
    tally: PathBuf,
}

impl PlainUser {
    fn start(home: &Path, part: Part) -> Check<Self> {
        let process = Command::new(home.join("cells"))
            .args(std::env::args_os().skip(1))
            .arg("--stage")
            .arg(home)
            .args(["--part", part.name()])
            .current_dir("/")
            .spawn()?;
        let tally = tally_of(home, part.name());
        Ok(Self { process, tally })
    }

    fn finish(mut self) -> Check<Tally> {
        self.process.wait()?;
        let tally = fs::read(&self.tally)
            .map_err(|error| fail(format!("the plain user's run broke off: {error}")))?;
        Ok(serde_json::from_slice(&tally)?)
    }
}

fn tally_of(home: &Path, part: &str) -> PathBuf {
    home.join("plain").join(format!("tally-{part}"))
}

/// What [`PlainUser::start`] starts: gives up root and runs one part of the table, in a
/// mount namespace apart from that of root's tests.
fn as_plain_user(rows: &[Row<'_>], home: &Path, options: &Options) -> Check<i32> {
    private::enter()?;
    setgroups(&[])?;
    setgid(Gid::from_raw(PLAIN_USER))?;
    setuid(Uid::from_raw(PLAIN_USER))?;
    let part = [Part::Shared, Part::Alone]
        .into_iter()
        .find(|part| part.name() == options.part);
    let mut tally = Tally::default();
    run_rows(rows, part, &at(home, options.start), options, &mut tally);
    fs::write(tally_of(home, &options.part), serde_json::to_vec(&tally)?)?;
    Ok(0)
}
