//! git over SSH, with OpenSSH's own server outside.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::unistd::getuid;

use crate::Test;
use crate::cell::Cell;
use crate::outside::{Outside, program};
use crate::skip;

pub(crate) const TESTS: &[Test] = &[("clients/git-ssh", git)];

/// The paths of the client's key and the server's inside.
const KEY: &str = "/tests-key";
const KNOWN: &str = "/tests-known";

/// The server, which ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn done(words: &[&str], directory: &Path) {
    let mut command = Command::new(program(words[0]));
    let command = command.args(&words[1..]).current_dir(directory);
    let output = command.output().expect("start a program");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {told}");
}

fn serve(directory: &Path) -> Server {
    done(
        &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "host"],
        directory,
    );
    done(
        &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"],
        directory,
    );
    // The program inside is not the file's owner.
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(directory.join("key"), mode).expect("the key's mode");
    fs::copy(directory.join("key.pub"), directory.join("authorized")).expect("the key");
    let host = fs::read_to_string(directory.join("host.pub")).expect("the server's key");
    fs::write(directory.join("known"), format!("* {host}")).expect("the server's key");
    let path = directory.display();
    let config = format!(
        "ListenAddress 93.184.0.30\nListenAddress 93.184.0.10\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nUseDNS no\n"
    );
    fs::write(directory.join("config"), config).expect("the configuration");
    // sshd's directory for its process without privileges.
    fs::create_dir_all("/run/sshd").expect("/run/sshd");
    let mut child = Command::new(program("sshd"))
        .args(["-D", "-e", "-f", "config"])
        .current_dir(directory)
        .stderr(Stdio::piped())
        .spawn()
        .expect("start sshd");
    let lines = BufReader::new(child.stderr.take().expect("its output")).lines();
    let listening = lines
        .map_while(Result::ok)
        .filter(|line| line.contains("Server listening"));
    assert_eq!(listening.take(2).count(), 2, "sshd");
    Server(child)
}

fn git() {
    if !getuid().is_root() {
        skip("sshd that serves others wants root");
    }
    let (git, ssh) = (program("git"), program("ssh"));
    let outside = Outside::new();
    let directory = outside.path();
    let _server = serve(directory);
    done(&["git", "init", "-q", "source"], directory);
    let commit =
        "git -C source -c user.name=t -c user.email=t@example commit -q --allow-empty -m one";
    done(&commit.split(' ').collect::<Vec<_>>(), directory);
    let clone = |host: &str| {
        let url = format!("ssh://root@{host}{}/source", directory.display());
        let command =
            format!("{ssh} -F none -i {KEY} -o UserKnownHostsFile={KNOWN} -o BatchMode=yes");
        Cell::exec(&[&git, "clone", &url, "/tmp/clone"])
            .option(&["--env", &format!("GIT_SSH_COMMAND={command}")])
            .ro(&directory.join("key"), KEY)
            .ro(&directory.join("known"), KNOWN)
    };
    let allowed = |host: &str| clone(host).allow(&["raw.example:22"]).run();
    let ended = allowed("raw.example").ok();
    let connection = &ended.connections()[0];
    assert_eq!(
        (&connection["host"], &connection["port"]),
        (&"raw.example".into(), &22.into())
    );
    assert!(
        connection["received_bytes"].as_u64() > Some(1000),
        "{ended:?}"
    );
    clone("other.example").on_the_hosts_network().run().ok();
    let ended = allowed("other.example");
    assert_ne!(ended.outcome(), "ok", "{ended:?}");
    ended.has_refused("other.example no rule allows this host");
}
