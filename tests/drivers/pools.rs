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

#[test]
fn processes_that_would_start_themselves_are_refused() {
    let Some(python) = python() else { return };
    let import = "import multiprocessing, concurrent.futures
spawn = multiprocessing.get_context('spawn')
def start():
    child = spawn.Process(target=abs, args=(1,))
    child.start()
    child.join()
";
    for start in [
        "spawn.Pool(2).map(abs, [1])",
        // One that is left open to the end races with its own thread there (CPython 3.11).
        "with concurrent.futures.ProcessPoolExecutor(2, spawn) as pool: pool.submit(abs, 1).result()",
        "start()",
    ] {
        let run = python.run(format!("{import}{start}"));
        assert_eq!(run.error().name, "RuntimeError", "{run:?}");
        assert!(run.error().message.contains("if __name__ == \"__main__\":"));
        python.quiet(&format!("{import}if __name__ == '__main__':\n    {start}"));
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
