//! What Python code gets from its driver.

use std::io::{BufRead as _, BufReader};

use serde_json::json;

use super::harness::{finish, python};

#[test]
fn the_last_expression_is_the_main_result() {
    let Some(python) = python() else { return };
    for (code, stdout, texts) in [
        (
            "a = {'x': 1}\nprint('known:', len(a))\nsorted(a)",
            "known: 1\n",
            &["=['x']"][..],
        ),
        ("print(6 * 7)", "42\n", &[]),
        ("x = 1", "", &[]),
        ("", "", &[]),
        ("# nothing\n", "", &[]),
        ("None", "", &[]),
        ("'text'", "", &["='text'"]),
        ("(\n  1,\n  2,\n)\n# end\n", "", &["=(1, 2)"]),
        ("*range(2), 2", "", &["=(0, 1, 2)"]),
        ("a = 1; a", "", &["=1"]),
        ("a = 'é'; a  # ;", "", &["='é'"]),
        ("x = 5\r\nx\r\n", "", &["=5"]),
        ("if True:\n    7", "", &[]),
        (
            "from __future__ import annotations\ndef f(x: Nope): pass\nf.__annotations__",
            "",
            &["={'x': 'Nope'}"],
        ),
        // A semicolon silences it.
        ("5;", "", &[]),
        ("(\n  'é'\n) ;  # quiet", "", &[]),
        ("5 \\\n ;", "", &[]),
        ("5  # not ;", "", &["=5"]),
        ("';'", "", &["=';'"]),
    ] {
        let run = python.quiet(code);
        assert_eq!(run.stdout, stdout, "{code}");
        assert_eq!(run.texts(), texts, "{code}");
    }
}

#[test]
fn workers_that_start_anew_find_the_code() {
    let Some(python) = python() else { return };
    let code = r#"
import multiprocessing, os, shutil, tempfile
os.environ["TMPDIR"] = tempfile.mkdtemp()

def double(number):
    return 2 * number

if __name__ == "__main__":
    for method in "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(double, [1, 2, 3]))
            pool.close()
            pool.join()
    shutil.rmtree(os.environ["TMPDIR"])
"#;
    let run = python.quiet(code);
    assert_eq!(run.stdout, "spawn [2, 4, 6]\nforkserver [2, 4, 6]\n");
}

#[test]
fn display_makes_further_results() {
    let Some(python) = python() else { return };
    let run = python.quiet("for n in range(3):\n    display(n * n)\n'last'");
    assert_eq!(run.texts(), ["0", "1", "4", "='last'"]);
    let run = python.quiet("display(1, [2], display_id='x', metadata={});");
    assert_eq!(run.texts(), ["1", "[2]"]);
    let run = python.quiet("display({'text/plain': 'raw', 'text/html': '<b>'}, raw=True)");
    assert_eq!(run.texts(), ["raw"]);
    assert_eq!(run.results[0].formats["text/html"].as_str(), Some("<b>"));
}

#[test]
fn results_carry_jupyters_forms() {
    let Some(python) = python() else { return };
    let formats = |body: &str| {
        let run = python.quiet(&format!(
            "class Badge:\n{body}\n    def __repr__(self): return 'badge'\nBadge()"
        ));
        assert_eq!(run.texts(), ["=badge"], "{body}");
        (
            serde_json::to_value(&run.results[0].formats).unwrap(),
            run.notes,
        )
    };
    for (body, expected) in [
        ("", json!({"text/plain": "badge"})),
        (
            "    def _repr_html_(self): return '<b>é</b>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_svg_(self): return '<svg/>', {'isolated': True}
    def _repr_latex_(self): return None
    def _repr_json_(self): return {'level': [2, None]}",
            json!({
                "text/plain": "badge", "text/html": "<b>é</b>", "image/png": "iVBORw==",
                "image/svg+xml": "<svg/>", "application/json": {"level": [2, null]},
            }),
        ),
        (
            "    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'badge', 'text/markdown': '**badge**', 'image/png': 'aGk=',
                'application/json': {'level': 2}, 'text/html': None, 7: 'x'}
    def _repr_markdown_(self): return 'not asked'
    def _repr_javascript_(self): return 'run()'",
            json!({
                "text/plain": "badge", "text/markdown": "**badge**", "image/png": "aGk=",
                "application/json": {"level": 2}, "application/javascript": "run()",
            }),
        ),
        // It has every attribute, so none of them means anything.
        (
            "    def __getattr__(self, name): return lambda **_: 'x'",
            json!({"text/plain": "badge"}),
        ),
    ] {
        assert_eq!(formats(body), (expected, vec![]), "{body}");
    }
    let run = python.quiet("class A:\n    def _repr_html_(self): return '<b>'\nA");
    assert_eq!(run.texts(), ["=<class '__main__.A'>"]);
    assert_eq!(run.results[0].formats.len(), 1);
}

#[test]
fn a_broken_form_is_missing_and_the_rest_is_there() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "class Badge:
    def __repr__(self): raise ValueError('no')
    def _repr_html_(self): return '<b>' * (3 << 20)
    def _repr_svg_(self): return 1 / 0
    def _repr_json_(self): return {float('nan')}
    def _repr_latex_(self): return '$x$'
Badge()",
    );
    assert_eq!(run.texts(), ["=<unprintable Badge object>"]);
    let formats: Vec<_> = run.results[0].formats.keys().collect();
    assert_eq!(formats, ["text/latex", "text/plain"]);
    let notes: Vec<_> = run
        .notes
        .iter()
        .map(|note| note.split(": ").take(2).collect::<Vec<_>>())
        .collect();
    assert_eq!(
        notes,
        [
            ["image/svg+xml", "ZeroDivisionError"],
            ["text/plain", "ValueError"],
            ["text/html", "ValueError"],
            ["application/json", "TypeError"],
        ]
    );
    let run = python.quiet("'x' * (9 << 20)");
    assert_eq!(run.texts()[0].len(), 1 + (8 << 20));
    assert_eq!(run.notes, ["text/plain: cut to 8388608 bytes"]);
    let run = python.quiet("display({f'text/{n}': 'x' * (4 << 20) for n in range(5)}, raw=True)");
    assert_eq!((run.results[0].formats.len(), run.notes.len()), (3, 2));
}

/// An error as it is to be reported.
struct Raises {
    code: &'static str,
    name: &'static str,
    message: &'static str,
    line: Option<u64>,
    errno: Option<i32>,
    is_syntax: bool,
}

const RAISES: Raises = Raises {
    code: "",
    name: "",
    message: "",
    line: Some(1),
    errno: None,
    is_syntax: false,
};

#[test]
fn errors_are_reported() {
    let Some(python) = python() else { return };
    python.write("broken.py", "x = = 1\n");
    python.write("helper.py", "def f(n):\n\n    return 1 / n\n");
    for raises in [
        Raises {
            code: "x = 0\n1 / x",
            name: "ZeroDivisionError",
            message: "division by zero",
            line: Some(2),
            ..RAISES
        },
        Raises {
            code: "print(secret)",
            name: "NameError",
            message: "name 'secret' is not defined",
            ..RAISES
        },
        Raises {
            code: "import stats",
            name: "ModuleNotFoundError",
            message: "No module named 'stats'",
            ..RAISES
        },
        Raises {
            code: "open('missing.csv')",
            name: "FileNotFoundError",
            message: "[Errno 2] No such file or directory: 'missing.csv'",
            errno: Some(2),
            ..RAISES
        },
        Raises {
            code: "{}['k\\ud800\\0']",
            name: "KeyError",
            message: "'k\\ud800\\x00'",
            ..RAISES
        },
        Raises {
            code: "raise ValueError('\\ud800\\0\\u2028')",
            name: "ValueError",
            message: "\\ud800\0\u{2028}",
            ..RAISES
        },
        Raises {
            code: "print('a'",
            name: "SyntaxError",
            message: "",
            is_syntax: true,
            ..RAISES
        },
        Raises {
            code: "x = 1\n  y = 2",
            name: "IndentationError",
            message: "unexpected indent (main.py, line 2)",
            line: Some(2),
            is_syntax: true,
            ..RAISES
        },
        Raises {
            code: "pass\nreturn 5",
            name: "SyntaxError",
            message: "'return' outside function (main.py, line 2)",
            line: Some(2),
            is_syntax: true,
            ..RAISES
        },
        // Not the code's own syntax.
        Raises {
            code: "\nexec('1 +')",
            name: "SyntaxError",
            message: "invalid syntax (<string>, line 1)",
            line: Some(2),
            ..RAISES
        },
        Raises {
            code: "import broken",
            name: "SyntaxError",
            message: "invalid syntax (broken.py, line 1)",
            ..RAISES
        },
        // The line of the caller's code that it passed through last.
        Raises {
            code: "import helper\ndef g():\n    helper.f(0)\n\ng()",
            name: "ZeroDivisionError",
            message: "division by zero",
            line: Some(3),
            ..RAISES
        },
        Raises {
            code: "raise KeyboardInterrupt",
            name: "KeyboardInterrupt",
            message: "",
            ..RAISES
        },
        Raises {
            code: "await nowhere",
            name: "NameError",
            message: "name 'nowhere' is not defined",
            ..RAISES
        },
        Raises {
            code: "def f(): f()\nf()",
            name: "RecursionError",
            message: "maximum recursion depth exceeded",
            ..RAISES
        },
        Raises {
            code: "class E(Exception):\n    def __str__(self): 1/0\nraise E",
            name: "E",
            message: "<unprintable: str() raised ZeroDivisionError>",
            line: Some(3),
            ..RAISES
        },
        Raises {
            code: "x = '\\0'\neval('1\\0')",
            name: "",
            message: "source code string cannot contain null bytes",
            line: Some(2),
            ..RAISES
        },
    ] {
        let run = python.run(raises.code);
        let error = run.error();
        let code = raises.code;
        assert!(
            raises.name.is_empty() || error.name == raises.name,
            "{code}: {error:?}"
        );
        assert!(
            error.message.starts_with(raises.message),
            "{code}: {error:?}"
        );
        assert_eq!(
            (error.line, error.errno, run.is_syntax),
            (raises.line, raises.errno, raises.is_syntax),
            "{code}: {error:?}"
        );
        assert!(
            error.traceback.last().unwrap().starts_with(&error.name),
            "{error:?}"
        );
        let status = if error.name == "KeyboardInterrupt" {
            130
        } else {
            1
        };
        assert_eq!(run.status.code(), Some(status), "{code}");
        assert_eq!(run.stderr, "", "{code}");
        assert!(run.started && run.done, "{code}");
    }
}

#[test]
fn tracebacks_show_the_callers_lines_and_not_the_shims() {
    let Some(python) = python() else { return };
    python.write("helper.py", "def f(n):\n    return 1 / n\n");
    let helper = python.workspace().join("helper.py");
    for (code, traceback) in [
        (
            "import helper\ntry:\n    helper.f(0)\nexcept ZeroDivisionError as e:\n    raise OSError(9, 'bad') from e",
            format!(
                "Traceback (most recent call last):
  File \"main.py\", line 3, in <module>
    helper.f(0)
  File \"{}\", line 2, in f
    return 1 / n
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File \"main.py\", line 5, in <module>
    raise OSError(9, 'bad') from e
OSError: [Errno 9] bad",
                helper.display()
            ),
        ),
        (
            "def f():\n    return g\nawait f()",
            "Traceback (most recent call last):
  File \"main.py\", line 3, in <module>
    await f()
  File \"main.py\", line 2, in f
    return g
NameError: name 'g' is not defined"
                .to_owned(),
        ),
        (
            "x = 1\nreturn x",
            "  File \"main.py\", line 2
    return x
SyntaxError: 'return' outside function"
                .to_owned(),
        ),
    ] {
        assert_eq!(python.run(code).traceback(), traceback);
    }
    // A long one loses its middle, a long line its end.
    let run = python.run("def f(n):\n    g(n)\ndef g(n):\n    f(n + 1)\nf(0)");
    assert!((300..=402).contains(&run.error().traceback.len()));
    assert!(run.traceback().contains("lines left out"));
    let run = python.run("raise ValueError('x' * 5000)");
    assert!(run.error().traceback.iter().all(|line| line.len() <= 2000));
}

#[test]
fn the_code_sees_itself_as_a_program() {
    let Some(python) = python() else { return };
    python.write("mymodule.py", "value = 7\n");
    let run = python.run_with(
        b"import sys, os, inspect, pickle, __main__, mymodule
print(__name__, sys.argv, os.path.dirname(__file__) == os.getcwd(), mymodule.value)
def f(): return 1
class C: pass
print(inspect.getsource(f), __main__.f is f, type(pickle.loads(pickle.dumps(C()))) is C)
print(sys.flags.utf8_mode, sys.flags.dont_write_bytecode, [p for p in sys.path if 'cellblock' in p])
print(sorted(n for n in globals() if not n.startswith('__')))
try: 1/0
except ZeroDivisionError:
    import traceback; print(traceback.format_exc().splitlines()[2])",
        &["-x".into(), "b c".into(), RAW.to_vec().into()],
    );
    assert_eq!(
        run.stdout,
        "__main__ ['main.py', '-x', 'b c', '\\udcff'] True 7
def f(): return 1
 True True
1 1 []
['C', 'f', 'inspect', 'mymodule', 'os', 'pickle', 'sys']
    try: 1/0
"
    );
    assert!(!python.workspace().join("__pycache__").exists());
}

const RAW: &[u8] = b"\xff";

#[test]
fn exits_are_plain_pythons() {
    let Some(python) = python() else { return };
    for (code, status, stdout, stderr) in [
        ("import sys\nsys.exit(3)", 3, "", ""),
        ("exit()", 0, "", ""),
        ("raise SystemExit('bye')", 1, "", "bye\n"),
        ("import os\nos._exit(7)", 7, "", ""),
        (
            "import atexit\natexit.register(print, 'last')\nprint('first')",
            0,
            "first\nlast\n",
            "",
        ),
        (
            "import atexit\natexit.register(print, 'last')\n1/0",
            1,
            "last\n",
            "",
        ),
        (
            "import threading
def late():
    threading.main_thread().join()
    print('late')
threading.Thread(target=late).start()
print('early')",
            0,
            "early\nlate\n",
            "",
        ),
        (
            "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1/0",
            1,
            "hook ZeroDivisionError\n",
            "",
        ),
        (
            "import sys\nprint('out')\nprint('err', file=sys.stderr)",
            0,
            "out\n",
            "err\n",
        ),
        ("print('no newline', end='')", 0, "no newline", ""),
    ] {
        let run = python.run(code);
        assert_eq!(
            (run.status.code(), run.stdout.as_str(), run.stderr.as_str()),
            (Some(status), stdout, stderr),
            "{code}"
        );
    }
}

/// What Python does at its end beyond ending: the shim may leave that out only
/// where nobody can tell.
#[test]
fn what_is_left_behind_ends_as_in_plain_python() {
    let Some(python) = python() else { return };
    for code in [
        "f = open('left', 'w')\nf.write('in the buffer')",
        "import weakref\nclass A: pass\na = A()\nr = weakref.ref(a, lambda r: print('r'))",
        "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')",
        "import ctypes\nctypes.CDLL(None).printf(b'in a buffer of C')",
        "import atexit\nclass A:\n    def __del__(self): print('gone')\ndef f():\n    global a\n    a = A()\natexit.register(f)",
        "from concurrent.futures import ThreadPoolExecutor as E\nE(1).submit(print, 'done')",
        "import os, tempfile\nd = tempfile.TemporaryDirectory()\nprint(os.path.isdir(d.name))",
        "f = [open('left', 'wb')]\nf[0].write(b'in the buffer')\nf.append(f)",
        "class A:\n    def __del__(self): print('gone')\na = A()",
        "class A:\n    __slots__ = ()\n    def __del__(self): print('gone')\na = A()",
        "def f():\n    try: yield\n    finally: print('finally')\ng = f()\nnext(g)",
        "import sys, io\nsys.stdout = io.TextIOWrapper(open('left', 'wb'))\nprint('x', end='')",
        "import sys\nsys.stderr.write('no newline')\nsys.stdout.write('none')",
        "import sys\nsys.stdout.buffer.write(b'bytes')",
        "import gc\nf = open('left', 'w')\nf.write('hidden')\ngc.freeze()",
        "import gc\ngc.freeze()\nf = open('left', 'w')\nf.write('frozen')",
        "import os\nos.environ.kept = open('left', 'w')\nos.environ.kept.write('kept')",
        "import sys\nf = open('left', 'w')\nf.write('x')\nsys.exit()",
        "import sys\nsys.stdout.close()",
        "import weakref\nclass A: pass\na = A()\nf = weakref.finalize(a, print, 'finalised')",
        "import os\nif not os.fork():\n    print('child')\nelse:\n    os.wait()\n    print('parent')",
        "import _thread, time\n_thread.start_new_thread(time.sleep, (60,))",
        "import _weakref\nclass A: pass\na = A()\nr = _weakref.ref(a, lambda _: print('dead'))",
        "x = [[n] for n in range(100_000)]\nf = open('left', 'w')\nf.write('large')",
        "def f(n): return n\nx = {f(n): [n] for n in range(9)}",
    ] {
        let left = python.workspace().join("left");
        let ended = |status: Option<i32>, stdout: &str| {
            let content = std::fs::read_to_string(&left).unwrap_or_default();
            let _ = std::fs::remove_file(&left);
            (status, stdout.to_owned(), content)
        };
        let plain = python.plain(code);
        let plain = ended(plain.status.code(), &String::from_utf8_lossy(&plain.stdout));
        let run = python.run(code);
        assert_eq!(ended(run.status.code(), &run.stdout), plain, "{code}");
        assert!(run.done, "{code}");
    }
    // Plain Python loses this text: it is in a buffer.
    let run = python.run("import os\nprint(end='kept')\nos.close(1)");
    assert_eq!((run.status.code(), &*run.stdout), (Some(0), "kept"));
}

/// The shim's print() writes once, and otherwise what Python's does, in the same order.
#[test]
fn what_is_printed_is_what_plain_python_prints() {
    let Some(python) = python() else { return };
    let code = r#"
import io, sys, threading
class Inner:
    def __str__(self): print('inner', end=';'); sys.stdout.write('w;'); return 'I'
class Outer:
    def __str__(self): print(Inner(), [1]); return 'O'
class Wrong:
    def __str__(self): raise ValueError
print('outer', Inner(), Inner(), 'end')
print(Outer(), Inner(), None, 1.5, True, sep=None, end=None)
print(1, 2, sep='', end='!\n', flush=True)
print()
for values, options in ((1, Wrong()), {}), ((1,), {'sep': 2}), ((1,), {'end': 2}), ((1,), {'file': 2}):
    try: print(*values, **options)
    except Exception as e: print(type(e).__name__, e)
stdout, sys.stdout = sys.stdout, None
print('nowhere')
sys.stdout = io.StringIO()
print('caught', [2])
caught, sys.stdout = sys.stdout.getvalue(), stdout
print(repr(caught), print.__name__, print.__module__, print.__doc__[:20])
thread = threading.Thread(target=print, args=('from a thread', {}))
thread.start()
thread.join()
sys.stdout.flush()
sys.stdout.buffer.write(memoryview(bytes(range(32, 64))).cast('I'))
sys.stdout.write('x' * 900_000)
"#;
    let plain = python.plain(code);
    let run = python.run(code);
    let (head, rest) = run.stdout.split_at(run.stdout.find("xxx").unwrap());
    let plain = String::from_utf8_lossy(&plain.stdout);
    assert_eq!(Some(head), plain.get(..head.len()));
    assert!(rest == "x".repeat(900_000));
    let code = "import sys\nsizes = []\nraw = type(sys.stdout.buffer)\nown = raw.write\n\
        raw.write = lambda self, data: sizes.append(len(data)) or own(self, data)\n\
        print('a', 1); print('b', end=''); sys.stdout.write('c'); print([], {}); raw.write = own; sizes";
    assert_eq!(python.run(code).texts(), ["=[4, 1, 1, 6]"]);
}

#[test]
fn a_last_expression_is_found_however_it_is_written() {
    let Some(python) = python() else { return };
    let ways: [(&str, &[&str]); 25] = [
        ("1 +\\\n1", &["=2"]),
        ("f = int\nf \\\n(2)", &["=2"]),
        ("f = int\r\nf \\\r\n(2)", &["=2"]),
        ("f = int\rf(3)", &["=3"]),
        ("max(\n1,\n\n2,\n)\n# why\n\n", &["=2"]),
        ("max(\n1, [\n2\n][0]\n)", &["=2"]),
        ("'''a\nb'''", &["='a\\nb'"]),
        ("'''a\nb\n'''\n", &["='a\\nb\\n'"]),
        ("x = '''\nb'''", &[]),
        ("x = '''\n'''.strip", &[]),
        ("x = 1, 2\n0, *x", &["=(0, 1, 2)"]),
        ("x = (\n1)", &[]),
        ("if 1:\n    5", &[]),
        ("for x in [1]:\n    x\nelse:\n    2", &[]),
        ("';'", &["=';'"]),
        ("1; 2", &["=2"]),
        ("1; x = 2", &[]),
        ("5;", &[]),
        ("5 # ;", &["=5"]),
        ("\x0c5", &["=5"]),
        ("class x:\n    y = 1\nx.y", &["=1"]),
        (
            "from __future__ import annotations\ndef f(x: nowhere): pass\nf.__annotations__",
            &["={'x': 'nowhere'}"],
        ),
        ("x = 1\nx # coding: latin-1", &["=1"]),
        ("# only words", &[]),
        ("", &[]),
    ];
    for (code, expected) in ways {
        assert_eq!(python.quiet(code).texts(), expected, "{code:?}");
    }
}

/// The short way to a code object and the long one differ in nothing.
#[test]
fn code_is_the_same_whichever_way_it_is_read() {
    let Some(python) = python() else { return };
    for last in ["show()", "x = show()"] {
        let run = python.quiet(&format!(
            "'no docstring'
import sys
def f():
    return [sys._getframe().f_code for _ in [0]][0]
def show():
    frame = sys._getframe(1)
    for code in f(), show.__code__, frame.f_code:
        print(code.co_filename, code.co_name, code.co_firstlineno, code.co_flags & ~0x1040)
    print(frame.f_lineno, sys.getprofile(), sys._getframe(1).f_globals['__doc__'])
{last}"
        ));
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert_eq!(lines[1], "main.py show 5 3", "{run:#?}");
        assert!(lines[2].starts_with("main.py <module> "), "{run:#?}");
        assert_eq!(lines[3], "10 None no docstring");
    }
    // The interpreter's warnings name the code, and come once.
    for last in ["'a' is 'a'", "x = 'a' is 'a'"] {
        let run = python.run(format!("x = 1\n{last}"));
        let warned = |what| run.stderr.matches(what).count();
        let counts = (warned("SyntaxWarning"), warned("main.py:2: "));
        assert_eq!(counts, (1, 1), "{run:#?}");
    }
}

#[test]
fn await_works_at_the_top_level() {
    let Some(python) = python() else { return };
    let run = python.quiet(
        "import asyncio
async def work(n):
    await asyncio.sleep(0.01)
    return n
await work(1)
task = asyncio.create_task(work(2))
async with asyncio.Lock():
    pass
[await work(3), await task]",
    );
    assert_eq!(run.texts(), ["=[3, 2]"]);
    // Without one there is no loop, and the code may run its own.
    let run = python.quiet("import asyncio\nasync def f(): return 4\nasyncio.run(f())");
    assert_eq!(run.texts(), ["=4"]);
}

#[test]
fn code_of_any_size_and_encoding_arrives() {
    let Some(python) = python() else { return };
    let long = format!("x = '{}'\nlen(x)", "y".repeat(20 << 20));
    assert_eq!(python.quiet(&long).texts(), ["=20971520"]);
    let latin1 = b"# -*- coding: latin-1 -*-\n'\xe9'";
    assert_eq!(python.run(latin1).texts(), ["='é'"]);
    assert_eq!(python.run(b"\xef\xbb\xbf'bom'").texts(), ["='bom'"]);
    let run = python.run(b"'\xe9'");
    assert_eq!(
        (run.error().name.as_str(), run.is_syntax),
        ("SyntaxError", true)
    );
    let run = python.quiet("'\\ud800\\0\\u2028é'");
    assert_eq!(run.texts(), ["='\\ud800\\x00\\u2028é'"]);
    let run = python.quiet("class R:\n    def __repr__(self): return '\\ud800\\0\\u2028é'\nR()");
    assert_eq!(run.texts(), ["=\\ud800\0\u{2028}é"]);
}

#[test]
fn a_killed_run_leaves_its_output() {
    let Some(python) = python() else { return };
    let (mut child, channel) = python.start(b"print('so far')\nimport time\ntime.sleep(60)", &[]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "so far\n");
    child.kill().unwrap();
    child.stdout = Some(stdout.into_inner());
    let run = finish(child, channel);
    assert!(run.started && !run.done);
}
