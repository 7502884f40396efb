//! What is declared for one call reads as the whole command line does.

use proptest::prelude::*;

use super::super::*;
use super::parse;

/// How a command line may begin.
const CALLED: [&str; 25] = [
    "run",
    "exec",
    "plan",
    "plan run",
    "plan exec",
    "serve",
    "mcp",
    "context",
    "context create",
    "context run",
    "context exec",
    "context list",
    "doctor",
    "show",
    "show x",
    "policy",
    "policy list",
    "policy show",
    "rootfs",
    "rootfs list",
    "rootfs add x",
    "completions",
    "completions bash",
    "--version",
    "frob",
];

/// Reads it with everything declared.
fn parse_whole(words: &[String]) -> Result<Invocation, clap::Error> {
    let words: Vec<OsString> = words.iter().map(Into::into).collect();
    (command().try_get_matches_from(&words))
        .map_err(|error| with_separator(without_far_names(error), &words))
        .and_then(invocation)
}

/// What is declared for a call reads its words as the whole command line does.
fn assert_reads_alike(words: &[String]) -> Result<(), TestCaseError> {
    match (parse(words), parse_whole(words)) {
        (Ok(lean), Ok(whole)) => {
            prop_assert_eq!(format!("{lean:?}"), format!("{whole:?}"));
        }
        (Err(lean), Err(whole)) => {
            prop_assert_eq!(lean.kind(), whole.kind());
            prop_assert_eq!(lean.to_string(), whole.to_string());
        }
        (lean, whole) => prop_assert!(false, "{words:?}: {lean:?} but {whole:?}"),
    }
    Ok(())
}

#[test]
fn a_call_and_its_help_and_its_mistakes_are_read_alike() {
    for called in CALLED.into_iter().chain([""]) {
        for more in [
            "",
            "--help",
            "-h",
            "--version",
            "-V",
            "x",
            "--jsno",
            "--json --json",
        ] {
            let words = ["cellblock", called, more]
                .into_iter()
                .flat_map(str::split_whitespace);
            assert_reads_alike(&words.map(str::to_owned).collect::<Vec<_>>()).unwrap();
        }
    }
}

/// Code may look like an option of which the rest of the words says nothing.
#[test]
fn code_is_read_alike() {
    for line in [
        "run -c --memory",
        "run x -c --tcp-bind=80",
        "run -c -- --memory 1G",
        "run -c --json --memory 1G -- x",
        "run -c -c --env A=b",
        "run --memory -c --env",
        "run -c --frob x",
        "run -c",
        "context run x -c --json",
        "context run x -c -- --json",
    ] {
        let words = ["cellblock"].into_iter().chain(line.split(' '));
        assert_reads_alike(&words.map(str::to_owned).collect::<Vec<_>>()).unwrap();
    }
}

/// A word that a command line may have, right or wrong.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("--"),
        Just("-"),
        Just("-c"),
        Just("--memory"),
        Just("--memory=64M"),
        Just("64M"),
        Just("--ro"),
        Just("--ro=/a:/b"),
        Just("--json"),
        Just("--json=x"),
        Just("--net"),
        Just("host"),
        Just("--no-exec"),
        Just("--strict"),
        Just("--timeout"),
        Just("5"),
        Just("--env"),
        Just("A=b"),
        Just("--lang"),
        Just("python"),
        Just("--spec"),
        Just("x.toml"),
        Just("--record=fd:3"),
        Just("--events"),
        Just("--events=fd:3"),
        Just("--without"),
        Just("seccomp"),
        Just("-x"),
        Just("--frob"),
        Just("--help"),
        Just("--tcp-bind=80"),
        Just(""),
        Just("--version"),
        Just("--landlock-max-abi=3"),
    ]
    .prop_map(str::to_owned)
}

proptest! {
    /// What is declared for a call never changes what its words mean, nor what is said of
    /// wrong ones.
    #[test]
    fn the_lean_command_line_reads_what_the_whole_one_reads(
        called in proptest::sample::select(&CALLED[..]),
        words in proptest::collection::vec(word(), 0..6),
    ) {
        let head = ["cellblock"].into_iter().chain(called.split(' ')).map(str::to_owned);
        assert_reads_alike(&head.chain(words).collect::<Vec<_>>())?;
    }
}
