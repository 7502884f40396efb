//! Each layer, first off, then on. Landlock and filters hold the thread that asks for them,
//! so each test has a thread of its own.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, sendto, socket};

use super::{calls, files};
use crate::skip::skip;

fn in_thread(work: impl FnOnce() + Send + 'static) {
    thread::spawn(work).join().unwrap();
}

fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

const DENIED: Option<io::ErrorKind> = Some(io::ErrorKind::PermissionDenied);

#[test]
fn the_filter_leaves_what_the_loop_needs() {
    in_thread(|| {
        let attempts = || {
            [
                kind(UnixDatagram::unbound()),
                kind(std::fs::create_dir("/nowhere/x")),
                kind(std::fs::read_link("/proc/self/exe")),
                kind(nix::sys::signal::kill(nix::unistd::getpid(), None).map_err(io::Error::from)),
                kind(
                    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).map_err(io::Error::from),
                ),
            ]
        };
        let executable = sys::process::can_write_and_execute;
        assert!(!attempts().contains(&DENIED), "{:?}", attempts());
        assert!(executable());
        prctl::set_no_new_privs().unwrap();
        calls::filter().unwrap();
        assert_eq!(attempts(), [DENIED; 5]);
        assert!(!executable());
        // Both families, and reading a file.
        let listener = TcpListener::bind("127.0.0.1:0");
        // Nothing listens for the broker but what init made.
        assert_eq!(kind(listener), DENIED);
        UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!std::fs::read("/proc/self/stat").unwrap().is_empty());
    });
}

/// Landlock's rules for ports do not see this (sendto(2), tcp(7)).
fn fast_open(to: SocketAddrV4) -> io::Result<()> {
    let (family, kind) = (AddressFamily::Inet, SockType::Stream);
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    let flags = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
    sendto(socket.as_raw_fd(), b"x", &SockaddrIn::from(to), flags)?;
    Ok(())
}

#[test]
fn the_filter_closes_ways_around_the_rules_for_ports() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(closed) = listener.local_addr().unwrap() else {
        panic!("an IPv4 address was asked for");
    };
    in_thread(move || {
        prctl::set_no_new_privs().unwrap();
        files::restrict(&[], &[]).unwrap();
        assert_ne!(kind(fast_open(closed)), DENIED);
        calls::filter().unwrap();
        assert_eq!(kind(fast_open(closed)), DENIED);
    });
}

#[test]
fn landlock_leaves_directories_and_ports() {
    if sys::landlock::abi() == 0 {
        return skip("no Landlock");
    }
    let dir = tempfile::tempdir().unwrap();
    let (hosts, other) = (dir.path().join("etc/hosts"), dir.path().join("other/x"));
    for path in [&hosts, &other] {
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [open, closed] = [0, 1].map(|index| listeners[index].local_addr().unwrap());
    let directories = vec![PathBuf::from(hosts.parent().unwrap())];
    in_thread(move || {
        assert_eq!(kind(std::fs::read(&other)), None);
        assert_eq!(kind(TcpStream::connect(closed)), None);
        prctl::set_no_new_privs().unwrap();
        let abi = files::restrict(&directories, &[open.port()]).unwrap();
        assert_eq!(kind(std::fs::read(&other)), DENIED);
        assert_eq!(kind(std::fs::write(&hosts, "y")), DENIED);
        assert_eq!(kind(std::fs::read_dir("/")), DENIED);
        // A file that is replaced is read all the same.
        assert_eq!(std::fs::read(&hosts).unwrap(), b"x");
        if abi >= 4 {
            assert_eq!(kind(TcpStream::connect(closed)), DENIED);
        }
        assert_eq!(kind(TcpStream::connect(open)), None);
    });
}

/// The layer of protection that `aborts` applies, or `all`.
const LAYER: &str = "BROKER_TESTS_LAYER";

#[test]
#[ignore = "a process that the next test starts"]
fn aborts() {
    let hard = getrlimit(Resource::RLIMIT_CORE).unwrap().1;
    setrlimit(Resource::RLIMIT_CORE, hard, hard).unwrap();
    match std::env::var(LAYER).as_deref() {
        Ok("dumpable") => prctl::set_dumpable(false).unwrap(),
        Ok("limit") => drop(super::limit(8).unwrap()),
        Ok("all") => {
            super::drop_privileges(None).unwrap();
            SigSet::all().thread_unblock().unwrap();
        }
        _ => {}
    }
    raise(Signal::SIGABRT).unwrap();
}

#[test]
fn no_core_dump_has_what_the_broker_holds() {
    let directory = tempfile::tempdir().unwrap();
    let leaves_a_dump = |layer: &str| {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "confine::tests::aborts"])
            .env(LAYER, layer)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(child.signal(), Some(Signal::SIGABRT as i32), "{child}");
        child.core_dumped()
    };
    if !leaves_a_dump("none") {
        return skip("this host dumps no cores");
    }
    for layer in ["dumpable", "limit", "all"] {
        assert!(!leaves_a_dump(layer), "{layer}");
    }
}
