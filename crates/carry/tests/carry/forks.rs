//! A sibling gets from an image what a child gets from fork(2).

use carry::{Base, Extent};

use super::siblings::{Sibling, siblings};
use super::skip::skip;

/// Memory of each kind that fork(2) knows, in the template and in a sibling. `content` has the first
/// byte of each, or nothing where the kernel lacks the kind, and `forked` has it in a child.
const KINDS: &str = "\
import mmap, os; libc.mmap.restype = ctypes.c_void_p; long = ctypes.c_long; \
new = lambda flags: libc.mmap(None, long(8192), 3, flags, -1, long(0)); \
advised = lambda at, advice: (libc.madvise(ctypes.c_void_p(at), long(8192), advice), at)[1]; \
kinds = lambda: [new(0x22), advised(new(0x22), 18), new(0x28)]; \
fill = lambda all, byte: [ctypes.memset(at, byte, 8192) for at in all if at != 2**64 - 1]; \
content = lambda all: [ctypes.string_at(at, 1)[0] for at in all if at != 2**64 - 1]; \
old = kinds(); fill(old, 1)";

const FORKED: &str = "
def forked(all):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, bytes(content(all)))
        os._exit(0)
    os.waitpid(pid, 0)
    found = list(os.read(r, 9))
    os.close(r); os.close(w)
    return found
";

#[test]
fn memory_is_wiped_where_fork_wipes_it() {
    for with_base in [false, true] {
        let Some(mut all) = siblings(2) else { return };
        all.exec(KINDS);
        let base = with_base.then(|| all.base());
        let base = base.as_deref();
        let extent = || base.map_or(Extent::Whole, Extent::Since);
        let (mut a, mut b) = all.pair();
        for sibling in [&mut a, &mut b] {
            sibling.exec(FORKED);
        }
        let look = |sibling: &mut Sibling| sibling.eval("forked(old), forked(young)");
        a.exec("fill(old, 7); young = kinds(); fill(young, 8)");
        // The other has ordinary memory there, or memory of another kind, as it happens.
        b.exec("fill(old, 3); young = kinds()[::-1] + kinds(); fill(young, 4)");
        let as_fork = look(&mut a);
        match as_fork.as_str() {
            "([7, 0, 0], [8, 0, 0])" => {}
            "([7, 0], [8, 0])" => skip("the kernel has no MAP_DROPPABLE: Linux 6.11"),
            other => panic!("{other}"),
        }
        let image = a.take(extent()).unwrap();
        for _ in 0..2 {
            b.put(&image, base).unwrap();
            assert_eq!(b.eval("content(old), content(young)"), as_fork);
            // It stays memory of this kind.
            b.exec("fill(old, 7); fill(young, 8)");
            assert_eq!(look(&mut b), as_fork);
            // And a process that goes back has what it began with: nothing.
            a.put(&image, base).unwrap();
            assert_eq!(a.eval("content(old), content(young)"), as_fork);
            a.exec("fill(old, 7); fill(young, 8)");
        }
    }
}

const GENERATORS: &str = "
import random, ssl, sqlite3, tempfile
database = sqlite3.connect(':memory:')
own = random.Random(7)
def draw():
    number, = database.execute('select random()').fetchone()
    name = next(tempfile._get_candidate_names())
    return [random.random(), ssl.RAND_bytes(8), number, name, own.random()]
draw()
";

const RENEWAL: &str = include_str!("../../../languages/src/python/cellblock_driver/randomness.py");

#[test]
fn generators_are_renewed_as_in_a_child_of_fork() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.exec(&format!(
        "{GENERATORS}\nrenewal = {{}}\nexec({RENEWAL:?}, renewal)"
    ));
    let image = a.image();
    // In real cells a branch has the same pid; here, only the process that goes back has it.
    let mut draws = |before: &str| {
        [0, 1].map(|_| {
            a.put(&image, None).unwrap();
            a.exec(before);
            a.exec("drawn = draw()");
            [0, 1, 2, 3, 4].map(|place| a.eval(&format!("drawn[{place}]")))
        })
    };
    // Without it, all that is seeded once, or by the pid, is repeated.
    let [one, other] = draws("pass");
    assert_eq!(one, other);
    let [one, other] = draws("renewal['renew']()");
    let same = [0, 1, 2, 3, 4].map(|place| one[place] == other[place]);
    // What the code has seeded itself goes on.
    assert_eq!(
        same,
        [false, false, false, false, true],
        "{one:?} {other:?}"
    );
}

#[test]
fn siblings_share_what_a_template_has_made() {
    let Some(mut all) = siblings(2) else { return };
    all.exec("import random, uuid, os, multiprocessing.process as process; made = random.Random()");
    all.exec("uuid._node = 1; here = process.current_process(); names = dict(vars())");
    let renewal = format!("renewal = {{}}; exec({RENEWAL:?}, renewal)");
    all.exec(&renewal);
    let (mut a, mut b) = all.pair();
    let key = "bytes(here.authkey), uuid._node";
    assert_eq!(a.eval(key), b.eval(key));
    for one in [&mut a, &mut b] {
        one.exec("renewal['renew'](); renewal['renew_preloaded']()");
        assert_eq!(one.eval("uuid._node"), "None");
    }
    assert_ne!(a.eval(key), b.eval(key));
    // Said in docs/RANDOMNESS.md: a module may have seeded it on purpose.
    assert_eq!(a.eval("made.random()"), b.eval("made.random()"));
}

#[test]
fn a_base_has_no_state_of_the_kernels_generator() {
    let Some(mut all) = siblings(1) else { return };
    all.exec(KINDS);
    let base: std::rc::Rc<Base> = all.base();
    let mut a = all.fork();
    let at: u64 = a.eval("old[1]").parse().unwrap();
    let span = sys::memory::Span::new(at, at + 8192);
    assert!(
        !base
            .watched()
            .iter()
            .any(|one| !one.overlap(span).is_empty())
    );
    assert_eq!(base.count_shared(a.pid, span).unwrap(), 0);
}
