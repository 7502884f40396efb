//! Channels that two cells, or a cell and the host, could share without the caller's
//! consent: abstract sockets, System V and POSIX shared memory, queues.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use crate::cells::cell::Run;
use crate::cells::host::landlock_abi;
use crate::cells::prelude::*;
use crate::cells::process::Watch;

pub(crate) const SUITE: Suite = Suite {
    name: "channels",
    covers: &[13, 41],
    attacks: &[],
    scenes: &[
        // The queue belongs to root's run, and is closed to the plain user's run of this test.
        scene("between-cells", between_cells).needs(&[Need::Alone]),
        scene("socket-beneath-a-bind", socket_beneath_a_bind),
        scene(
            "abstract-socket-in-the-host-network",
            abstract_socket_in_the_host_network,
        )
        .needs(&[Need::Landlock(6)]),
    ],
    actors: ACTORS,
};

/// The same names in every process, so that the processes would meet.
const NAME: &str = "cellblock-channel-test";
const KEY: i32 = 0x0ce1_1b0c;

const ACTORS: &[Actor] = &[
    // Offers every channel and keeps it until the file `done` exists.
    Actor {
        name: "offer",
        run: |args| {
            let sync = Path::new(&args[0]);
            let _socket =
                SocketAddr::from_abstract_name(NAME).and_then(|at| UnixListener::bind_addr(&at));
            let shared = call!(SYS_shmget, KEY, 4096, libc::IPC_CREAT | 0o666);
            let queue = open_queue(libc::O_CREAT | libc::O_RDWR);
            let _ = fs::write("/dev/shm/cellblock-channel-test", "x");
            let _ = fs::write("/tmp/cellblock-channel-test", "x");
            let _ = fs::write(sync.join("ready"), "");
            while sync.exists() && !sync.join("done").exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if let Ok(segment) = shared {
                let _ = call!(SYS_shmctl, segment, libc::IPC_RMID, Arg::NULL);
            }
            if queue.is_ok() {
                let _ = call!(SYS_mq_unlink, c"cellblock-channel-test");
            }
            let _ = fs::remove_file("/dev/shm/cellblock-channel-test");
            let _ = fs::remove_file("/tmp/cellblock-channel-test");
            0
        },
    },
    // Looks for each of them.
    Actor {
        name: "look",
        run: |_| {
            let found = [
                ("socket", connect(NAME).is_ok()),
                ("segment", call!(SYS_shmget, KEY, 0, 0).is_ok()),
                ("queue", open_queue(libc::O_RDWR).is_ok()),
                ("shm", Path::new("/dev/shm/cellblock-channel-test").exists()),
                ("tmp", Path::new("/tmp/cellblock-channel-test").exists()),
            ];
            for (name, _) in found.iter().filter(|(_, found)| *found) {
                print!("{name} ");
            }
            0
        },
    },
    // Connects by a path, with every kind of socket there is.
    Actor {
        name: "connect-by-path",
        run: |args| {
            let mut address = [0_u8; 110];
            address[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
            let path = args[0].as_bytes();
            address[2..2 + path.len()].copy_from_slice(path);
            let connect = |socket: i64| {
                let size = 2 + path.len() + 1;
                call!(SYS_connect, socket, &address, size).map(drop)
            };
            for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
                let mut pair = [0_i32; 2];
                let own = call!(SYS_socket, libc::AF_UNIX, kind, 0).and_then(connect);
                let paired = call!(SYS_socketpair, libc::AF_UNIX, kind, 0, &mut pair)
                    .and_then(|_| connect(pair[0].into()));
                print!("{own:?} {paired:?} ");
            }
            0
        },
    },
    Actor {
        name: "connect",
        run: |args| {
            println!("{:?}", connect(&args[0]));
            0
        },
    },
];

fn connect(name: &str) -> Attempt {
    SocketAddr::from_abstract_name(name)
        .and_then(|at| UnixStream::connect_addr(&at))
        .map(drop)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

fn open_queue(flags: i32) -> Attempt {
    call!(
        SYS_mq_open,
        c"cellblock-channel-test",
        flags,
        0o600,
        Arg::NULL
    )
    .map(drop)
}

fn between_cells(stage: &Stage) -> Check {
    // Outside, each channel connects two programs.
    let scratch = stage.scratch()?;
    let sync = scratch.dir("outside", 0o777)?;
    let mut offer = stage.outside("channels/offer", [&sync.to_string_lossy()]);
    let mut offer = Watch::start(&mut offer)?;
    offer.until_exists(&sync.join("ready"), stage.patience())?;
    let look =
        crate::cells::process::finish(&mut stage.outside("channels/look", []), stage.patience())?;
    fs::write(sync.join("done"), "")?;
    offer.until_end(stage.patience())?;
    assert_eq!(
        String::from_utf8_lossy(&look.stdout),
        "socket segment queue shm tmp "
    );

    // Between two cells, none does, not even without the layers that refuse some of
    // them before the namespaces would.
    for layers in [&[][..], &["landlock"], &["landlock", "seccomp"]] {
        let sync = scratch.dir(&format!("inside-{}", layers.len()), 0o777)?;
        let mut offer = stage
            .probe("channels/offer", ["/sync"])
            .without_all(layers)
            .rw(&sync, Path::new("/sync"))
            .spawn()?;
        offer.until_exists(&sync.join("ready"), stage.patience())?;
        let look = stage.probe("channels/look", []).without_all(layers).run()?;
        fs::write(sync.join("done"), "")?;
        Run::of(offer.until_end(stage.patience())?)?.ended(Outcome::Ok)?;
        assert_eq!(look.ended(Outcome::Ok)?.stdout(), "", "without {layers:?}");
    }
    Ok(())
}

/// With the host's network, a cell shares the host's namespace of abstract sockets, and
/// only Landlock's scope keeps it away from them.
fn abstract_socket_in_the_host_network(stage: &Stage) -> Check {
    // Another user's run of this test is in the same network.
    let name = format!("{NAME}-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let own = stage.probe("channels/connect", [&name]);
    let hosts = own.clone().option(["--net", "host"]);

    let live = hosts
        .clone()
        .without("landlock")
        .run()?
        .ended(Outcome::Ok)?;
    assert_eq!(live.stdout(), "Ok(())\n", "not live");
    assert_eq!(hosts.run()?.stdout(), "Err(EPERM)\n");
    assert_eq!(
        own.without("landlock").run()?.stdout(),
        "Err(ECONNREFUSED)\n"
    );
    Ok(())
}

/// No namespace covers sockets in a directory: a warning names them, and a policy can
/// deny the program any socket that could connect to them. From ABI 9 on (Linux 7.3 has it),
/// Landlock covers those beneath what is only read.
fn socket_beneath_a_bind(stage: &Stage) -> Check {
    let scratch = stage.scratch()?;
    let shown = scratch.dir("shown", 0o755)?;
    let (stream, datagram) = (shown.join("stream"), shown.join("datagram"));
    let _stream = UnixListener::bind(&stream)?;
    let _datagram = UnixDatagram::bind(&datagram)?;
    crate::cells::scratch::chmod(&stream, 0o777)?;
    crate::cells::scratch::chmod(&datagram, 0o777)?;
    let connect = |name: &str| {
        let path = format!("/shown/{name}");
        let cell = stage.probe("channels/connect-by-path", [&path]);
        cell.ro(&shown, Path::new("/shown"))
    };
    let warnings = |run: &Run| {
        let warnings = &run.record.warnings;
        warnings
            .iter()
            .filter(|warning| warning.contains("Unix socket"))
            .count()
    };
    // Sockets of one type do not connect to another type, and socketpairs do not
    // connect at all. In turn: a stream, a socketpair, and datagrams.
    let refused = "Err(EAFNOSUPPORT)";
    for (name, paired, live) in [
        ("stream", "Err(EISCONN)", ["Ok(())", "Err(EPROTOTYPE)"]),
        ("datagram", "Err(EPROTOTYPE)", ["Err(EPROTOTYPE)", "Ok(())"]),
    ] {
        let [stream, datagram] = live;
        let uncovered = || connect(name).option(["--landlock-max-abi", "8"]);
        let run = uncovered().run()?.ended(Outcome::Ok)?;
        let wanted = format!("{stream} {paired} {datagram} {datagram} ");
        assert_eq!((run.stdout(), warnings(&run)), (&*wanted, 1));
        if landlock_abi() >= 9 {
            let run = connect(name).run()?.ended(Outcome::Ok)?;
            assert!(!run.stdout().contains("Ok"), "{}", run.stdout());
            assert!(run.stdout().contains("EACCES"), "{}", run.stdout());
        }

        let without = uncovered().option(["--seccomp", "no-unix-sockets"]);
        let run = without.run()?.ended(Outcome::Ok)?;
        let wanted = format!("{refused} {paired} {refused} {refused} ");
        assert_eq!((run.stdout(), warnings(&run)), (&*wanted, 0));
    }
    Ok(())
}
