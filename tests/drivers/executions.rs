//! Several executions in one process: what persists, and what ends it.

use languages::frames::{Displayed, Frame};

use super::harness::{Bench, lasting_bash, other, python};

/// The code of one execution with its result, or with the name of its error.
type Execution<'a> = (&'a str, Result<Option<&'a str>, &'a str>);

fn check(bench: &Bench, expected: &[Execution<'_>], status: i32) {
    let codes: Vec<&str> = expected.iter().map(|(code, _)| *code).collect();
    let (executions, ended) = bench.executions(&codes);
    for (frames, (code, outcome)) in executions.iter().zip(expected) {
        let mut results = frames.iter().filter_map(|frame| match frame {
            Frame::Result(Displayed { item, .. }) => item.text.as_deref(),
            _ => None,
        });
        let mut errors = frames.iter().filter_map(|frame| match frame {
            Frame::Error { error, .. } => Some(error.name.as_str()),
            _ => None,
        });
        assert_eq!(
            results.next_back(),
            outcome.ok().flatten(),
            "{code}: {frames:?}"
        );
        assert_eq!(errors.next_back(), outcome.err(), "{code}: {frames:?}");
        assert!(
            matches!(frames[..], [Frame::Started, .., Frame::Done { .. }]),
            "{code}: {frames:?}"
        );
    }
    assert_eq!(ended.code(), Some(status), "{codes:?}");
}

#[test]
fn python_keeps_its_state() {
    let Some(python) = python() else { return };
    let executions = [
        ("x = 1\ndef f(): return x / 0", Ok(None)),
        ("import math; x += 1; x", Ok(Some("2"))),
        ("f()", Err("ZeroDivisionError")),
        ("x = = 1", Err("SyntaxError")),
        (
            "import asyncio; await asyncio.sleep(0, math.floor(x))",
            Ok(Some("2")),
        ),
        ("raise KeyboardInterrupt", Err("KeyboardInterrupt")),
        ("display(x); x + 1", Ok(Some("3"))),
    ];
    check(&python, &executions, 0);
    check(&python, &[("x = 1", Ok(None)), ("y", Err("NameError"))], 1);
    let exit = [("x = 1", Ok(None)), ("raise SystemExit(x + 2)", Ok(None))];
    check(&python, &exit, 3);
}

/// Code that ends its interpreter by the language's own means, with status 3.
const EXITS: [(&str, &[&str]); 5] = [
    (
        "python",
        &["import sys; sys.exit(3)", "raise SystemExit(3)"],
    ),
    ("javascript", &["process.exit(3)"]),
    ("r", &["quit('no', 3)"]),
    ("java", &["System.exit(3);"]),
    (
        "bash",
        &[
            "exit 3",
            "f() { set -f; IFS=x; exit 3; }; f",
            "set -e; (exit 3)",
            "exec 10>&1; exit 3",
        ],
    ),
];

#[test]
fn an_interpreter_that_the_code_ends_announces_it() {
    for (language, codes) in EXITS {
        let bench = match language {
            "python" => python(),
            "bash" => lasting_bash(),
            _ => other(language),
        };
        let Some(bench) = bench else { continue };
        for code in codes {
            let (executions, ended) = bench.executions(&[code]);
            let frames = &executions[0];
            assert!(
                matches!(
                    frames[..],
                    [Frame::Started, Frame::Ending, Frame::Done { .. }]
                ),
                "{language}: {code}: {frames:?}"
            );
            assert_eq!(ended.code(), Some(3), "{language}: {code}");
        }
    }
}

#[test]
fn python_tracebacks_show_the_lines_of_each_execution() {
    let Some(python) = python() else { return };
    let (executions, _) = python.executions(&["def f():\n    return 1 / 0", "x = 1\nf()"]);
    let error = executions[1].iter().find_map(|frame| match frame {
        Frame::Error { error, .. } => Some(error),
        _ => None,
    });
    let error = error.unwrap();
    assert_eq!(error.line, Some(2));
    let traceback = error.traceback.join("\n");
    for part in [
        "  File \"main.py[2]\", line 2, in <module>\n    f()",
        "  File \"main.py\", line 2, in f\n    return 1 / 0",
    ] {
        assert!(traceback.contains(part), "{traceback}");
    }
}

/// `linecache` takes a megabyte with what it imports. The lines wait for it.
#[test]
fn python_imports_nothing_to_remember_the_code() {
    let Some(python) = python() else { return };
    let show = "import traceback\ntry:\n    f()\nexcept ZeroDivisionError:\n    \
         shown = traceback.format_exc()\n'return 1 / 0' in shown, '    f()' in shown";
    let executions = [
        ("x = 1", Ok(None)),
        ("def f():\n    return 1 / 0", Ok(None)),
        ("import sys\n'linecache' in sys.modules", Ok(Some("False"))),
        (show, Ok(Some("(True, True)"))),
        ("def g():\n    return 2 / 0", Ok(None)),
        (
            "import inspect\ninspect.getsource(g)",
            Ok(Some("'def g():\\n    return 2 / 0'")),
        ),
    ];
    check(&python, &executions, 0);
}

#[test]
fn javascript_keeps_its_state() {
    let Some(node) = other("javascript") else {
        return;
    };
    let executions = [
        ("const a = 1; const f = () => nope", Ok(None)),
        // Declarations may be repeated.
        ("const a = 2; a", Ok(Some("2"))),
        ("f()", Err("ReferenceError")),
        ("await Promise.resolve(a + 1)", Ok(Some("3"))),
        (
            "await Promise.reject(new RangeError('x'))",
            Err("RangeError"),
        ),
        ("let b = a +* 1", Err("SyntaxError")),
        ("await new Promise(() => {})", Err("Error")),
        ("require('path').sep + a", Ok(Some("'/2'"))),
    ];
    check(&node, &executions, 0);
    check(
        &node,
        &[("1", Ok(Some("1"))), ("nope", Err("ReferenceError"))],
        1,
    );
    let exit = [
        ("globalThis.q = 4", Ok(Some("4"))),
        ("process.exit(q)", Ok(None)),
    ];
    check(&node, &exit, 4);
}

#[test]
fn r_keeps_its_state() {
    let Some(r) = other("r") else { return };
    let executions = [
        ("x <- 1; f <- function() stop('bad')", Ok(None)),
        ("x + 1", Ok(Some("[1] 2"))),
        ("f()", Err("simpleError")),
        ("x x", Err("parseError")),
        ("ls()", Ok(Some("[1] \"f\" \"x\""))),
    ];
    check(&r, &executions, 0);
    check(&r, &[("x <- 1", Ok(None)), ("y", Err("simpleError"))], 1);
}

#[test]
fn java_keeps_its_state() {
    let Some(java) = other("java") else { return };
    let executions = [
        (
            "int x = 1; int f() { throw new IllegalStateException(); }",
            Ok(None),
        ),
        ("x + 1", Ok(Some("2"))),
        ("f()", Err("java.lang.IllegalStateException")),
        ("int y = \"x\";", Err("CompileError")),
        ("x + 2", Ok(Some("3"))),
    ];
    check(&java, &executions, 0);
}
