use languages::find;
use proptest::prelude::*;

use super::*;
use crate::Counts;
use crate::evidence::Reach;
use crate::evidence::{Exhausted, FilesIn, Held, Measured, Place};
use hosts::Reason;
use record::{Denied, RefusedHost};
use spec::Bytes;
use spec::quantity::AutoBound;
use spec::{OnOutput, TmpfsLimit};

const TMPFS: TmpfsLimit = TmpfsLimit {
    size: Bytes::mib(64),
    inodes: 1000,
};

const LIMITS: Limits = Limits {
    grace: None,
    wall: Some(Duration::from_secs(2)),
    cpu_time: Some(Duration::from_secs(1)),
    cpus: None,
    memory: Some(Bytes::mib(256)),
    processes: Some(64),
    open_files: AutoBound::Given(Some(256)),
    data: AutoBound::Auto,
    file_size: Some(Bytes::mib(16)),
    address_space: None,
    stack: None,
    output: Bytes::mib(1),
    on_output: OnOutput::Truncate,
    results: Bytes(8 << 20),
    net_sent: None,
    net_received: None,
    connections: 256,
    connections_total: None,
    connection_rate: None,
    dns_queries: None,
    tmp: TMPFS,
    workspace: TMPFS,
    shm: TMPFS,
};

fn ended(end: End) -> Evidence<'static> {
    Evidence {
        end,
        stopped: None,
        measured: Measured::default(),
        last_words: None,
        stderr: String::new(),
        denied: &[],
        refused: &[],
        counts: Counts::default(),
        error: None,
        broken_syntax: false,
        limits: &LIMITS,
        held: Held {
            data: None,
            address_space: None,
            open_files: Some(256),
            memory_by_cgroup: false,
        },
        place: Place {
            driver: find("python"),
            rootfs: "host",
            reach: Reach::Nothing,
            is_root: false,
        },
    }
}

fn exit(status: u8) -> Evidence<'static> {
    ended(End::Exited(status))
}

fn signal(signal: Signal) -> Evidence<'static> {
    ended(End::Signaled(signal as i32))
}

fn stop(stop: Stop) -> Evidence<'static> {
    Evidence {
        stopped: Some(stop),
        ..signal(Signal::SIGKILL)
    }
}

fn setup(step: Step, errno: Errno) -> Evidence<'static> {
    ended(End::NotStarted(SetupError::os(step, "call", errno)))
}

fn error(name: &str, errno: Option<Errno>) -> CodeError {
    CodeError {
        name: name.into(),
        message: String::new(),
        traceback: vec![],
        line: Some(3),
        errno: errno.map(|errno| errno as i32),
    }
}

fn full(exhausted: Exhausted) -> Measured {
    let disks = vec![FullTmpfs {
        name: "/workspace".into(),
        exhausted,
        at_end: true,
    }];
    Measured {
        disks,
        ..Measured::default()
    }
}

/// The same, but emptied before the end.
fn was_full(exhausted: Exhausted) -> Measured {
    let mut measured = full(exhausted);
    measured.disks[0].at_end = false;
    measured
}

const SPACE: Exhausted = Exhausted::Space(Bytes::mib(64));

fn killed_for_memory() -> Measured {
    Measured {
        memory: Some(true),
        ..Measured::default()
    }
}

/// So much in use that more is refused.
fn short_of_memory() -> Measured {
    Measured {
        memory_short: true,
        memory_peak: Some(Bytes::mib(250)),
        ..Measured::default()
    }
}

fn refused_forks() -> Measured {
    Measured {
        processes: Some(true),
        forks_refused: true,
        ..Measured::default()
    }
}

/// As many processes as there may be were seen, which is no refusal.
fn saw_all_processes() -> Measured {
    Measured {
        processes: Some(true),
        ..Measured::default()
    }
}

fn used_cpu(used: Duration, reached: bool) -> Measured {
    Measured {
        cpu_time: Some(reached),
        cpu_used: Some(used),
        ..Measured::default()
    }
}

fn file_at_its_limit() -> Measured {
    Measured {
        file_size: Some(true),
        ..Measured::default()
    }
}

fn with(measured: Measured, evidence: Evidence<'static>) -> Evidence<'static> {
    Evidence {
        measured,
        ..evidence
    }
}

fn saying(
    category: Category,
    phrase: &'static str,
    evidence: Evidence<'static>,
) -> Evidence<'static> {
    Evidence {
        last_words: Some((category, phrase)),
        ..evidence
    }
}

fn of_node(evidence: Evidence<'static>) -> Evidence<'static> {
    let place = Place {
        driver: find("javascript"),
        ..evidence.place
    };
    Evidence { place, ..evidence }
}

fn message(name: &str, message: &str) -> CodeError {
    CodeError {
        message: message.into(),
        ..error(name, None)
    }
}

/// One row: evidence, then outcome, category, exit code, signal, whether it is
/// retryable, and words of the context.
type Row = (
    Evidence<'static>,
    Outcome,
    Category,
    i32,
    Option<&'static str>,
    bool,
    &'static str,
);

fn check(rows: Vec<Row>) {
    for (evidence, outcome, category, exit_code, signal, is_retryable, words) in rows {
        let verdict = judge(&evidence);
        let context = verdict.context.clone().unwrap_or_default();
        assert!(context.contains(words), "{words:?} not in {context:?}");
        let expected = Verdict {
            outcome,
            exit_code,
            signal: signal.map(str::to_owned),
            is_error: true,
            error_category: Some(category),
            is_retryable,
            context: verdict.context.clone(),
            operator_hint: verdict.operator_hint.clone(),
        };
        assert_eq!(verdict, expected, "{evidence:?}");
    }
}

#[test]
fn success_has_nothing_to_say() {
    assert_eq!(judge(&exit(0)), OK);
    // A child was refused or killed, and the program coped.
    let coped = Evidence {
        measured: Measured {
            memory: Some(true),
            ..refused_forks()
        },
        last_words: Some((Category::Memory, "cannot allocate")),
        ..exit(0)
    };
    assert_eq!(judge(&coped), OK);
}

#[test]
fn what_cellblock_ended() {
    use Stop::*;
    let kill = Some("SIGKILL");
    #[rustfmt::skip]
    check(vec![
        (stop(WallTimeout(Duration::from_secs(2))), Outcome::Timeout, Category::Timeout, 124, kill, true, "its limit of 2s;"),
        (stop(CpuTimeout(Duration::from_millis(1500))), Outcome::Timeout, Category::Timeout, 124, kill, true, "more CPU time than its limit of 1s 500ms;"),
        (stop(OutputLimit { stream: "stderr", cap: Bytes::mib(1) }), Outcome::Output, Category::Output, 137, kill, true, "limit of 1M to stderr"),
        (stop(MemoryWatchdog), Outcome::Memory, Category::Memory, 137, kill, true, "limit of 256M"),
        (stop(Cancelled(15)), Outcome::Cancelled, Category::Killed, 143, kill, false, "SIGTERM"),
        (stop(Internal("lost the cell".into())), Outcome::Internal, Category::Internal, 125, kill, false, "lost the cell"),
        // The program was quicker than the kill: the limit was reached all the same.
        (Evidence { stopped: Some(WallTimeout(Duration::from_secs(2))), ..exit(0) }, Outcome::Timeout, Category::Timeout, 124, None, true, "2s"),
        (Evidence { stopped: Some(MemoryWatchdog), ..exit(0) }, Outcome::Memory, Category::Memory, 137, None, true, "256M"),
        (stop(ParentEnded), Outcome::Cancelled, Category::Killed, 143, kill, false, "--die-with-parent"),
        // Cancelled before the program began.
        (Evidence { stopped: Some(Cancelled(2)), ..setup(Step::Mount, Errno::EINTR) }, Outcome::Cancelled, Category::Killed, 130, None, false, "SIGINT"),
    ]);
}

#[test]
fn cells_that_never_ran() {
    #[rustfmt::skip]
    check(vec![
        (setup(Step::Exec, Errno::ENOENT), Outcome::Setup, Category::Setup, 127, None, false, "no such program"),
        (setup(Step::Exec, Errno::EACCES), Outcome::Setup, Category::Setup, 126, None, false, "EACCES"),
        (setup(Step::Exec, Errno::ENOEXEC), Outcome::Setup, Category::Setup, 126, None, false, "could not be executed"),
        (setup(Step::Interpreter, Errno::ENOENT), Outcome::Setup, Category::Setup, 127, None, false, "no such interpreter"),
        (setup(Step::Clone, Errno::EPERM), Outcome::Setup, Category::Setup, 125, None, false, "create the namespaces: call: EPERM"),
        (setup(Step::Rootfs, Errno::ENOENT), Outcome::Setup, Category::Setup, 125, None, false, "find the rootfs"),
    ]);
    let hinted = SetupError::new(Step::Cgroup, "no cgroup").hint("use --cgroup none");
    let context = judge(&ended(End::NotStarted(hinted))).context.unwrap();
    assert!(
        context.ends_with("no cgroup; use --cgroup none"),
        "{context}"
    );
}

#[test]
fn signals() {
    #[rustfmt::skip]
    check(vec![
        (signal(Signal::SIGSEGV), Outcome::Signal, Category::Killed, 139, Some("SIGSEGV"), true, "memory that is not its own"),
        (signal(Signal::SIGTERM), Outcome::Signal, Category::Killed, 143, Some("SIGTERM"), true, "ended by SIGTERM"),
        (ended(End::Signaled(40)), Outcome::Signal, Category::Killed, 168, Some("signal 40"), true, "signal 40"),
        (signal(Signal::SIGKILL), Outcome::Signal, Category::Killed, 137, Some("SIGKILL"), true, "did not send it"),
        (with(killed_for_memory(), signal(Signal::SIGKILL)), Outcome::Memory, Category::Memory, 137, Some("SIGKILL"), true, "256M"),
        // A full heap and the words, and each of them alone.
        (saying(Category::Memory, "heap out of memory", with(short_of_memory(), signal(Signal::SIGABRT))), Outcome::Memory, Category::Memory, 134, Some("SIGABRT"), true, "256M"),
        (saying(Category::Memory, "heap out of memory", signal(Signal::SIGABRT)), Outcome::Signal, Category::Memory, 134, Some("SIGABRT"), true, "it wrote `heap out of memory`: it reports a lack of memory"),
        (saying(Category::Memory, "cannot allocate", with(short_of_memory(), signal(Signal::SIGTERM))), Outcome::Signal, Category::Killed, 143, Some("SIGTERM"), true, "ended by SIGTERM"),
        (with(short_of_memory(), signal(Signal::SIGABRT)), Outcome::Signal, Category::Killed, 134, Some("SIGABRT"), true, "gave up"),
        (saying(Category::Memory, "bad_alloc", with(short_of_memory(), signal(Signal::SIGSEGV))), Outcome::Memory, Category::Memory, 139, Some("SIGSEGV"), true, "256M"),
        // V8 ends itself without a word.
        (of_node(with(short_of_memory(), signal(Signal::SIGSEGV))), Outcome::Memory, Category::Memory, 139, Some("SIGSEGV"), true, "256M"),
        (of_node(with(short_of_memory(), signal(Signal::SIGTRAP))), Outcome::Memory, Category::Memory, 133, Some("SIGTRAP"), true, "256M"),
        (of_node(signal(Signal::SIGSEGV)), Outcome::Signal, Category::Killed, 139, Some("SIGSEGV"), true, "not its own"),
        (saying(Category::Disk, "No space left", with(full(SPACE), signal(Signal::SIGABRT))), Outcome::Disk, Category::Disk, 134, Some("SIGABRT"), true, "/workspace is full (64M)"),
        (saying(Category::Processes, "pthread_create failed", with(saw_all_processes(), signal(Signal::SIGINT))), Outcome::Processes, Category::Processes, 130, Some("SIGINT"), true, "64 processes"),
        (with(used_cpu(Duration::from_secs(1), true), signal(Signal::SIGXCPU)), Outcome::Timeout, Category::Timeout, 124, Some("SIGXCPU"), true, "CPU time than its limit of 1s"),
        (with(used_cpu(Duration::from_millis(5), false), signal(Signal::SIGXCPU)), Outcome::Signal, Category::Killed, 152, Some("SIGXCPU"), true, "did not reach its limit of 1s; 5ms was measured"),
        (signal(Signal::SIGXCPU), Outcome::Signal, Category::Killed, 152, Some("SIGXCPU"), true, "a process can send it too"),
        (with(file_at_its_limit(), signal(Signal::SIGXFSZ)), Outcome::Disk, Category::Disk, 153, Some("SIGXFSZ"), true, "16M"),
        (signal(Signal::SIGXFSZ), Outcome::Signal, Category::Killed, 153, Some("SIGXFSZ"), true, "the limit is 16M, and no file of that size was found"),
        (signal(Signal::SIGSYS), Outcome::Signal, Category::Killed, 159, Some("SIGSYS"), true, "another architecture"),
        (signal(Signal::SIGBUS), Outcome::Signal, Category::Killed, 135, Some("SIGBUS"), true, "nothing behind it"),
        (with(full(SPACE), signal(Signal::SIGBUS)), Outcome::Disk, Category::Disk, 135, Some("SIGBUS"), true, "/workspace is full (64M)"),
        (with(was_full(SPACE), signal(Signal::SIGBUS)), Outcome::Signal, Category::Killed, 135, Some("SIGBUS"), true, "nothing behind it"),
        (signal(Signal::SIGABRT), Outcome::Signal, Category::Killed, 134, Some("SIGABRT"), true, "gave up"),
        (with(refused_forks(), signal(Signal::SIGABRT)), Outcome::Processes, Category::Processes, 134, Some("SIGABRT"), true, "limit of 64 processes"),
        (with(saw_all_processes(), signal(Signal::SIGABRT)), Outcome::Signal, Category::Killed, 134, Some("SIGABRT"), true, "gave up"),
    ]);
}

#[test]
fn exits() {
    #[rustfmt::skip]
    check(vec![
        (exit(3), Outcome::Exit, Category::Runtime, 3, None, true, "status 3"),
        // The numbers that cellblock uses itself mean nothing when they are the program's.
        (exit(124), Outcome::Exit, Category::Runtime, 124, None, true, "status 124"),
        (exit(125), Outcome::Exit, Category::Runtime, 125, None, true, "status 125"),
        (exit(126), Outcome::Exit, Category::Runtime, 126, None, true, "cannot be executed"),
        (exit(127), Outcome::Exit, Category::Runtime, 127, None, true, "was not found"),
        (exit(137), Outcome::Exit, Category::Runtime, 137, None, true, "SIGKILL ended"),
        (Evidence { broken_syntax: true, ..exit(2) }, Outcome::Exit, Category::Syntax, 2, None, true, "does not parse"),
        (with(killed_for_memory(), exit(137)), Outcome::Memory, Category::Memory, 137, None, true, "256M"),
        (with(short_of_memory(), exit(2)), Outcome::Exit, Category::Runtime, 2, None, true, "status 2"),
        (saying(Category::Memory, "xrealloc: cannot allocate", with(short_of_memory(), exit(2))), Outcome::Memory, Category::Memory, 2, None, true, "256M"),
        (saying(Category::Memory, "xrealloc: cannot allocate", exit(2)), Outcome::Exit, Category::Memory, 2, None, true, "status 2; it wrote `xrealloc: cannot allocate`: it reports a lack of memory"),
        (with(refused_forks(), exit(254)), Outcome::Processes, Category::Processes, 254, None, true, "64 processes"),
        (with(saw_all_processes(), exit(254)), Outcome::Exit, Category::Runtime, 254, None, true, "status 254"),
        (saying(Category::Processes, "fork: retry", with(saw_all_processes(), exit(254))), Outcome::Processes, Category::Processes, 254, None, true, "64 processes"),
        (saying(Category::Processes, "fork: retry", exit(254)), Outcome::Exit, Category::Processes, 254, None, true, "the limit is 64 processes and threads"),
        (with(full(Exhausted::Inodes(1000)), exit(1)), Outcome::Disk, Category::Disk, 1, None, true, "/workspace holds as many files as it can (1000)"),
        (with(was_full(SPACE), exit(1)), Outcome::Exit, Category::Runtime, 1, None, true, "status 1; /workspace was full at times (64M)"),
        (saying(Category::Disk, "No space left on device", with(was_full(SPACE), exit(1))), Outcome::Disk, Category::Disk, 1, None, true, "was full at times"),
        (saying(Category::Disk, "No space left on device", exit(1)), Outcome::Exit, Category::Disk, 1, None, true, "none of its disks was seen full"),
        (saying(Category::File, "Too many open files", exit(1)), Outcome::Exit, Category::File, 1, None, true, "its limit is 256 at a time"),
        (with(file_at_its_limit(), exit(153)), Outcome::Disk, Category::Disk, 153, None, true, "16M for one file"),
        (exit(153), Outcome::Exit, Category::Runtime, 153, None, true, "SIGXFSZ ended"),
        (Evidence { stderr: "x: line 1: git: command not found\n".into(), ..exit(127) }, Outcome::Exit, Category::File, 127, None, true, "no program `git` in the rootfs `host`"),
        (Evidence { stderr: "x: line 1: git: command not found\n".into(), ..exit(1) }, Outcome::Exit, Category::Runtime, 1, None, true, "status 1"),
    ]);
}

#[test]
fn exceptions() {
    #[rustfmt::skip]
    let rows = [
        (error("SyntaxError", None), Outcome::Error, Category::Syntax, true, "SyntaxError on line 3: the code does not parse"),
        (error("NameError", None), Outcome::Error, Category::Name, true, "does not exist"),
        (error("ModuleNotFoundError", None), Outcome::Error, Category::Import, true, "a module is missing"),
        (error("TypeError", None), Outcome::Error, Category::Type, true, "wrong type"),
        (error("KeyError", None), Outcome::Error, Category::Value, true, "key"),
        (error("FileNotFoundError", Some(Errno::ENOENT)), Outcome::Error, Category::File, true, "a file is missing"),
        (error("OSError", Some(Errno::EROFS)), Outcome::Error, Category::Permission, true, "/workspace or /tmp"),
        (error("OSError", Some(Errno::ENETUNREACH)), Outcome::Error, Category::Network, false, "the cell has no network"),
        (error("gaierror", None), Outcome::Error, Category::Network, false, "the cell has no network"),
        (error("ConnectionRefusedError", Some(Errno::ECONNREFUSED)), Outcome::Error, Category::Network, true, "nothing listens"),
        (error("TimeoutError", None), Outcome::Error, Category::Timeout, true, "longer than the code itself"),
        (error("UFuncTypeError", None), Outcome::Error, Category::Type, true, "wrong type"),
        (error("RecursionError", None), Outcome::Error, Category::Runtime, true, "traceback"),
        (error("OSError", Some(Errno::EMFILE)), Outcome::Error, Category::File, true, "too many files open (its limit is 256 at a time)"),
        // Without a figure that shows a limit, what the code reports is only that.
        (error("MemoryError", None), Outcome::Error, Category::Memory, true, "the limit is 256M, so it may"),
        (error("OSError", Some(Errno::ENOSPC)), Outcome::Error, Category::Disk, true, "none of its disks was seen full: /workspace holds 64M, /tmp 64M, /dev/shm 64M"),
        (error("OSError", Some(Errno::EDQUOT)), Outcome::Error, Category::Disk, true, "none of its disks"),
        (error("OSError", Some(Errno::EFBIG)), Outcome::Error, Category::Disk, true, "one file at most 16M"),
        (error("BlockingIOError", Some(Errno::EAGAIN)), Outcome::Error, Category::Runtime, true, "the limit is 64 at a time"),
        (message("RuntimeError", "can't start new thread"), Outcome::Error, Category::Processes, true, "the limit is 64 processes and threads at a time"),
        (message("simpleError", "cannot allocate vector of size 7.5 Gb"), Outcome::Error, Category::Memory, true, "256M"),
        (message("Error", "spawn git ENOENT"), Outcome::Error, Category::File, true, "no program `git`"),
        (error("CalledProcessError", None), Outcome::Error, Category::Runtime, true, "a program that it started failed"),
    ];
    for (error, outcome, category, is_retryable, words) in rows {
        let language = match error.name.as_str() {
            "simpleError" => "r",
            "Error" => "javascript",
            _ => "python",
        };
        let mut evidence = Evidence {
            error: Some(&error),
            ..exit(1)
        };
        evidence.place.driver = find(language);
        let verdict = judge(&evidence);
        let context = verdict.context.unwrap();
        assert_eq!(
            (
                verdict.outcome,
                verdict.error_category,
                verdict.exit_code,
                verdict.is_retryable
            ),
            (outcome, Some(category), 1, is_retryable),
            "{error:?}"
        );
        assert!(context.contains(words), "{words:?} not in {context:?}");
    }
}

#[test]
fn what_was_measured_beats_what_the_code_reports() {
    let value = error("ValueError", None);
    let thread = message("RuntimeError", "can't start new thread");
    let mut after_thread = message("AttributeError", "no attribute 'terminate'");
    after_thread.traceback = vec!["RuntimeError: can't start new thread".to_owned()];
    let no_memory = error("MemoryError", None);
    let no_space = error("OSError", Some(Errno::ENOSPC));
    let too_large = error("OSError", Some(Errno::EFBIG));
    let not_now = error("BlockingIOError", Some(Errno::EAGAIN));
    let not_reached = Measured {
        processes: Some(false),
        ..Measured::default()
    };
    let timeout = || stop(Stop::WallTimeout(Duration::from_secs(2)));
    #[rustfmt::skip]
    let rows = [
        (&value, signal(Signal::SIGSEGV), Outcome::Signal, Category::Killed, 139),
        (&value, timeout(), Outcome::Timeout, Category::Timeout, 124),
        (&value, with(killed_for_memory(), exit(1)), Outcome::Memory, Category::Memory, 1),
        (&value, with(short_of_memory(), exit(1)), Outcome::Error, Category::Value, 1),
        // A driver that exits as if all were well.
        (&value, exit(0), Outcome::Error, Category::Value, 1),
        (&no_memory, with(short_of_memory(), exit(1)), Outcome::Memory, Category::Memory, 1),
        (&thread, with(refused_forks(), exit(1)), Outcome::Processes, Category::Processes, 1),
        (&thread, with(not_reached.clone(), exit(1)), Outcome::Error, Category::Runtime, 1),
        (&after_thread, with(saw_all_processes(), exit(1)), Outcome::Processes, Category::Processes, 1),
        (&after_thread, with(not_reached.clone(), exit(1)), Outcome::Error, Category::Name, 1),
        (&not_now, with(saw_all_processes(), exit(1)), Outcome::Processes, Category::Processes, 1),
        (&not_now, with(not_reached, exit(1)), Outcome::Error, Category::Runtime, 1),
        (&no_space, with(full(SPACE), exit(1)), Outcome::Disk, Category::Disk, 1),
        (&no_space, with(was_full(SPACE), exit(1)), Outcome::Disk, Category::Disk, 1),
        (&no_space, with(file_at_its_limit(), exit(1)), Outcome::Error, Category::Disk, 1),
        (&too_large, with(file_at_its_limit(), exit(1)), Outcome::Disk, Category::Disk, 1),
        (&too_large, with(full(SPACE), exit(1)), Outcome::Error, Category::Disk, 1),
    ];
    for (error, evidence, outcome, category, exit_code) in rows {
        let verdict = judge(&Evidence {
            error: Some(error),
            ..evidence.clone()
        });
        let came = (verdict.outcome, verdict.error_category, verdict.exit_code);
        assert_eq!(
            came,
            (outcome, Some(category), exit_code),
            "{error:?} {evidence:?}"
        );
    }
}

#[test]
fn files_that_fill_the_memory_are_named() {
    let files = |used| {
        let measured = Measured {
            files: vec![FilesIn {
                name: "/workspace".to_owned(),
                used: Bytes::mib(used),
                most: Bytes::mib(used),
                size: Bytes::mib(300),
            }],
            ..killed_for_memory()
        };
        let verdict = judge(&with(measured, signal(Signal::SIGKILL)));
        verdict.context.unwrap()
    };
    let context = files(200);
    assert!(
        context
            .contains("limit of 256M; 200M of it were files in /workspace, which are memory here"),
        "{context}"
    );
    assert!(!files(3).contains("files"));
}

#[test]
fn a_write_into_a_nearly_full_disk_is_a_full_disk() {
    let holding = |used| Measured {
        files: vec![FilesIn {
            name: "/tmp".to_owned(),
            used: Bytes::mib(used),
            most: Bytes::mib(60.min(3 * used)),
            size: Bytes::mib(64),
        }],
        ..Measured::default()
    };
    let of = |used| {
        judge(&saying(
            Category::Disk,
            "No space left",
            with(holding(used), exit(1)),
        ))
    };
    let full = of(60);
    assert_eq!(full.outcome, Outcome::Disk);
    assert!(
        full.context
            .unwrap()
            .starts_with("/tmp holds 60M of 64M; write less")
    );
    // Room that was made again does not undo it.
    let emptied = of(20);
    assert_eq!(emptied.outcome, Outcome::Disk);
    assert!(emptied.context.unwrap().starts_with("/tmp held 60M of 64M"));
    assert_eq!(of(10).outcome, Outcome::Exit);
    let silent = judge(&with(holding(60), exit(1)));
    assert_eq!(silent.outcome, Outcome::Exit);
    let error = error("OSError", Some(Errno::ENOSPC));
    let raised = judge(&Evidence {
        error: Some(&error),
        ..with(holding(60), exit(1))
    });
    assert_eq!(raised.outcome, Outcome::Disk);
}

#[test]
fn a_reservation_that_was_refused_is_named_with_its_limit() {
    let held = |data, address_space| Held {
        data,
        address_space,
        ..Held::default()
    };
    let measured = Measured {
        memory_peak: Some(Bytes::mib(48)),
        ..Measured::default()
    };
    for (held, words, hint) in [
        (
            held(Some(Bytes::mib(512)), None),
            "up to 512M (`data`)",
            Some("`--data none`"),
        ),
        (
            held(Some(Bytes::mib(512)), Some(Bytes::mib(400))),
            "at most 400M (`address_space`)",
            Some("--address-space"),
        ),
        (
            held(Some(Bytes::mib(512)), Some(Bytes::mib(600))),
            "up to 512M (`data`)",
            Some("`--data none`"),
        ),
        (held(None, None), "at once; ask", None),
    ] {
        let said = saying(
            Category::Memory,
            "bad_alloc",
            with(measured.clone(), exit(1)),
        );
        let verdict = judge(&Evidence { held, ..said });
        let context = verdict.context.unwrap();
        assert!(
            context.contains("at most 48M was measured in use"),
            "{context}"
        );
        assert!(context.contains(words), "{context}");
        let operator = verdict.operator_hint;
        assert_eq!(operator.is_some(), hint.is_some());
        assert!(
            operator
                .unwrap_or_default()
                .contains(hint.unwrap_or_default())
        );
    }
}

#[test]
fn the_option_that_helps_is_named() {
    let hint = |words, data| {
        let held = Held {
            data: Some(data),
            ..Held::default()
        };
        let said = saying(Category::Memory, words, exit(134));
        let verdict = judge(&Evidence { held, ..said });
        (verdict.context.unwrap(), verdict.operator_hint.unwrap())
    };
    // Where `data` follows the memory, more of it alone would be used up at once.
    let memory = LIMITS.memory.unwrap();
    let (_, operator) = hint("MemoryError", memory);
    assert!(operator.starts_with("`--memory SIZE`"), "{operator}");
    // No limit of the cell has refused what an interpreter's own heap did not have.
    let (context, operator) = hint("JavaScript heap out of memory", Bytes(memory.0 * 8));
    assert!(context.contains("own heap is full"), "{context}");
    assert_eq!(operator, "`--memory SIZE` gives more");
}

#[test]
fn a_network_that_a_program_lacks_is_named() {
    let verdict = judge(&saying(
        Category::Network,
        "Could not resolve host",
        exit(6),
    ));
    assert_eq!(verdict.error_category, Some(Category::Network));
    assert!(!verdict.is_retryable);
    let context = verdict.context.unwrap();
    assert!(
        context.ends_with("the cell has no network; pass data in as files"),
        "{context}"
    );
}

#[test]
fn each_error_of_a_file_has_its_own_words() {
    for (errno, words) in [
        (Errno::EXDEV, "copy it"),
        (Errno::EEXIST, "of that name already"),
        (Errno::ENOTEMPTY, "not empty"),
        (Errno::ENAMETOOLONG, "too long"),
        (Errno::ELOOP, "symbolic links"),
        (Errno::EBUSY, "in use"),
        (Errno::ENOENT, "a file is missing"),
    ] {
        let error = error("OSError", Some(errno));
        let verdict = judge(&Evidence {
            error: Some(&error),
            ..exit(1)
        });
        assert_eq!(verdict.error_category, Some(Category::File), "{errno}");
        let context = verdict.context.unwrap();
        assert!(context.contains(words), "{context}");
    }
}

#[test]
fn a_library_that_cannot_start_a_thread_is_no_interrupt() {
    let error = error("KeyboardInterrupt", None);
    let said = saying(Category::Processes, "pthread_create failed", exit(1));
    let of = |measured| {
        judge(&Evidence {
            error: Some(&error),
            ..with(measured, said.clone())
        })
    };
    assert_eq!(of(saw_all_processes()).outcome, Outcome::Processes);
    assert_eq!(
        of(Measured::default()).error_category,
        Some(Category::Processes)
    );
}

#[test]
fn a_probe_is_named_only_where_the_program_names_it() {
    let denied = ["io_uring_setup", "memfd_create"].map(|name| Denied {
        kind: "syscall".into(),
        name: name.into(),
        count: 1,
        action: "ENOSYS".into(),
        reason: None,
    });
    let of = |stderr: &str| {
        judge(&Evidence {
            denied: &denied,
            stderr: stderr.to_owned(),
            ..exit(1)
        })
    };
    let probed = of("failed to find sysfs cpu topology directory");
    assert!(!probed.context.unwrap().contains("denied"));
    assert_eq!(probed.operator_hint, None);
    let needed = of("failed to call memfd_create: Function not implemented");
    assert!(
        needed
            .context
            .unwrap()
            .ends_with("the policy denied memfd_create")
    );
    assert!(needed.operator_hint.unwrap().contains("--memory none"));
}

#[test]
fn shared_memory_without_room_is_a_lack_of_memory() {
    let denied = [Denied {
        kind: "syscall".into(),
        name: "mmap".into(),
        count: 2,
        action: "ENOMEM".into(),
        reason: Some("no room".into()),
    }];
    let error = error("OSError", Some(Errno::ENOMEM));
    let raised = Evidence {
        error: Some(&error),
        denied: &denied,
        ..exit(1)
    };
    let said = Evidence {
        denied: &denied,
        ..saying(Category::Memory, "Cannot allocate memory", exit(1))
    };
    for evidence in [raised, said] {
        let verdict = judge(&evidence);
        assert_eq!(verdict.error_category, Some(Category::Memory));
        assert!(verdict.is_retryable);
        let context = verdict.context.unwrap();
        let tail = "; the memory limit had no room for mmap (2 times), which counts in full from the start";
        assert!(context.ends_with(tail), "{context}");
        assert!(!context.contains("policy"), "{context}");
        assert!(verdict.operator_hint.unwrap().contains("`--memory SIZE`"));
    }
    // Huge pages, which are refused with a cgroup as well.
    let verdict = judge(&Evidence {
        denied: &denied,
        held: Held {
            memory_by_cgroup: true,
            ..Held::default()
        },
        ..exit(1)
    });
    let context = verdict.context.unwrap();
    assert!(
        context.ends_with("the policy denied mmap (2 times)"),
        "{context}"
    );
}

#[test]
fn a_denial_explains_the_error_that_it_answered_with() {
    let denied = [Denied {
        kind: "syscall".into(),
        name: "socket".into(),
        count: 1,
        action: "EAFNOSUPPORT".into(),
        reason: Some("only TCP".into()),
    }];
    let judged = |errno| {
        let error = error("OSError", Some(errno));
        judge(&Evidence {
            error: Some(&error),
            denied: &denied,
            ..exit(1)
        })
    };
    let verdict = judged(Errno::EAFNOSUPPORT);
    assert_eq!(verdict.error_category, Some(Category::Permission));
    let context = verdict.context.unwrap();
    assert!(
        context.contains("denies that use of socket (only TCP); do without it"),
        "{context}"
    );
    // Another error is another thing's.
    let verdict = judged(Errno::ENETUNREACH);
    assert_eq!(verdict.error_category, Some(Category::Network));
}

#[test]
fn set_up_errors_name_no_path_of_the_hosts() {
    let private = "/srv/private/dir";
    let errors = [
        SetupError::os(Step::Mount, "open_tree", Errno::EIO).on(private),
        SetupError::new(
            Step::Interpreter,
            format!("no python in the rootfs `{private}`"),
        )
        .on("/usr/bin/python3"),
        SetupError::new(Step::Rootfs, "no such rootfs")
            .on("mine")
            .hint(format!("look into {private}")),
        SetupError::new(Step::Spec, format!("{private}: not a list")),
        SetupError::os(Step::Exec, "execve", Errno::ENOENT)
            .on("/usr/bin/tool")
            .hint(format!("mount {private}")),
    ];
    for error in errors {
        let context = judge(&ended(End::NotStarted(error.clone())))
            .context
            .unwrap();
        assert!(!context.contains(private), "{context}");
        assert!(
            context.ends_with("finds the details in the record's setup_error"),
            "{context}"
        );
        // The program is the caller's own word, and inside the cell.
        assert_eq!(
            context.contains("/usr/bin/tool"),
            error.step == Step::Exec,
            "{context}"
        );
    }
    let context = judge(&stop(Stop::Internal(format!("write({private})"))))
        .context
        .unwrap();
    assert!(!context.contains(private), "{context}");
}

#[test]
fn denials_are_named_when_the_run_failed() {
    let denied: Vec<Denied> = [
        "ptrace", "mount", "bpf", "keyctl", "swapon", "reboot", "kcmp",
    ]
    .iter()
    .enumerate()
    .map(|(index, name)| Denied {
        kind: "syscall".into(),
        name: (*name).into(),
        count: index as u64 + 1,
        action: "EPERM".into(),
        reason: None,
    })
    .collect();
    let of = |status, denied| {
        judge(&Evidence {
            denied,
            ..exit(status)
        })
        .context
    };
    assert_eq!(of(0, &denied), None);
    let one = of(1, &denied[..1]).unwrap();
    assert!(one.ends_with("; the policy denied ptrace"), "{one}");
    let many = of(1, &denied).unwrap();
    assert!(
        many.ends_with(
            "ptrace, mount (2 times), bpf (3 times), keyctl (4 times), swapon (5 times), 2 more"
        ),
        "{many}"
    );
}

#[test]
fn a_class_name_cannot_speak_for_cellblock() {
    let hostile = error(&format!("\u{1b}[2J\n\"; ignore{}", "x".repeat(9000)), None);
    let context = judge(&Evidence {
        error: Some(&hostile),
        ..exit(1)
    })
    .context
    .unwrap();
    assert!(
        context.starts_with("the code raised 2Jignorexxx"),
        "{context}"
    );
    assert!(context.len() < 200);
}

fn any_code_error() -> impl Strategy<Value = Option<CodeError>> {
    let name = prop_oneof![
        any::<String>(),
        "(Memory|Value|OS|BlockingIO|Connection|Syntax)Error"
    ];
    proptest::option::of((name, any::<String>(), any::<Option<i32>>()).prop_map(
        |(name, message, errno)| CodeError {
            name,
            message,
            traceback: vec![],
            line: None,
            errno,
        },
    ))
}

fn any_measured() -> impl Strategy<Value = Measured> {
    let reached = any::<Option<bool>>;
    (
        reached(),
        reached(),
        any::<bool>(),
        reached(),
        reached(),
        any::<bool>(),
    )
        .prop_map(
            |(cpu_time, memory, memory_short, processes, file_size, is_full)| Measured {
                cpu_time,
                memory,
                memory_short,
                processes,
                forks_refused: processes == Some(true),
                file_size,
                ..if is_full {
                    full(SPACE)
                } else {
                    Measured::default()
                }
            },
        )
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![
        any::<u8>().prop_map(End::Exited),
        Just(End::Exited(0)),
        any::<i32>().prop_map(End::Signaled),
        (1..70).prop_map(End::Signaled),
        (0..Step::ALL.len(), any::<i32>()).prop_map(|(step, errno)| End::NotStarted(
            SetupError::os(Step::ALL[step], "call", Errno::from_raw(errno))
        )),
    ]
}

fn any_stop() -> impl Strategy<Value = Option<Stop>> {
    proptest::option::of(prop_oneof![
        any::<Duration>().prop_map(Stop::WallTimeout),
        any::<Duration>().prop_map(Stop::CpuTimeout),
        any::<u64>().prop_map(|cap| Stop::OutputLimit {
            stream: "stdout",
            cap: Bytes(cap)
        }),
        any::<i32>().prop_map(Stop::Cancelled),
        Just(Stop::ParentEnded),
        Just(Stop::MemoryWatchdog),
        any::<String>().prop_map(Stop::Internal),
    ])
}

proptest! {
    #[test]
    fn every_verdict_is_consistent(
        end in any_end(),
        stopped in any_stop(),
        measured in any_measured(),
        last_words in proptest::option::of(prop_oneof![
            Just((Category::Memory, "cannot allocate")), Just((Category::Disk, "No space left")),
            Just((Category::Processes, "fork: retry")),
        ]),
        error in any_code_error(),
        broken_syntax in any::<bool>(),
    ) {
        let verdict = judge(&Evidence {
            end: end.clone(), stopped: stopped.clone(), measured: measured.clone(), last_words, stderr: String::new(),
            denied: &[], refused: &[], counts: Counts::default(), error: error.as_ref(), broken_syntax, limits: &LIMITS, held: Held::default(), place: Place::default(),
        });
        let ok = verdict.outcome == Outcome::Ok;
        prop_assert_eq!(verdict.is_error, !ok);
        prop_assert_eq!(verdict.exit_code == 0, ok);
        prop_assert!((0..=255).contains(&verdict.exit_code));
        prop_assert_eq!(verdict.error_category.is_none(), ok);
        prop_assert_eq!(verdict.context.is_none(), ok);
        prop_assert!(verdict.is_error || !verdict.is_retryable);
        prop_assert_eq!(verdict.signal.is_some(), matches!(end, End::Signaled(_)));
        // No limit is named as what ended it without a figure.
        if stopped.is_none() {
            let shown = match verdict.outcome {
                Outcome::Timeout => measured.cpu_time == Some(true),
                Outcome::Memory => measured.memory == Some(true) || measured.memory_short,
                Outcome::Processes => measured.processes == Some(true),
                Outcome::Disk => measured.file_size == Some(true) || !measured.disks.is_empty(),
                Outcome::Denied | Outcome::Output => false,
                _ => true,
            };
            prop_assert!(shown, "{:?} {:?}", verdict, measured);
        }
        // Another outcome has that code only if it is the program's own.
        if verdict.outcome == Outcome::Timeout {
            prop_assert_eq!(verdict.exit_code, TIMED_OUT);
        } else if verdict.exit_code == TIMED_OUT {
            prop_assert_eq!(&end, &End::Exited(124));
        }
        if verdict.outcome == Outcome::Setup {
            prop_assert!((125..=127).contains(&verdict.exit_code));
        }
        // Only a program that ended by itself has `error` or `exit`.
        if matches!(verdict.outcome, Outcome::Error | Outcome::Exit) {
            prop_assert!(matches!(end, End::Exited(_)));
        }
    }
}

#[test]
fn a_refused_host_is_named_with_the_flag_that_would_allow_it() {
    let raised = error("gaierror", None);
    let refused = |port, reason: Reason| RefusedHost {
        host: "evil.example".to_owned(),
        port,
        via: "dns".to_owned(),
        reason: reason.explain().to_owned(),
        count: 1,
    };
    for (refused, allows) in [
        (
            refused(None, Reason::NotAllowed),
            Some("--net allow=evil.example would"),
        ),
        (
            refused(Some(22), Reason::PortNotAllowed),
            Some("--net allow=evil.example:22 would"),
        ),
        (refused(Some(443), Reason::Denied), None),
    ] {
        let refused = [refused];
        let verdict = judge(&Evidence {
            error: Some(&raised),
            refused: &refused,
            place: Place {
                driver: find("python"),
                reach: Reach::Hosts,
                is_root: false,
                ..Place::default()
            },
            ..exit(1)
        });
        assert_eq!(verdict.error_category, Some(Category::Network));
        assert!(!verdict.is_retryable);
        let context = verdict.context.unwrap();
        assert!(
            context.contains("refused it; the network refused evil.example"),
            "{context}"
        );
        assert_eq!(
            allows.is_some_and(|flag| context.contains(flag)),
            allows.is_some()
        );
        assert_eq!(context.contains("--net"), allows.is_some(), "{context}");
    }
}
