//! The command line of the harness, and the sum of what came of the tests.

use std::time::Duration;

use nix::unistd::geteuid;

use super::crew::{Came, Crew, How, Job, User, keep_panics_short};
use super::raw::call;
use super::start::Start;
use super::starts::Starts;
use super::table::{Row, table};
use super::{Check, Suite, naive, probe};

const USAGE: &str = "usage: cells [--list] [--require N] [--must PREFIX]... [--slowest N]
             [--start WAY] [--cells N] [--users one|both] [FILTER...]

  --list         show the names, run nothing
  --require N    fail when fewer than N tests pass
  --must PREFIX  fail when a test whose name starts so is skipped
  --start WAY    how cells are started: cold (the default), blank, forked or carried
  --cells N      fail when fewer than N cells were started so, by their records
  --users both   root runs every test twice, as root and as a plain user [one: root
                 runs the tests that need root, and a plain user all others]
  --slowest N    list the N tests that took most CPU time
  FILTER         run the tests whose names contain one of these

As many tests run at once as there are CPUs, except for those that need the machine alone.

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
    start: Start,
    cells: usize,
    both_users: bool,
    filters: Vec<String>,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// CPU time by test.
    times: Vec<(Duration, String)>,
    starts: Starts,
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
            "--users" => {
                options.both_users = match value()? {
                    "one" => false,
                    "both" => true,
                    other => return Err(format!("--users is one or both, not {other:?}")),
                }
            }
            "--start" => {
                let name = value()?;
                options.start =
                    Start::named(name).ok_or_else(|| format!("no way to start: {name}"))?;
            }
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

fn run(suites: &[&Suite], options: &Options) -> Check<i32> {
    let mut rows = table(suites);
    rows.retain(|row| options.wants(&row.name));
    if options.list {
        for row in &rows {
            println!("{}", row.name);
        }
        return Ok(0);
    }
    keep_panics_short();
    crate::dispositions::restore();
    // Compiles the schema once, and not in each test's process.
    let _ = crate::schema::complaints(&serde_json::Value::Null);
    // Descriptors that the caller left open must not look like a leak.
    const CLOSE_ON_EXEC: u32 = 4;
    call!(SYS_close_range, 3, u32::MAX, CLOSE_ON_EXEC)?;
    let mut tally = Tally::default();
    let crew = Crew::new(options.start)?;
    crew.run(&jobs(&rows, options.both_users), |job, came| {
        tally.add(options, job, came);
    })?;
    Ok(tally.end(options))
}

/// Who runs each test.
fn jobs<'a>(rows: &'a [Row<'a>], both_users: bool) -> Vec<Job<'a>> {
    let is_root = geteuid().is_root();
    let users = |row: &Row<'_>| -> &[User] {
        match (is_root, both_users) {
            (false, _) => &[User::Plain],
            (true, true) => &[User::Root, User::Plain],
            (true, false) if row.is_roots() => &[User::Root],
            (true, false) => &[User::Plain],
        }
    };
    rows.iter()
        .flat_map(|row| users(row).iter().map(move |&user| Job { row, user }))
        .collect()
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        let mut filters = self.filters.iter();
        self.filters.is_empty() || filters.any(|filter| name.contains(filter.as_str()))
    }

    fn may_skip(&self, name: &str) -> bool {
        !self.must.iter().any(|must| name.starts_with(must))
    }
}

impl Tally {
    /// Prints the line of a test that has ended, and counts it.
    fn add(&mut self, options: &Options, job: Job<'_>, came: Came) {
        let who = job.user.name();
        let name = match options.start {
            Start::Cold => format!("{who}:{}", job.row.name),
            start => format!("{who}:{}:{}", start.name(), job.row.name),
        };
        match came.how {
            How::Passed => {
                self.passed += 1;
                let mut line = format!("ok {name}");
                for note in came.notes {
                    line.push_str(&format!(" ({note})"));
                }
                if came.took > Duration::from_secs(1) {
                    line.push_str(&format!(" [{:.1} s]", came.took.as_secs_f64()));
                }
                println!("{line}");
            }
            How::Skipped(why) if options.may_skip(&job.row.name) => {
                self.skipped += 1;
                println!("skip {name}: {why}");
            }
            How::Skipped(why) => {
                self.failed += 1;
                println!("FAILED {name}: may not be skipped: {why}");
            }
            How::Failed(why) => {
                self.failed += 1;
                println!("FAILED {name}: {why}");
            }
        }
        self.times.push((came.cpu, name));
        self.starts.add(came.starts);
    }

    /// Prints the sum; returns the exit status.
    fn end(&mut self, options: &Options) -> i32 {
        self.times.sort_by(|one, other| other.cmp(one));
        for (time, name) in self.times.iter().take(options.slowest) {
            println!("{:6.2} s {name}", time.as_secs_f64());
        }
        self.starts.print(options.start);
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        );
        if self.passed < options.require {
            println!("FAILED: {} tests must pass", options.require);
            return 1;
        }
        let cells = self.starts.count(options.start);
        if cells < options.cells {
            let way = options.start.name();
            println!("FAILED: {} cells must be started as {way}", options.cells);
            return 1;
        }
        i32::from(self.failed > 0)
    }
}
