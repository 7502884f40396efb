use std::fs::{self, Permissions, hard_link, set_permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::thread;

use nix::sys::stat::utimensat;
use nix::sys::time::TimeSpec;
use tempfile::TempDir;

use super::*;

const KEY: &str = "0123456789abcdef";

/// A cache that has a file, and the file's path.
fn filled(content: &[u8]) -> (TempDir, PathBuf) {
    let cache = tempfile::tempdir().unwrap();
    keep(cache.path(), content);
    let file = directory_in(cache.path()).join(KEY);
    assert!(file.is_file());
    (cache, file)
}

fn keep(cache: &Path, content: &[u8]) {
    let store = Store::at(cache.to_owned());
    store.draft(KEY).unwrap().keep(content);
}

fn find(cache: &TempDir) -> Found {
    Store::at(cache.path().to_owned()).find(KEY)
}

fn content(text: &str) -> Found {
    Found::Content(text.into())
}

/// Makes a file this much older.
fn age(file: &Path, by: Duration) {
    let then = (SystemTime::now() - by).duration_since(UNIX_EPOCH).unwrap();
    let then = TimeSpec::from_duration(then);
    let flags = nix::sys::stat::UtimensatFlags::NoFollowSymlink;
    utimensat(AT_FDCWD, file, &then, &then, flags).unwrap();
}

#[test]
fn what_is_kept_is_found_and_nobody_elses() {
    let (cache, file) = filled(b"code");
    assert_eq!(find(&cache), content("code"));
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    let directory = file.parent().unwrap().metadata().unwrap();
    assert_eq!(directory.mode() & 0o777, 0o700);
    assert_eq!(
        Store::at(cache.path().to_owned()).find("another"),
        Found::Missing
    );
}

#[test]
fn an_empty_file_says_that_there_is_none() {
    let (cache, file) = filled(b"");
    assert_eq!(find(&cache), Found::Nothing);
    age(&file, LIFE_OF_NOTHING + Duration::from_secs(5));
    assert_eq!(find(&cache), Found::Missing);
}

#[test]
fn every_part_of_a_file_is_refused() {
    let (cache, file) = filled(b"code");
    let whole = fs::read(&file).unwrap();
    for length in 0..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(find(&cache), Found::Missing, "{length}");
    }
    for place in 0..whole.len() {
        let mut other = whole.clone();
        other[place] ^= 1;
        fs::write(&file, &other).unwrap();
        assert_eq!(find(&cache), Found::Missing, "{place}");
    }
    // The next call replaces it.
    keep(cache.path(), b"new");
    assert_eq!(find(&cache), content("new"));
}

#[test]
fn files_that_others_can_change_are_refused() {
    let (cache, file) = filled(b"code");
    for mode in [0o620, 0o602, 0o666] {
        set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        assert_eq!(find(&cache), Found::Missing, "{mode:o}");
    }
    set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(find(&cache), content("code"));
    let directory = file.parent().unwrap();
    set_permissions(directory, Permissions::from_mode(0o770)).unwrap();
    assert_eq!(find(&cache), Found::Missing);
    assert!(Store::at(cache.path().to_owned()).draft(KEY).is_none());
}

#[test]
fn files_of_other_users_are_refused() {
    if !geteuid().is_root() {
        return;
    }
    let (cache, file) = filled(b"code");
    let directory = file.parent().unwrap();
    for path in [&*file, directory] {
        chown(path, Some(12345), None).unwrap();
        assert_eq!(find(&cache), Found::Missing, "{}", path.display());
        chown(path, Some(0), None).unwrap();
        assert_eq!(find(&cache), content("code"));
    }
    // Nor by a way that another user decides: one of its directories, or a link of theirs.
    let above = tempfile::tempdir().unwrap();
    let base = above.path().join("cache");
    keep(&base, b"code");
    assert_eq!(Store::at(base.clone()).find(KEY), content("code"));
    let link = tempfile::tempdir().unwrap().keep().join("link");
    symlink(&base, &link).unwrap();
    assert_eq!(Store::at(link.clone()).find(KEY), content("code"));
    let parent = link.parent().unwrap();
    for path in [above.path(), parent] {
        chown(path, Some(12345), None).unwrap();
        assert_eq!(Store::at(link.clone()).find(KEY), Found::Missing);
        chown(path, Some(0), None).unwrap();
        set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Store::at(link.clone()).find(KEY), Found::Missing);
        set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    }
    lchown(&link, Some(12345), None).unwrap();
    assert_eq!(Store::at(link.clone()).find(KEY), Found::Missing);
    fs::remove_dir_all(parent).unwrap();
    // Nothing is made in another user's cache.
    let foreign = tempfile::tempdir().unwrap();
    chown(foreign.path(), Some(12345), None).unwrap();
    assert!(Store::at(foreign.path().to_owned()).draft(KEY).is_none());
    assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 0);
}

#[test]
fn what_is_no_file_of_its_own_is_refused() {
    let (cache, file) = filled(b"code");
    let other = cache.path().join("other");
    fs::rename(&file, &other).unwrap();
    symlink(&other, &file).unwrap();
    assert_eq!(find(&cache), Found::Missing);
    fs::remove_file(&file).unwrap();
    hard_link(&other, &file).unwrap();
    assert_eq!(find(&cache), Found::Missing);
    fs::remove_file(&file).unwrap();
    // Nobody writes to it: opening it must not wait.
    nix::unistd::mkfifo(&file, Mode::S_IRUSR).unwrap();
    assert_eq!(find(&cache), Found::Missing);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(find(&cache), Found::Missing);
    keep(cache.path(), b"new");
    assert_eq!(find(&cache), Found::Missing);
    let directory = file.parent().unwrap();
    let moved = cache.path().join("moved");
    fs::rename(directory, &moved).unwrap();
    symlink(&moved, directory).unwrap();
    assert!(Store::at(cache.path().to_owned()).directory.is_none());
}

#[test]
fn long_files_are_neither_kept_nor_read() {
    let (cache, file) = filled(&vec![7; LONGEST as usize]);
    assert!(matches!(find(&cache), Found::Content(_)));
    keep(cache.path(), &vec![8; LONGEST as usize + 1]);
    assert_eq!(fs::read(&file).unwrap().last(), Some(&7));
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(LONGEST + 33)
        .unwrap();
    assert_eq!(find(&cache), Found::Missing);
}

#[test]
fn old_files_are_not_used_and_go() {
    let (cache, file) = filled(b"code");
    let another = file.with_file_name("another");
    fs::copy(&file, &another).unwrap();
    age(&file, LIFE + Duration::from_secs(5));
    age(&another, LIFE + Duration::from_secs(5));
    assert_eq!(find(&cache), Found::Missing);
    keep(cache.path(), b"new");
    assert_eq!(find(&cache), content("new"));
    assert!(!another.exists());
}

#[test]
fn two_at_once_leave_a_whole_file() {
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path();
    thread::scope(|scope| {
        for number in 0..8_u8 {
            scope.spawn(move || {
                for _ in 0..20 {
                    keep(path, &vec![number; 10_000]);
                    let store = Store::at(path.to_owned());
                    if let Found::Content(content) = store.find(KEY) {
                        assert_eq!(content, vec![content[0]; 10_000]);
                    }
                }
            });
        }
    });
    keep(path, b"last");
    assert_eq!(find(&cache), content("last"));
    assert_eq!(fs::read_dir(directory_in(path)).unwrap().count(), 1);
}

#[test]
fn a_draft_that_is_given_up_leaves_nothing() {
    let cache = tempfile::tempdir().unwrap();
    drop(Store::at(cache.path().to_owned()).draft(KEY).unwrap());
    assert_eq!(fs::read_dir(directory_in(cache.path())).unwrap().count(), 0);
}

#[test]
fn where_there_is_no_cache_nothing_is_made() {
    let cache = tempfile::tempdir().unwrap();
    let missing = cache.path().join("no/such/home/.cache");
    let store = Store::at(missing.clone());
    assert_eq!(store.find(KEY), Found::Missing);
    assert!(store.draft(KEY).is_none());
    assert!(!cache.path().join("no").exists());
    fs::write(cache.path().join("file"), "").unwrap();
    assert!(Store::at(cache.path().join("file")).draft(KEY).is_none());
}
