//! What Java code gets from its driver.

use languages::frames::Frame;
use record::bytes::RawText;

use super::harness::{Bench, other};

fn java() -> Option<Bench> {
    other("java")
}

/// Runs codes in one process, each with its output and the text of its first result.
fn check_values(java: &Bench, args: &[RawText], expected: &[(&str, &str, Option<&str>)]) {
    let codes: Vec<&str> = expected.iter().map(|(code, ..)| *code).collect();
    for ((code, stdout, text), run) in expected.iter().zip(java.run_each(&codes, args)) {
        assert!(run.error.is_none() && run.done, "{code}\n{run:#?}");
        assert_eq!(
            (run.stdout.as_str(), run.texts().first().map(String::as_str)),
            (*stdout, *text),
            "{code}"
        );
        assert_eq!(run.stderr, "", "{code}");
    }
}

#[test]
fn the_last_expression_is_the_main_result() {
    let Some(java) = java() else { return };
    check_values(
        &java,
        &["b \"c\\\n".into(), "é".into()],
        &[
            ("args.length + args[0]", "", Some("=\"2b \\\"c\\\\\\n\"")),
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
        ],
    );
}

#[test]
fn errors_are_reported_with_the_codes_own_lines() {
    let Some(java) = java() else { return };
    let expected = [
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
    ];
    let mut codes = expected.map(|(code, ..)| code).to_vec();
    codes.push("int r(int n) { return r(n + 1); }\nr(0)");
    let mut runs = java.run_each(&codes, &[]);
    let deep = runs.pop().unwrap();
    assert_eq!(deep.error().name, "java.lang.StackOverflowError");
    assert!(deep.error().traceback.len() < 80);
    assert_eq!(deep.status.code(), Some(1));
    for ((code, name, message, line, is_syntax), run) in expected.into_iter().zip(runs) {
        let error = run.error();
        assert_eq!(error.name, name, "{code}: {error:?}");
        assert!(error.message.starts_with(message), "{code}: {error:?}");
        assert_eq!(
            (error.line, run.is_syntax),
            (line, is_syntax),
            "{code}: {error:?}"
        );
        let traceback = error.traceback.join("\n");
        for hidden in ["Shim", "REPL", "jdk.jshell", "do_it"] {
            assert!(!traceback.contains(hidden), "{code}: {traceback}");
        }
    }
    // A thread may go on after the code.
    let thread = "new Thread(() -> { throw new RuntimeException(\"in a thread\"); }).start();";
    let run = java.run(thread);
    let error = run.error();
    assert_eq!(error.name, "java.lang.RuntimeException");
    assert_eq!((error.message.as_str(), error.line), ("in a thread", None));
    assert_eq!((run.is_syntax, run.status.code()), (false, Some(1)));
}

/// Every form of a program, with what it writes when its arguments are `a` and `b c`.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "import java.util.*;\n\npublic class Main {\n  public static void main(String[] args) {\n    \
         System.out.println(args.length + args[1] + List.of(1) + Main.class.getName());\n  }\n}\n",
        "2b c[1]Main\n",
    ),
    (
        "#!/usr/bin/java --source 17\n/* first */\npackage shop.items;\n\nimport java.util.List;\n\n\
         record Item(String name, int price) {}\n\nclass Shop {\n  static int total(List<Item> items) {\n    \
         return items.stream().mapToInt(Item::price).sum();\n  }\n\n  public static void main(String... args) {\n    \
         System.out.println(Shop.class.getName() + total(List.of(new Item(\"a\", 3), new Item(\"b\", 4))));\n  }\n}",
        "shop.items.Shop7\n",
    ),
    (
        "sealed interface Shape permits Circle, Square {}\nrecord Circle(double r) implements Shape {}\n\
         record Square(double a) implements Shape {}\npublic final class Session {\n  \
         private static String of(Shape s) { return s instanceof Circle c ? \"c\" + c.r() : \"s\"; }\n  \
         public static void main(final java.lang.String args[]) throws Exception { System.out.print(of(new Circle(1)) + of(new Square(2))); }\n}",
        "c1.0s",
    ),
    (
        "enum Hello { ONE; public static void main(String[] args) { System.out.print(ONE); } }",
        "ONE",
    ),
    (
        "interface Hello { static void main(String[] args) { System.out.print(args[0]); } }",
        "a",
    ),
    (
        "class Hello { int x = 3; void main() { System.out.print(x); } }",
        "3",
    ),
    (
        "class Hello { static void main() { System.out.print(\"static\"); } }",
        "static",
    ),
    (
        "String greet(String name) { return \"hello \" + name; }\n\nint times = 2;\n\n\
         void main() {\n  System.out.print(greet(\"you\").repeat(times));\n}",
        "hello youhello you",
    ),
    (
        "void main(String[] args) { System.out.print(args[1]); }",
        "b c",
    ),
];

/// A method `main` that the code calls itself, or that is no program's.
const NO_PROGRAMS: &[(&str, &str)] = &[
    ("void main() { System.out.print(1); }\nmain();", "1"),
    (
        "class A { static void main(String[] a) { System.out.print(2); } }\nA.main(null);",
        "2",
    ),
    ("class A { int domain(int x) { return x; } }", ""),
];

/// A program with a thread that may go on after `main`.
const THREAD: &str = "import java.util.Scanner;\nclass Main { public static void main(String[] args) { new Thread(() -> System.out.print(\"thread\")).start(); } }";

#[test]
fn programs_run_as_java_runs_a_file() {
    let Some(java) = java() else { return };
    let args = ["a".into(), "b c".into()];
    let all = [PROGRAMS, NO_PROGRAMS].concat();
    let codes: Vec<&str> = all.iter().map(|(code, _)| *code).collect();
    let runs = java.run_each(&codes, &args);
    let thread = java.run_with(THREAD.as_bytes(), &args);
    let expected = all.into_iter().chain([(THREAD, "thread")]);
    for ((code, stdout), run) in expected.zip(runs.into_iter().chain([thread])) {
        assert!(
            run.error.is_none() && run.status.success(),
            "{code}\n{run:#?}"
        );
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str()),
            (stdout, ""),
            "{code}"
        );
        assert!(run.texts().is_empty() && run.done, "{code}");
    }
}

#[test]
fn errors_of_programs_have_the_files_own_lines() {
    let Some(java) = java() else { return };
    let code = "package a.b;\n\nclass Main {\n  static int f(String s) {\n    return s.length();\n  }\n  \
                public static void main(String[] args) {\n    try {\n      f(null);\n    } catch (Exception e) {\n      \
                throw new IllegalStateException(\"wrapped\", e);\n    }\n  }\n}";
    let expected = [
        (
            "class Main {\n  public static void main(String[] a) {\n    int x = \"s\";\n    y = 2;\n  }\n}",
            "incompatible types",
            3,
        ),
        (
            "public class Main {\n  public static void main(String[] a) {\n    int x = 1\n    x++;\n  }\n}",
            "';' expected",
            3,
        ),
        (
            "package p;\nclass Main {\n  public static void main(String[] a) {\n    int x = ;\n  }\n}",
            "illegal start of expression",
            4,
        ),
        ("package p;\nclass A {}", "no class has a method main", 1),
    ];
    let exit = "class Main { public static void main(String[] a) { System.exit(a.length + 3); } }";
    let codes = [&[code], &expected.map(|(code, ..)| code)[..], &[exit]].concat();
    let mut runs = java.run_each(&codes, &[]);
    let exit = runs.pop().unwrap();
    assert_eq!((exit.status.code(), exit.error.is_none()), (Some(3), true));

    let error = runs[0].error();
    assert_eq!(
        (error.name.as_str(), error.line),
        ("java.lang.IllegalStateException", Some(11))
    );
    let traceback = error.traceback.join("\n");
    for line in [
        "    at a.b.Main.main (main.java:11)\n        throw new IllegalState",
        "Caused by: java.lang.NullPointerException: Cannot invoke \"String.length()\" because \"s\" is null",
        "    at a.b.Main.f (main.java:5)\n        return s.length();",
    ] {
        assert!(traceback.contains(line), "{traceback}");
    }
    for hidden in ["Session", "Program", "reflect"] {
        assert!(!traceback.contains(hidden), "{traceback}");
    }

    for ((code, message, line), run) in expected.into_iter().zip(&runs[1..]) {
        let error = run.error();
        assert_eq!(
            (error.name.as_str(), error.line, run.is_syntax),
            ("CompileError", Some(line), true),
            "{code}: {error:?}"
        );
        assert!(error.message.starts_with(message), "{code}: {error:?}");
    }

    let in_thread = "class Main {\n  public static void main(String[] a) {\n    new Thread(() -> {\n      \
                     throw new RuntimeException(\"x\");\n    }).start();\n  }\n}";
    let run = java.run(in_thread);
    assert_eq!((run.error().line, run.status.code()), (Some(4), Some(1)));
}

#[test]
fn a_package_that_does_not_exist_is_named() {
    let Some(java) = java() else { return };
    let expected = [
        ("int x = 1;\nimport org.json.JSONObject;", 2),
        (
            "import org.json.JSONObject;\nclass M { public static void main(String[] a) { new JSONObject(); } }",
            1,
        ),
    ];
    let runs = java.run_each(&expected.map(|(code, _)| code), &[]);
    for ((_, line), run) in expected.into_iter().zip(runs) {
        let error = run.error();
        assert_eq!(
            (error.name.as_str(), error.message.as_str(), error.line),
            (
                "PackageNotFoundError",
                "cannot find package 'org.json'",
                Some(line)
            ),
            "{error:?}"
        );
        assert!(!run.is_syntax, "{error:?}");
    }
}

#[test]
fn programs_and_snippets_mix_in_a_context() {
    let Some(java) = java() else { return };
    let (executions, status) = java.executions(&[
        "package p;\nrecord Point(int x) {}\nclass Main { public static void main(String[] a) { System.out.print(new Point(1).x()); } }",
        "record Pair(int a, Point b) {}\nnew Pair(2, new Point(3))",
        "class Other { public static void main(String[] a) { System.out.print(new Pair(4, new Point(5))); } }",
        "class Main {\n  public static void main(String[] a) {\n    System.out.print(\"again\");\n    Integer.parseInt(\"z\");\n  }\n}",
        "new Main() == null",
    ]);
    assert!(status.success());
    let results = |index: usize| -> Vec<String> {
        executions[index]
            .iter()
            .filter_map(|frame| match frame {
                Frame::Result(shown) => shown.item.text.clone(),
                Frame::Error { error, .. } => Some(format!("{} {:?}", error.name, error.line)),
                _ => None,
            })
            .collect()
    };
    assert_eq!(results(0), [""; 0]);
    assert_eq!(results(1), ["Pair[a=2, b=Point[x=3]]"]);
    assert_eq!(results(2), [""; 0]);
    assert_eq!(results(3), ["java.lang.NumberFormatException Some(4)"]);
    assert_eq!(results(4), ["false"]);
}

#[test]
fn exits_and_input_are_plain_javas() {
    let Some(java) = java() else { return };
    let run = java.run("System.out.println(System.in.read());\nSystem.exit(4);");
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), "-1\n"));
}
