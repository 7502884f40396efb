use proptest::prelude::*;

use super::*;
use crate::spec::{OnOutput, TmpfsLimit};

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
    open_files: Some(256),
    file_size: Some(Bytes::mib(16)),
    output: Bytes::mib(1),
    on_output: OnOutput::Truncate,
    tmp: TMPFS,
    workspace: TMPFS,
    shm: TMPFS,
};

fn ended(end: End) -> Evidence<'static> {
    Evidence {
        end,
        stopped: None,
        oom_kills: 0,
        aborted_for_memory: false,
        pids_limit_hits: Some(0),
        full: vec![],
        denied: &[],
        error: None,
        broken_syntax: false,
        limits: &LIMITS,
        place: Place {
            language: Some("python"),
            rootfs: "host",
            has_network: false,
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

fn full(exhausted: Exhausted) -> Vec<FullTmpfs> {
    vec![FullTmpfs {
        name: "/workspace".into(),
        exhausted,
    }]
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
        };
        assert_eq!(verdict, expected, "{evidence:?}");
    }
}

#[test]
fn success_has_nothing_to_say() {
    assert_eq!(judge(&exit(0)), OK);
    // A child was refused or killed, and the program coped.
    let coped = Evidence {
        oom_kills: 1,
        pids_limit_hits: Some(7),
        full: full(Exhausted::Space(Bytes::mib(64))),
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
        (Evidence { aborted_for_memory: true, ..signal(Signal::SIGABRT) }, Outcome::Memory, Category::Memory, 134, Some("SIGABRT"), true, "256M"),
        (Evidence { oom_kills: 1, ..signal(Signal::SIGKILL) }, Outcome::Memory, Category::Memory, 137, Some("SIGKILL"), true, "256M"),
        (signal(Signal::SIGXCPU), Outcome::Timeout, Category::Timeout, 124, Some("SIGXCPU"), true, "CPU time than its limit of 1s"),
        (signal(Signal::SIGXFSZ), Outcome::Disk, Category::Disk, 153, Some("SIGXFSZ"), true, "16M"),
        (signal(Signal::SIGSYS), Outcome::Denied, Category::Permission, 159, Some("SIGSYS"), true, "policy forbids"),
        (signal(Signal::SIGBUS), Outcome::Signal, Category::Killed, 135, Some("SIGBUS"), true, "nothing behind it"),
        (Evidence { full: full(Exhausted::Space(Bytes::mib(64))), ..signal(Signal::SIGBUS) }, Outcome::Disk, Category::Disk, 135, Some("SIGBUS"), true, "/workspace is full (64M)"),
        (signal(Signal::SIGABRT), Outcome::Signal, Category::Killed, 134, Some("SIGABRT"), true, "gave up"),
        (Evidence { pids_limit_hits: Some(3), ..signal(Signal::SIGABRT) }, Outcome::Processes, Category::Processes, 134, Some("SIGABRT"), true, "limit of 64 processes"),
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
        (Evidence { oom_kills: 2, ..exit(137) }, Outcome::Memory, Category::Memory, 137, None, true, "256M"),
        (Evidence { pids_limit_hits: Some(1), ..exit(254) }, Outcome::Processes, Category::Processes, 254, None, true, "64 processes"),
        (Evidence { pids_limit_hits: None, ..exit(254) }, Outcome::Exit, Category::Runtime, 254, None, true, "status 254"),
        (Evidence { full: full(Exhausted::Inodes(1000)), ..exit(1) }, Outcome::Disk, Category::Disk, 1, None, true, "/workspace holds as many files as it can (1000)"),
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
        (error("ConnectionRefusedError", Some(Errno::ECONNREFUSED)), Outcome::Error, Category::Network, true, "nobody listens"),
        (error("TimeoutError", None), Outcome::Error, Category::Timeout, true, "longer than the code"),
        (error("UFuncTypeError", None), Outcome::Error, Category::Type, true, "wrong type"),
        (error("RecursionError", None), Outcome::Error, Category::Runtime, true, "traceback"),
        (error("MemoryError", None), Outcome::Memory, Category::Memory, true, "256M"),
        (error("OSError", Some(Errno::ENOSPC)), Outcome::Disk, Category::Disk, true, "out of disk space"),
        (error("OSError", Some(Errno::EDQUOT)), Outcome::Disk, Category::Disk, true, "out of disk space"),
        (error("OSError", Some(Errno::EFBIG)), Outcome::Disk, Category::Disk, true, "16M for one file"),
        (error("BlockingIOError", Some(Errno::EAGAIN)), Outcome::Error, Category::Runtime, true, "BlockingIOError"),
    ];
    for (error, outcome, category, is_retryable, words) in rows {
        let verdict = judge(&Evidence {
            error: Some(&error),
            ..exit(1)
        });
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
    let thread = error("BlockingIOError", Some(Errno::EAGAIN));
    let judged = |evidence: Evidence<'_>| {
        let verdict = judge(&evidence);
        (verdict.outcome, verdict.exit_code)
    };
    let with = |error, evidence| Evidence {
        error: Some(error),
        ..evidence
    };
    assert_eq!(
        judged(with(&value, signal(Signal::SIGSEGV))),
        (Outcome::Signal, 139)
    );
    assert_eq!(
        judged(with(
            &value,
            stop(Stop::WallTimeout(Duration::from_secs(2)))
        )),
        (Outcome::Timeout, 124)
    );
    assert_eq!(
        judged(Evidence {
            oom_kills: 1,
            ..with(&value, exit(1))
        }),
        (Outcome::Memory, 1)
    );
    // A driver that exits as if all were well.
    assert_eq!(judged(with(&value, exit(0))), (Outcome::Error, 1));
    for (hits, expected) in [
        (Some(2), Outcome::Processes),
        (None, Outcome::Processes),
        (Some(0), Outcome::Error),
    ] {
        assert_eq!(
            judged(Evidence {
                pids_limit_hits: hits,
                ..with(&thread, exit(1))
            }),
            (expected, 1)
        );
    }
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
        oom_kills in 0u64..3,
        pids_limit_hits in proptest::option::of(0u64..3),
        is_full in any::<bool>(),
        error in any_code_error(),
        broken_syntax in any::<bool>(),
    ) {
        let full = if is_full { full(Exhausted::Space(Bytes(1))) } else { vec![] };
        let verdict = judge(&Evidence {
            aborted_for_memory: false,
            end: end.clone(), stopped, oom_kills, pids_limit_hits, full,
            denied: &[], error: error.as_ref(), broken_syntax, limits: &LIMITS, place: Place::default(),
        });
        let ok = verdict.outcome == Outcome::Ok;
        prop_assert_eq!(verdict.is_error, !ok);
        prop_assert_eq!(verdict.exit_code == 0, ok);
        prop_assert!((0..=255).contains(&verdict.exit_code));
        prop_assert_eq!(verdict.error_category.is_none(), ok);
        prop_assert_eq!(verdict.context.is_none(), ok);
        prop_assert!(verdict.is_error || !verdict.is_retryable);
        prop_assert_eq!(verdict.signal.is_some(), matches!(end, End::Signaled(_)));
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
