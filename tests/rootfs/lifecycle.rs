//! Interrupted imports, several at once, a full disk, and trees in use by cells.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::calls::{Ended, Place};
use super::image::Layer;
use crate::skip::skip;

/// An import that is stopped in the middle. On a busy host, one may come to its end while this
/// process waits for a processor; then another is begun.
fn stopped_import() -> (Place, Child) {
    for _ in 0..100 {
        let place = Place::new();
        let mut child = import_in_progress(&place);
        send(&child, Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", child.id());
        while !fs::read_to_string(&stat)
            .is_ok_and(|stat| stat.contains(") T ") || stat.contains(") Z "))
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        if place.rootfs(&["list", "--json"]).json() == serde_json::json!([]) {
            return (place, child);
        }
        send(&child, Signal::SIGKILL);
        child.wait().unwrap();
    }
    panic!("all imports came to their ends");
}

/// An import that has put something into its draft. It runs only where nothing else does
/// (SCHED_IDLE, sched(7)).
fn import_in_progress(place: &Place) -> Child {
    let source = place.path("source");
    for directory in 0..30 {
        let directory = source.join(format!("usr/{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..300 {
            fs::write(directory.join(file.to_string()), "x").unwrap();
        }
    }
    let child = place
        .command(&["rootfs", "import", "some", source.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let idle = Command::new("chrt")
        .args(["--idle", "--pid", "0", &pid])
        .status();
    assert!(idle.unwrap().success());
    // A busy host leaves it less than a hundredth of a processor.
    let deadline = Instant::now() + Duration::from_secs(200);
    while !is_filling(place) {
        assert!(Instant::now() < deadline, "the import does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

/// Whether an import has put something into its draft.
fn is_filling(place: &Place) -> bool {
    let drafts = place.trees();
    let draft = drafts
        .first()
        .map(|name| place.store().join(".trees").join(name));
    let filled = draft.and_then(|draft| fs::read_dir(draft.join("usr")).ok());
    filled.is_some_and(|entries| entries.count() > 1)
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

#[test]
fn a_killed_import_is_not_listed_and_is_swept_by_the_next() {
    let (place, mut child) = stopped_import();
    send(&child, Signal::SIGKILL);
    child.wait().unwrap();
    assert_eq!(
        place.rootfs(&["list", "--json"]).json(),
        serde_json::json!([])
    );
    assert_eq!(place.trees().len(), 1, "it was killed in the middle");
    let rootfs = Layer::new().interpreters().bytes();
    fs::write(place.path("small.tar"), rootfs).unwrap();
    place.import("other", &place.path("small.tar")).json();
    let trees = place.trees();
    assert!(
        trees.len() == 1 && trees[0].starts_with("other."),
        "{trees:?}"
    );
}

#[test]
fn an_interrupted_import_removes_what_it_made() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (place, child) = stopped_import();
        send(&child, signal);
        send(&child, Signal::SIGCONT);
        let ended = Ended::of(&child.wait_with_output().unwrap());
        ended.assert_refused(&format!("interrupted by {signal}"));
        place.assert_empty();
    }
}

#[test]
fn one_name_is_imported_once_at_a_time() {
    let place = Place::new();
    let rootfs = Layer::new().interpreters().bytes();
    fs::write(place.path("small.tar"), &rootfs).unwrap();
    let mut first = place
        .command(&["rootfs", "import", "some", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while place.trees().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    place
        .import("some", &place.path("small.tar"))
        .assert_refused("another process is making a rootfs of this name");
    place.import("other", &place.path("small.tar")).json();
    first.stdin.take().unwrap().write_all(&rootfs).unwrap();
    let ended = Ended::of(&first.wait_with_output().unwrap());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert_eq!(place.trees().len(), 2);
}

#[test]
fn a_full_disk_is_one_clear_error() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can mount a small file system");
    }
    let place = Place::new();
    let rootfs = Layer::new()
        .interpreters()
        .file("large", vec![b'x'; 3 << 20]);
    fs::write(place.path("large.tar"), rootfs.bytes()).unwrap();
    fs::create_dir(place.path("store")).unwrap();
    let script = "mount -t tmpfs -o size=2m none \"$2\" || exit 1
        \"$1\" rootfs import --store \"$2\" some \"$3\"; echo $?
        ls -A \"$2\" \"$2/.trees\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_cellblock"))
        .args([place.store(), place.path("large.tar")])
        .output()
        .unwrap();
    let mut ended = Ended::of(&output);
    let printed: Vec<&str> = ended.stdout.split_whitespace().collect();
    let store = place.store().display().to_string();
    let trees = format!("{store}/.trees:");
    assert_eq!(
        printed,
        ["125", &format!("{store}:"), ".lock", ".trees", &trees],
        "{}",
        ended.stderr
    );
    ended.status = 125;
    ended.assert_refused("ENOSPC");
    assert!(ended.stderr.contains("make room"), "{}", ended.stderr);
}

#[test]
fn verify_names_what_changed_and_says_so_by_its_status() {
    let place = Place::new();
    let rootfs = Layer::new().interpreters().file("etc/x", "text").bytes();
    fs::write(place.path("small.tar"), rootfs).unwrap();
    place.import("some", &place.path("small.tar")).json();
    let verified = place.rootfs(&["verify", "some"]);
    assert_eq!(verified.status, 0);
    assert!(
        verified.stdout.starts_with("some: intact, "),
        "{}",
        verified.stdout
    );
    fs::write(place.tree("some", "etc/x"), "tezt").unwrap();
    fs::write(place.tree("some", "etc/\x1b[2J"), "").unwrap();
    let verified = place.rootfs(&["verify", "some"]);
    assert_eq!(verified.status, 1);
    assert_eq!(
        verified.stdout,
        "some: etc/\\x1b[2J: added\nsome: etc/x: content\n"
    );
    let verified = place.rootfs(&["verify", "--json", "some"]);
    let document: serde_json::Value = serde_json::from_str(&verified.stdout).unwrap();
    assert_eq!(document[0]["intact"], false);
    assert_eq!(document[0]["differences"][1]["change"], "content");
    place
        .rootfs(&["verify", "other"])
        .assert_refused("no such rootfs");
}

#[test]
fn names_are_found_by_cells_and_languages_have_their_own() {
    let place = Place::new();
    let marked = |text: &str| {
        let rootfs = Layer::new().interpreters().file("etc/marker", text).bytes();
        fs::write(place.path("small.tar"), rootfs).unwrap();
    };
    marked("named");
    place.import("some", &place.path("small.tar")).json();
    let ended = place.exec("some", "echo $(</etc/marker)");
    assert_eq!(
        (ended.status, ended.stdout.as_str()),
        (0, "named\n"),
        "{}",
        ended.stderr
    );

    let run = |more: &[&str]| {
        let words = [
            &["run", "--json"],
            more,
            &["--lang", "bash", "-c", "echo $(</etc/marker)"],
        ];
        let output = place.command(&words.concat()).output().unwrap();
        let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&record["stdout"]),
            text(&record["isolation"]["rootfs"]),
        )
    };
    assert_eq!(run(&[]).1, "host");
    marked("shell's own");
    let document = place.import("shell", &place.path("small.tar")).json();
    let digest = document["manifest"]["digest"].as_str().unwrap().to_owned();
    assert_eq!(
        run(&[]),
        ("shell's own\n".to_owned(), format!("shell@sha256:{digest}"))
    );
    assert_eq!(run(&["--rootfs", "some"]).0, "named\n");
    assert_eq!(run(&["--rootfs", "host"]).1, "host");

    let ended = place.exec("nosuch", "true");
    ended.assert_refused("there is no such rootfs");
    assert!(
        ended.stderr.contains("`cellblock rootfs build nosuch`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_cell_keeps_its_tree_until_it_ends() {
    let place = Place::new();
    let rootfs = |text: &str| {
        let bytes = Layer::new().interpreters().file("etc/marker", text).bytes();
        fs::write(place.path("small.tar"), bytes).unwrap();
        place.import("some", &place.path("small.tar")).json();
    };
    rootfs("old");
    let mut cell = Command::new(env!("CARGO_BIN_EXE_cellblock"))
        .args(["exec", "--rootfs", "some", "--store"])
        .arg(place.store())
        .args([
            "--",
            "/bin/bash",
            "-c",
            "echo begun; read x; echo $(</etc/marker)",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = cell.stdout.take().unwrap();
    let mut begun = [0; 6];
    std::io::Read::read_exact(&mut stdout, &mut begun).unwrap();
    rootfs("new");
    assert_eq!(place.trees().len(), 2);
    assert_eq!(place.exec("some", "echo $(</etc/marker)").stdout, "new\n");
    let removed = place.rootfs(&["remove", "some"]);
    assert_eq!(removed.status, 0, "{}", removed.stderr);
    cell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut printed = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut printed).unwrap();
    assert_eq!(printed, "old\n");
    assert!(cell.wait().unwrap().success());
    // Nothing refers to it any more: the next change sweeps it.
    let again = place.rootfs(&["remove", "some"]);
    again.assert_refused("no such rootfs");
    place.import("other", &place.path("small.tar")).json();
    assert_eq!(place.trees().len(), 1);
}
