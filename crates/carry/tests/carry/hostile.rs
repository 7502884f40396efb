//! Code that prepares its process for the moment when its state is taken.

use carry::Failure;

use super::siblings::siblings;

/// mmap(2) and mremap(2) as the code calls them.
const CALLS: &str = "
import ctypes, os, re
libc.syscall.restype = ctypes.c_long
def call(number, *args): return libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
def mmap(at, size, prot, flags): return call(9, at, size, prot, flags, -1, 0)
def special(name):
    line = next(l for l in open('/proc/self/maps') if name in l)
    return [int(n, 16) for n in re.match('([0-9a-f]+)-([0-9a-f]+)', line).groups()]
";

#[test]
fn strange_memory_is_carried() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec(CALLS);
    a.exec(
        "
PRIVATE, ANONYMOUS, GROWSDOWN, NORESERVE = 2, 0x20, 0x100, 0x4000
down = mmap(0, 8192, 3, PRIVATE | ANONYMOUS | GROWSDOWN)
ctypes.memset(down, 7, 4096)
hidden = mmap(0, 8192, 3, PRIVATE | ANONYMOUS)
ctypes.memset(hidden, 8, 8192)
assert call(10, hidden, 8192, 0) == 0
sparse = mmap(0, 1 << 45, 3, PRIVATE | ANONYMOUS | NORESERVE)
ctypes.memset(sparse + (1 << 44), 9, 1)
os.pwrite(os.open('data', os.O_RDWR | os.O_CREAT), b'12345' * 2000, 0)
f = os.open('data', os.O_RDONLY); changed = call(9, 0, 8192, 3, PRIVATE, f, 4096)
ctypes.memset(changed, 65, 10)
code = mmap(0, 4096, 7, PRIVATE | ANONYMOUS)
assert call(28, mmap(0, 8 << 20, 3, PRIVATE | ANONYMOUS), 8 << 20, 14) == 0  # MADV_HUGEPAGE
",
    );
    b.become_like(&a);
    b.exec("assert call(10, hidden, 8192, 1) == 0");
    let byte = |at: &str| format!("ctypes.string_at({at}, 1)[0]");
    for (at, value) in [
        ("down", "7"),
        ("hidden + 8191", "8"),
        ("sparse + (1 << 44)", "9"),
        ("sparse + (1 << 43)", "0"),
        ("changed + 9", "65"),
        ("changed + 10", "50"),
        ("code", "0"),
    ] {
        assert_eq!(b.eval(&byte(at)), value, "{at}");
    }
    assert_eq!(a.eval("ctypes.string_at(sparse + (1 << 44), 1)"), "b'\\t'");
}

#[test]
fn a_moved_vdso_fits_no_sibling() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec(CALLS);
    // Away from where the C library looks for it, so it may not be used again.
    a.exec("s, e = special('[vdso]'); new = mmap(0, e - s, 1, 0x22); assert call(25, s, e - s, e - s, 3, new) == new");
    let image = a.image();
    let refused = b.put(&image, None);
    assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
    assert_eq!(b.eval("2 + 2"), "4");
}

#[test]
fn tens_of_thousands_of_mappings_are_refused() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.exec(CALLS);
    a.exec("base = mmap(0, 120_000 * 4096, 1, 0x4022)\nfor i in range(0, 60_000): call(10, base + 8192 * i, 4096, 3)");
    let refusal = a.refusal();
    assert_eq!(refusal.name(), "too_much", "{refusal}");
}

/// Fifteen directories deep, so that each path has nearly 4096 bytes.
const LONG_NAMES: &str = "
here = os.getcwd()
for _ in range(15): os.mkdir('d' * 250); os.chdir('d' * 250)
def mapped(name, count):
    f = os.open(name, os.O_RDWR | os.O_CREAT); os.truncate(f, 8192)
    for i in range(count): assert call(9, 0, 4096, 1, 2, f, i % 2 * 8192) > 0
    os.close(f)
";

#[test]
fn names_of_mapped_files_are_kept_once_and_within_bounds() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec(CALLS);
    a.exec(LONG_NAMES);
    a.exec("mapped('f', 15000); os.chdir(here)");
    let image = a.image();
    let beside = image.file().metadata().unwrap().len() - image.size();
    // The names of all would have 56 MB.
    assert!(beside < 4 << 20, "{beside}");
    b.put(&image, None).unwrap();
    assert_eq!(
        b.eval("sum(l.endswith('/f\\n') for l in open('/proc/self/maps'))"),
        "15000"
    );
    b.exec("os.chdir('/'.join(['d' * 250] * 15)); [mapped(str(i), 1) for i in range(600)]");
    let refusal = b.refusal();
    assert_eq!(refusal.name(), "too_much", "{refusal}");
    assert!(
        refusal.to_string().contains("names of mapped files"),
        "{refusal}"
    );
}

#[test]
fn full_memory_harms_nobody() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.exec(CALLS);
    a.exec("import resource; size = int(open('/proc/self/statm').read().split()[0]) * 4096; resource.setrlimit(resource.RLIMIT_AS, (size, size))");
    let refusal = a.refusal();
    assert!(refusal.to_string().starts_with("mmap: ENOMEM"), "{refusal}");
}

#[test]
fn a_false_call_site_is_no_place_to_wait() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    a.exec(CALLS);
    // read(3, …) by code of its own, which then returns as the C library would.
    a.exec(
        "
page = mmap(0, 4096, 7, 0x22)
code = bytes.fromhex('31c0') + bytes.fromhex('0f05') + b'\\xc3'  # xor eax, eax; syscall; ret
ctypes.memmove(page, code, len(code))
buffer = ctypes.create_string_buffer(1 << 16)
reader = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_long)(page)
",
    );
    a.begin("os.write(4, b'now'); n = reader(3, ctypes.addressof(buffer), 1000)");
    assert_eq!(a.answer(), "now");
    let image = a.image();
    let refused = b.put(&image, None);
    assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
    assert_eq!(b.eval("2 + 2"), "4");
    // It was stopped and made to call things there, and goes on.
    assert_eq!(a.eval("ignored"), "done");
    assert_eq!(a.eval("buffer.raw[:n]"), "b'=ignored'");
}

#[test]
fn what_would_pass_the_carrier_by_is_denied_by_the_filter() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.exec(CALLS);
    // userfaultfd(2), and huge pages.
    assert_eq!(a.eval("call(323, 0), ctypes.get_errno()"), "(-1, 1)");
    assert_eq!(
        a.eval("mmap(0, 2 << 20, 3, 0x40022), ctypes.get_errno()"),
        "(-1, 12)"
    );
}
