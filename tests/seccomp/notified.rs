//! The program that reports denials to a listener.

use std::os::fd::RawFd;
use std::sync::mpsc;
use std::thread;

use plan::seccomp::{Arch, Compiled, Unheld, precompiled};

use super::kernel::{Call, Ended, errno, load};

const NEW_LISTENER: u64 = 8;

/// `struct seccomp_notif` of linux/seccomp.h.
#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// Answers the next denial with what the policy says, and returns its name.
fn answer(listener: RawFd, filter: &Compiled) -> &'static str {
    let mut ready = libc::pollfd {
        fd: listener,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live pollfd, as the count says.
    let count = unsafe { libc::poll(&raw mut ready, 1, 10_000) };
    assert_eq!(count, 1, "a call was not reported");
    let mut notification = Notification::default();
    // SAFETY: the kernel fills a zeroed notification of its own layout.
    let received = unsafe { libc::ioctl(listener, RECEIVE as _, &raw mut notification) };
    assert_eq!(received, 0, "errno {}", errno());
    assert_eq!(notification.arch, Arch::NATIVE.audit());
    let denial = filter.denial(notification.nr).unwrap();
    let response = Response {
        id: notification.id,
        val: 0,
        error: -denial.errno,
        flags: 0,
    };
    // SAFETY: the kernel reads a response of its own layout.
    let sent = unsafe { libc::ioctl(listener, SEND as _, &raw const response) };
    assert_eq!(sent, 0, "errno {}", errno());
    denial.name
}

#[test]
fn the_listener_hears_of_denied_numbers_and_denied_arguments() {
    let filter = precompiled("default", true, Unheld::default()).unwrap();
    let calls = [
        (Call::new("ptrace", &[0]), libc::EPERM),
        (Call::new("socket", &[16, 3, 15]), libc::EAFNOSUPPORT),
        (
            Call::new("clone", &[libc::CLONE_NEWUSER as u64]),
            libc::EPERM,
        ),
        (Call::new("seccomp", &[1, NEW_LISTENER, 0]), libc::EPERM),
    ];
    let (send, receive) = mpsc::channel();
    // A filter is its thread's own, a descriptor is everybody's.
    let program = thread::spawn(move || {
        send.send(load(&filter.program, NEW_LISTENER)).unwrap();
        let absent = Call::new("clone3", &[0, 0]).here();
        assert_eq!(
            absent,
            Ended::Failed(libc::ENOSYS),
            "answered without the listener"
        );
        calls.map(|(call, _)| call.here())
    });
    let listener = receive.recv().unwrap();
    let names = calls.map(|_| answer(listener, filter));
    assert_eq!(names, ["ptrace", "socket", "clone", "seccomp"]);
    assert_eq!(
        program.join().unwrap(),
        calls.map(|(_, errno)| Ended::Failed(errno))
    );
}

/// Without the supervisor, denied calls stay denied.
#[test]
fn without_its_listener_the_filter_still_denies() {
    let filter = precompiled("default", true, Unheld::default()).unwrap();
    let ended = super::kernel::in_child(|| {
        let listener = load(&filter.program, NEW_LISTENER);
        // SAFETY: the descriptor was just made and is used nowhere else.
        unsafe { libc::close(listener) };
        match Call::new("ptrace", &[0]).here() {
            Ended::Failed(errno) => -libc::c_long::from(errno),
            _ => 0,
        }
    });
    assert_eq!(ended, Ended::Failed(libc::ENOSYS));
}
