//! Connections: what clients do wrong, and who may connect.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Client, Server, cellblock, executable, patience, until};
use crate::skip::skip;

#[test]
fn a_wrong_line_is_explained_and_the_connection_goes_on() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for (line, code) in [
        ("nonsense", "bad_request"),
        ("[]", "bad_request"),
        ("{\"id\":1,\"method\":\"frob\"}", "unknown_method"),
        (
            "{\"id\":1,\"method\":\"cancel\",\"params\":{}}",
            "bad_params",
        ),
        (
            "{\"id\":1,\"method\":\"run\",\"params\":{\"request\":{\"rootfs\":\"/\"}}}",
            "bad_params",
        ),
        (
            "{\"id\":1,\"method\":\"context.run\",\"params\":{\"context\":\"x\",\"code\":\"\"}}",
            "not_found",
        ),
    ] {
        client.write(format!("{line}\n").as_bytes());
        let answer = client.line();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    client.write(b"\xff\xfe\n\n");
    assert_eq!(client.line()["error"]["code"], "bad_request");
    assert_eq!(client.status()["clients"], 1);
}

#[test]
fn a_line_without_end_ends_its_connection_only() {
    let server = Server::start(&[]);
    let mut other = server.connect();
    let mut client = server.connect();
    let piece = vec![b'x'; 1 << 20];
    // 64 MiB; the server reads 17 of them and stops.
    let mut sent = 0;
    while sent < 64 && client.socket.get_mut().write_all(&piece).is_ok() {
        sent += 1;
    }
    assert_eq!(client.line()["error"]["code"], "too_long");
    assert_eq!(client.line(), Value::Null);
    assert!(sent < 64);
    until("the connection's end", || other.status()["clients"] == 1);
}

#[test]
fn half_a_line_and_a_trickle_hold_up_nobody() {
    let server = Server::start(&[]);
    let mut half = server.connect();
    half.write(b"{\"id\":1,\"meth");
    let mut slow = server.connect();
    let line = format!("{{\"id\":2,\"method\":\"status\"{}}}\n", " ".repeat(2000));
    let mut other = server.connect();
    for (index, byte) in line.bytes().enumerate() {
        slow.write(&[byte]);
        if index % 500 == 0 {
            assert_eq!(other.status()["clients"], 3);
        }
    }
    assert_eq!(slow.answer(2)["result"]["clients"], 3);
    half.write(b"od\":\"status\"}\n");
    assert_eq!(half.answer(1)["result"]["clients"], 3);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let server = Server::start(&[]);
    let mut deaf = server.connect();
    deaf.socket.get_ref().set_nonblocking(true).unwrap();
    // Each answer is longer than its call, so the server's side fills first.
    let line = b"{\"id\":1,\"method\":\"metrics\"}\n";
    let mut written = 0_u64;
    let mut quiet = 0;
    let mut other = server.connect();
    while quiet < 50 {
        match deaf.socket.get_mut().write(line) {
            Ok(count) if count == line.len() => (written, quiet) = (written + 1, 0),
            Ok(_) => break,
            Err(_) => {
                quiet += 1;
                assert_eq!(other.status()["clients"], 2);
            }
        }
        assert!(written < 10_000_000, "it is still read from");
    }
    assert!(written > 0);
    let memory = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let resident = memory
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(resident < 200 << 10, "{resident} kB");
}

#[test]
fn only_the_servers_user_may_connect() {
    let server = Server::start(&[]);
    let mode = std::fs::metadata(server.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    if !nix::unistd::Uid::effective().is_root() {
        return skip("another uid: only root can become one");
    }
    // The mode keeps others out already: without it, the credentials do.
    let open = |mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(server.socket(), mode).unwrap();
    };
    let directory = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(server.directory.path(), directory).unwrap();
    let connect_as_other = |path: &std::path::Path| {
        let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.settimeout(60)\ntry: s.sendall(b'{\"id\":1,\"method\":\"status\"}\\n')\nexcept OSError: pass\nprint(s.recv(9999).decode())";
        use std::os::unix::process::CommandExt as _;
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .uid(65534)
            .gid(65534)
            .current_dir("/")
            .stderr(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(connect_as_other(&server.socket()), "");
    open(0o666);
    assert!(connect_as_other(&server.socket()).contains("not_allowed"));
    let allowing = Server::start(&["--allow-uid", "65534"]);
    let mode = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(allowing.socket(), mode).unwrap();
    let directory = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(allowing.directory.path(), directory).unwrap();
    assert!(connect_as_other(&allowing.socket()).contains("\"result\""));
}

#[test]
fn a_socket_file_is_replaced_only_if_nobody_listens() {
    let mut server = Server::start(&[]);
    let listen = format!("unix:{}", server.socket().display());
    let second = |listen: &str| {
        let output = cellblock()
            .args(["serve", "--listen", listen])
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (status, said) = second(&listen);
    assert_eq!(status, Some(125));
    assert!(said.contains("a server listens there already"), "{said}");
    let file = server.directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let (_, said) = second(&format!("unix:{}", file.display()));
    assert!(said.contains("is not a socket"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    // A killed server leaves its file, which the next one replaces.
    server.signal(Signal::SIGKILL);
    server.wait();
    assert!(
        std::fs::metadata(server.socket())
            .unwrap()
            .file_type()
            .is_socket()
    );
    let mut next = cellblock()
        .args(["serve", "--listen", &listen])
        .spawn()
        .unwrap();
    until("listening", || UnixStream::connect(server.socket()).is_ok());
    let mut client = Client::connect(&server.socket());
    client.ask("shutdown", json!({}));
    until("the end", || next.try_wait().unwrap().is_some());
    assert!(!server.socket().exists());
}

#[test]
fn a_service_manager_passes_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    // As systemd does: descriptor 3, and the pid that it is for.
    let script = "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve --idle-exit 1s";
    let mut server = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(executable())
        .stdin(OwnedFd::from(listener))
        .spawn()
        .unwrap();
    let mut client = Client::connect(&path);
    assert_eq!(client.status()["clients"], 1);
    drop(client);
    let end = std::time::Instant::now() + patience();
    while server.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < end, "it did not end by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The socket is the service manager's.
    assert!(path.exists());
}
