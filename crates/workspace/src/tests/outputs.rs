use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::{geteuid, mkfifo};
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::baseline::{self, Original};
use super::super::fill::Origin;
use super::super::*;
use super::owned;
use record::error::Result;
use record::{Change, FileChange, FileSkipped, Truncation};
use spec::{Bytes, Scratch, TmpfsLimit};

const CAPS: Caps = Caps {
    listed: 100,
    entries: 10_000,
    depth: 64,
    total_bytes: Bytes::mib(2),
    inline_bytes: None,
    until: None,
};

/// A workspace, and a directory for what comes out of it.
struct Fixture {
    workspace: TempDir,
    out: TempDir,
    baseline: Baseline,
}

impl Fixture {
    fn new() -> Self {
        Self {
            workspace: TempDir::new().unwrap(),
            out: TempDir::new().unwrap(),
            baseline: Baseline::default(),
        }
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.workspace.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn put_in(&mut self, path: &str, content: &[u8]) {
        self.write(path, content);
        self.baseline.insert(path.into(), original(content));
    }

    fn in_workspace(&self, path: &str) -> PathBuf {
        self.workspace.path().join(path)
    }

    fn collect(&self, caps: &Caps) -> Outputs {
        self.collect_to(None, caps, &|_| {})
    }

    fn collect_out(&self) -> Outputs {
        let out = OutDir::open(self.out.path()).unwrap();
        self.collect_to(Some(&out), &CAPS, &|_| {})
    }

    fn collect_to(
        &self,
        out: Option<&OutDir>,
        caps: &Caps,
        report: &dyn Fn(&FileChange),
    ) -> Outputs {
        let workspace = File::open(self.workspace.path()).unwrap();
        let mut baseline = self.baseline.clone();
        collect(whole(&workspace), &mut baseline, out, caps, report)
    }

    fn out_names(&self) -> BTreeSet<String> {
        fs::read_dir(self.out.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

/// A tmpfs without binds in it, whose links are reported.
fn whole(dir: &File) -> Tree<'_> {
    Tree {
        dir: dir.as_fd(),
        covered: &[],
        code_file: None,
        keeps_links: false,
        prefix: b"",
        taken: &[],
        is_upper: false,
    }
}

fn original(content: &[u8]) -> Original {
    Original::File(Digest::of(content, |_| io::Result::Ok(())).unwrap())
}

fn changes(outputs: &Outputs) -> Vec<(String, Change)> {
    outputs
        .files
        .iter()
        .map(|file| (file.path.to_string(), file.change))
        .collect()
}

fn reasons(outputs: &Outputs) -> Vec<(String, &str)> {
    outputs
        .skipped
        .iter()
        .map(|skipped| (skipped.path.to_string(), skipped.reason.as_str()))
        .collect()
}

#[test]
fn created_modified_and_deleted_files_are_distinguished() {
    let mut fixture = Fixture::new();
    for name in [
        "same",
        "longer",
        "other",
        "gone",
        "now_a_directory",
        "dir/same",
    ] {
        fixture.put_in(name, b"before");
    }
    fixture.write("longer", "before and after");
    fixture.write("other", "behind");
    fs::remove_file(fixture.in_workspace("gone")).unwrap();
    fs::remove_file(fixture.in_workspace("now_a_directory")).unwrap();
    fixture.write("now_a_directory/x", "x");
    fixture.write("new.json", "[1]");
    fs::create_dir(fixture.in_workspace("empty")).unwrap();

    let outputs = fixture.collect(&CAPS);
    assert_eq!(
        changes(&outputs),
        [
            ("gone".into(), Change::Deleted),
            ("longer".into(), Change::Modified),
            ("new.json".into(), Change::Created),
            ("now_a_directory".into(), Change::Deleted),
            ("now_a_directory/x".into(), Change::Created),
            ("other".into(), Change::Modified),
        ]
    );
    assert_eq!(
        outputs.files[2],
        FileChange {
            path: "new.json".into(),
            change: Change::Created,
            size: Some(3),
            sha256: Some("080a9ed428559ef602668b4c00f114f1a11c3f6b02a435f0bdc154578e4d7f22".into()),
            media_type: Some("application/json".into()),
            content: None,
            content_base64: None,
        }
    );
    assert_eq!(outputs.files[0].sha256, None);
    assert!(outputs.skipped.is_empty() && outputs.truncated.is_empty() && outputs.error.is_none());
}

#[test]
fn the_next_execution_starts_from_what_was_reported() {
    let mut fixture = Fixture::new();
    fixture.put_in("gone", b"before");
    fixture.put_in("same", b"before");
    fs::remove_file(fixture.in_workspace("gone")).unwrap();
    for name in ["a", "b", "c"] {
        fixture.write(name, "new");
    }
    let workspace = File::open(fixture.workspace.path()).unwrap();
    let mut baseline = fixture.baseline.clone();
    let mut after = |listed| {
        let caps = Caps { listed, ..CAPS };
        let outputs = collect(whole(&workspace), &mut baseline, None, &caps, &|_| {});
        changes(&outputs)
    };
    let created = |name: &str| (name.to_owned(), Change::Created);
    assert_eq!(after(2), [created("a"), created("b")]);
    // The next execution does not list the changes that this list had no room for.
    assert_eq!(after(100), []);
    fixture.write("a", "newer");
    fixture.write("c", "longer");
    let modified = |name: &str| (name.to_owned(), Change::Modified);
    assert_eq!(after(100), [modified("a"), modified("c")]);
    fixture.write("d", "new");
    assert_eq!(after(0), []);
    fs::remove_file(fixture.in_workspace("d")).unwrap();
    fs::remove_file(fixture.in_workspace("a")).unwrap();
    let deleted = |name: &str| (name.to_owned(), Change::Deleted);
    assert_eq!(after(100), [deleted("a"), deleted("d")]);
    assert_eq!(after(100), []);
}

#[test]
fn only_regular_files_are_read() {
    let mut fixture = Fixture::new();
    let secret = TempDir::new().unwrap();
    fs::write(secret.path().join("secret"), "secret").unwrap();
    fixture.put_in("was_a_file", b"x");
    fs::remove_file(fixture.in_workspace("was_a_file")).unwrap();
    symlink(
        secret.path().join("secret"),
        fixture.in_workspace("was_a_file"),
    )
    .unwrap();
    symlink(secret.path(), fixture.in_workspace("link_dir")).unwrap();
    symlink("nowhere", fixture.in_workspace("dangling")).unwrap();
    mkfifo(&fixture.in_workspace("pipe"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(fixture.in_workspace("socket")).unwrap();

    let outputs = fixture.collect_out();
    assert_eq!(changes(&outputs), [("was_a_file".into(), Change::Deleted)]);
    assert_eq!(
        reasons(&outputs),
        [
            ("dangling".into(), "it is a symbolic link"),
            ("link_dir".into(), "it is a symbolic link"),
            ("pipe".into(), "it is a named pipe"),
            ("socket".into(), "it is a socket"),
            ("was_a_file".into(), "it is a symbolic link"),
        ]
    );
    assert!(fixture.out_names().is_empty());
}

#[test]
fn a_mount_is_not_entered() {
    let root = File::open("/").unwrap();
    let version = walk::kind_at(root.as_fd(), &"proc/version".into());
    assert_eq!(version, Err(nix::errno::Errno::EXDEV));
}

#[test]
fn a_device_is_not_opened() {
    let fixture = Fixture::new();
    let null = nix::sys::stat::makedev(1, 3);
    let path = fixture.in_workspace("null");
    if let Err(errno) = mknod(&path, SFlag::S_IFCHR, Mode::S_IRWXU, null) {
        assert_eq!(errno, nix::errno::Errno::EPERM);
        return eprintln!("a_device_is_not_opened: not run, only root can make devices");
    }
    let outputs = fixture.collect_out();
    assert_eq!(reasons(&outputs), [("null".into(), "it is a device")]);
    assert!(fixture.out_names().is_empty());
}

#[test]
fn hard_links_are_copies() {
    let fixture = Fixture::new();
    fixture.write("a", "content");
    fs::hard_link(fixture.in_workspace("a"), fixture.in_workspace("b")).unwrap();
    let outputs = fixture.collect_out();
    assert_eq!(
        changes(&outputs),
        [("a".into(), Change::Created), ("b".into(), Change::Created)]
    );
    let inodes: BTreeSet<u64> = ["a", "b"]
        .map(|name| fs::metadata(fixture.out.path().join(name)).unwrap().ino())
        .into();
    assert_eq!(inodes.len(), 2);
}

#[test]
fn a_deep_tree_ends_at_the_cap() {
    let fixture = Fixture::new();
    fixture.write(&format!("{}at_the_cap", "d/".repeat(64)), "x");
    fixture.write(&format!("{}deeper", "d/".repeat(300)), "x");
    let outputs = fixture.collect_out();
    assert_eq!(outputs.files.len(), 1);
    assert_eq!(
        reasons(&outputs),
        [(format!("{}d", "d/".repeat(64)), "it is nested too deeply")]
    );
    assert!(
        fixture
            .out
            .path()
            .join("d/".repeat(64))
            .join("at_the_cap")
            .exists()
    );
}

#[test]
fn a_long_path_ends_at_the_cap() {
    let fixture = Fixture::new();
    let name = "n".repeat(250);
    let four = format!("{name}/{name}/{name}/{name}");
    fixture.write(&format!("{four}/x"), "x");
    fixture.write(&format!("{four}/{}/x", "y".repeat(30)), "x");
    let outputs = fixture.collect_out();
    assert_eq!(changes(&outputs), [(format!("{four}/x"), Change::Created)]);
    assert_eq!(
        reasons(&outputs),
        [(format!("{four}/{}", "y".repeat(30)), "its path is too long")]
    );
}

#[test]
fn any_name_is_kept() {
    let fixture = Fixture::new();
    let names = [&b"a\nb"[..], b"a\xff", b"\x1b[2J", b".."];
    for name in &names[..3] {
        let path = fixture.workspace.path().join(OsStr::from_bytes(name));
        fs::write(path, "x").unwrap();
    }
    let outputs = fixture.collect_out();
    let mut found: Vec<&[u8]> = outputs
        .files
        .iter()
        .map(|file| file.path.as_bytes())
        .collect();
    found.sort();
    assert_eq!(found, [&b"\x1b[2J"[..], b"a\nb", b"a\xff"]);
    for name in found {
        assert!(fixture.out.path().join(OsStr::from_bytes(name)).exists());
    }
}

#[test]
fn a_sparse_file_is_judged_by_its_size() {
    let fixture = Fixture::new();
    let hole = File::create(fixture.in_workspace("hole")).unwrap();
    hole.set_len(1 << 40).unwrap();
    let outputs = fixture.collect_out();
    assert!(outputs.files.is_empty() && fixture.out_names().is_empty());
    assert_eq!(
        reasons(&outputs),
        [(
            "hole".into(),
            "its size of 1099511627776 bytes is over the cap of 2M (0 bytes of it are not holes)"
        )]
    );
}

#[test]
fn all_files_together_are_capped() {
    let fixture = Fixture::new();
    fixture.write("a", vec![0; 1 << 20]);
    for name in ["b", "c", "d"] {
        fs::hard_link(fixture.in_workspace("a"), fixture.in_workspace(name)).unwrap();
    }
    let outputs = fixture.collect_out();
    assert_eq!(outputs.files.len(), 2);
    assert_eq!(
        reasons(&outputs)[0].1,
        "with its 1048576 bytes, all files together are over the cap of 2M"
    );
    assert_eq!(fixture.out_names(), ["a", "b"].map(str::to_owned).into());
}

#[test]
fn lists_are_capped_and_say_so() {
    let mut fixture = Fixture::new();
    fixture.put_in("z_changed", b"before");
    fixture.put_in("z_same", b"before");
    fixture.write("z_changed", "behind");
    for number in 0..5 {
        fixture.write(&format!("file{number}"), "x");
        symlink("x", fixture.in_workspace(&format!("link{number}"))).unwrap();
    }
    let caps = Caps { listed: 2, ..CAPS };
    let outputs = fixture.collect(&caps);
    assert_eq!(
        changes(&outputs),
        [
            ("file0".into(), Change::Created),
            ("file1".into(), Change::Created)
        ]
    );
    assert_eq!(outputs.skipped.len(), 2);
    let cut = |total, kept| Truncation {
        total,
        kept,
        part: "head".into(),
        head: None,
    };
    assert_eq!(outputs.truncated["files"], cut(6, 2));
    assert_eq!(outputs.truncated["files_skipped"], cut(5, 2));
}

#[test]
fn each_change_is_reported_before_the_next_is_collected() {
    let mut fixture = Fixture::new();
    fixture.put_in("gone", b"before");
    fs::remove_file(fixture.in_workspace("gone")).unwrap();
    for index in 0..20 {
        fixture.write(&format!("new-{index}"), [b'x'; 1000]);
    }
    let out = OutDir::open(fixture.out.path()).unwrap();
    let reported = RefCell::new(Vec::new());
    let report = |change: &FileChange| {
        reported.borrow_mut().push(change.path.to_string());
        let copied = fixture.out_names();
        assert_eq!(copied.len(), reported.borrow().len().min(20), "{copied:?}");
        assert!(copied.contains(&change.path.to_string()) || change.change == Change::Deleted);
    };
    let outputs = fixture.collect_to(Some(&out), &CAPS, &report);
    let mut reported = reported.into_inner();
    assert_eq!(reported.last().map(String::as_str), Some("gone"));
    reported.sort();
    let listed: Vec<String> = changes(&outputs)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(reported, listed);
    assert_eq!(reported.len(), 21);
}

#[test]
fn what_was_not_looked_at_is_not_called_deleted() {
    let mut fixture = Fixture::new();
    fixture.put_in("here", b"x");
    fixture.put_in("gone", b"x");
    fs::remove_file(fixture.in_workspace("gone")).unwrap();
    let outputs = fixture.collect(&Caps { entries: 0, ..CAPS });
    assert_eq!(changes(&outputs), [("gone".into(), Change::Deleted)]);
    assert_eq!(
        reasons(&outputs),
        [(".".into(), "it has more entries than are looked at")]
    );
}

#[test]
fn copies_are_plain_files_with_the_content() {
    let fixture = Fixture::new();
    fixture.write("sub/dir/tool", vec![7; 300_000]);
    let tool = fixture.in_workspace("sub/dir/tool");
    fs::set_permissions(tool, fs::Permissions::from_mode(0o6755)).unwrap();
    let outputs = fixture.collect_out();
    assert_eq!(
        changes(&outputs),
        [("sub/dir/tool".into(), Change::Created)]
    );
    let copy = fixture.out.path().join("sub/dir/tool");
    assert_eq!(fs::read(&copy).unwrap(), vec![7; 300_000]);
    assert_eq!(fs::metadata(copy).unwrap().mode() & 0o7111, 0);
}

#[test]
fn links_in_the_target_are_not_followed() {
    let fixture = Fixture::new();
    for name in ["file", "dir/file", "taken"] {
        fixture.write(name, "new");
    }
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("precious"), "old").unwrap();
    let out = fixture.out.path();
    symlink(elsewhere.path().join("precious"), out.join("file")).unwrap();
    symlink(elsewhere.path(), out.join("dir")).unwrap();
    fs::create_dir(out.join("taken")).unwrap();

    let outputs = fixture.collect_out();
    assert_eq!(outputs.files.len(), 3);
    assert_eq!(fs::read(elsewhere.path().join("precious")).unwrap(), b"old");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    // The link itself was replaced; what stands in the way is named.
    assert!(fs::symlink_metadata(out.join("file")).unwrap().is_file());
    let reasons = reasons(&outputs);
    assert_eq!(reasons.len(), 2);
    assert!(
        reasons[0]
            .1
            .contains("not copied out: copy results out: openat2(")
            && reasons[0].1.contains("dir/file"),
        "{reasons:?}"
    );
    assert!(reasons[1].1.contains("EISDIR"), "{reasons:?}");
    assert_eq!(outputs.error, None);
    assert_eq!(
        fixture.out_names(),
        ["dir", "file", "taken"].map(str::to_owned).into()
    );
}

/// Runs one test of this binary again, in other circumstances.
fn rerun(command: &mut Command, test: &str) {
    let output = command
        .args(["--exact", "--nocapture", &format!("tests::outputs::{test}")])
        .env("CELLBLOCK_TEST_RERUN", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn is_rerun() -> bool {
    std::env::var_os("CELLBLOCK_TEST_RERUN").is_some()
}

/// For root nothing is unreadable, so root runs this as somebody else.
#[test]
fn files_without_permissions_are_read() {
    if geteuid().is_root() {
        // By a descriptor: nobody else may enter the directory of a clone in root's home.
        let own = File::open("/proc/self/exe").unwrap();
        let mut command = Command::new(format!("/proc/self/fd/{}", own.as_raw_fd()));
        command.uid(65534).gid(65534).env("TMPDIR", "/tmp");
        return rerun(&mut command, "files_without_permissions_are_read");
    }
    let mut fixture = Fixture::new();
    fixture.put_in("locked/same", b"x");
    fixture.write("locked/deep/secret", "y");
    fixture.write("noexec/file", "z");
    for (path, mode) in [
        ("locked/same", 0),
        ("locked/deep/secret", 0),
        ("locked/deep", 0),
        ("locked", 0),
        ("noexec", 0o400),
    ] {
        fs::set_permissions(fixture.in_workspace(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let outputs = fixture.collect_out();
    assert_eq!(reasons(&outputs), []);
    assert_eq!(
        changes(&outputs),
        [
            ("locked/deep/secret".into(), Change::Created),
            ("noexec/file".into(), Change::Created)
        ]
    );
}

/// A tmpfs that goes before the directory that it is mounted on, which would stay otherwise.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(path: &Path, options: &str) -> Self {
        let kind = Some("tmpfs");
        mount(kind, path, kind, MsFlags::empty(), Some(options)).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// A small tmpfs takes mounts of one's own, hence a namespace.
#[test]
fn a_full_disk_leaves_no_partial_file() {
    if !is_rerun() {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command.arg(std::env::current_exe().unwrap());
        return rerun(&mut command, "a_full_disk_leaves_no_partial_file");
    }
    let fixture = Fixture::new();
    let _small = Tmpfs::mount(fixture.out.path(), "size=64k");
    fixture.write("a_small", "x");
    fixture.write("b_large", vec![1; 200_000]);
    fixture.write("c_small", "y");
    fs::create_dir(fixture.in_workspace("mounted")).unwrap();
    let _other = Tmpfs::mount(&fixture.in_workspace("mounted"), "size=64k");
    fixture.write("mounted/file", "z");

    let outputs = fixture.collect_out();
    assert_eq!(outputs.files.len(), 3);
    assert_eq!(outputs.files[1].size, Some(200_000));
    assert_eq!(fixture.out_names(), ["a_small"].map(str::to_owned).into());
    let error = outputs.error.as_ref().unwrap();
    assert_eq!(error.errno_name.as_deref(), Some("ENOSPC"));
    assert!(error.operand.as_ref().unwrap().ends_with("/b_large"));
    assert!(error.hint.as_ref().unwrap().contains("make room"));
    let reasons = reasons(&outputs);
    assert!(reasons[0].1.contains("ENOSPC"), "{reasons:?}");
    assert_eq!(
        reasons[1],
        (
            "c_small".into(),
            "not copied out: an earlier failure ended the copying"
        )
    );
    assert_eq!(
        reasons[2],
        ("mounted".into(), "it is a mount of another file system")
    );
}

#[test]
fn content_is_put_into_the_list_as_long_as_there_is_room() {
    let mut fixture = Fixture::new();
    fixture.put_in("a_same", b"before");
    fixture.put_in("z_gone", b"before");
    fs::remove_file(fixture.in_workspace("z_gone")).unwrap();
    fixture.write("b_text", "na\u{ef}ve\n");
    fixture.write("c_large", [b'x'; 100]);
    fixture.write("d_bytes", b"\xff\0\x01");
    fixture.write("e_empty", "");
    fixture.write("f_no_room_left", "123");
    let caps = Caps {
        inline_bytes: Some(Bytes(12)),
        ..CAPS
    };
    let outputs = fixture.collect(&caps);
    let held = |name: &str| {
        let file = outputs
            .files
            .iter()
            .find(|file| file.path.to_string() == name);
        let file = file.unwrap();
        let text = file.content.as_ref().map(ToString::to_string);
        (text, file.content_base64.as_ref().map(ToString::to_string))
    };
    assert_eq!(held("b_text"), (Some("na\u{ef}ve\n".into()), None));
    assert_eq!(held("d_bytes"), (None, Some("/wAB".into())));
    assert_eq!(held("e_empty"), (Some(String::new()), None));
    for name in ["c_large", "f_no_room_left", "z_gone"] {
        assert_eq!(held(name), (None, None), "{name}");
    }
    let cut = &outputs.truncated["inline_files"];
    assert_eq!((cut.total, cut.kept, cut.part.as_str()), (5, 3, "whole"));

    let all = Caps {
        inline_bytes: Some(Bytes::mib(1)),
        ..CAPS
    };
    assert!(fixture.collect(&all).truncated.is_empty());
    assert!(
        fixture
            .collect(&CAPS)
            .files
            .iter()
            .all(|file| file.content.is_none())
    );
}

#[test]
fn links_that_were_put_in_are_not_listed() {
    let mut fixture = Fixture::new();
    for (name, text) in [("same", "x"), ("turned", "x"), ("new", "x")] {
        symlink(text, fixture.in_workspace(name)).unwrap();
    }
    for (path, text) in [("same", b"x"), ("turned", b"y")] {
        let text = text.to_vec();
        fixture
            .baseline
            .insert(path.into(), Original::Link { text });
    }
    let outputs = fixture.collect(&CAPS);
    assert_eq!(
        reasons(&outputs),
        [
            ("new".into(), "it is a symbolic link"),
            ("turned".into(), "it is a symbolic link")
        ]
    );
}

/// What the directory of a kept workspace holds: paths, with content or `/`.
fn tree(top: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let shown = if kind.is_dir() {
                todo.push(path);
                "/".to_owned()
            } else if kind.is_symlink() {
                format!("-> {}", fs::read_link(path).unwrap().display())
            } else {
                fs::read_to_string(path).unwrap()
            };
            found.push((name, shown));
        }
    }
    found.sort();
    found
}

/// Takes the directory `out` as a kept workspace, as far as it is copied in.
fn take(fixture: &Fixture) -> KeptDir {
    let mut kept = open_kept(fixture).unwrap();
    let limit = TmpfsLimit {
        size: CAPS.total_bytes,
        inodes: CAPS.entries,
    };
    let mut stage = Stage::new(Scratch::Workspace);
    let source = Origin::Directory(&kept.dir, fixture.out.path());
    stage.fill(source, limit).unwrap();
    kept.before = baseline::of(&stage);
    kept
}

fn open_kept(fixture: &Fixture) -> Result<KeptDir> {
    KeptDir::open(fixture.out.path(), "--workspace", &[], Some(Duration::ZERO))
}

fn write_back(fixture: &Fixture, kept: &KeptDir) -> Result<Vec<FileSkipped>> {
    let workspace = File::open(fixture.workspace.path()).unwrap();
    kept.write_back(whole(&workspace), &CAPS)
}

#[test]
fn a_kept_workspace_becomes_what_the_cell_had() {
    let fixture = Fixture::new();
    let out = fixture.out.path();
    for (name, content) in [
        ("same", "1"),
        ("longer", "1"),
        ("gone", "1"),
        ("dir/gone", "1"),
        ("dir/sub/gone", "1"),
        ("was_file", "1"),
        ("was_dir/x", "1"),
        ("was_link_target", "1"),
    ] {
        fs::create_dir_all(out.join(name).parent().unwrap()).unwrap();
        fs::write(out.join(name), content).unwrap();
    }
    symlink("same", out.join("link")).unwrap();
    symlink("same", out.join("link_to_file")).unwrap();
    symlink("same", out.join("link_gone")).unwrap();
    let inode = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    let same = inode("same");
    let kept = take(&fixture);

    fixture.write("same", "1");
    fixture.write("longer", "123");
    fixture.write("new/deep/file", "new");
    fixture.write("was_file/now_dir", "x");
    fixture.write("was_dir", "now a file");
    fixture.write("link_to_file", "a file");
    fixture.write("was_link_target", "1");
    fs::create_dir(fixture.in_workspace("empty")).unwrap();
    symlink("same", fixture.in_workspace("link")).unwrap();
    symlink("/etc/passwd", fixture.in_workspace("planted")).unwrap();
    fs::set_permissions(
        fixture.in_workspace("longer"),
        fs::Permissions::from_mode(0o6755),
    )
    .unwrap();
    assert_eq!(write_back(&fixture, &kept).unwrap(), []);
    assert_eq!(
        tree(out),
        owned(&[
            ("empty", "/"),
            ("link", "-> same"),
            ("link_to_file", "a file"),
            ("longer", "123"),
            ("new", "/"),
            ("new/deep", "/"),
            ("new/deep/file", "new"),
            ("planted", "-> /etc/passwd"),
            ("same", "1"),
            ("was_dir", "now a file"),
            ("was_file", "/"),
            ("was_file/now_dir", "x"),
            ("was_link_target", "1"),
        ])
    );
    assert_eq!(inode("same"), same, "what is the same stays");
    let mode = fs::metadata(out.join("longer")).unwrap().mode() & 0o7777;
    assert_eq!(mode & 0o7700, 0o700, "{mode:o}");
}

#[test]
fn nothing_of_the_callers_is_followed_or_removed_unseen() {
    let fixture = Fixture::new();
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("precious"), "old").unwrap();
    let out = fixture.out.path();
    symlink(elsewhere.path(), out.join("dir")).unwrap();
    symlink(elsewhere.path().join("precious"), out.join("file")).unwrap();
    mkfifo(&out.join("pipe"), Mode::S_IRWXU).unwrap();
    let kept = take(&fixture);
    // What appears while the cell runs is not what the cell removed.
    fs::write(out.join("later"), "later").unwrap();
    for name in ["dir/precious", "file"] {
        fixture.write(name, "new");
    }
    let skipped = write_back(&fixture, &kept).unwrap();
    let names: Vec<String> = skipped.iter().map(|s| s.path.to_string()).collect();
    assert_eq!(names, ["dir/precious"], "{skipped:?}");
    assert!(skipped[0].reason.starts_with("not written back: "));
    let precious = fs::read_to_string(elsewhere.path().join("precious"));
    assert_eq!(precious.unwrap(), "old");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(out.join("later")).unwrap(), "later");
    assert!(fs::symlink_metadata(out.join("pipe")).is_ok());
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "new");
    assert!(fs::symlink_metadata(out.join("file")).unwrap().is_file());
}

#[test]
fn the_limit_holds_whatever_the_cell_pretends() {
    let fixture = Fixture::new();
    let out = fixture.out.path();
    fs::write(out.join("a_shrinks"), vec![1; 1 << 20]).unwrap();
    fs::write(out.join("b_stays"), vec![1; 900 << 10]).unwrap();
    let kept = take(&fixture);
    fixture.write("a_shrinks", "x");
    fixture.write("b_stays", vec![1; 900 << 10]);
    fixture.write("c_grows", vec![2; 1 << 20]);
    fs::hard_link(
        fixture.in_workspace("c_grows"),
        fixture.in_workspace("d_alias"),
    )
    .unwrap();
    let hole = File::create(fixture.in_workspace("hole")).unwrap();
    hole.set_len(1 << 40).unwrap();
    let skipped = write_back(&fixture, &kept).unwrap();
    let mut names: Vec<String> = skipped.iter().map(|s| s.path.to_string()).collect();
    names.sort();
    assert_eq!(names, ["d_alias", "hole"]);
    assert!(
        skipped[0].reason.contains("over its limit of 2M"),
        "{skipped:?}"
    );
    let all: u64 = (fs::read_dir(out).unwrap())
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(all, 1 + (900 << 10) + (1 << 20));
}

#[test]
fn one_run_has_a_workspace_and_leftovers_go() {
    let fixture = Fixture::new();
    let pending = fixture.out.path().join(".cellblock-pending");
    fs::create_dir(&pending).unwrap();
    fs::write(pending.join("0"), "half").unwrap();
    let kept = take(&fixture);
    assert!(!pending.exists());
    let error = open_kept(&fixture).unwrap_err();
    assert_eq!(error.message, "another run is using this directory");
    assert_eq!(error.operand.as_deref(), fixture.out.path().to_str());
    // The name is no way for a cell to leave something there.
    fixture.write(".cellblock-pending/0", "planted");
    fixture.write("file", "x");
    let skipped = write_back(&fixture, &kept).unwrap();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert_eq!(tree(fixture.out.path()), owned(&[("file", "x")]));
    drop(kept);
    assert!(open_kept(&fixture).is_ok());
}

/// A small tmpfs takes mounts of one's own, hence a namespace.
#[test]
fn a_full_disk_leaves_a_kept_workspace_as_it_was() {
    if !is_rerun() {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command.arg(std::env::current_exe().unwrap());
        return rerun(
            &mut command,
            "a_full_disk_leaves_a_kept_workspace_as_it_was",
        );
    }
    let fixture = Fixture::new();
    let out = fixture.out.path();
    let _small = Tmpfs::mount(out, "size=128k");
    fs::write(out.join("a"), "old").unwrap();
    fs::write(out.join("gone"), "old").unwrap();
    let kept = take(&fixture);
    fixture.write("a", "new");
    fixture.write("b_large", vec![1; 200_000]);
    let error = write_back(&fixture, &kept).unwrap_err();
    assert_eq!(error.errno_name.as_deref(), Some("ENOSPC"));
    assert!(error.operand.as_ref().unwrap().ends_with("/b_large"));
    assert!(error.hint.as_ref().unwrap().contains("as it was"));
    assert_eq!(tree(out), owned(&[("a", "old"), ("gone", "old")]));
}

proptest! {
    /// Whatever was there before, the directory then holds what the cell did.
    #[test]
    fn a_kept_workspace_equals_the_cells(
        before in proptest::collection::btree_map("[ab](/[ab]){0,2}", "[01]{0,2}", 0..6),
        after in proptest::collection::btree_map("[ab](/[ab]){0,2}", "[01]{0,2}", 0..6),
    ) {
        let fixture = Fixture::new();
        let put = |top: &Path, files: &std::collections::BTreeMap<String, String>| {
            for (name, content) in files {
                let path = top.join(name);
                // One of two names may be the other's directory.
                let _ = fs::create_dir_all(path.parent().unwrap());
                let _ = fs::write(path, content);
            }
        };
        put(fixture.out.path(), &before);
        let kept = take(&fixture);
        put(fixture.workspace.path(), &after);
        prop_assert_eq!(write_back(&fixture, &kept).unwrap(), []);
        prop_assert_eq!(tree(fixture.out.path()), tree(fixture.workspace.path()));
    }
}

proptest! {
    #[test]
    fn equals_a_naive_comparison(
        before in proptest::collection::btree_map("[a-c.][a-c](/[a-c-]{1,2}){0,2}x", "[01]{0,3}", 0..6),
        after in proptest::collection::btree_map("[a-c.][a-c](/[a-c-]{1,2}){0,2}x", "[01]{0,3}", 0..8),
        listed in 0usize..8,
    ) {
        let mut fixture = Fixture::new();
        for (path, content) in &before {
            fixture.baseline.insert(path.as_str().into(), original(content.as_bytes()));
        }
        for (path, content) in &after {
            fixture.write(path, content);
        }
        let mut expected: Vec<(String, Change)> = Vec::new();
        for path in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let change = match (before.get(path), after.get(path)) {
                (None, _) => Change::Created,
                (Some(_), None) => Change::Deleted,
                (Some(was), Some(is)) if was != is => Change::Modified,
                _ => continue,
            };
            expected.push((path.clone(), change));
        }
        prop_assert_eq!(&changes(&fixture.collect(&CAPS)), &expected);
        // Under a cap, those that are there come before those that are not.
        let short = fixture.collect(&Caps { listed, ..CAPS });
        let (gone, mut there): (Vec<_>, Vec<_>) =
            expected.into_iter().partition(|(_, change)| *change == Change::Deleted);
        there.extend(gone);
        there.truncate(listed);
        there.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!(changes(&short), there);
    }
}
