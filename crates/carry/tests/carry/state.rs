//! What continues in a sibling.

use std::rc::Rc;

use carry::{Base, Extent};

use super::siblings::{Sibling, Siblings, memory, siblings};
use super::skip::skip;

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
        return skip("python has no numpy; CELLBLOCK_TEST_PYTHON_DATA may name one that has");
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

/// What an image is taken since.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Since {
    /// Nothing: it is whole.
    Nothing,
    /// A sibling that has run no code: all pages are compared.
    Sibling,
    /// The template, of which the kernel says what it writes.
    Template,
}

/// Two siblings, and what an image of them is taken since.
fn since(since: Since) -> Option<(Siblings, Sibling, Sibling, Option<Rc<Base>>)> {
    let mut all = siblings(4)?;
    all.exec(MEMORY);
    let base = match since {
        Since::Nothing => None,
        Since::Sibling => Some(Rc::new(Base::from(all.fork().image()))),
        Since::Template => Some(all.base()),
    };
    let (a, b) = all.pair();
    Some((all, a, b, base))
}

fn extent(base: Option<&Base>) -> Extent<'_> {
    base.map_or(Extent::Whole, Extent::Since)
}

#[test]
fn no_page_differs() {
    for kind in [Since::Nothing, Since::Sibling, Since::Template] {
        let Some((_all, mut a, mut b, base)) = since(kind) else {
            return;
        };
        let base = base.as_deref();
        a.exec(STATE);
        // The other has run code as well: nothing of it may be left.
        b.exec("rubbish = [str(i) * 50 for i in range(30_000)]; import json, html.parser");
        let image = a.take(extent(base)).unwrap();
        b.put(&image, base).unwrap();
        assert_eq!(
            differences(&a.image(), &b.image()),
            Vec::<String>::new(),
            "{kind:?}"
        );
    }
}

/// Two runs of 256 pages that all siblings have, each page with its number at its start.
const MEMORY: &str = "\
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p; number = ctypes.c_long; \
size = number(1 << 20); new = lambda: libc.mmap(None, size, 3, 0x22, -1, number(0)); \
one, two = new(), new(); place = lambda at, page: ctypes.c_long.from_address(at + 4096 * page); \
fill = lambda at, first: [setattr(place(at, page), 'value', first + page) for page in range(256)]; \
fill(one, 1000), fill(two, 2000); read = lambda at: [place(at, page).value for page in range(256)]";

#[test]
fn memory_that_was_moved_is_not_taken_for_that_of_the_template() {
    for kind in [Since::Nothing, Since::Sibling, Since::Template] {
        let Some((_all, mut a, mut b, base)) = since(kind) else {
            return;
        };
        let base = base.as_deref();
        // The pages are the template's, but where the template has others. That they are
        // still shared with it says nothing.
        a.exec(
            "moved = libc.mremap(ctypes.c_void_p(one), size, size, 3, ctypes.c_void_p(two))
assert moved == two, moved",
        );
        let image = a.take(extent(base)).unwrap();
        assert!(image.size() >= 1 << 20, "{kind:?} {}", image.size());
        b.put(&image, base).unwrap();
        assert_eq!(b.eval("read(two)[0], read(two)[255]"), "(1000, 1255)");
        // What was there before is mapped no more.
        b.exec("fill(two, 3000); assert read(two) == list(range(3000, 3256))");
        assert_eq!(a.eval("read(two)[0], read(two)[255]"), "(1000, 1255)");
        // And back: the mapping is gone from the one, and from the other.
        b.put(&image, base).unwrap();
        assert_eq!(b.eval("read(two)[0], read(two)[255]"), "(1000, 1255)");
    }
}

#[test]
fn what_a_template_writes_later_is_not_taken_for_its_base() {
    for kind in [Since::Sibling, Since::Template] {
        let Some((mut all, _, mut b, base)) = since(kind) else {
            return;
        };
        let base = base.as_deref();
        // A later sibling begins with another page, and one that was different meanwhile.
        all.exec("place(one, 7).value = 7; place(one, 9).value = 9; place(two, 0).value = 1");
        let mut late = all.fork();
        all.exec("place(one, 9).value = 1009");
        let image = late.take(extent(base)).unwrap();
        b.put(&image, base).unwrap();
        let wanted = "[1006, 7, 1008, 9, 1010, 1]";
        assert_eq!(
            b.eval("read(one)[6:11] + read(two)[:1]"),
            wanted,
            "{kind:?}"
        );
        assert_eq!(late.eval("read(one)[6:11] + read(two)[:1]"), wanted);
        assert_eq!(differences(&late.image(), &b.image()), Vec::<String>::new());
    }
}

#[test]
fn pages_that_are_still_the_templates_are_not_compared() {
    let Some((_all, mut a, _b, base)) = since(Since::Template) else {
        return;
    };
    let Some(base) = base.filter(|base| !base.watched().is_empty()) else {
        return skip("the kernel tracks no writes: Linux 6.7");
    };
    let one: u64 = a.eval("one").parse().unwrap();
    let run = sys::memory::Span::new(one, one + (1 << 20));
    let known = |a: &Sibling| base.count_shared(a.pid, run).unwrap();
    assert_eq!(known(&a), 256);
    // A page is known no more when it was written to, and when a process that had it too
    // is gone meanwhile.
    a.exec(
        "import os
place(one, 3).value = 1003
child = os.fork()
if child == 0: os._exit(0)
os.waitpid(child, 0)",
    );
    assert_eq!(known(&a), 255);
    a.exec("libc.munmap(ctypes.c_void_p(one), size)");
    assert_eq!(known(&a), 0);
}

/// What differs in the content of two images.
fn differences(one: &carry::Image, other: &carry::Image) -> Vec<String> {
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
# Under nohup(1), the test itself ignores it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
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
    let image = carry::Image::open(file).unwrap();
    for number in 0..3 {
        let mut branch = all.fork();
        branch.put(&image, None).unwrap();
        assert_eq!(branch.eval(LOOK), expected);
        branch.exec(&format!("x.v = {number}"));
        assert_eq!(branch.eval("f(0)"), number.to_string());
    }
}
