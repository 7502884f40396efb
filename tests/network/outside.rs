//! What is outside of the cells: hosts, their names, and a certificate authority.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use nix::unistd::{getgid, getuid};
use tempfile::TempDir;

use crate::internet::{Internet, Record, Resolver, Whose, echo, serve};
use crate::skip;

/// The server of HTTP, HTTPS and git.
const SERVERS: &str = include_str!("servers.py");

/// The fake Internet, in which this process and what it starts are.
pub(crate) struct Outside {
    directory: TempDir,
    /// The names that the resolver was asked for.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    /// Connections to each raw server.
    pub(crate) raw: [Arc<AtomicUsize>; 2],
    servers: Option<Child>,
}

/// The addresses of a name.
fn zone(name: &str, nth: usize) -> Option<Vec<Record>> {
    let addresses: &[&str] = match name {
        "web.example" | "a.wild.example" => &["93.184.0.10", "2600:1234::10"],
        "four.example" => &["93.184.0.10"],
        "six.example" => &["2600:1234::10"],
        "raw.example" => &["93.184.0.30", "2600:1234::30"],
        // Not allowed by any test, though it exists.
        "other.example" => &["93.184.0.10"],
        "inner.example" => &["10.0.0.5"],
        "metadata.example" => &["169.254.169.254"],
        // Another one each time.
        "rebound.example" if nth == 1 => &["93.184.0.30"],
        "rebound.example" => &["10.0.0.5"],
        "hole.example" => &["93.184.0.40"],
        "mute.example" => &["93.184.0.50"],
        "dns.google" => &["93.184.0.10"],
        _ => return None,
    };
    let address = |text: &&str| Record::Address(text.parse::<IpAddr>().expect("an address"));
    Some(addresses.iter().map(address).collect())
}

impl Outside {
    /// Makes it, or ends this test.
    pub(crate) fn new() -> Self {
        let (uid, gid) = (getuid(), getgid());
        let mut namespaces = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
        if !uid.is_root() {
            namespaces |= CloneFlags::CLONE_NEWUSER;
        }
        if let Err(why) = Internet::within(namespaces, Whose::Others) {
            skip(&format!("a fake Internet: {why}"));
        }
        if !uid.is_root() {
            let write = |file: &str, text: String| {
                fs::write(format!("/proc/self/{file}"), text).expect("map the ids");
            };
            write("setgroups", "deny".to_owned());
            write("uid_map", format!("{uid} {uid} 1"));
            write("gid_map", format!("{gid} {gid} 1"));
        }
        // Servers without privileges have all ports.
        fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0").expect("low ports");
        let directory = tempfile::tempdir().expect("a directory");
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("mounts of its own");
        replace(&directory, "/etc/resolv.conf", "nameserver 127.0.0.1\n");
        replace(&directory, "/etc/hosts", "127.0.0.1 localhost\n");
        let resolver = Resolver::at("127.0.0.1:53", false, zone);
        let raw = ["93.184.0.30:7000", "[2600:1234::30]:7000"].map(|address| serve(address, echo));
        Self {
            directory,
            asked: resolver.asked,
            raw,
            servers: None,
        }
    }

    /// The same with a server of HTTP, HTTPS and git.
    pub(crate) fn with_web() -> Self {
        let mut outside = Self::new();
        outside.make_certificates();
        let path = outside.path().join("servers.py");
        fs::write(&path, SERVERS).expect("the servers' code");
        let mut child = Command::new(program("python3"))
            .args(["-I".as_ref(), path.as_os_str(), outside.path().as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the servers");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("their output"));
        output.read_line(&mut line).expect("their output");
        assert_eq!(line, "ready\n", "the servers");
        outside.servers = Some(child);
        outside
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The certificate of the authority that the web's certificates are from.
    pub(crate) fn authority(&self) -> PathBuf {
        self.path().join("ca.pem")
    }

    fn make_certificates(&self) {
        let extensions = "subjectAltName=DNS:web.example,DNS:four.example,DNS:six.example,DNS:other.example,DNS:dns.google,DNS:inner.example\nextendedKeyUsage=serverAuth\nauthorityKeyIdentifier=keyid\n";
        fs::write(self.path().join("leaf.ext"), extensions).expect("the extensions");
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256";
        for words in [
            format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=tests -addext keyUsage=critical,keyCertSign,cRLSign"),
            format!("req {key} -keyout leaf.key -out leaf.csr -subj /CN=web.example"),
            "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -set_serial 2 -days 2 -sha256 -extfile leaf.ext -out leaf.pem".to_owned(),
        ] {
            let made = Command::new(program("openssl"))
                .args(words.split(' '))
                .current_dir(self.path())
                .output()
                .expect("start openssl");
            let told = String::from_utf8_lossy(&made.stderr);
            assert!(made.status.success(), "openssl {words}: {told}");
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(child) = &mut self.servers {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Puts another file over one of the host's, in this mount namespace.
fn replace(directory: &TempDir, path: &str, content: &str) {
    let name = path.rsplit('/').next().expect("a name");
    let own = directory.path().join(name);
    fs::write(&own, content).expect("write a file");
    let bind = mount(
        Some(&own),
        path,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    );
    if let Err(errno) = bind {
        skip(&format!("a file over {path}: {errno}"));
    }
}

/// Where the host has a program, or the end of this test.
pub(crate) fn program(name: &str) -> String {
    let places = ["/usr/bin", "/usr/local/bin", "/bin", "/usr/sbin"];
    let found = places.iter().map(|place| format!("{place}/{name}"));
    let mut found = found.filter(|path| Path::new(path).exists());
    match found.next() {
        Some(path) => path,
        None => skip(&format!("the host has no {name}")),
    }
}
