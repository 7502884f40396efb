use clap::Arg;
use clap::error::ErrorKind;
use proptest::prelude::*;

use super::groups::{Call, Group};
use super::*;
use record::format::Format;
use spec::OnOutput;
use spec::network::PartialNetwork;
use spec::quantity::Bound;
use spec::units::Bytes;

/// Reads a command line as a call does.
fn parse<T: Into<OsString> + Clone>(words: &[T]) -> Result<Invocation, clap::Error> {
    let words: Vec<OsString> = words.iter().cloned().map(Into::into).collect();
    super::parse(&words, &Prescan::of(&words))
}

mod lean;

fn built() -> Command {
    let mut command = command();
    command.build();
    command
}

fn longs(command: &Command) -> Vec<String> {
    let mut names: Vec<String> = command
        .get_arguments()
        .flat_map(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long().into_iter().chain(aliases)
        })
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

fn assert_names_are_declared<G: Group>() {
    let declared = longs(&G::augment_args(Command::new("x")));
    let unknown: Vec<_> = declared.iter().filter(|name| !G::has(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let is_declared = |name: &&str| declared.iter().any(|other| other == name);
    assert!(G::NAMES.iter().all(is_declared), "{declared:?}");
}

#[test]
fn declarations_are_sound() {
    command().debug_assert();
}

#[test]
fn groups_name_the_options_that_they_declare() {
    assert_names_are_declared::<Call>();
    assert_names_are_declared::<Files>();
    assert_names_are_declared::<Environment>();
    assert_names_are_declared::<Networking>();
    assert_names_are_declared::<Limits>();
    assert_names_are_declared::<Security>();
}

#[test]
fn everything_is_documented() {
    fn check(command: &Command) {
        let undocumented = |arg: &&Arg| arg.get_help().is_none();
        let missing: Vec<&str> = command
            .get_arguments()
            .filter(undocumented)
            .map(|arg| arg.get_id().as_str())
            .collect();
        assert_eq!(missing, [""; 0], "{}", command.get_name());
        assert!(command.get_about().is_some(), "{}", command.get_name());
        command.get_subcommands().for_each(check);
    }
    check(&built());
}

fn launch_of(words: &[&str]) -> Launch {
    match parse(words).unwrap() {
        Invocation::Launch(launch) => *launch,
        other => panic!("{other:?}"),
    }
}

fn nothing(_: &str) -> Option<OsString> {
    None
}

#[test]
fn run_takes_a_file_code_or_standard_input() {
    let cases = [
        ("a.py x --wall 3s y", None, Some("a.py"), "x y"),
        ("a.py -- -x --json", None, Some("a.py"), "-x --json"),
        ("a.py -5 -0.5", None, Some("a.py"), "-5 -0.5"),
        ("-c 1", Some("1"), None, ""),
        ("-c 1 x -- -y", Some("1"), None, "x -y"),
        ("-c 1 -- -x -y", Some("1"), None, "-x -y"),
        ("- x", None, Some("-"), "x"),
        ("--lang python -- -odd", None, Some("-odd"), ""),
    ];
    for (words, code, file, args) in cases {
        let line: Vec<&str> = ["cellblock", "run"]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        let partial = launch_of(&line).partial(nothing).unwrap();
        assert_eq!(partial.code, code.map(RawText::from), "{words}");
        assert_eq!(partial.code_file, file.map(PathBuf::from), "{words}");
        let wanted: Vec<RawText> = args.split_whitespace().map(RawText::from).collect();
        assert_eq!(partial.args, Some(wanted), "{words}");
    }
}

#[test]
fn exec_takes_all_behind_the_dashes() {
    let exec = launch_of(&["cellblock", "exec", "--memory", "64M", "--", "ls", "--json"]);
    assert_eq!(exec.options.outputs.printed, None);
    let partial = exec.partial(nothing).unwrap();
    assert_eq!(partial.argv, Some(vec!["ls".into(), "--json".into()]));
    assert_eq!(partial.limits.memory, Some(Bound(Some(Bytes::mib(64)))));
}

#[test]
fn an_option_alone_brings_its_group() {
    let partial = |option: &[&str]| {
        let words = [&["cellblock", "exec"], option, &["--", "x"]].concat();
        launch_of(&words).partial(nothing).unwrap()
    };
    let limits = partial(&["--on-output", "kill"]).limits;
    assert_eq!(limits.on_output, Some(OnOutput::Kill));
    assert_eq!(partial(&["--strict"]).strict, Some(true));
    assert_eq!(partial(&["--cgroup", "none"]).cgroup.unwrap(), "none");
}

#[test]
fn a_bare_variable_is_the_callers() {
    let exec = launch_of(&["cellblock", "exec", "--env", "A", "--env", "B=", "--", "x"]);
    let partial = exec.partial(|name| Some(format!("<{name}>").into()));
    let env = partial.unwrap().env;
    assert_eq!(env["A"], RawText::from("<A>"));
    assert_eq!(env["B"], RawText::from(""));

    let error = exec.partial(nothing).unwrap_err();
    assert_eq!(
        error.to_string(),
        "read the request: --env A: is not in the caller's environment"
    );
}

#[test]
fn only_near_names_are_suggested() {
    for (words, suggested) in [
        (&["run", "--frob", "x"][..], None),
        (&["exec", "--verbose", "--", "x"], None),
        (&["frobnicate"], None),
        (&["run", "--memroy=1M", "x"], Some("--memory")),
        (&["docter"], Some("doctor")),
        (&["run", "--format", "tol", "x"], Some("tool")),
    ] {
        let words = [&["cellblock"], words].concat();
        let error = parse(&words).unwrap_err().to_string();
        let tip = error.lines().find(|line| line.contains("similar"));
        match suggested {
            None => assert_eq!(tip, None, "{error}"),
            Some(name) => assert!(tip.is_some_and(|tip| tip.contains(name)), "{error}"),
        }
    }
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    let cases: [(&[&str], &str); 27] = [
        (&["frob"], "unrecognized subcommand 'frob'"),
        (&["exec"], "<PROG> [ARGS]..."),
        (&["exec", "ls"], "unexpected argument 'ls' found"),
        (&["exec", "ls", "-l"], "come after `--`"),
        (
            &["exec", "--memroy", "1M", "--", "x"],
            "a similar argument exists: '--memory'",
        ),
        (
            &["run", "--memroy", "1M", "x"],
            "a similar argument exists: '--memory'",
        ),
        (
            &["run", "x", "--memroy", "1M"],
            "a similar argument exists: '--memory'",
        ),
        (
            &["run", "-c", "1", "x", "--memroy=1M"],
            "a similar argument exists: '--memory'",
        ),
        (&["run", "x", "-x"], "use '-- -x'"),
        (&["run", "--inline-files", "10M", "x"], "--inline-files=10M"),
        (&["exec", "--plots", "d", "--", "x"], "is for `run`"),
        (&["context", "run", "a", "x", "--frob"], "use '-- --frob'"),
        (&["run", "--memory", "-1M", "x"], "has a negative value"),
        (&["run", "--memory", "1Q", "x"], "`1Q` is not a size"),
        (
            &["run", "--wall", "0", "x"],
            "`0` is not a duration above zero",
        ),
        (
            &["run", "--cpus", "x", "x"],
            "`x` is not a number such as 1 or 0.5",
        ),
        (&["run", "--processes", "-1", "x"], "`-1` is not"),
        (
            &["run", "--net", "all", "x"],
            "wants none, allow=HOST[:PORT], deny=HOST[:PORT], preset:NAME, mirror:NAME or host",
        ),
        (
            &["run", "--without", "all", "x"],
            "[possible values: seccomp, landlock, userns-limit, proc]",
        ),
        (
            &["run", "--tcp-connect", "80,0", "x"],
            "`0` is not a port from 1 to 65535",
        ),
        (&["run", "--ro", ":x", "x"], "wants SRC, or SRC:DST"),
        (&["run", "--env", "=x", "x"], "wants NAME or NAME=VALUE"),
        (
            &["run", "--record", "fd:x", "x"],
            "wants the number of an open descriptor",
        ),
        (&["run", "--record", "fd:2", "x"], "3 or higher"),
        (&["run", "--inline-files=much", "x"], "`much` is not a size"),
        (
            &["run", "--workspace", "", "x"],
            "a value is required for '--workspace <DIR>'",
        ),
        (
            &["run", "--memory", "1M", "--memory", "2M", "x"],
            "cannot be used multiple times",
        ),
    ];
    for (words, wanted) in cases {
        let words: Vec<&str> = ["cellblock"].iter().chain(words).copied().collect();
        let error = parse(&words).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{words:?}");
        assert!(error.to_string().contains(wanted), "{words:?}: {error}");
    }
}

#[test]
fn the_size_of_inline_files_may_be_left_out() {
    for (words, wanted) in [
        (&["--inline-files", "--", "x"][..], Some(Bytes::mib(1))),
        (&["--inline-files=2K", "--", "x"], Some(Bytes(2048))),
        (&["--", "x"], None),
    ] {
        let words = [&["cellblock", "exec"], words].concat();
        let partial = launch_of(&words).partial(nothing).unwrap();
        assert_eq!(partial.inline_files, wanted, "{words:?}");
    }
}

#[test]
fn help_lists_all_options_whatever_else_is_given() {
    let error = parse(&["cellblock", "run", "--net", "none", "--help"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DisplayHelp);
    assert!(error.to_string().contains("--memory <SIZE>"));
    assert!(!error.to_string().contains("landlock-max-abi"));
}

#[test]
fn no_exec_closes_memory_too_unless_a_policy_is_named() {
    let options = launch_of(&["cellblock", "exec", "--no-exec", "--", "x"]);
    assert_eq!(options.partial(nothing).unwrap().seccomp.unwrap(), "strict");
    let words = [
        "cellblock",
        "exec",
        "--no-exec",
        "--seccomp",
        "p",
        "--",
        "x",
    ];
    assert_eq!(
        launch_of(&words).partial(nothing).unwrap().seccomp.unwrap(),
        "p"
    );
}

#[test]
fn events_and_records_go_to_different_places() {
    let events = |words: &str| {
        let head = ["cellblock", "run", "-c", "1"];
        let words: Vec<&str> = head.into_iter().chain(words.split(' ')).collect();
        parse(&words).map(|run| match run {
            Invocation::Launch(run) => run.options.outputs,
            other => panic!("{other:?}"),
        })
    };
    let to = |words| events(words).unwrap().events.unwrap();
    assert_eq!(to("--events -"), OutputTo::Stdout);
    let file = OutputTo::File("./-".into());
    assert_eq!(to("--events ./- --json"), file);
    let descriptor = OutputTo::Descriptor(3);
    assert_eq!(to("--events=fd:3 --record fd:4"), descriptor);
    assert_eq!(to("--events ./- --format tool"), file);
    for (words, named) in [
        ("--events - --json", "--json and --events -"),
        ("--format=tool --events -", "--format tool and --events -"),
        (
            "--events - --format record",
            "--format record and --events -",
        ),
        ("--events fd:3 --record fd:3", "--record and --events"),
        ("--record - --json", "--json and --record -"),
        (
            "--record fd:1 --format tool",
            "--format tool and --record -",
        ),
        ("--record - --events -", "--record - and --events -"),
    ] {
        let error = events(words).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{words}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn a_record_on_standard_output_is_printed() {
    for words in ["--record -", "--record=fd:1", "--json"] {
        let head = ["cellblock", "exec"].into_iter();
        let words: Vec<&str> = head.chain(words.split(' ')).chain(["--", "x"]).collect();
        let outputs = launch_of(&words).options.outputs;
        assert_eq!(outputs.printed, Some(Format::default()), "{words:?}");
        assert_eq!(outputs.record, None, "{words:?}");
    }
}

proptest! {
    /// Whatever is given as a limit is what the request asks for.
    #[test]
    fn limits_survive_the_command_line(
        memory in proptest::option::of(any::<u64>()),
        processes in proptest::option::of(any::<u64>()),
        tmp in any::<u64>(),
        cpus in proptest::option::of(0.01f64..4096.0),
        host in any::<bool>(),
    ) {
        let shown = |value: Option<String>| value.unwrap_or("none".to_owned());
        let words = [
            "cellblock".to_owned(), "exec".to_owned(),
            format!("--memory={}", shown(memory.map(|n| Bytes(n).to_string()))),
            format!("--processes={}", shown(processes.map(|n| n.to_string()))),
            format!("--tmp-size={}", Bytes(tmp)),
            format!("--cpus={}", shown(cpus.map(|n| n.to_string()))),
            format!("--net={}", if host { "host" } else { "none" }),
            "--".to_owned(), "x".to_owned(),
        ];
        let Ok(Invocation::Launch(exec)) = parse(&words) else { panic!("{words:?}") };
        let partial = exec.partial(nothing).unwrap();
        prop_assert_eq!(partial.limits.memory, Some(Bound(memory.map(Bytes))));
        prop_assert_eq!(partial.limits.processes, Some(Bound(processes)));
        prop_assert_eq!(partial.limits.tmp.size, Some(Bytes(tmp)));
        prop_assert_eq!(partial.limits.cpus, Some(Bound(cpus)));
        let network = if host { PartialNetwork::Host } else { PartialNetwork::None };
        prop_assert_eq!(partial.network, Some(network));
    }
}
