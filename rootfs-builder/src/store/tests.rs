use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::listing::{Change, verify};
use archive::Budget;

struct Place {
    _base: tempfile::TempDir,
    store: Store,
}

fn place() -> Place {
    let base = tempfile::tempdir().unwrap();
    let store = Store::open(Some(&base.path().join("deep/store"))).unwrap();
    Place { _base: base, store }
}

fn unlimited() -> Budget {
    Budget::new(Step::Store, u64::MAX)
}

/// The names in `.trees`.
fn trees(store: &Store) -> Vec<OsString> {
    entries(&store.path().join(TREES)).unwrap()
}

/// A rootfs with one file.
fn make(store: &Store, name: &str, text: &str) -> Manifest {
    let draft = begin(store, name).unwrap();
    fs::create_dir_all(draft.tree().join("usr/bin")).unwrap();
    fs::write(draft.tree().join("usr/bin/x"), text).unwrap();
    symlink("usr/bin", draft.tree().join("bin")).unwrap();
    draft.commit(Manifest::default(), &unlimited()).unwrap()
}

#[test]
fn a_committed_tree_is_found_listed_verified_and_removed() {
    let Place { _base, store } = place();
    assert!(list(&store).is_empty());
    assert!(store.find("some").unwrap().is_none());
    let manifest = make(&store, "some", "text");
    assert_eq!((manifest.files, manifest.size_bytes), (1, 4));

    let found = store.find("some").unwrap().unwrap();
    assert_eq!(Manifest::read(&found.path).unwrap(), Some(manifest.clone()));
    assert_eq!(verify(&found.path, &manifest).unwrap(), []);
    let listed = list(&store);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, "some");
    assert_eq!(listed[0].manifest.as_ref().unwrap(), &manifest);
    drop(found);

    remove(&store, "some").unwrap();
    assert!(list(&store).is_empty());
    assert!(trees(&store).is_empty());
    let error = remove(&store, "some").unwrap_err();
    assert!(error.message.contains("no such rootfs"), "{error}");
    let error = store.require("some").unwrap_err();
    assert!(error.hint.unwrap().contains("cellblock rootfs build some"));
}

#[test]
fn the_same_content_has_the_same_digest() {
    let Place { _base, store } = place();
    let first = make(&store, "one", "text");
    let second = make(&store, "two", "text");
    let other = make(&store, "three", "texT");
    assert_eq!(first.digest, second.digest);
    assert_ne!(first.digest, other.digest);
    let found = store.find("one").unwrap().unwrap();
    let listing = fs::read(found.path.join("manifest.listing")).unwrap();
    assert_eq!(crate::packages::digest_of(&listing), first.digest);
}

#[test]
fn a_dropped_draft_leaves_nothing() {
    let Place { _base, store } = place();
    let draft = begin(&store, "some").unwrap();
    fs::create_dir_all(draft.tree().join("a/b")).unwrap();
    fs::set_permissions(draft.tree().join("a"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::set_permissions(draft.tree(), fs::Permissions::from_mode(0o0)).unwrap();
    drop(draft);
    assert!(trees(&store).is_empty());
}

#[test]
fn a_draft_whose_process_died_is_swept_and_a_live_one_is_not() {
    let Place { _base, store } = place();
    let live = begin(&store, "live").unwrap();
    let dead = store.path().join(TREES).join("some.0000000000000000");
    fs::create_dir_all(dead.join("usr")).unwrap();
    fs::set_permissions(&dead, fs::Permissions::from_mode(0o0)).unwrap();
    assert!(list(&store).is_empty());
    let again = begin(&store, "some").unwrap();
    assert!(!dead.exists());
    assert!(live.tree().exists());
    drop((live, again));
    assert!(trees(&store).is_empty());
}

#[test]
fn one_process_at_a_time_makes_a_name() {
    let Place { _base, store } = place();
    let first = begin(&store, "some").unwrap();
    let error = begin(&store, "some").unwrap_err();
    assert!(error.message.contains("another process"), "{error}");
    // A name that begins with the other's is another name.
    drop(begin(&store, "some.1").unwrap());
    drop(first);
    begin(&store, "some").unwrap();
}

#[test]
fn a_cell_keeps_its_tree_while_the_name_goes_to_another() {
    let Place { _base, store } = place();
    make(&store, "some", "old");
    let old = store.find("some").unwrap().unwrap();
    make(&store, "some", "new");
    let new = store.find("some").unwrap().unwrap();
    let text =
        |found: &plan::rootfs::Prepared| fs::read_to_string(found.path.join("usr/bin/x")).unwrap();
    assert_eq!((text(&old), text(&new)), ("old".into(), "new".into()));
    // An old tree in use is not a tree in the making.
    drop(begin(&store, "some").unwrap());
    remove(&store, "some").unwrap();
    assert_eq!((text(&old), text(&new)), ("old".into(), "new".into()));
    drop((old, new));
    sweep(&store).unwrap();
    assert!(trees(&store).is_empty());
}

#[test]
fn a_reader_always_gets_a_complete_tree() {
    let Place { _base, store } = place();
    make(&store, "some", "0");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) {
                let found = store.find("some").unwrap().unwrap();
                fs::read(found.path.join("usr/bin/x")).unwrap();
                assert!(Manifest::read(&found.path).unwrap().is_some());
                reads += 1;
            }
            reads
        });
        for round in 0..20 {
            make(&store, "some", &round.to_string());
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    sweep(&store).unwrap();
    assert_eq!(trees(&store).len(), 1);
}

#[test]
fn a_tree_gives_no_rights_away() {
    let Place { _base, store } = place();
    let draft = begin(&store, "some").unwrap();
    let set = |path: &str, mode: u32| {
        fs::set_permissions(draft.tree().join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(draft.tree().join("tmp")).unwrap();
    fs::create_dir(draft.tree().join("shut")).unwrap();
    for (path, mode) in [("suid", 0o6755), ("open", 0o666), ("none", 0)] {
        fs::write(draft.tree().join(path), "").unwrap();
        set(path, mode);
    }
    set("tmp", 0o1777);
    set("shut", 0);
    nix::unistd::mkfifo(&draft.tree().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/nowhere", draft.tree().join("link")).unwrap();
    // It describes another tree.
    fs::write(draft.tree().join("manifest.json"), "{}").unwrap();
    draft.commit(Manifest::default(), &unlimited()).unwrap();
    let found = store.find("some").unwrap().unwrap();
    for (path, wanted) in [
        ("", 0o755),
        ("tmp", 0o755),
        ("shut", 0o700),
        ("suid", 0o755),
        ("open", 0o644),
        ("none", 0o400),
    ] {
        let mode = fs::metadata(found.path.join(path)).unwrap().mode();
        assert_eq!(mode & 0o7777, wanted, "{path}");
    }
    assert!(fs::symlink_metadata(found.path.join("fifo")).is_err());
}

#[test]
fn verify_names_what_changed() {
    let Place { _base, store } = place();
    let manifest = make(&store, "some", "text");
    let found = store.find("some").unwrap().unwrap();
    let at = |path: &str| found.path.join(path);
    let changed = || {
        let found = verify(&found.path, &manifest).unwrap();
        let listed = found.iter().map(|d| format!("{} {}", d.change, d.path));
        listed.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(changed(), "");
    fs::write(at("usr/bin/x"), "tExt").unwrap();
    assert_eq!(changed(), "content usr/bin/x");
    fs::write(at("usr/bin/x"), "texts").unwrap();
    assert_eq!(changed(), "size usr/bin/x");
    fs::write(at("usr/bin/x"), "text").unwrap();
    let mode = fs::metadata(at("usr/bin/x")).unwrap().permissions();
    fs::set_permissions(at("usr/bin/x"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(changed(), "mode usr/bin/x");
    fs::set_permissions(at("usr/bin/x"), mode).unwrap();
    fs::write(at("usr/new"), "").unwrap();
    assert_eq!(changed(), "added usr/new");
    fs::remove_file(at("usr/new")).unwrap();
    fs::remove_file(at("bin")).unwrap();
    assert_eq!(changed(), "removed bin");
    symlink("usr/lib", at("bin")).unwrap();
    assert_eq!(changed(), "target bin");
    fs::remove_file(at("bin")).unwrap();
    fs::create_dir(at("bin")).unwrap();
    assert_eq!(changed(), "kind bin");
    fs::remove_dir(at("bin")).unwrap();
    symlink("usr/bin", at("bin")).unwrap();
    assert_eq!(changed(), "");
    let listing = fs::read_to_string(at("manifest.listing")).unwrap();
    fs::write(
        at("manifest.listing"),
        listing.replace("usr/bin/x", "usr/bin/y"),
    )
    .unwrap();
    assert_eq!(changed(), "listing manifest.listing");
    fs::write(at("usr/bin/x"), "tExt").unwrap();
    fs::remove_file(at("manifest.listing")).unwrap();
    assert_eq!(changed(), "listing manifest.listing");
    assert_eq!(
        verify(&found.path, &manifest).unwrap()[0].change,
        Change::Listing
    );
}

#[test]
fn broken_trees_are_listed_with_the_reason() {
    let Place { _base, store } = place();
    make(&store, "good", "");
    symlink(".trees/nowhere", store.path().join("lost")).unwrap();
    fs::create_dir(store.path().join("bare")).unwrap();
    fs::write(store.path().join("file"), "").unwrap();
    let listed: Vec<String> = list(&store)
        .into_iter()
        .map(|listed| {
            let what = listed.manifest.map_or_else(|e| e.message, |m| m.name);
            format!("{}: {what}", listed.name)
        })
        .collect();
    assert_eq!(
        listed,
        [
            "bare: it has no manifest",
            "file: it is not a directory",
            "good: good",
            "lost: its tree is missing or you may not read it",
        ]
    );
    assert!(store.find("lost").is_err());
    remove(&store, "lost").unwrap();
    remove(&store, "bare").unwrap();
    assert_eq!(list(&store).len(), 2);
}
