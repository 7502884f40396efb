//! What cannot be carried is refused by name, and the process is unharmed.

use carry::{Base, Extent, Failure, Refusal};

use super::siblings::{memory, siblings, unconfined};

#[test]
fn what_is_outside_of_one_thread_and_its_memory_is_refused() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.exec("import os, mmap, socket, threading, signal, fcntl, tempfile, ctypes, time");
    for (begin, end, name, text) in [
        (
            "e = threading.Event(); t = threading.Thread(target=e.wait); t.start()",
            "e.set(); t.join()\nwhile len(os.listdir('/proc/self/task')) > 1: pass",
            "threads",
            "the process has 2 threads",
        ),
        (
            "r, w = os.pipe(); pid = os.fork()\nif pid == 0: os.close(w); os.read(r, 1); os._exit(0)",
            "os.close(r); os.close(w); os.waitpid(pid, 0)",
            "processes",
            "there are other processes in the cell",
        ),
        (
            "m = mmap.mmap(-1, 8192)",
            "m.close()",
            "shared_memory",
            "is shared and writable",
        ),
        (
            "m = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.madvise(mmap.MADV_DONTFORK)",
            "m.close()",
            "not_forked",
            "is kept out of forks",
        ),
        (
            "s = socket.socket(socket.AF_UNIX)",
            "s.close()",
            "descriptor",
            "is a socket",
        ),
        (
            "r, w = os.pipe()",
            "os.close(r); os.close(w)",
            "descriptor",
            "is a pipe",
        ),
        (
            "d = os.memfd_create('x')",
            "os.close(d)",
            "descriptor",
            "is a file without a name: /memfd:x (deleted)",
        ),
        (
            "f = open('deleted', 'w'); os.unlink('deleted')",
            "f.close()",
            "descriptor",
            "is a file without a name",
        ),
        (
            "f = open('locked', 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
            "f.close()",
            "descriptor",
            "is locked",
        ),
        (
            "p = __import__('select').epoll()",
            "p.close()",
            "descriptor",
            "anon_inode:[eventpoll]",
        ),
        (
            "timer = ctypes.c_long(); assert libc.timer_create(0, None, ctypes.byref(timer)) == 0",
            "libc.timer_delete(timer)",
            "timers",
            "there are timers",
        ),
        (
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP]); os.kill(os.getpid(), signal.SIGHUP)",
            "signal.sigtimedwait([signal.SIGHUP], 0)",
            "signal",
            "a signal is pending",
        ),
        (
            "signal.signal(signal.SIGTRAP, signal.SIG_IGN)",
            "signal.signal(signal.SIGTRAP, signal.SIG_DFL)",
            "confined",
            "confined itself",
        ),
    ] {
        a.exec(begin);
        let refusal = a.refusal();
        assert_eq!(refusal.name(), name, "{refusal}");
        assert!(refusal.to_string().contains(text), "{refusal}");
        a.exec(end);
        // What was in the way is gone.
        let image = a.take(Extent::Whole);
        assert!(image.is_ok(), "after {begin}: {image:?}");
    }
    assert_eq!(a.eval("1 + 1"), "2");
}

#[test]
fn an_interpreter_at_work_is_left_alone() {
    let Some(mut all) = siblings(2) else { return };
    let (mut a, mut b) = all.pair();
    let image = b.image();
    a.begin("import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass");
    let taken = carry::take(a.subject(), Extent::Whole, u64::MAX, memory());
    assert_eq!(taken.unwrap_err(), Refusal::Busy);
    let put = carry::put(&image, a.subject(), None);
    assert!(
        matches!(put, Err(Failure::Refused(Refusal::Busy))),
        "{put:?}"
    );
    assert_eq!(a.answer(), "done");
    assert_eq!(b.eval("1 + 1"), "2");
}

#[test]
fn an_image_has_a_limit() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.exec("big = bytearray(b'x' * (8 << 20))");
    let refused = a.take_within(Extent::Whole, 8 << 20).unwrap_err();
    assert_eq!(refused.name(), "too_much", "{refused}");
    assert_eq!(a.eval("big.count(b'x') >> 20"), "8");
}

#[test]
fn a_stranger_is_no_sibling() {
    let Some((mut one, mut other)) = siblings(1).zip(siblings(1)) else {
        return;
    };
    let (a, mut b) = (one.fork(), other.fork());
    let refused = b.put(&a.image(), None);
    let Err(Failure::Refused(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refusal.name(), "unlike", "{refusal}");
    assert_eq!(b.eval("1 + 1"), "2");
}

#[test]
fn what_the_other_lacks_is_refused_before_it_is_changed() {
    let Some(mut all) = siblings(3) else { return };
    let (mut a, mut b) = all.pair();
    b.exec("mine = 5");
    a.exec("import os, ctypes; f = open('file', 'w'); f.write('x'); f.flush()");
    let image = a.image();
    b.exec("import os; os.rename('file', 'elsewhere')");
    let refused = b.put(&image, None);
    assert!(
        matches!(&refused, Err(Failure::Refused(Refusal::Missing(path))) if path.ends_with("/file")),
        "{refused:?}"
    );
    b.exec("os.mkdir('file')");
    assert!(matches!(
        b.put(&image, None),
        Err(Failure::Refused(Refusal::Missing(_)))
    ));
    assert_eq!(b.eval("mine"), "5");

    // A process that has confined itself further is no place for one that has not.
    b.exec("os.rmdir('file'); os.rename('elsewhere', 'file')");
    b.exec(
        "import ctypes, struct
code = ctypes.create_string_buffer(struct.pack('=HBBI', 6, 0, 0, 0x7fff0000), 8)
assert libc.prctl(22, 2, struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)), 0, 0) == 0",
    );
    let refused = b.put(&image, None);
    assert!(
        matches!(refused, Err(Failure::Refused(Refusal::Confined))),
        "{refused:?}"
    );
    assert_eq!(b.eval("mine"), "5");

    // Of a template's processes only what differs was taken: without it there is no whole.
    let base = Base::from(b.image());
    let part = a.take(Extent::Since(&base)).unwrap();
    let c = all.fork();
    let refused = c.put(&part, None);
    assert!(
        matches!(
            refused,
            Err(Failure::Refused(Refusal::Unlike("its template")))
        ),
        "{refused:?}"
    );
}

#[test]
fn a_host_that_forbids_tracing_is_named() {
    let Some(mut all) = unconfined(1) else { return };
    let mut a = all.fork();
    // One tracer is all that a process can have.
    let tracee = sys::trace::Tracee::stop(a.pid).unwrap();
    let refused = carry::take(a.subject(), Extent::Whole, u64::MAX, memory());
    let refusal = refused.unwrap_err();
    assert_eq!(refusal.name(), "tracing", "{refusal}");
    assert!(refusal.hint().contains("replay"), "{}", refusal.hint());
    drop(tracee);
    assert_eq!(a.eval("1 + 1"), "2");
}

#[test]
fn a_process_that_is_gone_is_named() {
    let Some(mut all) = siblings(1) else { return };
    let mut a = all.fork();
    a.begin("import os; os._exit(0)");
    let start = std::time::Instant::now();
    loop {
        let taken = carry::take(a.subject(), Extent::Whole, u64::MAX, memory());
        match taken.err() {
            // A process that has ended and that its parent has not waited for yet.
            Some(Refusal::Gone | Refusal::Tracing(_)) => return,
            // One that has not read the request yet.
            other => assert!(start.elapsed().as_secs() < 100, "{other:?}"),
        }
    }
}
