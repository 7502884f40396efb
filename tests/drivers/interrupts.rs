//! SIGINT ends what an execution runs, and keeps the state.

use super::harness::{Bench, lasting_bash, other, python};
use super::live::Live;

/// The code of a language.
struct Language<'a> {
    /// Gives 7 a name.
    set: &'a str,
    /// Evaluates the name.
    get: &'a str,
    /// Codes that never end, each after it has made the file `sign`.
    endless: &'a [&'a str],
    /// How the value is shown.
    shown: &'a str,
    /// What an interrupt is called.
    error: &'a str,
}

fn check(bench: &Bench, language: &Language<'_>) {
    let mut live = Live::new(bench);
    live.ok(language.set);
    for code in language.endless {
        let ended = live.interrupted(code, Some("sign"));
        assert_eq!(ended.outcome(), Err(language.error), "{code}");
        // Between executions it has no effect.
        live.ok(language.set);
        live.interrupt();
        assert_eq!(
            live.ok(language.get).outcome(),
            Ok(Some(language.shown)),
            "{code}"
        );
    }
}

/// Short code is interrupted, or it ends; the next execution never notices.
fn check_edges(bench: &Bench, language: &Language<'_>, rounds: usize) {
    let mut live = Live::new(bench);
    live.ok(language.set);
    for round in 0..rounds {
        live.begin(language.get);
        live.started();
        for _ in 0..round % 7 * 300 {
            std::hint::spin_loop();
        }
        let is_late = round % 3 == 0;
        if !is_late {
            live.interrupt();
        }
        let ended = live.ended();
        let outcome = ended.outcome();
        assert!(
            outcome == Ok(Some(language.shown)) || outcome == Err(language.error),
            "{ended:?}"
        );
        if is_late {
            live.interrupt(); // after it ended
        }
        assert_eq!(live.ok(language.get).outcome(), Ok(Some(language.shown)));
    }
    assert_eq!(live.end().0.code(), Some(0));
}

const PYTHON: Language<'_> = Language {
    set: "x = 7",
    get: "x",
    endless: &[
        "open('sign', 'w')\nwhile True: pass",
        "open('sign', 'w')\nimport time; time.sleep(1000)",
        "open('sign', 'w')\nimport subprocess; subprocess.run(['sleep', '1000'])",
        "open('sign', 'w')\nimport threading; threading.Event().wait()",
        "open('sign', 'w')\nimport asyncio; await asyncio.sleep(1000); x = 8",
        "import asyncio; await asyncio.sleep(0); open('sign', 'w')\nwhile True: pass",
        "import asyncio\nasync def f():\n  open('sign', 'w')\n  while True: pass\nasyncio.run(f())",
        "class R:\n  def __repr__(self):\n    open('sign', 'w')\n    while True: pass\nR()",
        "class E(Exception):\n  def __str__(self):\n    open('sign', 'w')\n    while True: pass\nraise E",
        "open('sign', 'w')\nwhile True: display(1)",
        "open('sign', 'w')\nwhile True: print(1)",
    ],
    shown: "7",
    error: "KeyboardInterrupt",
};

#[test]
fn python_is_interrupted_wherever_it_is() {
    let Some(python) = python() else { return };
    check(&python, &PYTHON);
}

#[test]
fn python_is_interrupted_or_ends() {
    let Some(python) = python() else { return };
    check_edges(&python, &PYTHON, 100);
}

#[test]
fn python_keeps_a_handler_of_the_codes_own() {
    let Some(python) = python() else { return };
    let mut live = Live::new(&python);
    live.ok("import signal\nx = 0\ndef handler(*_):\n  global x\n  x += 1\n  raise ValueError\nsignal.signal(signal.SIGINT, handler); None");
    live.interrupt();
    assert_eq!(live.ok("x").outcome(), Ok(Some("0")), "it rests meanwhile");
    let endless = "open('sign', 'w')\nwhile True: pass";
    let ended = live.interrupted(endless, Some("sign"));
    assert_eq!(ended.outcome(), Err("ValueError"));
    assert_eq!(live.ok("x").outcome(), Ok(Some("1")));
}

const JAVASCRIPT: Language<'_> = Language {
    set: "let x = 7",
    get: "x",
    endless: &[
        "require('fs').writeFileSync('sign', ''); while (true) {}",
        "const y = 1; require('fs').writeFileSync('sign', ''); while (true) {}",
        "require('fs').writeFileSync('sign', ''); await new Promise(() => setInterval(() => {}, 50))",
        "require('fs').writeFileSync('sign', ''); await new Promise((r) => setTimeout(r, 1e6))",
        "await new Promise((r) => setTimeout(r, 50)); require('fs').writeFileSync('sign', ''); while (true) {}",
        "await require('fs').promises.readFile('/proc/version'); require('fs').writeFileSync('sign', ''); while (true) {}",
        "await new Promise(() => process.nextTick(() => { require('fs').writeFileSync('sign', ''); while (true) {} }))",
        "await new Promise((resolve) => require('fs').stat('/', () => { require('fs').writeFileSync('sign', ''); for (;;) JSON.stringify([1, 2, 3]); resolve() }))",
        "await null; await new Promise((r) => setTimeout(r, 50)); throw { get name() { require('fs').writeFileSync('sign', ''); for (;;); }, __proto__: Error.prototype }",
        "require('fs').writeFileSync('sign', ''); require('child_process').spawnSync('sleep', ['1000']); for (;;) {}",
        "require('fs').writeFileSync('sign', ''); for (;;) display('x'.repeat(1e5))",
        "require('fs').writeFileSync('sign', ''); for (;;) console.log(1)",
        "({ [Symbol.for('nodejs.util.inspect.custom')]() { require('fs').writeFileSync('sign', ''); for (;;); } })",
        "throw { get name() { require('fs').writeFileSync('sign', ''); for (;;); }, __proto__: Error.prototype }",
    ],
    shown: "7",
    error: "Interrupted",
};

#[test]
fn javascript_is_interrupted_wherever_it_is() {
    let Some(node) = other("javascript") else {
        return;
    };
    check(&node, &JAVASCRIPT);
}

#[test]
fn javascript_is_interrupted_or_ends() {
    let Some(node) = other("javascript") else {
        return;
    };
    check_edges(&node, &JAVASCRIPT, 100);
}

const ENDLESS_BASH: &[&str] = &[
    "> sign; while :; do :; done",
    "> sign; sleep 1000; x=8",
    "f() { > sign; while :; do :; done; }; f; x=8",
    "> sign; (while :; do :; done); x=8",
    "> sign; cat <(sleep 1000) | cat; x=8",
    "> sign; yes",
    "> sign; while :; do /bin/true; done",
    "> sign; while :; do (:); done",
    "> sign; while :; do y=$(echo 7); done",
    "> sign; while :; do echo 7 | cat > /dev/null; done",
];

#[test]
fn bash_is_interrupted_wherever_it_is() {
    let Some(bash) = lasting_bash() else { return };
    let mut live = Live::new(&bash);
    live.ok("x=7");
    for code in ENDLESS_BASH {
        let ended = live.interrupted(code, Some("sign"));
        assert_eq!(ended.outcome(), Err("Interrupted"), "{code}");
        live.ok("x=7");
        live.interrupt();
        assert_eq!(live.ok("[[ $x == 7 ]]").status, Some(0), "{code}");
    }
    assert_eq!(live.end().0.code(), Some(0));
}

#[test]
fn bash_is_interrupted_or_ends() {
    let Some(bash) = lasting_bash() else { return };
    let mut live = Live::new(&bash);
    live.ok("x=7");
    for round in 0..100 {
        live.begin("x=7");
        live.started();
        let is_late = round % 3 == 0;
        if !is_late {
            live.interrupt();
        }
        let ended = live.ended();
        let outcome = ended.outcome();
        assert!(
            outcome == Ok(None) || outcome == Err("Interrupted"),
            "{ended:?}"
        );
        if is_late {
            live.interrupt();
        }
        let next = live.ok("echo next");
        assert_eq!(next.status, Some(0));
    }
    let (status, output) = live.end();
    assert_eq!(status.code(), Some(0));
    assert_eq!(output[0].matches("next").count(), 100);
}

const R: Language<'_> = Language {
    set: "x <- 7",
    get: "x",
    endless: &[
        "invisible(file.create('sign')); repeat {}",
        "invisible(file.create('sign')); Sys.sleep(1000)",
        "print.endless <- function(x, ...) { file.create('sign'); repeat NULL }; structure(1, class = 'endless')",
        "f <- function(n) if (n > 0) f(n - 1) else { file.create('sign'); repeat NULL }; f(10)",
    ],
    shown: "[1] 7",
    error: "interrupt",
};

#[test]
fn r_is_interrupted_wherever_it_is() {
    let Some(r) = other("r") else { return };
    check(&r, &R);
}

#[test]
fn r_is_interrupted_or_ends() {
    let Some(r) = other("r") else { return };
    check_edges(&r, &R, 30);
}

const JAVA: Language<'_> = Language {
    set: "int x = 7;",
    get: "x",
    endless: &[
        "Files.createFile(Path.of(\"sign\")); while (true) {}",
        "Files.createFile(Path.of(\"sign\")); for (int i = 0; ; i++) if (i < 0) i = 0;",
        "void spin() { int i = 0; do i ^= 1; while (true); }\nFiles.createFile(Path.of(\"sign\")); spin();",
        "Runnable r = () -> { for (;;) Math.sqrt(2); };\nFiles.createFile(Path.of(\"sign\")); r.run();",
        "Files.createFile(Path.of(\"sign\")); Thread.sleep(1000000);",
    ],
    shown: "7",
    error: "Interrupted",
};

#[test]
fn java_is_interrupted_wherever_it_is() {
    let Some(java) = other("java") else { return };
    check(&java, &JAVA);
}

#[test]
fn java_is_interrupted_or_ends() {
    let Some(java) = other("java") else { return };
    check_edges(&java, &JAVA, 20);
}
