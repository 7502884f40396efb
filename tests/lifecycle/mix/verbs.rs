//! The actions of a hostile program in a mix.

use nix::libc;
use proptest::prelude::*;

/// One action.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    /// Takes and keeps this many MiB.
    Allocate(u32),
    /// The same, shared, and no longer mapped to pages.
    Share(u32),
    /// Writes this many MiB to a file.
    Write(Place, u32),
    /// Starts processes.
    Fork(u32, Child),
    /// Writes this many KiB to stdout.
    Flood(u32),
    /// Writes frames of its own to every other descriptor.
    Forge(Forgery),
    /// Signals a process.
    Kill(Target, i32),
    /// Locks a file of the host's.
    Lock,
    /// Puts links where files or directories are expected.
    Link,
    /// Changes the mode of its directories.
    Chmod(u32),
    /// Uses the CPU for this many milliseconds.
    Spin(u32),
    /// Raises an exception that a limit would cause.
    Raise(Exception),
    /// Makes this many system calls that the policy denies.
    Denied(u32),
    /// Ends with this status.
    Exit(u8),
    /// Never ends.
    Forever,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Workspace,
    Tmp,
    Shm,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Child {
    Ends,
    Stays,
    /// In a session of its own, stopped, with the pipes open.
    Daemon,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Forgery {
    Result,
    MemoryError,
    Done,
    Garbage,
    Endless,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Itself,
    Init,
    Everybody,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Exception {
    Memory,
    NoSpace,
    Again,
    FileTooBig,
}

/// Signals that a program may send, including those that report limits.
const SIGNALS: [i32; 6] = [
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
    libc::SIGKILL,
    libc::SIGTERM,
    libc::SIGSTOP,
];

pub(super) fn any_verb() -> impl Strategy<Value = Verb> {
    let place = prop_oneof![Just(Place::Workspace), Just(Place::Tmp), Just(Place::Shm)];
    let child = prop_oneof![Just(Child::Ends), Just(Child::Stays), Just(Child::Daemon)];
    let forgery = prop_oneof![
        Just(Forgery::Result),
        Just(Forgery::MemoryError),
        Just(Forgery::Done),
        Just(Forgery::Garbage),
        Just(Forgery::Endless),
    ];
    let target = prop_oneof![
        Just(Target::Itself),
        Just(Target::Init),
        Just(Target::Everybody)
    ];
    let exception = prop_oneof![
        Just(Exception::Memory),
        Just(Exception::NoSpace),
        Just(Exception::Again),
        Just(Exception::FileTooBig),
    ];
    prop_oneof![
        4 => (1_u32..300).prop_map(Verb::Allocate),
        2 => (1_u32..120).prop_map(Verb::Share),
        3 => (place, 1_u32..40).prop_map(|(place, size)| Verb::Write(place, size)),
        3 => (1_u32..80, child).prop_map(|(count, child)| Verb::Fork(count, child)),
        3 => (1_u32..4000).prop_map(Verb::Flood),
        3 => forgery.prop_map(Verb::Forge),
        2 => (target, proptest::sample::select(&SIGNALS[..])).prop_map(|(to, signal)| Verb::Kill(to, signal)),
        1 => Just(Verb::Lock),
        2 => Just(Verb::Link),
        2 => prop_oneof![Just(0_u32), Just(0o777), Just(0o4755)].prop_map(Verb::Chmod),
        1 => (1_u32..100).prop_map(Verb::Spin),
        2 => exception.prop_map(Verb::Raise),
        1 => (1_u32..50).prop_map(Verb::Denied),
        1 => any::<u8>().prop_map(Verb::Exit),
        1 => Just(Verb::Forever),
    ]
}

/// Verbs that can be tried without a cell and must succeed there.
pub(super) fn harmless_outside() -> [Verb; 8] {
    [
        Verb::Allocate(8),
        Verb::Share(8),
        Verb::Write(Place::Tmp, 1),
        Verb::Fork(3, Child::Ends),
        Verb::Flood(8),
        Verb::Lock,
        Verb::Link,
        Verb::Spin(5),
    ]
}

/// The beginning of all programs. A verb that fails does not stop the next one. `done N
/// of M` on stderr says how many succeeded.
const PRELUDE: &str = r#"
import ctypes, fcntl, mmap, os, signal, struct, sys, tempfile, time
kept, done, wanted = [], 0, 0
libc = ctypes.CDLL(None)

def field(form, key, value):
    return form + bytes([len(key)]) + struct.pack(">I", len(value)) + key + value

def frame(kind, *fields):
    body = b"".join((field(b"t", b"kind", kind), field(b"t", b"execution", b"1"), *fields))
    return struct.pack(">I", len(body)) + body

def everywhere(frame, times=1):
    for fd in range(3, 16):
        try:
            for _ in range(times):
                os.write(fd, frame)
        except OSError:
            pass

def fork(count, stays, daemon):
    for _ in range(count):
        if os.fork() == 0:
            if daemon:
                os.setsid()
                signal.raise_signal(signal.SIGSTOP)
            if stays:
                time.sleep(1000)
            os._exit(0)

def share(size):
    kept.append(mmap.mmap(-1, size))
    for at in range(0, size, 4096):
        kept[-1][at] = 1
    kept[-1].madvise(mmap.MADV_DONTNEED)

def fill(path, size):
    with open(path, "wb") as file:
        for _ in range(size):
            file.write(b"x" * (1 << 20))

def link(place):
    os.symlink("/etc/passwd", place + "/link")
    os.mkdir(place + "/dir")
    os.rename(place + "/dir", place + "/was")
    os.symlink("/", place + "/dir")
    os.mkfifo(place + "/pipe")

def attempt(verb):
    global done, wanted
    wanted += 1
    try:
        verb()
        done += 1
    except Exception:
        pass

here = "/workspace" if os.path.isdir("/run/cellblock") else os.getcwd()
"#;

/// The program that does all of this; `word` marks it.
pub(super) fn program(mix: &[Verb], word: &str) -> String {
    let mut code = format!("# {word}{PRELUDE}");
    for verb in mix {
        code.push_str(&statement(*verb));
        code.push('\n');
    }
    code.push_str("print(f'done {done} of {wanted}', file=sys.stderr, flush=True)\n");
    code
}

fn statement(verb: Verb) -> String {
    let attempt = |what: String| format!("attempt(lambda: {what})");
    match verb {
        Verb::Allocate(mib) => attempt(format!("kept.append(bytearray(b'x') * ({mib} << 20))")),
        Verb::Share(mib) => attempt(format!("share({mib} << 20)")),
        Verb::Write(place, mib) => {
            let place = match place {
                Place::Workspace => "here + '/filled'",
                Place::Tmp => "'/tmp/filled' if here == '/workspace' else here + '/filled'",
                Place::Shm => "'/dev/shm/filled'",
            };
            attempt(format!("fill({place}, {mib})"))
        }
        Verb::Fork(count, child) => {
            let (stays, daemon) = match child {
                Child::Ends => ("False", "False"),
                Child::Stays => ("True", "False"),
                Child::Daemon => ("True", "True"),
            };
            attempt(format!("fork({count}, {stays}, {daemon})"))
        }
        Verb::Flood(kib) => attempt(format!("os.write(1, b'x' * 1024) and [os.write(1, b'x' * 1024) for _ in range({kib})]")),
        Verb::Forge(forgery) => attempt(forge(forgery).to_owned()),
        Verb::Kill(target, signal) => {
            let target = match target {
                Target::Itself => "os.getpid()",
                Target::Init => "1",
                Target::Everybody => "-1",
            };
            attempt(format!("os.kill({target}, {signal})"))
        }
        Verb::Lock => attempt("(kept.append(open('/usr/bin/env', 'rb')), fcntl.flock(kept[-1], fcntl.LOCK_SH | fcntl.LOCK_NB))".to_owned()),
        Verb::Link => attempt("link(here)".to_owned()),
        Verb::Chmod(mode) => attempt(format!("[os.chmod(place, {mode}) for place in (here, '/tmp', '/srv', '/srv/file')]")),
        Verb::Spin(ms) => attempt(format!("[None for _ in iter(lambda end=time.monotonic() + {ms} / 1000: time.monotonic() < end, False)]")),
        Verb::Raise(exception) => match exception {
            Exception::Memory => "raise MemoryError".to_owned(),
            Exception::NoSpace => "raise OSError(28, 'No space left on device')".to_owned(),
            Exception::Again => "raise BlockingIOError(11, 'Resource temporarily unavailable')".to_owned(),
            Exception::FileTooBig => "raise OSError(27, 'File too large')".to_owned(),
        },
        Verb::Denied(count) => attempt(format!("[libc.ptrace(16, 1, 0, 0) for _ in range({count})]")),
        Verb::Exit(status) => format!("os._exit({status})"),
        Verb::Forever => "while True: time.sleep(1)".to_owned(),
    }
}

fn forge(forgery: Forgery) -> &'static str {
    match forgery {
        Forgery::Result => {
            "everywhere(frame(b'result', field(b't', b'text/plain', b'forged'), field(b't', b'main', b'1')))"
        }
        Forgery::MemoryError => {
            "everywhere(frame(b'error', field(b't', b'name', b'MemoryError'), field(b't', b'message', b'')))"
        }
        Forgery::Done => "everywhere(frame(b'done'))",
        Forgery::Garbage => "everywhere(b'\\xff' * 5000)",
        Forgery::Endless => {
            "everywhere(frame(b'result', field(b'j', b'a/b', b'[' + b'{\"\":0},' * 20000 + b'0]')), 60)"
        }
    }
}
