//! Cells with several executions, which no command has yet, and warnings.

mod blank;
mod copy;
mod egress;
mod guests;

use std::error::Error;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::Pid;

use super::{fallback_warning, hold_limits, resolve_on};
use crate::skip::skip;
use jail::child::Content;
use jail::launch::{Launch, Role};
use languages::frames::{Code, Request as DriverRequest, Work};
use plan::probe::HostFacts;
use plan::{Fallback, Plan};
use record::error::Step;
use record::{CodeError, Connection, RefusedHost, ResultItem};
use spec::{self, Ask, Bytes, Mode as SpecMode, Partial, Stdin, Stdio};
use supervise::{Cancel, Cell, Denials, Execution, Observer, Request, Stream};
use sys::alone::alone;

/// Long enough for a host that stalls.
const PATIENCE: Duration = Duration::from_secs(100);

/// Runs pieces of Python in one process, as a driver does.
const DRIVER: &str = r#"
import os, struct, sys
def take(count):
    data = b''
    while len(data) < count:
        more = os.read(3, count - len(data))
        if not more:
            sys.exit(int(state.get('status', 0)))
        data += more
    return data
def request():
    body, fields = take(struct.unpack('>I', take(4))[0]), {}
    while body:
        key, value = struct.unpack('>BI', body[1:6])
        fields[body[6:6 + key]] = body[6 + key:6 + key + value]
        body = body[6 + key + value:]
    return fields
def field(key, value):
    return b't' + struct.pack('>BI', len(key), len(value)) + key + value
def send(kind, execution):
    body = field(b'kind', kind) + field(b'execution', execution)
    os.write(4, struct.pack('>I', len(body)) + body)
state = {}
while True:
    fields = request()
    execution = fields.get(b'execution', b'1')
    send(b'started', execution)
    state['send'] = send
    exec(fields[b'code'], state)
    sys.stdout.flush()
    send(b'done', execution)
"#;

fn plan() -> Result<Rc<Plan>, Box<dyn Error>> {
    let ask = Ask {
        mode: SpecMode::Exec,
        cwd: Path::new("/"),
        stdio: Stdio::Capture,
        lends: false,
    };
    let argv = ["/usr/bin/python3", "-c", DRIVER].map(Into::into);
    let partial = Partial {
        argv: Some(argv.into()),
        ..Partial::default()
    };
    let mut spec = spec::load(&ask, None, None, partial)?;
    spec.stdin = Stdin::Null;
    let mut plan = resolve_on(&spec, HostFacts::gather()?)?.plan;
    plan.program.channel = true;
    Ok(Rc::new(plan))
}

fn start(plan: &Rc<Plan>) -> Result<Box<Cell<'static>>, Box<dyn Error>> {
    start_with(plan, Fallback::default())
}

fn start_with(plan: &Rc<Plan>, fallback: Fallback) -> Result<Box<Cell<'static>>, Box<dyn Error>> {
    let launch = Launch {
        role: Role::Program,
        plan: Rc::clone(plan),
        filter: None,
        content: Content::default(),
        cgroup: None,
        fallback,
        until: Step::Exec,
        holds: false,
    };
    Ok(Cell::start(launch, Denials::default(), Cancel::default())?)
}

fn request(execution: u64, code: &str, is_last: bool) -> Result<Request<'static>, Box<dyn Error>> {
    let message = DriverRequest {
        execution,
        follows_interrupt: false,
        is_restored: false,
        work: Work::Execute(Code {
            code: &code.into(),
            name: "code",
            directory: Path::new("/workspace"),
            has_file: false,
            args: &[],
            memory: None,
            is_last,
        }),
    };
    Ok(Request {
        execution,
        message: message.encode()?,
        is_last,
        results: Bytes(1 << 20),
        ..Request::default()
    })
}

/// The process of a cell's program, the only child of its init.
fn program_of(cell: &Cell<'_>) -> Result<Pid, Box<dyn Error>> {
    let init = cell.parts().0.init.pid;
    let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children"))?;
    Ok(Pid::from_raw(children.trim().parse()?))
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: Pid) -> Result<bool, Box<dyn Error>> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(task?.path().join("stat"))?;
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        if !state.is_some_and(|state| state.starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn stdout(execution: Execution) -> String {
    let [stdout, _] = execution.output;
    stdout.map_or_else(String::new, |stdout| stdout.finish().text.to_string())
}

#[test]
fn executions_share_variables_and_have_outputs_of_their_own() {
    alone(|| {
        let plan = plan()?;
        let mut cell = start(&plan)?;
        let work = "import time; x = 20
while time.process_time() < 0.1: pass
print('first')";
        let first = cell.execute(request(1, work, false)?)?;
        assert!(first.report.is_done && first.began_ns > 0 && first.ended_ns >= first.began_ns);
        let first_ended = first.ended_ns;
        assert_eq!(stdout(first), "first\n");
        let late = "send(b'error', b'1'); print(x + 1)";
        let second = cell.execute(request(2, late, false)?)?;
        assert_eq!(
            (second.report.foreign, second.report.error.is_none()),
            (1, true)
        );
        assert!(second.began_ns >= first_ended);
        assert!(second.cpu_before.total() > Duration::ZERO);
        assert_eq!(stdout(second), "21\n");
        let last = cell.execute(request(3, "status = 7; print('last')", true)?)?;
        assert_eq!(stdout(last), "last\n");
        let observed = cell.end()?;
        assert_eq!(
            observed.status.map(|status| libc::WEXITSTATUS(status)),
            Some(7)
        );
        assert_eq!((observed.failure, observed.stopped), (None, None));
        Ok(())
    });
}

/// An observer for which each piece of output takes long, as if the host had stalled.
struct Slow;

impl Observer for Slow {
    fn wrote(&self, _: Stream, _: &[u8]) {
        std::thread::sleep(Duration::from_millis(200));
    }

    fn started(&self) {}
    fn stream_ended(&self, _: Stream) {}
    fn denied(&self, _: i64) {}
    fn connection(&self, _: &Connection) {}
    fn refused(&self, _: &RefusedHost) {}
    fn result(&self, _: &ResultItem) {}
    fn update(&self, _: &ResultItem) {}
    fn clear(&self, _: bool) {}
    fn error(&self, _: &CodeError) {}

    fn has_room(&self) -> bool {
        true
    }

    fn waits_for(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn flush(&self) {}
}

#[test]
fn all_that_was_written_is_read_on_a_host_that_stalls() {
    alone(|| {
        let mut cell = start(&plan()?)?;
        // The pipe takes all of it while the supervisor deals with the first piece.
        let write = "print('x', flush=True); print('y' * 60_000)";
        let request = Request {
            observer: Some(&Slow),
            ..request(1, write, false)?
        };
        let written = stdout(cell.execute(request)?);
        assert_eq!(written.len(), 60_003);
        Ok(())
    });
}

#[test]
fn a_living_cell_is_ended_and_counted() {
    alone(|| {
        let plan = plan()?;
        let mut cell = start(&plan)?;
        let execution = cell.execute(request(1, "print('only')", false)?)?;
        assert_eq!(stdout(execution), "only\n");
        let observed = cell.end()?;
        assert_eq!(
            observed.status.map(|status| libc::WTERMSIG(status)),
            Some(libc::SIGKILL)
        );
        assert!(observed.reaped.is_some() && !observed.unkillable);
        Ok(())
    });
}

#[test]
fn a_cell_without_an_execution_ends() {
    alone(|| {
        let plan = plan()?;
        let observed = start(&plan)?.end()?;
        assert_eq!((observed.failure, observed.unkillable), (None, false));
        assert!(observed.executed_ns > 0);
        Ok(())
    });
}

#[test]
fn the_program_is_interrupted_and_goes_on() {
    alone(|| {
        let plan = plan()?;
        let mut cell = start(&plan)?;
        let prepare = "import signal, time; hits = []
signal.signal(signal.SIGINT, lambda *_: hits.append(1))";
        cell.execute(request(1, prepare, false)?)?;
        assert!(cell.interrupt());
        let wait = "while not hits: time.sleep(0.01)
print(len(hits))";
        assert_eq!(stdout(cell.execute(request(2, wait, false)?)?), "1\n");
        Ok(())
    });
}

/// Init sends the signal, and the next request does not overtake it.
#[test]
fn a_signal_that_init_has_not_sent_meets_no_other_execution() {
    alone(|| {
        let plan = plan()?;
        let mut cell = start(&plan)?;
        let slow = |execution| -> Result<_, Box<dyn Error>> {
            Ok(Request {
                wall: Some(Duration::from_millis(50)),
                grace: Some(Duration::from_secs(60)),
                ..request(execution, "time.sleep(1)", false)?
            })
        };
        // On a busy host, the wall time of the next execution may be over before its code begins.
        let prepare = "import signal, time; hits = []
signal.signal(signal.SIGINT, lambda *_: hits.append(1))";
        cell.execute(request(1, prepare, false)?)?;
        cell.execute(slow(2)?)?;
        assert!(cell.was_interrupted());
        assert_eq!(
            stdout(cell.execute(request(3, "print(len(hits))", false)?)?),
            "1\n"
        );
        assert!(!cell.was_interrupted());
        kill(cell.parts().0.init.pid, Signal::SIGSTOP)?;
        cell.execute(slow(4)?)?;
        assert!(cell.is_over());
        Ok(())
    });
}

#[test]
fn nothing_changes_while_a_cell_is_frozen() {
    alone(|| {
        let plan = plan()?;
        let at = plan
            .own_scratch()
            .position(|s| s.name.path() == "/workspace");
        let at = at.ok_or("no workspace of its own")?;
        let mut cell = start(&plan)?;
        let write = "import threading, itertools
file = open('/workspace/file', 'w', buffering=1)
threading.Thread(target=lambda: [print(n, file=file) for n in itertools.count()], daemon=True).start()";
        cell.execute(request(1, write, false)?)?;
        let program = program_of(&cell)?;
        let size = |scratch: &[std::os::fd::OwnedFd]| -> Result<i64, Errno> {
            let file = openat(&scratch[at], "file", OFlag::O_RDONLY, Mode::empty())?;
            Ok(fstat(&file)?.st_size)
        };
        let frozen = cell.freeze()?;
        // A write that was under way still takes effect.
        let deadline = Instant::now() + PATIENCE;
        while !is_stopped(program)? {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = size(frozen.scratch())?;
        std::thread::sleep(Duration::from_millis(100));
        let after = size(frozen.scratch())?;
        assert_eq!(before, after);
        drop(frozen);
        let deadline = Instant::now() + PATIENCE;
        while size(cell.freeze()?.scratch())? == after {
            assert!(Instant::now() < deadline, "it stays frozen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
}

#[test]
fn limits_hold_while_init_does_not_stop_the_processes() {
    alone(|| {
        let mut own = Rc::unwrap_or_clone(plan()?);
        own.limits.cpu_time = Some(Duration::from_secs(1));
        let mut cell = start(&Rc::new(own))?;
        let busy = "import threading, itertools
threading.Thread(target=lambda: [0 for n in itertools.count()], daemon=True).start()";
        cell.execute(request(1, busy, false)?)?;
        kill(cell.parts().0.init.pid, Signal::SIGSTOP)?;
        // On a busy host, the limit is not reached in the first of these times.
        let deadline = Instant::now() + PATIENCE;
        while cell.lives() {
            assert!(Instant::now() < deadline, "the CPU limit was not looked at");
            assert!(cell.freeze().is_err());
        }
        Ok(())
    });
}

#[test]
fn a_dropped_cell_leaves_no_process_and_no_cgroup() {
    alone(|| {
        let plan = plan()?;
        let (cgroup, fallback) = hold_limits(&plan, &mut Vec::new())?;
        let directory = cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
        let launch = Launch {
            role: Role::Program,
            plan: Rc::clone(&plan),
            filter: None,
            content: Content::default(),
            cgroup,
            fallback,
            until: Step::Exec,
            holds: false,
        };
        let mut cell = Cell::start(launch, Denials::default(), Cancel::default())?;
        cell.execute(request(1, "import os; os.fork()", false)?)?;
        drop(cell);
        // Not even one that is to be reaped.
        assert_eq!(sys::process::reap(false), Err(Errno::ECHILD));
        match directory {
            Some(directory) => assert!(!directory.exists(), "{}", directory.display()),
            None => skip("no cgroup on this host"),
        }
        Ok(())
    });
}

#[test]
fn only_a_limit_without_its_cgroup_is_worth_a_warning() {
    let memory = Some(Bytes(1 << 20));
    let why = Some("systemd-user: ENOENT".to_owned());
    let warned = |memory, cpus, why| {
        let processes = None;
        fallback_warning(&Fallback {
            memory,
            processes,
            cpus,
            why,
        })
    };
    // Another way gave a cgroup that holds everything.
    assert_eq!(warned(None, None, why.clone()), None);
    // `--cgroup none`.
    assert_eq!(warned(memory, None, None), None);
    assert_eq!(
        warned(memory, Some(1), why).as_deref(),
        Some(
            "no cgroup limits memory, cpus, so a fallback does: systemd-user: ENOENT; `cellblock doctor` says how to get one"
        )
    );
}
