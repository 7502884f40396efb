//! What Python code may do to its driver, by accident or on purpose: the report
//! of its own end still comes, or its absence is plain.

use super::harness::python;

#[test]
fn a_program_that_breaks_the_interpreter_is_still_reported() {
    let Some(python) = python() else { return };
    for break_it in [
        "import builtins\nfor n in ('print', 'repr', 'len', 'str', 'isinstance', 'sum', 'map', 'bytes', 'type', 'getattr', '__import__', 'compile', 'exec', 'eval', 'Exception'): delattr(builtins, n)",
        "import builtins\nbuiltins.open = builtins.repr = builtins.str = builtins.len = None",
        "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
        "import sys\nsys.path = None; sys.modules['traceback'] = None; sys.meta_path[:] = []",
        "import sys\nsys.modules.clear()",
        "import sys\nsys.setrecursionlimit(30)",
        "import os\nos.closerange(0, 3)",
        "import os\nos.read = os.write = os.getpid = os.fstat = None",
        "import sys\nsys.settrace(lambda *a: print); sys.setprofile(print)",
        "import atexit, signal\nsignal.signal(signal.SIGALRM, lambda *a: None); atexit.register(signal.setitimer, 0, 0); signal.setitimer(0, 1e-4, 1e-4)",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
        "__builtins__ = {}",
        "import linecache, traceback\nlinecache.updatecache = traceback.format_exception = None",
        "import gc\ngc.disable(); gc.set_threshold(1)",
        "import threading, sys\nsys.setswitchinterval(1e-6)\nfor _ in range(4): threading.Thread(target=lambda: [display(1) for _ in range(50)], daemon=True).start()",
    ] {
        let code = format!("{break_it}\nraise NotImplementedError('on purpose')");
        let run = python.run(&code);
        let error = run.error();
        assert!(
            error.name == "NotImplementedError" && error.message == "on purpose"
                || error.name == "NameError",
            "{break_it}\n{run:#?}"
        );
        assert!(
            error.line.is_some_and(|line| line > 1),
            "{break_it}\n{run:#?}"
        );
        assert!(
            run.done && matches!(run.status.code(), Some(1 | 120)),
            "{break_it}\n{run:#?}"
        );
    }
}

#[test]
fn memory_errors_are_explained() {
    let Some(python) = python() else { return };
    for (hog, leaves_some) in [
        (
            "keep = []\nwhile True:\n    keep.append(bytearray(1 << 20))",
            true,
        ),
        ("keep = []\nwhile True:\n    keep.append(object())", true),
        // Not even enough for the traceback that Python itself makes; Python
        // 3.13.0 crashes on its way out, also without the shim.
        (
            "keep = None\nwhile True:\n    keep = (keep, bytes(100))",
            false,
        ),
    ] {
        let code = format!(
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))\n{hog}"
        );
        let run = python.run(&code);
        assert_eq!(run.error().name, "MemoryError", "{run:#?}");
        if leaves_some {
            assert_eq!(run.error().line, Some(5), "{run:#?}");
            assert!(run.traceback().contains("keep"), "{run:#?}");
            assert_eq!(run.status.code(), Some(1));
        }
    }
}

#[test]
fn modules_of_the_workspace_do_not_stand_in_for_the_shims() {
    let Some(python) = python() else { return };
    for module in [
        "traceback",
        "linecache",
        "tokenize",
        "re",
        "_ast",
        "os",
        "enum",
        "collections",
    ] {
        python.write(&format!("{module}.py"), "raise SystemExit('mine')\n");
    }
    let run = python.run("x = 1\n1 / 0");
    assert_eq!(
        run.error().traceback[1],
        "  File \"main.py\", line 2, in <module>",
        "{run:#?}"
    );
    assert_eq!(run.error().traceback[2], "    1 / 0");
}

#[test]
fn a_closed_channel_leaves_pythons_own_message() {
    let Some(python) = python() else { return };
    for close in [
        "import os\nos.closerange(3, 9)",
        // Something else in its place must not get the frames.
        "import os\nos.dup2(1, 4)",
        "import os\nos.dup2(os.open('/dev/null', os.O_RDWR), 4)",
    ] {
        let run = python.run(format!("{close}\nprint('out')\ndisplay(5)\n1 / 0"));
        assert_eq!(run.stdout, "out\n5\n", "{close}");
        assert!(
            run.stderr.contains("ZeroDivisionError: division by zero"),
            "{close}\n{run:#?}"
        );
        assert_eq!(
            (run.status.code(), run.error.is_none(), run.done),
            (Some(1), true, false)
        );
    }
}

#[test]
fn a_forked_child_does_not_report() {
    let Some(python) = python() else { return };
    let run = python.run(
        "import os, sys
if child := os.fork():
    os.waitpid(child, 0)
else:
    display('from the child')
    raise ValueError('in the child')
display('from the parent')",
    );
    assert_eq!(run.texts(), ["'from the parent'"]);
    assert_eq!(run.stdout, "'from the child'\n");
    assert!(
        run.stderr.ends_with("ValueError: in the child\n"),
        "{run:#?}"
    );
    assert!(run.error.is_none() && run.status.success());
}

#[test]
fn children_do_not_inherit_the_channel() {
    let Some(python) = python() else { return };
    let run = python.run(
        "import subprocess
print(subprocess.run(['/bin/sh', '-c', 'echo forged >&4'], close_fds=False, stderr=subprocess.DEVNULL).returncode != 0)",
    );
    assert_eq!(run.stdout, "True\n");
}

#[test]
fn results_from_threads_and_signal_handlers_arrive_whole() {
    let Some(python) = python() else { return };
    let run = python.run(
        "import signal, threading
signal.signal(signal.SIGALRM, lambda *a: display('alarm'))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def work(): [display('x' * 100_000) for _ in range(50)]
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
work()
[t.join() for t in threads]
signal.setitimer(signal.ITIMER_REAL, 0);
",
    );
    let texts = run.texts();
    assert_eq!(
        texts.iter().filter(|text| text.len() == 100_002).count(),
        250,
        "{}",
        run.stderr
    );
    assert!(
        texts
            .iter()
            .all(|text| text.len() == 100_002 || text == "'alarm'")
    );
    assert!(run.done && run.error.is_none());
}

#[test]
fn strings_with_methods_of_their_own_are_just_strings() {
    let Some(python) = python() else { return };
    let run = python.run(
        "class S(str):
    def encode(self, *a): raise KeyError
    def __getitem__(self, i): raise KeyError
    def __len__(self): return 1 << 40
    def __str__(self): raise KeyError
class R:
    def __repr__(self): return S('plain')
    def _repr_html_(self): return S('<b>')
    def _repr_mimebundle_(self, **k): return {S('text/x'): '1', 'text/y': S('2')}
R()",
    );
    assert_eq!(run.texts(), ["=plain"], "{run:#?}");
    let formats: Vec<_> = run.results[0].formats.keys().collect();
    assert_eq!(formats, ["text/html", "text/plain", "text/y"]);
}

#[test]
fn base_exceptions_in_a_repr_end_the_code_as_elsewhere() {
    let Some(python) = python() else { return };
    let run = python.run("class R:\n    def __repr__(self): raise SystemExit(9)\nR()");
    assert_eq!(
        (run.status.code(), run.error.is_none(), run.done),
        (Some(9), true, true)
    );
    let run = python.run("class R:\n    def __repr__(self): raise KeyboardInterrupt\nR()");
    assert_eq!(
        (run.status.code(), run.error().name.as_str()),
        (Some(130), "KeyboardInterrupt")
    );
    assert_eq!(run.error().line, Some(2));
}

#[test]
fn exceptions_that_fight_back_are_still_reported() {
    let Some(python) = python() else { return };
    for (body, message) in [
        ("errno = property(lambda self: 1 / 0)", "[Errno 5] x"),
        ("errno = 'many'", "[Errno 5] x"),
        (
            "def __str__(self): raise SystemExit(0)",
            "<unprintable: str() raised SystemExit>",
        ),
        (
            "def __str__(self): return 5",
            "<unprintable: str() raised TypeError>",
        ),
        ("__class__ = property(lambda self: 1 / 0)", "[Errno 5] x"),
        (
            "def __getattribute__(self, name): raise KeyError",
            "[Errno 5] x",
        ),
    ] {
        let run = python.run(format!("class E(OSError):\n    {body}\nraise E(5, 'x')"));
        let error = run.error();
        assert_eq!(
            (
                error.name.as_str(),
                error.message.as_str(),
                error.line,
                error.errno
            ),
            ("E", message, Some(3), Some(5)),
            "{body}"
        );
        assert_eq!((run.status.code(), run.done), (Some(1), true), "{body}");
    }
}

/// The channel is at hand: its number is easily guessed.
#[test]
fn forged_frames_are_no_more_than_their_words() {
    let Some(python) = python() else { return };
    let run = python.run(
        r#"import os
def frame(kind, *fields):
    body = b""
    for form, key, value in ((b"t", b"kind", kind), (b"t", b"execution", b"1"), *fields):
        body += form + bytes([len(key)]) + len(value).to_bytes(4, "big") + key + value
    os.write(4, len(body).to_bytes(4, "big") + body)
deep = b"[" * 100_000
frame(b"result", (b"j", b"chart", deep), (b"j", b"data", b"nan"), (b"b", b"metadata", b"\0"))
frame(b"result", (b"t", b"display_id", b"\xff" * 5000), (b"j", b"data", b"{}"), (b"j", b"data", b"[]"))
frame(b"update", (b"t", b"display_id", b""), (b"t", b"main", b"1"), (b"j", b"chart", b'{"type": 1e999}'))
frame(b"clear", (b"j", b"wait", deep))
display('after')"#,
    );
    assert!(run.done && run.error.is_none(), "{run:#?}");
    let first = &run.results[0];
    assert!(first.chart.is_none() && first.data.is_none() && first.metadata.is_none());
    let second = &run.results[1];
    assert_eq!(second.display_id.as_deref().unwrap().chars().count(), 256);
    assert_eq!(second.data, None, "the last word counts");
    assert_eq!(run.updates.len(), 1);
    assert!(!run.updates[0].is_main_result && run.updates[0].chart.is_none());
    assert_eq!(
        (run.clears.as_slice(), run.texts()[2].as_str()),
        (&[(2, true)][..], "'after'")
    );
    assert_eq!(run.notes.len(), 5, "{:?}", run.notes);
}
