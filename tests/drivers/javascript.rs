//! What JavaScript code gets from its driver.

use serde_json::json;

use super::harness::{Bench, other};

fn node() -> Option<Bench> {
    other("javascript")
}

#[test]
fn the_last_expression_is_the_main_result() {
    let Some(node) = node() else { return };
    for (code, text) in [
        ("const a = [3, 1]\na.sort()", Some("=[ 1, 3 ]")),
        ("", None),
        ("// nothing\n", None),
        ("undefined", None),
        ("null", Some("=null")),
        ("'text'", Some("='text'")),
        ("let a = 5; a; // trailing; x", Some("=5")),
        ("let a = 4\na\n// done; ok\n/* x; */", Some("=4")),
        ("x = 5", Some("=5")),
        ("#!/usr/bin/env node\n1 + 1", Some("=2")),
        ("`a;\n${1}`", Some("='a;\\n1'")),
        ("/a;b/.source", Some("='a;b'")),
        ("[1, 2]\n  .map(x => x + 1)", Some("=[ 2, 3 ]")),
        ("(() => { return 3 })()", Some("=3")),
        ("let i = 1\n++i", Some("=2")),
        ("const a = 1;\na\n  ? 'y'\n  : 'n'", Some("='y'")),
        ("function f()\n{ return 1 }\nf()", Some("=1")),
        (
            "const f = async () => {};\nf()",
            Some("=Promise { undefined }"),
        ),
        // An object, not a block.
        ("{a: 1}", Some("={ a: 1 }")),
        ("{a: 1, b: [2]}", Some("={ a: 1, b: [ 2 ] }")),
        ("let q = 1\n{q, z: 2}", Some("={ q: 1, z: 2 }")),
        ("{a: 1};", None),
        // Statements have values for V8, and not here.
        ("const x = 5", None),
        ("if (1) { 5 }\nelse { 6 }", None),
        ("for (const x of [1]) x", None),
        ("try { 5 } catch { 6 }", None),
        ("do { 5 } while (0)", None),
        ("switch (1) { case 1: 7 }", None),
        ("5;\nfunction f() {}", None),
        ("5; class A {}", None),
        ("let x = 5\n+3", None),
        (
            "console.log(1)\nfor (let i = 0; i < 2; i++) {\n  i; // see; x\n}",
            None,
        ),
    ] {
        let run = node.quiet(code);
        let texts = run.texts();
        assert_eq!(texts.first().map(String::as_str), text, "{code}");
    }
}

#[test]
fn await_and_modules_work_at_the_top_level() {
    let Some(node) = node() else { return };
    node.write("m.mjs", "export const v = 7; export default () => 'd'");
    node.write("c.js", "exports.k = 9");
    node.write("data.json", "{\"n\": 3}");
    for (code, text) in [
        (
            "const wait = (ms) => new Promise((done) => setTimeout(() => done(ms), ms));\nawait wait(5)",
            "=5",
        ),
        ("await (async () => 5)()", "=5"),
        ("await 1; {a: 1, b: 2}", "={ a: 1, b: 2 }"),
        ("let n = 0\nfor await (const x of [1, 2]) n += x\nn", "=3"),
        ("const {sep} = require('path'); sep", "='/'"),
        ("require('./c.js').k", "=9"),
        (
            "import fs, {readFileSync as read} from 'fs'\nimport * as path from \"node:path\";\nread === fs.readFileSync && path.sep",
            "='/'",
        ),
        (
            "import d, {v} from './m.mjs'; import { k } from './c.js'\n[d(), v, k]",
            "=[ 'd', 7, 9 ]",
        ),
        (
            "import data from './data.json' with {type: 'json'}\ndata.n",
            "=3",
        ),
        (
            "import 'node:fs'; import.meta.filename === __filename",
            "=true",
        ),
        (
            "const m = await import('./m.mjs'); 'import(x)'; /* import('y') */ m.v",
            "=7",
        ),
        ("const o = {import: (x) => x}; await o.import(4)", "=4"),
        (
            "import {\n  sep, // the separator, as 'sep'\n  join as glue,\n} from 'path'\nglue('a', 'b')",
            "='a/b'",
        ),
        ("export const q = 1; export default 5", "=5"),
        ("await 5n", "=5n"),
        ("await -0", "=-0"),
        ("await Symbol('s')", "=Symbol(s)"),
    ] {
        assert_eq!(node.quiet(code).texts(), [text], "{code}");
    }
    let run = node.quiet("import('./m.mjs').then((m) => console.log(m.v)); 0");
    assert_eq!(run.stdout, "7\n");
}

#[test]
fn results_have_their_forms() {
    let Some(node) = node() else { return };
    let forms = |code: &str| {
        let run = node.quiet(code);
        serde_json::to_value(&run.results.last().unwrap().formats).unwrap()
    };
    for (code, expected) in [
        (
            "[1, {a: null}]",
            json!({"text/plain": "[ 1, { a: null } ]", "application/json": [1, {"a": null}]}),
        ),
        // What JSON cannot tell has no such form.
        ("[NaN]", json!({"text/plain": "[ NaN ]"})),
        ("({f() {}}).f.name", json!({"text/plain": "'f'"})),
        (
            "new Map([[1, 2]])",
            json!({"text/plain": "Map(1) { 1 => 2 }"}),
        ),
        (
            "const o = {}; o.o = o; o",
            json!({"text/plain": "<ref *1> { o: [Circular *1] }"}),
        ),
        ("display('<b>', 'text/html')", json!({"text/html": "<b>"})),
        (
            "display(Buffer.from('hi'), 'image/png')",
            json!({"image/png": "aGk="}),
        ),
        (
            "display({'text/plain': 'p', 'image/png': 'aGk='}, {raw: true})",
            json!({"text/plain": "p", "image/png": "aGk="}),
        ),
        (
            "({[Symbol.for('Jupyter.display')]: () => ({'text/plain': 'x', 'text/markdown': '**x**'})})",
            json!({"text/plain": "x", "text/markdown": "**x**"}),
        ),
    ] {
        assert_eq!(forms(code), expected, "{code}");
    }
    let run = node.quiet("for (let n = 0; n < 3; n++) display(n); 'last'");
    assert_eq!(run.texts(), ["0", "1", "2", "='last'"]);
    let run = node.quiet("'x'.repeat(9 << 20)");
    assert_eq!(run.texts()[0].len(), 1 + (8 << 20));
    assert_eq!(run.notes, ["text/plain: cut to 8388608 bytes"]);
    let run = node.quiet("({get [Symbol.toStringTag]() { throw new Error('no') }})");
    assert_eq!(run.results.len(), 1);
}

#[test]
fn errors_are_reported_with_the_codes_own_lines() {
    let Some(node) = node() else { return };
    node.write(
        "c.js",
        "exports.bad = () => {\n  throw new Error('deep')\n}",
    );
    for (code, name, message, line, is_syntax) in [
        (
            "null.length",
            "TypeError",
            "Cannot read properties of null (reading 'length')",
            Some(1),
            false,
        ),
        (
            "\n\nnope",
            "ReferenceError",
            "nope is not defined",
            Some(3),
            false,
        ),
        (
            "await 1\nnope",
            "ReferenceError",
            "nope is not defined",
            Some(2),
            false,
        ),
        (
            "let a = 1\n1 +* 2",
            "SyntaxError",
            "Unexpected token '*'",
            Some(2),
            true,
        ),
        (
            "await 3; 1 +* 2",
            "SyntaxError",
            "Unexpected token '*'",
            Some(1),
            true,
        ),
        (
            "const x = 1;\nconst x = 2",
            "SyntaxError",
            "Identifier 'x' has already been declared",
            Some(2),
            true,
        ),
        (
            "return 5",
            "SyntaxError",
            "Illegal return statement",
            Some(1),
            true,
        ),
        (
            "\nJSON.parse('{')",
            "SyntaxError",
            "Expected property name or '}' in JSON",
            Some(2),
            false,
        ),
        (
            "import {nope} from 'fs'",
            "SyntaxError",
            "The requested module 'fs' does not provide an export named 'nope'",
            Some(1),
            false,
        ),
        (
            "require('lodash')",
            "Error",
            "Cannot find module 'lodash'",
            Some(1),
            false,
        ),
        (
            "class Mine extends Error {}\nthrow new Mine('m')",
            "Mine",
            "m",
            Some(2),
            false,
        ),
        ("throw 5", "Uncaught", "5", None, false),
        ("await 1; throw {a: 1}", "Uncaught", "{ a: 1 }", None, false),
        (
            "setTimeout(() => { throw new Error('late') }, 1)",
            "Error",
            "late",
            Some(1),
            false,
        ),
        (
            "Promise.reject(new TypeError('rejected')); 1",
            "TypeError",
            "rejected",
            Some(1),
            false,
        ),
        ("\nrequire('./c.js').bad()", "Error", "deep", Some(2), false),
        (
            "const f = () => f(); f()",
            "RangeError",
            "Maximum call stack size exceeded",
            Some(1),
            false,
        ),
    ] {
        let run = node.run(code);
        let error = run.error();
        assert_eq!(error.name, name, "{code}: {error:?}");
        assert!(error.message.starts_with(message), "{code}: {error:?}");
        assert_eq!(
            (error.line, run.is_syntax),
            (line, is_syntax),
            "{code}: {error:?}"
        );
        assert_eq!(run.status.code(), Some(1), "{code}");
        assert_eq!(run.stderr, "", "{code}");
        let traceback = error.traceback.join("\n");
        for hidden in [
            "node.cjs",
            "/run/cellblock",
            "node:inspector",
            "node:internal/process",
        ] {
            assert!(!traceback.contains(hidden), "{code}: {traceback}");
        }
    }
    let file = node.workspace().join("main.js");
    let file = file.display();
    assert_eq!(
        node.run("let a\n  a.b()").error().traceback,
        [
            &format!("{file}:2"),
            "  a.b()",
            "    ^",
            "",
            "TypeError: Cannot read properties of undefined (reading 'b')",
            &format!("    at {file}:2:5"),
        ]
    );
    let run = node.run("require('fs').readFileSync('missing.csv')");
    assert_eq!(run.error().errno, Some(-2));
    let run = node.run("await new Promise(() => {})");
    assert_eq!((run.status.code(), run.error().line), (Some(13), None));
}

#[test]
fn the_code_sees_itself_as_a_program() {
    let Some(node) = node() else { return };
    let run = node.run_with(
        b"console.log(process.argv.slice(2), require.main === module, process.argv[1] === __filename)
console.log(Object.keys(globalThis).filter((name) => ['require', 'module', 'display'].includes(name)))
console.log(Object.keys(require.cache).length, new Error('x').stack.split('\\n').length > 1)
process.stdin.on('data', () => {}).on('end', () => console.log('end of input'))",
        &["-x".into(), "b c".into()],
    );
    assert_eq!(
        run.stdout,
        "[ '-x', 'b c' ] true true\n[]\n0 true\nend of input\n"
    );
    assert_eq!(run.stderr, "");
    for (code, status) in [
        ("process.exit(3)", 3),
        ("process.exitCode = 4; 1", 4),
        ("await 1; process.exit(5)", 5),
        ("await 1; process.exit(0)", 0),
    ] {
        let run = node.run(code);
        assert_eq!(
            (run.status.code(), run.error.is_none()),
            (Some(status), true),
            "{code}"
        );
    }
    let handled = "process.on('uncaughtException', (e) => console.log('mine', e.message)); throw new Error('z')";
    let run = node.run(handled);
    assert_eq!(
        (run.stdout.as_str(), run.error.is_none()),
        ("mine z\n", true)
    );
}

#[test]
fn a_program_that_breaks_the_process_is_still_reported() {
    let Some(node) = node() else { return };
    for break_it in [
        "const fs = require('fs'); fs.writeSync = fs.readSync = null",
        "delete globalThis.Buffer; delete globalThis.require; delete globalThis.process",
        "console.log = null; process.stdout.write = null",
        "Error.stackTraceLimit = 0",
        "Error.prepareStackTrace = () => { throw 1 }",
        "require('util').inspect = null; require('vm').Script = null",
        "process.removeAllListeners('exit')",
        "Object.freeze(globalThis)",
    ] {
        let run = node.run(format!("{break_it}\nthrow new RangeError('on purpose')"));
        let error = run.error();
        assert_eq!(
            (error.name.as_str(), error.message.as_str()),
            ("RangeError", "on purpose"),
            "{break_it}"
        );
        assert_eq!(run.status.code(), Some(1), "{break_it}");
    }
}

#[test]
fn children_do_not_get_the_channel() {
    let Some(node) = node() else { return };
    let run =
        node.quiet("require('child_process').spawnSync('sh', ['-c', 'echo x >&4']).status === 0");
    assert_eq!(run.texts(), ["=false"]);
    let run = node.quiet("[...process.argv, ...Object.values(process.env)].includes('4')");
    assert_eq!(run.texts(), ["=false"]);
}
