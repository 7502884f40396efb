//! Cgroups for real: limits that hold, cells that go, supervisors that die.
//!
//! Prints a line per test, `skip NAME: why` for one that this host cannot run,
//! and a closing count. Arguments select tests by a part of their names.
//!
//! Environment: `CELLBLOCK_EXPECT_CGROUP` names how a cgroup must be obtained
//! (`delegated`, `root`, `systemd-user`, …, or `none`); unless it is `none`, a
//! test that is skipped fails then, so that nothing goes missing unnoticed.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cgroup::{Attempt, CellCgroup, CgroupLimits, CgroupSite};
use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike as _;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use spec::{Bytes, CgroupChoice};

/// The controllers that cells use.
const ALL: [&str; 3] = ["cpu", "memory", "pids"];

const TESTS: [(&str, Test); 19] = [
    // First, before any test has enabled controllers and moved processes.
    ("several_begin_at_once", several_begin_at_once),
    ("the_expected_way_is_found", the_expected_way_is_found),
    ("limits_read_back", limits_read_back),
    (
        "what_is_not_as_it_was_set_is_seen",
        what_is_not_as_it_was_set_is_seen,
    ),
    ("memory_limit_kills_the_cell", memory_limit_kills_the_cell),
    ("process_limit_holds", process_limit_holds),
    ("cpu_limit_throttles", cpu_limit_throttles),
    ("cpu_time_is_counted", cpu_time_is_counted),
    ("kill_ends_everything", kill_ends_everything),
    (
        "remove_takes_the_living_along",
        remove_takes_the_living_along,
    ),
    ("dropping_removes", dropping_removes),
    ("a_given_directory_is_used", a_given_directory_is_used),
    ("a_given_directory_is_refused", a_given_directory_is_refused),
    ("an_id_is_used_once", an_id_is_used_once),
    ("no_child_is_left_behind", no_child_is_left_behind),
    ("the_janitor_holds_nothing", the_janitor_holds_nothing),
    (
        "a_killed_supervisor_leaves_nothing",
        a_killed_supervisor_leaves_nothing,
    ),
    ("killed_at_any_time", killed_at_any_time),
    ("a_sweep_takes_the_stale_only", a_sweep_takes_the_stale_only),
];

type Test = fn() -> Result<(), Stop>;

/// Why a test stopped.
enum Stop {
    Skip(String),
    Fail(String),
}

impl<E: std::fmt::Display> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fail(error.to_string())
    }
}

fn skip<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Skip(why.into()))
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Stop::Fail(format!($($message)+)));
        }
    };
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == "--child"
    {
        return child(rest);
    }
    // Options for cargo's own harness may be among the arguments.
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let strict = expected().is_some_and(|way| way != "none");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in TESTS {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        match test() {
            Ok(()) => {
                passed += 1;
                println!("ok   {name}");
            }
            Err(Stop::Skip(why)) if !strict => {
                skipped += 1;
                println!("skip {name}: {why}");
            }
            Err(Stop::Skip(why) | Stop::Fail(why)) => {
                failed += 1;
                println!("FAIL {name}: {why}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

fn expected() -> Option<String> {
    env::var("CELLBLOCK_EXPECT_CGROUP").ok()
}

// ------------------------------------------------------------------ the tests

fn several_begin_at_once() -> Result<(), Stop> {
    let mut children = Vec::new();
    for number in 0..8 {
        children.push(role(&["churn", &number.to_string(), "20"])?);
    }
    for mut child in children {
        let mut said = String::new();
        child.out.read_to_string(&mut said)?;
        child.process.wait()?;
        if let Some(why) = said.strip_prefix("skip: ") {
            return skip(why.trim_end());
        }
        ensure!(said == "done\n", "{said}");
    }
    Ok(())
}

fn the_expected_way_is_found() -> Result<(), Stop> {
    let Some(way) = expected() else {
        return skip("CELLBLOCK_EXPECT_CGROUP does not say what to expect");
    };
    let Attempt { cell, tried } = prepare("expected", |_| {})?;
    for failure in &tried {
        println!("     {failure}; hint: {:?}", failure.why.hint);
        ensure!(failure.why.operand.is_some(), "it does not say on what");
    }
    let found = (cell.as_ref()).map_or_else(|| "none".to_owned(), |cell| cell.record().source);
    ensure!(found == way, "found {found}, not {way}");
    match cell {
        Some(cell) => {
            let record = cell.record();
            println!("     {record:?}");
            ensure!(record.controllers == ALL, "{record:?}");
            ensure!(
                cell.path().ends_with(record.path.trim_start_matches('/')),
                "{record:?}"
            );
            cell.remove()?;
        }
        None => {
            ensure!(!tried.is_empty(), "none, and nothing was tried");
            let hints = tried.iter().all(|failure| failure.why.hint.is_some());
            ensure!(hints, "no way out is given");
        }
    }
    Ok(())
}

fn limits_read_back() -> Result<(), Stop> {
    let cell = limited("limits", |limits| {
        // Not a multiple of the page size.
        limits.memory = Some(Bytes(50_000_000));
        limits.processes = Some(20);
        limits.cpus = Some(1.5);
    })?;
    let held = cell.enforced();
    let page = 4096;
    ensure!(
        held.memory == Some(Bytes(50_000_000 / page * page)),
        "{held:?}"
    );
    ensure!(held.processes == Some(20), "{held:?}");
    ensure!(held.cpus == Some(1.5), "{held:?}");
    ensure!(cell.unenforced().is_empty(), "{:?}", cell.unenforced());
    cell.throttle()?;
    for (file, value) in [
        ("memory.max", "49999872\n"),
        ("memory.oom.group", "1\n"),
        ("pids.max", "21\n"),
        ("cpu.max", "150000 100000\n"),
        ("cgroup.max.descendants", "0\n"),
    ] {
        let found = fs::read_to_string(cell.path().join(file))?;
        ensure!(found == value, "{file} is {found}");
    }
    let swap = cell.path().join("memory.swap.max");
    ensure!(
        !swap.exists() || fs::read_to_string(&swap)? == "0\n",
        "swap is allowed"
    );
    Ok(cell.remove()?)
}

/// Before a waiting cell gets a program, its supervisor looks at its cgroup.
fn what_is_not_as_it_was_set_is_seen() -> Result<(), Stop> {
    let cell = limited("changed", |limits| {
        limits.memory = Some(Bytes::mib(64));
        limits.processes = Some(20);
        limits.cpus = Some(0.5);
    })?;
    let init = joined(&cell, &["sleep"])?;
    let pid = Pid::from_raw(i32::try_from(init.process.id())?);
    let complaint = |pid| {
        let seen = cell.verify(pid).err();
        seen.map_or_else(String::new, |error| error.to_string())
    };
    ensure!(complaint(pid).is_empty(), "{}", complaint(pid));
    let outside = complaint(Pid::this());
    ensure!(outside.contains("cgroup.procs"), "{outside:?}");
    for file in [
        "memory.max",
        "memory.oom.group",
        "pids.max",
        "cgroup.max.descendants",
    ] {
        let path = cell.path().join(file);
        let whole = fs::read_to_string(&path)?;
        let weaker = if file == "memory.oom.group" {
            "0"
        } else {
            "max"
        };
        fs::write(&path, weaker)?;
        let seen = complaint(pid);
        ensure!(seen.contains(file), "{file}: {seen:?}");
        fs::write(&path, whole.trim())?;
    }
    ensure!(complaint(pid).is_empty(), "{}", complaint(pid));
    drop(init);
    Ok(cell.remove()?)
}

fn memory_limit_kills_the_cell() -> Result<(), Stop> {
    let limit = Bytes::mib(64);
    let cell = limited("memory", |limits| limits.memory = Some(limit))?;
    // An innocent process is killed as well: a cgroup is killed as a whole.
    let mut bystander = joined(&cell, &["sleep"])?;
    let mut eater = joined(&cell, &["eat", "1024"])?;
    let (eater, bystander) = (eater.process.wait()?, bystander.process.wait()?);
    ensure!(eater.signal() == Some(9), "the eater: {eater}");
    ensure!(bystander.signal() == Some(9), "the bystander: {bystander}");
    let usage = cell.usage();
    ensure!(usage.oom_kills >= Some(2), "{usage:?}");
    if cell.path().join("memory.peak").exists() {
        let peak = usage.memory_peak;
        ensure!(
            peak > Some(Bytes::mib(60)) && peak <= Some(limit),
            "{usage:?}"
        );
    }
    if fs::read_to_string(cell.path().join("memory.events"))?.contains("oom_group_kill") {
        ensure!(usage.oom_group_kills == Some(1), "{usage:?}");
    }
    Ok(cell.remove()?)
}

fn process_limit_holds() -> Result<(), Stop> {
    let cell = limited("processes", |limits| limits.processes = Some(5))?;
    // The process that joins stands in for the cell's init.
    let mut forker = joined(&cell, &["threads", "50"])?;
    let made = forker.line()?;
    ensure!(made == "5", "{made} of 5 threads");
    let usage = cell.usage();
    ensure!(usage.forks_refused >= Some(1), "{usage:?}");
    if cell.path().join("pids.peak").exists() {
        ensure!(usage.processes_peak == Some(5), "{usage:?}");
    }
    Ok(cell.remove()?)
}

fn cpu_limit_throttles() -> Result<(), Stop> {
    let cell = limited("cpus", |limits| limits.cpus = Some(0.2))?;
    // Not during the cell's set-up.
    let unlimited = fs::read_to_string(cell.path().join("cpu.max"))?;
    ensure!(unlimited == "max 100000\n", "{unlimited}");
    cell.throttle()?;
    let begin = Instant::now();
    let mut burner = joined(&cell, &["use", "1000"])?;
    burner.process.wait()?;
    let (used, passed) = (cell.cpu_used()?.total(), begin.elapsed());
    let usage = cell.usage();
    // Periods are handed out whole, and an emulated processor that has to wait for a real one
    // counts the wait, which the kernel takes from later periods.
    ensure!(used < passed.mul_f64(0.6), "{used:?} of {passed:?}");
    ensure!(usage.throttled_periods > Some(3), "{usage:?}");
    ensure!(
        usage.throttled > Some(Duration::from_millis(100)),
        "{usage:?}"
    );
    Ok(cell.remove()?)
}

fn cpu_time_is_counted() -> Result<(), Stop> {
    let cell = cell("cpu-time", |_| {})?;
    let before = cell.cpu_used()?.total();
    ensure!(before == Duration::ZERO, "{before:?} before anything ran");
    let mut first = joined(&cell, &["use", "300"])?;
    let mut second = joined(&cell, &["use", "300"])?;
    first.process.wait()?;
    second.process.wait()?;
    let used = cell.cpu_used()?;
    // An emulated processor that has to wait for a real one counts the wait.
    let range = Duration::from_millis(590)..Duration::from_secs(20);
    ensure!(
        range.contains(&used.total()),
        "{used:?} by two that used 300 ms each"
    );
    // The last moments of a process may be counted after its end was seen.
    let later = cell.usage().cpu.ok_or("no CPU time")?.total();
    let drift = later.checked_sub(used.total());
    ensure!(
        drift < Some(Duration::from_secs(2)),
        "{used:?}, then {later:?}"
    );
    ensure!(drift.is_some(), "{used:?}, then {later:?}");
    Ok(cell.remove()?)
}

fn kill_ends_everything() -> Result<(), Stop> {
    let cell = cell("kill", |_| {})?;
    let mut family: Vec<Role> = Vec::new();
    for _ in 0..4 {
        family.push(joined(&cell, &["sleep"])?);
    }
    cell.kill()?;
    for mut member in family {
        let status = member.process.wait()?;
        ensure!(status.signal() == Some(9), "{status}");
    }
    Ok(cell.remove()?)
}

fn remove_takes_the_living_along() -> Result<(), Stop> {
    let cell = cell("remove", |_| {})?;
    let path = cell.path().to_owned();
    let mut sleeper = joined(&cell, &["sleep"])?;
    cell.remove()?;
    ensure!(!path.exists(), "{} is still there", path.display());
    let status = sleeper.process.wait()?;
    ensure!(status.signal() == Some(9), "{status}");
    Ok(())
}

fn dropping_removes() -> Result<(), Stop> {
    let cell = cell("drop", |_| {})?;
    let path = cell.path().to_owned();
    let mut sleeper = joined(&cell, &["sleep"])?;
    drop(cell);
    ensure!(!path.exists(), "{} is still there", path.display());
    sleeper.process.wait()?;
    Ok(())
}

fn a_given_directory_is_used() -> Result<(), Stop> {
    let directory = Scratch::new("given")?;
    let choice = CgroupChoice::Path(directory.0.clone());
    let Attempt { cell, tried } = CgroupSite::find(&choice)?.cell(
        &unique("given"),
        &CgroupLimits {
            memory: Some(Bytes::mib(64)),
            ..CgroupLimits::default()
        },
    )?;
    let cell = cell.ok_or("no cgroup")?;
    ensure!(tried.is_empty(), "{tried:?}");
    ensure!(cell.record().source == "given", "{:?}", cell.record());
    ensure!(
        cell.path().parent() == Some(directory.0.as_path()),
        "{:?}",
        cell.path()
    );
    if cell
        .record()
        .controllers
        .iter()
        .any(|name| name == "memory")
    {
        ensure!(
            cell.enforced().memory == Some(Bytes::mib(64)),
            "{:?}",
            cell.enforced()
        );
    } else {
        ensure!(cell.enforced().memory.is_none(), "{:?}", cell.enforced());
        ensure!(!cell.unenforced().is_empty(), "no reason is given");
    }
    Ok(cell.remove()?)
}

fn a_given_directory_is_refused() -> Result<(), Stop> {
    let missing = Path::new("/sys/fs/cgroup/no such cgroup");
    for path in [missing, Path::new("/tmp"), Path::new("/proc/self/status")] {
        let choice = CgroupChoice::Path(path.to_owned());
        match CgroupSite::find(&choice) {
            Ok(_) => return Err(Stop::Fail(format!("{} was taken", path.display()))),
            Err(error) => {
                ensure!(error.operand.as_deref() == path.to_str(), "{error}");
                ensure!(error.hint.is_some(), "{error}: no way out is given");
            }
        }
    }
    Ok(())
}

fn an_id_is_used_once() -> Result<(), Stop> {
    let first = cell("twice", |_| {})?;
    let id = unique("twice");
    let Attempt {
        cell: second,
        tried,
    } = attempt(&CgroupChoice::Auto, &id)?;
    ensure!(
        tried
            .iter()
            .any(|t| t.why.errno_name.as_deref() == Some("EEXIST")),
        "{tried:?}"
    );
    // A scope of its own is accepted as well.
    if let Some(second) = second {
        ensure!(second.path() != first.path(), "two cells share a cgroup");
        second.remove()?;
    }
    ensure!(first.path().exists(), "the first one's cgroup is gone");
    first.remove()?;
    for id in ["", "a/b", "..", "a b"] {
        ensure!(
            attempt(&CgroupChoice::Auto, id).is_err(),
            "{id:?} was taken"
        );
    }
    Ok(())
}

fn no_child_is_left_behind() -> Result<(), Stop> {
    let cell = cell("children", |_| {})?;
    ensure!(
        children(std::process::id())?.len() == 1,
        "there is no janitor"
    );
    cell.remove()?;
    let left = waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL));
    ensure!(left == Err(Errno::ECHILD), "{left:?}");
    Ok(())
}

fn the_janitor_holds_nothing() -> Result<(), Stop> {
    let supervisor = supervisor("holds", &CgroupChoice::Auto)?;
    let janitor = supervisor.janitor;
    let fds = || -> Result<Vec<String>, Stop> {
        let mut fds = Vec::new();
        for entry in fs::read_dir(format!("/proc/{janitor}/fd"))? {
            fds.push(fs::read_link(entry?.path())?.display().to_string());
        }
        fds.sort();
        Ok(fds)
    };
    // It closes all other descriptors right after its start.
    within("the janitor has more than two descriptors", || {
        Ok(fds()?.len() == 2)
    })?;
    let fds = fds()?;
    ensure!(fds[0].contains("/cgroup"), "{fds:?}");
    ensure!(fds[1].contains("pidfd"), "{fds:?}");
    within("the janitor is in the supervisor's session", || {
        Ok(stat_field(janitor, 6)? == janitor)
    })
}

fn a_killed_supervisor_leaves_nothing() -> Result<(), Stop> {
    let Supervisor {
        mut role,
        path,
        sleeper,
        janitor,
    } = supervisor("killed", &CgroupChoice::Auto)?;
    ensure!(path.is_dir(), "{} is not there", path.display());
    role.process.kill()?;
    role.process.wait()?;
    within("the cgroup is still there", || Ok(!path.exists()))?;
    within("its process is still alive", || Ok(gone(sleeper)))?;
    within("the janitor is still alive", || Ok(gone(janitor)))
}

fn killed_at_any_time() -> Result<(), Stop> {
    let place = cell("any-time", |_| {})?;
    let above = place.path().parent().ok_or("no parent")?.to_owned();
    for round in 0..40 {
        let mut supervisor = role(&["supervise", &unique(&format!("any-time-{round}")), "auto"])?;
        // From before its first instruction to well after its last step.
        thread::sleep(Duration::from_micros(round * 500));
        supervisor.process.kill()?;
        supervisor.process.wait()?;
    }
    let left = || {
        fs::read_dir(&above).map(|entries| {
            entries
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().contains("-any-time-"))
                .filter(|entry| entry.path() != place.path())
                .count()
        })
    };
    within("cgroups are still there", || Ok(left()? == 0))?;
    Ok(place.remove()?)
}

fn a_sweep_takes_the_stale_only() -> Result<(), Stop> {
    // In a parent cgroup that no other cellblock sweeps.
    let place = Scratch::new("sweep")?;
    let choice = CgroupChoice::Path(place.0.clone());
    let living = supervisor("living", &choice)?;
    let mut stale = supervisor("stale", &choice)?;
    // Without its janitor, which would remove it before this test does.
    kill(Pid::from_raw(stale.janitor.try_into()?), Signal::SIGKILL)?;
    stale.role.process.kill()?;
    stale.role.process.wait()?;
    // A new cgroup is left alone, since it may not be locked yet.
    let swept = CgroupSite::find(&choice)?.sweep();
    let young = stale.role.started.elapsed() < Duration::from_secs(1);
    ensure!(swept == 0 || !young, "it took a young one");
    thread::sleep(Duration::from_millis(3500));
    // Each sweep has little time, which a busy host may not let it use.
    let mut swept = swept;
    let end = Instant::now() + PATIENCE;
    while stale.path.exists() {
        ensure!(Instant::now() < end, "the stale one is still there");
        swept += CgroupSite::find(&choice)?.sweep();
    }
    ensure!(swept == 1, "{swept} instead of one");
    ensure!(living.path.exists(), "the living one is gone");
    within("its process is still alive", || Ok(gone(stale.sleeper)))?;
    ensure!(!gone(living.sleeper), "the living one's process is gone");
    Ok(())
}

// ------------------------------------------------------------- given and when

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fails with `what` unless `condition` comes true in time.
fn within(what: &str, condition: impl Fn() -> Result<bool, Stop>) -> Result<(), Stop> {
    let end = Instant::now() + PATIENCE;
    while !condition()? {
        ensure!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Field `number` of `/proc/PID/stat`, counted from 1 as in proc(5).
fn stat_field(pid: u32, number: usize) -> Result<u32, Stop> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, behind_name) = stat.rsplit_once(')').ok_or("no name")?;
    let field = behind_name.split_whitespace().nth(number - 3);
    Ok(field.ok_or("no such field")?.parse()?)
}

/// Whether there is no such process, or only its status is left.
fn gone(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

/// The children of `pid`.
fn children(pid: u32) -> Result<Vec<u32>, Stop> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let child = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(child) = child
            && stat_field(child, 4).is_ok_and(|parent| parent == pid)
        {
            found.push(child);
        }
    }
    Ok(found)
}

/// Another process with a cell.
struct Supervisor {
    role: Role,
    /// Its cell's cgroup.
    path: PathBuf,
    /// The process that sleeps there.
    sleeper: u32,
    /// Its other child.
    janitor: u32,
}

fn supervisor(name: &str, choice: &CgroupChoice) -> Result<Supervisor, Stop> {
    let place = match choice {
        CgroupChoice::Path(path) => path.to_str().ok_or("a path that is not UTF-8")?,
        _ => "auto",
    };
    let mut role = role(&["supervise", &unique(name), place])?;
    let line = role.line()?;
    if let Some(why) = line.strip_prefix("skip: ") {
        return skip(why);
    }
    ensure!(line == "ready", "{line}");
    let path = PathBuf::from(role.line()?);
    let sleeper: u32 = role.line()?.parse()?;
    let mut children = children(role.process.id())?;
    children.retain(|child| *child != sleeper);
    let [janitor] = children[..] else {
        return Err(Stop::Fail(format!("its other children: {children:?}")));
    };
    Ok(Supervisor {
        role,
        path,
        sleeper,
        janitor,
    })
}

fn unique(name: &str) -> String {
    format!("test-{name}-{}", std::process::id())
}

/// What comes of a cell without limits.
fn attempt(choice: &CgroupChoice, id: &str) -> Result<Attempt, Stop> {
    Ok(CgroupSite::find(choice)?.cell(id, &CgroupLimits::default())?)
}

fn prepare(name: &str, change: impl FnOnce(&mut CgroupLimits)) -> Result<Attempt, Stop> {
    let mut limits = CgroupLimits::default();
    change(&mut limits);
    Ok(CgroupSite::find(&CgroupChoice::Auto)?.cell(&unique(name), &limits)?)
}

/// A cell's cgroup, with the available controllers.
fn cell(name: &str, change: impl FnOnce(&mut CgroupLimits)) -> Result<CellCgroup, Stop> {
    let Attempt { cell, tried } = prepare(name, change)?;
    match cell {
        Some(cell) => Ok(cell),
        None => skip(
            tried
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        ),
    }
}

/// A cell's cgroup with all controllers.
fn limited(name: &str, change: impl FnOnce(&mut CgroupLimits)) -> Result<CellCgroup, Stop> {
    let cell = cell(name, change)?;
    if cell.record().controllers == ALL {
        return Ok(cell);
    }
    let held = cell.enforced();
    if held != CgroupLimits::default() {
        return Err(Stop::Fail(format!("{held:?} without the controllers")));
    }
    skip(format!(
        "the cgroup has only these controllers: {:?}",
        cell.record().controllers
    ))
}

/// A directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    /// Makes one next to the cells' cgroups.
    fn new(name: &str) -> Result<Self, Stop> {
        let neighbour = cell(name, |_| {})?;
        let above = neighbour.path().parent().ok_or("no directory above")?;
        let scratch = Self(above.join(unique(name)));
        fs::create_dir(&scratch.0)?;
        neighbour.remove()?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Cells may still be ending.
        let empty = || Ok(fs::remove_dir(&self.0).is_ok());
        let _ = within("it is in use", empty);
    }
}

/// This program, started again in another role.
struct Role {
    started: Instant,
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Role {
    fn line(&mut self) -> Result<String, Stop> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn role(args: &[&str]) -> Result<Role, Stop> {
    let started = Instant::now();
    let mut process = Command::new(env::current_exe()?)
        .arg("--child")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = process.stdout.take().ok_or("no pipe")?;
    Ok(Role {
        started,
        process,
        out: BufReader::new(out),
    })
}

/// The same inside `cell`; returns once it has joined.
fn joined(cell: &CellCgroup, args: &[&str]) -> Result<Role, Stop> {
    let path = cell.path().to_str().ok_or("a path that is not UTF-8")?;
    let mut role = role(&[&["join", path], args].concat())?;
    let line = role.line()?;
    ensure!(line == "joined", "could not join {path}: {line}");
    Ok(role)
}

// ------------------------------------------------------------------ the roles

fn child(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["join", path, ref rest @ ..] => fs::write(Path::new(path).join("cgroup.procs"), "0")
            .map_err(Stop::from)
            .and_then(|()| {
                say("joined");
                act(rest)
            }),
        ["supervise", id, place] => supervise(id, place),
        ["time", rounds] => time(rounds),
        ["churn", number, rounds] => churn(number, rounds),
        _ => act(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Skip(why)) => {
            say(&format!("skip: {why}"));
            ExitCode::FAILURE
        }
        Err(Stop::Fail(why)) => {
            say(&why);
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    // The reader may have been killed.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn act(args: &[&str]) -> Result<(), Stop> {
    match *args {
        ["sleep"] => loop {
            thread::sleep(Duration::from_secs(60));
        },
        ["eat", mib] => {
            let mut eaten = Vec::new();
            for _ in 0..mib.parse::<usize>()? {
                eaten.push(vec![1_u8; 1 << 20]);
            }
            say(&format!("survived with {}", eaten.len()));
        }
        ["threads", count] => {
            let sleep = || thread::sleep(Duration::from_secs(600));
            let count = count.parse()?;
            let made = (0..count)
                .take_while(|_| thread::Builder::new().spawn(sleep).is_ok())
                .count();
            say(&made.to_string());
            sleep();
        }
        ["use", ms] => {
            // CPU time before it joined does not count.
            let wanted = cpu_time()? + Duration::from_millis(ms.parse()?);
            while cpu_time()? < wanted {
                std::hint::spin_loop();
            }
        }
        _ => return Err(Stop::Fail(format!("no such role: {args:?}"))),
    }
    Ok(())
}

/// Makes a cell with a sleeper in it, and waits to be killed.
fn supervise(id: &str, place: &str) -> Result<(), Stop> {
    let choice = match place {
        "auto" => CgroupChoice::Auto,
        path => CgroupChoice::Path(path.into()),
    };
    let Attempt { cell, tried } = attempt(&choice, id)?;
    let Some(cell) = cell else {
        return skip(
            tried
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        );
    };
    let sleeper = joined(&cell, &["sleep"])?;
    say("ready");
    say(&cell.path().display().to_string());
    say(&sleeper.process.id().to_string());
    act(&["sleep"])
}

/// Prints the time to make and remove a cell.
fn time(rounds: &str) -> Result<(), Stop> {
    let mut times: Vec<(Duration, Duration)> = Vec::new();
    for round in 0..rounds.parse()? {
        let limits = |limits: &mut CgroupLimits| {
            limits.memory = Some(Bytes::mib(64));
            limits.processes = Some(8);
            limits.cpus = Some(1.0);
        };
        let begin = Instant::now();
        let cell = cell(&format!("time-{round}"), limits)?;
        let made = begin.elapsed();
        let begin = Instant::now();
        cell.remove()?;
        times.push((made, begin.elapsed()));
    }
    let (mut made, mut removed): (Vec<_>, Vec<_>) = times.into_iter().unzip();
    made.sort();
    removed.sort();
    let middle = made.len() / 2;
    say(&format!(
        "made {:?}, removed {:?} (medians)",
        made[middle], removed[middle]
    ));
    Ok(())
}

/// The CPU time of this process.
fn cpu_time() -> Result<Duration, Stop> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = [usage.user_time(), usage.system_time()].map(|time| time.num_microseconds());
    Ok(Duration::from_micros(
        micros.iter().sum::<i64>().try_into()?,
    ))
}

/// Makes and removes cells, one after the other, and sweeps in between: what
/// others are just making or using must stay.
fn churn(number: &str, rounds: &str) -> Result<(), Stop> {
    for round in 0..rounds.parse()? {
        let limits = |limits: &mut CgroupLimits| {
            limits.memory = Some(Bytes::mib(64));
            limits.processes = Some(8);
        };
        let cell = cell(&format!("churn-{number}-{round}"), limits)?;
        for _ in 0..3 {
            CgroupSite::find(&CgroupChoice::Auto)?.sweep();
            ensure!(cell.path().exists(), "round {round}: a living cell is gone");
        }
        cell.remove()?;
    }
    say("done");
    Ok(())
}
