//! What TypeScript code gets from its driver, where Node or the package
//! `typescript` can take types out.

use super::harness::{Bench, other};
use crate::skip::skip;

/// The bench if it runs this code; `None`, and a word about it, if not. Then the error must say
/// why, and what to do.
fn able(bench: Bench, code: &str, why_not: &str) -> Option<Bench> {
    let run = bench.run(code);
    if run.error.is_none() {
        return Some(bench);
    }
    let message = &run.error().message;
    assert!(
        message.contains(why_not) && message.contains("JavaScript"),
        "{run:?}"
    );
    skip(message);
    None
}

/// A bench that takes types out.
fn typescript() -> Option<Bench> {
    let code = "const n: number = 1; n";
    able(other("typescript")?, code, "22.13 and later")
}

/// A bench that also generates code, as Node 26 does not without the package.
fn compiling() -> Option<Bench> {
    able(typescript()?, "enum E { A }\nE.A", "can only strip types")
}

fn assert_results(bench: &Bench, results: &[(&str, &str)]) {
    for (code, text) in results {
        let run = bench.run(code);
        assert!(run.error.is_none(), "{code}\n{run:?}");
        assert_eq!(run.texts(), [*text], "{code}");
        assert_eq!(run.stderr, "", "{code}");
    }
}

#[test]
fn types_vanish() {
    let Some(typescript) = typescript() else {
        return;
    };
    let results = [
        (
            "interface P { x: number }\nconst p: P = { x: 3 }\np.x as number",
            "=3",
        ),
        (
            "function id<T>(value: T): T { return value }\nid<string>('a')",
            "='a'",
        ),
        (
            "import type { Stats } from 'fs'; import fs from 'fs'\nconst n: number = await Promise.resolve(3)\nn + typeof fs.statSync.length",
            "='3number'",
        ),
        (
            "export interface Q { a?: string }\nconst q: Q = {}\nq satisfies Q",
            "={}",
        ),
    ];
    assert_results(&typescript, &results);
}

#[test]
fn enums_namespaces_and_parameter_properties_work() {
    let Some(typescript) = compiling() else {
        return;
    };
    let results = [
        ("enum Axis { X, Y }\n[Axis.Y, Axis[0]]", "=[ 1, 'X' ]"),
        (
            "class P { constructor(private x: number) {} get() { return this.x } }\nnew P(4).get()",
            "=4",
        ),
        ("namespace N { export const a = 1 }\nN.a", "=1"),
    ];
    assert_results(&typescript, &results);
    let nothing = typescript.run("namespace M { export const a = 1 }\nlet m = M.a");
    assert_eq!(nothing.texts(), [""; 0]);
}

#[test]
fn lines_are_the_codes_own() {
    let Some(typescript) = compiling() else {
        return;
    };
    for (code, name, line, is_syntax) in [
        (
            "type A = { x: number }\n\nfunction g(a: A): number { return (a as any).y.z }\ng({ x: 1 })",
            "TypeError",
            3,
            false,
        ),
        // Code is generated here, and lines move.
        (
            "enum E { A, B }\n\ninterface Q {\n  a: number\n}\nfunction f(q: Q): never {\n  throw new Error('bad')\n}\nf({ a: E.A })",
            "Error",
            7,
            false,
        ),
        ("let a = 1\nlet x: = 5", "SyntaxError", 2, true),
    ] {
        let run = typescript.run(code);
        let error = run.error();
        assert_eq!(
            (error.name.as_str(), error.line, run.is_syntax),
            (name, Some(line), is_syntax),
            "{code}\n{run:?}"
        );
        let source = code.lines().nth(line as usize - 1).unwrap();
        assert_eq!(error.traceback[1], source, "{run:?}");
    }
}
