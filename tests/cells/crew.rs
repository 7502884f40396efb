//! Runs tests side by side, as many as there are CPUs.
//!
//! Each test runs in a process of its own, forked from the runner: by the user in question, in
//! a mount namespace apart from that of all others, and with a scratch directory that no other
//! test uses meanwhile. Under root, each place has a plain user of its own, so that what the
//! kernel counts by user is no other test's.

use std::any::Any;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::num::NonZero;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike as _;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{Gid, Pid, Uid, chdir, chown, geteuid, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

use super::raw::fork;
use super::scratch::{Scratch, chmod};
use super::start::Start;
use super::starts::Starts;
use super::table::{Body, Row};
use super::{Check, Need, Stage, Stop, fail, private};

/// The uid of the plain user of the first place when root runs the tests. It needs no entry in
/// the user database.
const PLAIN_USER: u32 = 4242;

/// Who runs a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    Root,
    Plain,
}

impl User {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Plain => "user",
        }
    }
}

/// A test to run.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) row: &'a Row<'a>,
    pub(super) user: User,
}

/// What became of a test.
#[derive(Serialize, Deserialize)]
pub(super) struct Came {
    pub(super) how: How,
    pub(super) notes: Vec<String>,
    pub(super) took: Duration,
    /// CPU time of the test's process and of those that it waited for.
    pub(super) cpu: Duration,
    pub(super) starts: Starts,
}

#[derive(Serialize, Deserialize)]
pub(super) enum How {
    Passed,
    Failed(String),
    Skipped(String),
}

/// The executables, and the places at which tests run.
pub(super) struct Crew {
    home: Scratch,
    start: Start,
    places: Vec<Place>,
}

/// Where one test after another runs.
struct Place {
    root: PathBuf,
    plain: PathBuf,
    plain_user: u32,
}

/// A test that runs.
struct Running<'a> {
    job: Job<'a>,
    place: usize,
    pid: Pid,
    came: File,
}

impl Crew {
    /// Copies the executables to where every user may run them, and makes the places.
    pub(super) fn new(start: Start) -> Check<Self> {
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
        let count = std::thread::available_parallelism().map_or(1, NonZero::get);
        let numbers = (0u32..).take(count);
        let places = numbers.map(|number| Place::make(&home, number));
        let places = places.collect::<Check<_>>()?;
        Ok(Self {
            home,
            start,
            places,
        })
    }

    /// Runs the tests and hands over what became of each as it ends. Those that need the machine
    /// alone come last, one after the other.
    pub(super) fn run<'a>(&self, jobs: &[Job<'a>], mut done: impl FnMut(Job<'a>, Came)) -> Check {
        let alone = |job: &&Job<'_>| job.row.needs.contains(&Need::Alone);
        let (last, first): (Vec<&Job<'_>>, Vec<_>) = jobs.iter().partition(alone);
        self.run_at(self.places.len(), &first, &mut done)?;
        self.run_at(1, &last, &mut done)
    }

    fn run_at<'a>(
        &self,
        at_once: usize,
        jobs: &[&Job<'a>],
        done: &mut impl FnMut(Job<'a>, Came),
    ) -> Check {
        let mut free: Vec<usize> = (0..at_once).collect();
        let mut running: Vec<Running<'a>> = Vec::new();
        let mut jobs = jobs.iter();
        loop {
            while let Some(place) = free.pop() {
                match jobs.next() {
                    Some(job) => running.push(self.begin(**job, place)?),
                    None => break,
                }
            }
            if running.is_empty() {
                return Ok(());
            }
            let status = wait()?;
            let ended = running
                .iter()
                .position(|test| Some(test.pid) == status.pid());
            let Some(ended) = ended else { continue };
            let test = running.swap_remove(ended);
            free.push(test.place);
            done(test.job, test.end(status));
        }
    }

    fn begin<'a>(&self, job: Job<'a>, place: usize) -> Check<Running<'a>> {
        let came = tempfile::tempfile()?;
        let result = came.try_clone()?;
        let pid = fork(|| {
            let came = self.play(job, &self.places[place]);
            i32::from(serde_json::to_writer(result, &came).is_err())
        })?;
        Ok(Running {
            job,
            place,
            pid,
            came,
        })
    }

    /// The test itself, in its process.
    fn play(&self, job: Job<'_>, place: &Place) -> Came {
        let began = Instant::now();
        let (how, notes) = match self.become_user(job.user, place) {
            Ok(stage) => (run_row(job.row, &stage), stage.take_notes()),
            Err(stop) => (Err(stop), Vec::new()),
        };
        let mut starts = Starts::default();
        starts.end_of(&job.row.name, self.start);
        let how = match how {
            Ok(()) => How::Passed,
            Err(Stop::Fail(why)) => How::Failed(why),
            Err(Stop::Skip(why)) => How::Skipped(why),
        };
        Came {
            how,
            notes,
            took: began.elapsed(),
            cpu: cpu_time(UsageWho::RUSAGE_SELF) + cpu_time(UsageWho::RUSAGE_CHILDREN),
            starts,
        }
    }

    /// Mounts that others make meanwhile must not look like a leak, so this process gets a mount
    /// namespace of its own before it gives up root. A plain user's process stays where it is
    /// unless it was root's.
    fn become_user(&self, user: User, place: &Place) -> Check<Stage> {
        set_pdeathsig(Signal::SIGKILL)?;
        chdir("/")?;
        let mut dir = &place.root;
        if geteuid().is_root() {
            private::enter()?;
        }
        if user == User::Plain {
            dir = &place.plain;
            if geteuid().is_root() {
                setgroups(&[])?;
                setgid(Gid::from_raw(place.plain_user))?;
                setuid(Uid::from_raw(place.plain_user))?;
            }
        }
        let cellblock = self
            .home
            .join(self.start.executable().unwrap_or("cellblock"));
        let probe = self.home.join("cells");
        Ok(Stage::new(cellblock, probe, dir.clone()))
    }
}

impl Place {
    fn make(home: &Scratch, number: u32) -> Check<Self> {
        let plain_user = PLAIN_USER + number;
        let plain = home.dir(&format!("plain-{number}"), 0o755)?;
        if geteuid().is_root() {
            chown(&plain, Some(plain_user.into()), Some(plain_user.into()))?;
        }
        Ok(Self {
            root: home.dir(&format!("root-{number}"), 0o755)?,
            plain,
            plain_user,
        })
    }
}

impl Running<'_> {
    fn end(mut self, status: WaitStatus) -> Came {
        self.read().unwrap_or_else(|stop| Came {
            how: How::Failed(format!("the test broke off ({status:?}): {stop:?}")),
            notes: Vec::new(),
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            starts: Starts::default(),
        })
    }

    fn read(&mut self) -> Check<Came> {
        let mut text = String::new();
        self.came.rewind()?;
        self.came.read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn cpu_time(whose: UsageWho) -> Duration {
    let Ok(usage) = getrusage(whose) else {
        return Duration::ZERO;
    };
    let times = [usage.user_time(), usage.system_time()];
    let micros = times.iter().map(|time| time.num_microseconds());
    Duration::from_micros(micros.sum::<i64>().unsigned_abs())
}

fn run_row(row: &Row<'_>, stage: &Stage) -> Check {
    if let Some(why) = row.needs.iter().find_map(|need| need.missing(stage)) {
        return Err(Stop::Skip(why));
    }
    // A failed `assert!` fails its test with its own words.
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
pub(super) fn keep_panics_short() {
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
