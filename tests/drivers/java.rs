//! What Java code gets from its driver.

use crate::harness::{Bench, other};

fn java() -> Option<Bench> {
    other("java")
}

#[test]
fn the_last_expression_is_the_main_result() {
    let Some(java) = java() else { return };
    for (code, stdout, text) in [
        (
            "int x = 40;\nSystem.out.println(\"x is \" + x);\nx + 2",
            "x is 40\n",
            Some("=42"),
        ),
        ("// nothing", "", None),
        ("int x = 40;", "", None),
        ("System.out.print(\"no newline\")", "no newline", None),
        (
            "#!/usr/bin/env jshell\nrecord P(int x) {}\nList<P> ps = List.of(new P(1), new P(2));\nps.stream().map(P::x).collect(Collectors.toList())",
            "",
            Some("=[1, 2]"),
        ),
        (
            "for (int i = 0; i < 2; i++) {\n  System.out.print(i);\n}\nString s = \"é\\\"\\n\";\ns",
            "01",
            Some("=\"é\\\"\\n\""),
        ),
    ] {
        let run = java.quiet(code);
        assert_eq!(
            (run.stdout.as_str(), run.texts().first().map(String::as_str)),
            (stdout, text),
            "{code}"
        );
    }
    let run = java.run_with(b"args.length + args[0]", &["b \"c\\\n".into(), "é".into()]);
    assert_eq!(run.texts(), ["=\"2b \\\"c\\\\\\n\""]);
}

#[test]
fn errors_are_reported_with_the_codes_own_lines() {
    let Some(java) = java() else { return };
    for (code, name, message, line, is_syntax) in [
        (
            "String s = null;\nint g() {\n  return s.length();\n}\n\n// a comment\n\ng();",
            "java.lang.NullPointerException",
            "Cannot invoke \"String.length()\" because \"s\" is null",
            Some(3),
            false,
        ),
        (
            "class A {\n  int f() {\n    throw new IllegalStateException(\"x\");\n  }\n}\nnew A().f()",
            "java.lang.IllegalStateException",
            "x",
            Some(3),
            false,
        ),
        (
            "int a = 1;\nint b = \"a\";",
            "CompileError",
            "incompatible types",
            Some(2),
            true,
        ),
        (
            "int y = 1;\nint z = y +;\nz",
            "CompileError",
            "illegal start of expression",
            Some(2),
            true,
        ),
        (
            "if (true) {\n  int q = 1;",
            "CompileError",
            "reached end of file while parsing",
            Some(2),
            true,
        ),
        (
            "new Thread(() -> { throw new RuntimeException(\"in a thread\"); }).start();",
            "java.lang.RuntimeException",
            "in a thread",
            None,
            false,
        ),
    ] {
        let run = java.run(code);
        let error = run.error();
        assert_eq!(error.name, name, "{code}: {error:?}");
        assert!(error.message.starts_with(message), "{code}: {error:?}");
        assert_eq!(
            (error.line, run.is_syntax),
            (line, is_syntax),
            "{code}: {error:?}"
        );
        assert_eq!(run.status.code(), Some(1), "{code}");
        let traceback = error.traceback.join("\n");
        for hidden in ["Shim", "REPL", "jdk.jshell", "do_it"] {
            assert!(!traceback.contains(hidden), "{code}: {traceback}");
        }
    }
    let run = java.run("int r(int n) { return r(n + 1); }\nr(0)");
    assert_eq!(run.error().name, "java.lang.StackOverflowError");
    assert!(run.error().traceback.len() < 80);
}

#[test]
fn exits_and_input_are_plain_javas() {
    let Some(java) = java() else { return };
    let run = java.run("System.out.println(System.in.read());\nSystem.exit(4);");
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), "-1\n"));
}
