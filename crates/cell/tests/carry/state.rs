//! What continues in a sibling.

use cell::carry::Extent;

use super::siblings::{memory, siblings};

/// Code with state of many kinds.
const STATE: &str = "
import decimal, os, random, sqlite3, signal
class K:
    def __init__(self, v): self.v = v
x = K(41)
def generator():
    i = 0
    while True:
        i += 1
        yield i
g = generator(); next(g); next(g)
f = lambda y: y + x.v
big = bytearray(b'ab' * 2_000_000)
database = sqlite3.connect(':memory:')
database.execute('create table t(a)')
database.execute('insert into t values (7)')
random.seed(5)
pi = decimal.Decimal('3.14159')
";

const LOOK: &str = "(x.v, f(1), len(big), bytes(big[:2]), sum(big), pi, \
    database.execute('select a from t').fetchall(), random.getstate())";

#[test]
fn variables_generators_closures_and_databases_continue_apart() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec(STATE);
    let expected = a.eval(LOOK);
    assert!(
        expected.starts_with("(41, 42, 4000000, b'ab'"),
        "{expected}"
    );
    b.become_like(&a);
    assert_eq!(b.eval(LOOK), expected);
    assert_eq!(b.eval("next(g)"), "3");

    // What either does from now on is its own.
    b.exec("x.v = 1000; big[:] = bytes(len(big)); database.execute('delete from t')");
    b.exec("import statistics; more = [K(i) for i in range(50_000)]; del more; import gc; gc.collect()");
    assert_eq!(a.eval(LOOK), expected);
    assert_eq!(a.eval("next(g), 'statistics' in globals()"), "(3, False)");
    assert_eq!(b.eval("next(g), x.v, sum(big)"), "(4, 1000, 0)");
    a.exec("x.v = 2");
    assert_eq!(b.eval("x.v"), "1000");
}

#[test]
fn numpy_arrays_continue() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    if a.eval("numpy is None") == "True" {
        eprintln!(
            "skip: numpy_arrays_continue: python has no numpy; CELLBLOCK_TEST_PYTHON_DATA may name one that has"
        );
        return;
    }
    a.exec("small = numpy.arange(1000); large = numpy.ones(1 << 20); large[5] = 3");
    b.become_like(&a);
    assert_eq!(
        b.eval("float(large.sum()), int(small[-1])"),
        "(1048578.0, 999)"
    );
    b.exec("large[:] = 0");
    assert_eq!(a.eval("float(large.sum())"), "1048578.0");
}

#[test]
fn no_page_differs() {
    let Some(mut all) = siblings(3) else { return };
    let base = all.fork().image();
    for extent in [Extent::Whole, Extent::Since(&base)] {
        let Some(mut all) = siblings(2) else { return };
        let (mut a, mut b) = all.pair();
        let own;
        let (extent, template) = match extent {
            Extent::Whole => (Extent::Whole, None),
            // Each template has its own.
            Extent::Since(_) => {
                let Some(mut others) = siblings(3) else {
                    return;
                };
                let parked = others.fork();
                own = parked.image();
                (a, b) = others.pair();
                all = others;
                (Extent::Since(&own), Some(&own))
            }
        };
        a.exec(STATE);
        // The other has run code as well: nothing of it may be left.
        b.exec("rubbish = [str(i) * 50 for i in range(30_000)]; import json, html.parser");
        let image = a.take(extent).unwrap();
        b.put(&image, template).unwrap();
        assert_eq!(differences(&a.image(), &b.image()), Vec::<String>::new());
        drop(all);
    }
}

/// What differs in the content of two images.
fn differences(one: &cell::carry::Image, other: &cell::carry::Image) -> Vec<String> {
    let (one, other) = (one.memory().unwrap(), other.memory().unwrap());
    let mut found = Vec::new();
    let addresses = one.keys().chain(other.keys());
    let all: std::collections::BTreeSet<_> = addresses.collect();
    for address in all {
        let zeroes = vec![0; 4096];
        let page = |memory: &std::collections::BTreeMap<u64, Vec<u8>>| {
            memory.get(address).unwrap_or(&zeroes).clone()
        };
        if page(&one) != page(&other) {
            found.push(format!("{address:#x}"));
        }
    }
    found
}

#[test]
fn files_offsets_directory_and_umask_continue() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec(
        "import os
os.mkdir('sub'); os.chdir('sub'); os.umask(0o27)
log = open('log', 'w+'); log.write('one two three'); log.flush(); log.seek(4)
raw = os.open('log', os.O_RDONLY); os.lseek(raw, 8, 0)
twin = os.dup(raw)
null = open('/dev/null', 'wb')
gone = open('/etc/passwd'); line = gone.readline()
os.dup2(twin, 60)",
    );
    b.become_like(&a);
    assert_eq!(b.eval("os.path.basename(os.getcwd())"), "'sub'");
    assert_eq!(b.eval("oct(os.umask(0o27))"), "'0o27'");
    assert_eq!(b.eval("log.read(3)"), "'two'");
    assert_eq!(
        b.eval("os.read(raw, 2), os.read(twin, 3), os.read(60, 1)"),
        "(b'th', b'ree', b'')"
    );
    assert_eq!(
        b.eval("null.write(b'x'), gone.readline() != line"),
        "(1, True)"
    );
    // The original's offsets are its own.
    assert_eq!(a.eval("os.read(raw, 5), log.read(3)"), "(b'three', 'two')");
}

#[test]
fn replaced_standard_streams_and_extra_descriptors_continue() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec("import os; f = os.open('out', os.O_RDWR | os.O_CREAT | os.O_APPEND); os.dup2(f, 1); answers = os.dup(4); os.close(0)");
    b.exec("import os; useless = [os.open('/etc/passwd', 0) for _ in range(20)]");
    b.become_like(&a);
    b.exec("os.write(1, b'from b;')");
    a.exec("os.write(1, b'from a;')");
    assert_eq!(a.eval("os.pread(f, 100, 0)"), "b'from b;from a;'");
    // A copy of the driver's own leads to the sibling's own.
    assert_eq!(b.eval("os.write(answers, b'') == 0"), "True");
    let numbers = "sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1]";
    assert_eq!(a.eval(numbers), b.eval(numbers));
    assert_eq!(
        b.eval("os.path.samestat(os.fstat(answers), os.fstat(4)), os.get_inheritable(1)"),
        "(True, True)"
    );
}

#[test]
fn signals_timers_and_limits_continue() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec(
        "import signal, resource, os, time
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.setitimer(signal.ITIMER_REAL, 3000)
resource.setrlimit(resource.RLIMIT_NOFILE, (99, 199))",
    );
    b.exec("import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); signal.setitimer(signal.ITIMER_PROF, 5000)");
    b.become_like(&a);
    assert_eq!(
        b.eval("os.kill(os.getpid(), signal.SIGUSR1), seen"),
        "(None, [10])"
    );
    assert_eq!(b.eval("signal.getsignal(signal.SIGTERM).name"), "'SIG_IGN'");
    b.exec("os.kill(os.getpid(), signal.SIGTERM)");
    assert_eq!(
        b.eval("signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, [])"),
        "True"
    );
    assert_eq!(
        b.eval("2000 < signal.getitimer(signal.ITIMER_REAL)[0] <= 3000"),
        "True"
    );
    assert_eq!(b.eval("signal.getitimer(signal.ITIMER_PROF)"), "(0.0, 0.0)");
    assert_eq!(
        b.eval("resource.getrlimit(resource.RLIMIT_NOFILE)"),
        "(99, 199)"
    );
    let ignored = std::fs::read_to_string(format!("/proc/{}/status", b.pid)).unwrap();
    let ignored = ignored
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_eq!(ignored & 1, 0, "SIGHUP has its default again: {ignored:x}");
}

#[test]
fn deep_stacks_grow_on() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    let deep = "import sys; sys.setrecursionlimit(100_000)
def deep(n): return 0 if n == 0 else 1 + max(deep(n - 1), 0)
";
    a.exec(&format!("{deep}deep(3_000)"));
    b.become_like(&a);
    // Further than either stack ever was.
    assert_eq!(b.eval("deep(9_000)"), "9000");
}

#[test]
fn a_process_goes_back_to_an_earlier_moment_any_number_of_times() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.exec(STATE);
    let before = a.eval(LOOK);
    let image = a.image();
    for round in 0..3 {
        a.exec("x.v += 1; big[:] = b'z' * 100; del f; more = [0] * 1_000_000; import html, os");
        a.exec("left = os.open('/etc/passwd', 0); s = __import__('socket').socket()");
        assert_eq!(a.eval("x.v, len(big)"), "(42, 100)");
        a.put(&image, None).unwrap();
        assert_eq!(a.eval(LOOK), before, "round {round}");
        assert_eq!(
            a.eval("'more' in globals() or 'os' not in globals()"),
            "False"
        );
        assert_eq!(a.eval("len(os.listdir('/proc/self/fd'))"), "6");
    }
    assert_eq!(a.eval("next(g)"), "3");
}

#[test]
fn an_image_outlives_its_process_and_is_put_into_several() {
    let Some(mut all) = siblings(4) else { return };
    let mut a = all.fork();
    a.exec(STATE);
    let expected = a.eval(LOOK);
    let image = a.image();
    let mut file = memory();
    image.write_to(&mut file).unwrap();
    drop(image);
    drop(a);
    let image = cell::carry::Image::open(file).unwrap();
    for number in 0..3 {
        let mut branch = all.fork();
        branch.put(&image, None).unwrap();
        assert_eq!(branch.eval(LOOK), expected);
        branch.exec(&format!("x.v = {number}"));
        assert_eq!(branch.eval("f(0)"), number.to_string());
    }
}
