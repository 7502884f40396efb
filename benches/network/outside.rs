//! The server, its names, and the cells that reach it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use tempfile::TempDir;

use crate::Result;
use crate::internet::{Internet, Record, Resolver, Whose, echo, serve};

pub(crate) const GIGABYTE: usize = 1 << 30;

/// The address of `bench.example`, and the one at which pasta shows it.
pub(crate) const SERVER: &str = "93.184.0.10";
pub(crate) const FOR_PASTA: &str = "93.184.1.1";

/// The network namespace in which this process and all that it starts are.
pub(crate) struct Outside {
    pub(crate) directory: TempDir,
    pub(crate) cellblock: PathBuf,
    /// Why pasta has no interface to take as its model.
    pub(crate) no_interface: Option<String>,
}

impl Outside {
    pub(crate) fn new() -> Result<Self> {
        let namespaces = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
        Internet::within(namespaces, Whose::Others)?;
        let directory = tempfile::Builder::new().prefix("network-").tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        let nothing = None::<&str>;
        mount(nothing, "/", nothing, private, nothing)?;
        for (path, content) in [
            ("/etc/resolv.conf", "nameserver 127.0.0.1\n"),
            ("/etc/hosts", "127.0.0.1 localhost\n"),
        ] {
            let own = directory.path().join(path.replace('/', "_"));
            fs::write(&own, content)?;
            mount(Some(&own), path, nothing, MsFlags::MS_BIND, nothing)?;
        }
        Resolver::at("127.0.0.1:53", false, |name, _| {
            let address = SERVER.parse().ok()?;
            (name == "bench.example").then(|| vec![Record::Address(address)])
        });
        serve("0.0.0.0:80", |stream| drop(http(stream)));
        serve("93.184.0.10:7000", echo);
        let built = std::env::var_os("CELLBLOCK");
        let built = built.unwrap_or_else(|| env!("CARGO_BIN_EXE_cellblock").into());
        Ok(Self {
            directory,
            cellblock: built.into(),
            no_interface: interface().err().map(|error| error.to_string()),
        })
    }

    /// A program in a cell with this network.
    pub(crate) fn cell(&self, network: &str) -> Vec<String> {
        let cellblock = self.cellblock.display().to_string();
        let words = [
            "exec",
            "--rootfs",
            "host",
            "--net",
            network,
            "--connection-rate",
            "none",
            "--net-received",
            "none",
            "--",
        ];
        [cellblock]
            .into_iter()
            .chain(words.map(str::to_owned))
            .collect()
    }

    /// How long a cell with this network takes for a program that does nothing.
    pub(crate) fn start_of_cell(&self, network: &str) -> Result<Duration> {
        let mut command = Command::new(&self.cellblock);
        command.args([
            "exec",
            "--rootfs",
            "host",
            "--net",
            network,
            "--",
            "/bin/true",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        match command.status()?.success() {
            true => Ok(begun.elapsed()),
            false => Err(format!("a cell with --net {network} failed").into()),
        }
    }
}

/// An interface with a default route, whose gateway stands for this host in pasta.
fn interface() -> Result<()> {
    for words in [
        "link add model0 type veth peer name model1",
        "address add 93.184.1.2/24 dev model0",
        "link set model0 up",
        "link set model1 up",
        "route add default via 93.184.1.1 dev model0",
    ] {
        let done = Command::new("ip").args(words.split(' ')).output()?;
        if !done.status.success() {
            let told = String::from_utf8_lossy(&done.stderr);
            return Err(format!("ip {words}: {}", told.trim()).into());
        }
    }
    Ok(())
}

/// Answers requests of HTTP/1.1: one gigabyte to those for `/big`, a few bytes to others.
fn http(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let chunk = vec![b'x'; 256 << 10];
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => head.extend_from_slice(&buffer[..count]),
            }
        }
        let length = if head.starts_with(b"GET /big") {
            GIGABYTE
        } else {
            3
        };
        let is_last = head.windows(17).any(|part| part == b"Connection: close");
        let close = if is_last { "Connection: close\r\n" } else { "" };
        let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {length}\r\n\r\n");
        head.clear();
        if length == 3 {
            stream.write_all(&[answer.as_bytes(), b"ok\n"].concat())?;
        } else {
            stream.write_all(answer.as_bytes())?;
            for _ in 0..length / chunk.len() {
                stream.write_all(&chunk)?;
            }
        }
        if is_last {
            return Ok(());
        }
    }
}
