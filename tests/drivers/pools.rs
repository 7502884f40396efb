//! Code as a file, and the processes that import it.

use super::harness::python;
use super::live::Live;

#[test]
fn code_that_looks_for_its_file_finds_it() {
    let Some(python) = python() else { return };
    python.quiet("1 + 1");
    assert!(
        !python.workspace().join("main.py").exists(),
        "nobody looked"
    );
    let code = "import inspect, os, subprocess, sys
if sys.argv[1:] == ['again']:
    print('again', __name__)
    sys.exit()
class C:
    def m(self): return 1
print(open(__file__).read() == inspect.getsource(sys.modules['__main__']).strip(), inspect.getsource(C))
print(subprocess.run([sys.executable, __file__, 'again'], capture_output=True, text=True).stdout)";
    let run = python.quiet(code);
    assert_eq!(
        run.stdout,
        "True class C:\n    def m(self): return 1\n\nagain __main__\n\n"
    );
    // The program's own file of that name stays.
    python.write("main.py", "own = 1");
    let run = python.quiet("open(__file__).read()");
    assert_eq!(run.texts(), ["='own = 1'"]);
}

#[test]
fn each_execution_finds_its_own_code_in_the_file() {
    let Some(python) = python() else { return };
    let mut live = Live::new(&python);
    let first = "open(__file__).read()";
    assert_eq!(live.ok(first).texts, [format!("'{first}'")]);
    live.ok("x = 1");
    let third = "open(__file__).read()  # the third";
    assert_eq!(live.ok(third).texts, [format!("'{third}'")]);
}

#[test]
fn children_show_the_source_in_their_tracebacks() {
    let Some(python) = python() else { return };
    let code = "import multiprocessing, os
def f():
    raise ValueError('in f')
if __name__ == '__main__':
    for method in 'fork', 'spawn':
        child = multiprocessing.get_context(method).Process(target=f)
        child.start()
        child.join()
        print(child.exitcode)";
    let run = python.ok(code);
    assert_eq!(run.stdout, "1\n1\n");
    assert_eq!(
        run.stderr.matches("    raise ValueError('in f')\n").count(),
        2,
        "{run:?}"
    );
}

/// Without a guard, what starts anew imports the definitions alone: it would start others otherwise.
#[test]
fn processes_start_anew_with_and_without_a_guard() {
    let Some(python) = python() else { return };
    let import = "import multiprocessing, concurrent.futures, collections
print('imported')
Point = collections.namedtuple('Point', 'x')
FACTOR = 3
computed = max(1, 2)
class Base: pass
class Own(Base):
    value = FACTOR
def f(x): return Point(x * Own.value)
";
    for start in [
        "with multiprocessing.get_context('spawn').Pool(2) as pool: print(pool.map(f, [1]))",
        "with multiprocessing.get_context('forkserver').Pool(2) as pool: print(pool.map(f, [1]))",
        // One that is left open to the end races with its own thread there (CPython 3.11).
        "with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context('spawn')) as pool: print([pool.submit(f, 1).result()])",
        "try:\n  with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(f, [1]))\nfinally: pass",
    ] {
        let run = python.quiet(&format!("{import}{start}"));
        assert_eq!(run.stdout, "imported\n[Point(x=3)]\n", "{start}");
    }
    // As in plain Python, the rest of the code is imported where there is a guard.
    let guarded = "if __name__ == '__main__':
    process = multiprocessing.get_context('spawn').Process(target=f, args=(1,))
    process.start()
    process.join()
    print(process.exitcode)";
    let run = python.quiet(&format!("{import}{guarded}"));
    assert_eq!(run.stdout, "imported\nimported\n0\n");
}

#[test]
fn processes_of_a_context_import_what_its_executions_define() {
    let Some(python) = python() else { return };
    let mut live = Live::new(&python);
    live.ok("import multiprocessing, os\ncount = 2");
    live.ok("from __future__ import annotations\ndef f(x: no_such_name): return x * count");
    live.ok("import asyncio\nawait asyncio.sleep(0)\nwith multiprocessing.get_context('fork').Pool(1) as pool: pool.map(f, [1])");
    // In a process that imports the code, this would start a process itself.
    live.ok("manager = multiprocessing.Manager()");
    let start =
        "with multiprocessing.get_context('spawn').Pool(1) as pool: shown = pool.map(f, [1])";
    for code in [
        format!("{start}\nshown"),
        format!("if __name__ == '__main__':\n    {start}\nshown"),
        format!(
            "import threading\ndef start():\n  global shown\n  {start}\nthread = threading.Thread(target=start); thread.start(); thread.join(); shown"
        ),
    ] {
        assert_eq!(live.ok(&code).outcome(), Ok(Some("[2]")), "{code}");
    }
}

#[test]
fn a_pool_that_cannot_start_says_so() {
    let Some(python) = python() else { return };
    // Without a chunk size, `map` divides by the number of workers. That is 0 from their end until
    // new ones start.
    for code in [
        "import multiprocessing
def fails(): raise OSError('nothing here')
with multiprocessing.get_context('fork').Pool(2, fails) as pool:
    pool.map(abs, [1], 1)",
        "import multiprocessing
if __name__ != '__main__': raise OSError('nothing here')
if __name__ == '__main__':
    pool = multiprocessing.get_context('spawn').Pool(2)
    pool.map(abs, [1], 1)",
    ] {
        let run = python.run(code);
        assert_eq!(run.error().name, "RuntimeError", "{run:?}");
        assert!(run.error().message.contains("with status 1"), "{run:?}");
        assert!(run.stderr.contains("OSError: nothing here"), "{run:?}");
        assert!(run.done);
    }
}

#[test]
fn a_pool_whose_workers_end_now_and_then_goes_on() {
    let Some(python) = python() else { return };
    let code = "import multiprocessing
with multiprocessing.get_context('fork').Pool(2, maxtasksperchild=1) as pool:
    print(sum(pool.map(abs, range(30), 1)))";
    assert_eq!(python.quiet(code).stdout, "435\n");
}
