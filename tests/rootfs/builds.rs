//! `cellblock rootfs build` and `add`, really, from Debian's mirrors: a tree of a
//! C library and a shell. Without apt or a network these say so and do nothing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::calls::{Ended, Place};
use crate::skip::skip;

const RECIPE: &str = r#"
name = "tiny"
summary = "a C library and a shell"
steps = [["sh", "-c", "echo 'made in the tree' >motd"]]
prune = ["usr/share", "usr/lib/*/gconv"]
keep = ["usr/share/doc/*/copyright", "usr/share/cellblock"]

[debian]
suite = "trixie"
packages = ["dash", "libc-bin"]
without = ["debianutils", "dpkg", "debconf"]

[interpreters.bash]
path = "/usr/bin/sh"
version = ["sh", "-c", "echo 1.0"]

[smoke]
bash = ["sh", "/recipe/smoke.sh"]
"#;

/// Why nothing can be built here, if that is so.
fn obstacle() -> Option<String> {
    for tool in ["/usr/bin/apt-get", "/usr/bin/dpkg-deb"] {
        if !Path::new(tool).exists() {
            return Some(format!("this host has no {tool}"));
        }
    }
    if !Path::new("/usr/share/keyrings/debian-archive-keyring.gpg").exists() {
        return Some("this host has no debian-archive-keyring".to_owned());
    }
    if std::env::var_os("http_proxy").is_some() {
        return None;
    }
    let addresses = ("deb.debian.org", 80).to_socket_addrs();
    let reached = addresses.is_ok_and(|mut addresses| {
        addresses.any(|to| TcpStream::connect_timeout(&to, Duration::from_secs(5)).is_ok())
    });
    (!reached).then(|| "deb.debian.org is not reached".to_owned())
}

/// Whether something can be built here.
fn can_build() -> bool {
    match obstacle() {
        Some(why) => {
            skip(why);
            false
        }
        None => true,
    }
}

/// Kept from one run to the next.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("rootfs-cache")
}

fn recipe(place: &Place, smoke: &str) -> PathBuf {
    let folder = place.path("tiny");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("recipe.toml"), RECIPE).unwrap();
    fs::write(folder.join("smoke.sh"), smoke).unwrap();
    folder
}

fn command(place: &Place, words: &[&str]) -> Command {
    let words: Vec<&str> = ["rootfs"].iter().chain(words).copied().collect();
    let mut command = place.command(&words);
    command.env("XDG_CACHE_HOME", cache());
    command
}

fn call(place: &Place, words: &[&str]) -> Ended {
    Ended::of(&command(place, words).output().unwrap())
}

#[track_caller]
fn built(ended: &Ended) {
    assert_eq!(ended.status, 0, "{}", ended.stderr);
}

fn manifest(place: &Place, name: &str) -> Value {
    let text = fs::read_to_string(place.tree(name, "manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

const GOOD: &str = "read -r line </motd && [ \"$line\" = 'made in the tree' ] && ! (: >/usr/owned)";

#[test]
fn a_recipe_builds_the_same_tree_twice() {
    if !can_build() {
        return;
    }
    let place = Place::new();
    let folder = recipe(&place, GOOD);
    let folder = folder.to_str().unwrap();
    built(&call(
        &place,
        &["build", folder, "--update-lock", "--fresh"],
    ));
    let lock = fs::read_to_string(place.path("tiny/lock.toml")).unwrap();
    assert!(lock.contains("name = \"libc6\""), "{lock}");
    built(&call(
        &place,
        &["build", folder, "--locked", "--fresh", "--as", "again"],
    ));
    let (first, second) = (manifest(&place, "tiny"), manifest(&place, "again"));
    assert_eq!(first["digest"], second["digest"]);
    assert_eq!(first["packages"], second["packages"]);
    assert_eq!(first["recipe"]["name"], "tiny");
    assert_eq!(first["interpreters"]["bash"]["version"], "1.0");
    let package = first["packages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|package| package["name"] == "dash")
        .unwrap();
    assert_eq!(package["source"], "debian");
    assert!(package["digest"].as_str().unwrap().starts_with("sha256:"));
    assert!(place.tree("tiny", "etc/ld.so.cache").exists());
    assert!(!place.tree("tiny", "usr/share/man").exists());
    assert!(place.tree("tiny", "usr/share/doc/dash/copyright").exists());
    assert!(!place.tree("tiny", "usr/bin/dpkg").exists());
    built(&call(&place, &["verify", "tiny", "again"]));
    let changed = lock.replacen("sha256 = \"", "sha256 = \"0", 1);
    fs::write(place.path("tiny/lock.toml"), changed).unwrap();
    call(&place, &["build", folder, "--locked"]).assert_refused("64 hexadecimal digits");
}

#[test]
fn added_packages_share_what_they_are_added_to() {
    if !can_build() {
        return;
    }
    let place = Place::new();
    let folder = recipe(&place, GOOD);
    built(&call(&place, &["build", folder.to_str().unwrap()]));
    let before = manifest(&place, "tiny");
    built(&call(
        &place,
        &["add", "tiny", "--as", "more", "--apt", "sed"],
    ));
    let after = manifest(&place, "more");
    assert_eq!(after["base"]["digest"], before["digest"]);
    let names = |manifest: &Value| {
        let packages = manifest["packages"].as_array().unwrap();
        packages
            .iter()
            .map(|p| p["name"].clone())
            .collect::<Vec<_>>()
    };
    assert!(names(&after).contains(&"sed".into()));
    assert!(!names(&before).contains(&"sed".into()));
    let inode = |name| {
        fs::metadata(place.tree(name, "usr/bin/dash"))
            .unwrap()
            .ino()
    };
    assert_eq!(inode("tiny"), inode("more"));
    assert!(place.tree("more", "usr/bin/sed").exists());
    // The rules of the base apply to added packages.
    assert!(!place.tree("more", "usr/share/man").exists());
    built(&call(&place, &["verify", "tiny", "more"]));
    call(&place, &["add", "tiny", "--npm", "x"]).assert_refused("Node.js");
    call(&place, &["add", "tiny", "--apt=--allow-unauthenticated"]).assert_refused("--apt");
    call(&place, &["add", "missing", "--apt", "sed"]).assert_refused("missing");
}

#[test]
fn a_failing_smoke_test_keeps_a_rootfs_out() {
    if !can_build() {
        return;
    }
    let place = Place::new();
    let folder = recipe(&place, "echo 'no such luck' >&2; exit 3");
    let ended = call(&place, &["build", folder.to_str().unwrap()]);
    ended.assert_refused("smoke.bash");
    assert!(ended.stderr.contains("no such luck"), "{}", ended.stderr);
    place.assert_empty();
}

#[test]
fn an_interrupt_leaves_nothing() {
    if !can_build() {
        return;
    }
    let place = Place::new();
    let folder = recipe(&place, "while :; do :; done");
    let mut command = command(&place, &["build", folder.to_str().unwrap()]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let begun = || !place.trees().is_empty();
    while !begun() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    Ended::of(&child.wait_with_output().unwrap()).assert_refused("interrupted");
    place.assert_empty();
}

#[test]
fn two_builds_at_once_get_the_same() {
    if !can_build() {
        return;
    }
    let place = Place::new();
    let folder = recipe(&place, GOOD);
    let folder = folder.to_str().unwrap();
    let cache = place.path("cache");
    let start = |name| {
        let mut command = command(&place, &["build", folder, "--as", name]);
        command.env("XDG_CACHE_HOME", &cache).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let running = ["one", "two"].map(start);
    for child in running {
        built(&Ended::of(&child.wait_with_output().unwrap()));
    }
    assert_eq!(
        manifest(&place, "one")["digest"],
        manifest(&place, "two")["digest"]
    );
}

#[test]
fn a_dry_run_says_what_it_would_fetch_and_makes_nothing() {
    if !can_build() {
        return;
    }
    let place = Place::new();
    let folder = recipe(&place, GOOD);
    let mut command = command(&place, &["build", folder.to_str().unwrap(), "--dry-run"]);
    let ended = Ended::of(
        &command
            .env("XDG_CACHE_HOME", place.path("cache"))
            .output()
            .unwrap(),
    );
    built(&ended);
    assert!(ended.stdout.contains("libc6 2."), "{}", ended.stdout);
    assert!(ended.stdout.contains("to fetch"), "{}", ended.stdout);
    assert!(!place.store().exists());
}

#[test]
fn a_lost_network_is_one_error_with_a_way_out() {
    if !Path::new("/usr/bin/apt-get").exists() {
        return skip("no apt-get");
    }
    let place = Place::new();
    let folder = recipe(&place, GOOD);
    let mut command = command(&place, &["build", folder.to_str().unwrap()]);
    command.env("XDG_CACHE_HOME", place.path("cache"));
    // No server listens on the discard port.
    for name in ["http_proxy", "HTTP_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
    }
    let ended = Ended::of(&command.output().unwrap());
    ended.assert_refused("apt-get update");
    assert!(
        ended.stderr.contains("hint: check that the registry"),
        "{}",
        ended.stderr
    );
    place.assert_empty();
}

#[test]
fn what_is_wrong_with_a_recipe_is_named() {
    let place = Place::new();
    let folder = recipe(&place, GOOD);
    fs::write(
        folder.join("recipe.toml"),
        RECIPE.replace("prune =", "prun ="),
    )
    .unwrap();
    let ended = call(&place, &["build", folder.to_str().unwrap()]);
    ended.assert_refused("did you mean `prune`?");
    call(&place, &["build", "pyton"]).assert_refused("did you mean `python`?");
    call(&place, &["build", "./nowhere"]).assert_refused("nowhere");
    let ended = call(&place, &["build", "shell", "--update-lock"]);
    ended.assert_refused("--update-lock");
    let recipes = Ended::of(
        &Command::new(env!("CARGO_BIN_EXE_cellblock"))
            .args(["rootfs", "recipes"])
            .output()
            .unwrap(),
    );
    for name in [
        "shell",
        "python",
        "python-data",
        "node",
        "r",
        "java",
        "full",
    ] {
        assert!(
            recipes.stdout.lines().any(|line| line.starts_with(name)),
            "{name}"
        );
    }
}

/// A server that counts its connections, and redirects each request to `location`.
fn redirecting(location: Option<String>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let answer = match &location {
                Some(to) => format!("302 Found\r\nLocation: {to}"),
                None => "404 Not Found".to_owned(),
            };
            let rest = "Content-Length: 0\r\nConnection: close";
            let _ = write!(stream, "HTTP/1.1 {answer}\r\n{rest}\r\n\r\n");
        }
    });
    (port, count)
}

#[test]
fn a_build_reaches_its_registries_and_no_other_host() {
    const HELPER: &str = "/usr/lib/apt/apt-helper";
    if !Path::new(HELPER).exists() {
        return skip("no apt-helper");
    }
    let (other, others) = redirecting(None);
    let (registry, asked) = redirecting(Some(format!("http://127.0.0.1:{other}/x.tgz")));
    let url = format!("http://127.0.0.1:{registry}/x.tgz");
    let place = Place::new();
    // On the host's network, it goes where the registry sends it.
    let file = place.path("file");
    let options = ["-o", "APT::Sandbox::User=", "download-file"];
    let free = Command::new(HELPER)
        .args(options)
        .args([&url, file.to_str().unwrap()])
        .env_remove("http_proxy")
        .output()
        .unwrap();
    assert!(!free.status.success());
    let before = (asked.load(Ordering::SeqCst), others.load(Ordering::SeqCst));
    assert!(before.0 > 0 && before.1 > 0, "{before:?} {free:?}");
    let folder = place.path("other");
    fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "name = \"other\"\nsummary = \"an archive\"\n\n[[archive]]\nname = \"x\"\n\
         version = \"1\"\nsource = \"debian\"\nurl = \"{url}\"\nsha256 = \"{}\"\n\
         size = 1\ninto = \"/usr/local\"\nstrip = 1\n",
        "a".repeat(64)
    );
    fs::write(folder.join("recipe.toml"), text).unwrap();
    let mut command = command(&place, &["build", folder.to_str().unwrap()]);
    command.env("XDG_CACHE_HOME", place.path("cache"));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"] {
        command.env_remove(name);
    }
    let ended = Ended::of(&command.output().unwrap());
    assert_ne!(ended.status, 0);
    assert!(asked.load(Ordering::SeqCst) > before.0, "{}", ended.stderr);
    assert_eq!(others.load(Ordering::SeqCst), before.1, "{}", ended.stderr);
    place.assert_empty();
}
