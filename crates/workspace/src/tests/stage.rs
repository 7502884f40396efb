use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::super::fill::Origin;
use super::super::{Kind, Piece, Stage};
use super::owned;
use archive::Report;
use record::error::{Result, SetupError};
use spec::{Bytes, Scratch, TmpfsLimit};

const LIMIT: TmpfsLimit = TmpfsLimit {
    size: Bytes::mib(1),
    inodes: 100,
};

/// An entry as it stands in an archive, however wrong.
fn entry(name: &str, kind: EntryType, link: &str, content: &[u8]) -> (Header, Vec<u8>) {
    let mut header = Header::new_ustar();
    let bytes = header.as_mut_bytes();
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o6777);
    header.set_mtime(1_000_000_000);
    header.set_cksum();
    (header, content.to_vec())
}

fn file(name: &str, content: &str) -> (Header, Vec<u8>) {
    entry(name, EntryType::Regular, "", content.as_bytes())
}

fn link(name: &str, text: &str) -> (Header, Vec<u8>) {
    entry(name, EntryType::Symlink, text, b"")
}

fn hard_link(name: &str, target: &str) -> (Header, Vec<u8>) {
    entry(name, EntryType::Link, target, b"")
}

fn archive(entries: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (header, content) in entries {
        builder.append(header, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn fill(stage: &mut Stage, bytes: &[u8]) -> Result<Report> {
    stage.fill(Origin::Archive(&mut &bytes[..], "a.tar"), LIMIT)
}

/// Paths with content, `/`, or a link's text.
fn shown(stage: &Stage) -> Vec<(String, String)> {
    let content = |piece: &Piece| {
        let mut bytes = vec![0; piece.digest.size as usize];
        if let Some(file) = &stage.content {
            file.read_exact_at(&mut bytes, piece.at).unwrap();
        }
        assert_eq!(
            piece.digest.sha256,
            <[u8; 32]>::from(Sha256::digest(&bytes))
        );
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let entries = stage.entries.iter().map(|(path, entry)| {
        let shown = match &entry.kind {
            Kind::Directory => "/".to_owned(),
            Kind::File(piece) => content(piece),
            Kind::Link(text) => format!("-> {}", String::from_utf8_lossy(text)),
        };
        (String::from_utf8_lossy(path).into_owned(), shown)
    });
    entries.collect()
}

fn left_out(report: &Report) -> Vec<(String, &str)> {
    let skipped = report.skipped.iter();
    skipped
        .map(|skipped| (skipped.path.to_string(), skipped.reason.as_str()))
        .collect()
}

#[test]
fn hostile_entries_are_left_out_by_name() {
    let bytes = archive(&[
        file("../climbs", "x"),
        file("/rooted", "inside"),
        file("a/../../climbs", "x"),
        link("way", "/etc"),
        link("up", "../.."),
        link("ok", "a/b"),
        file("ok/through", "x"),
        file("plain", "x"),
        file("plain/below", "x"),
        hard_link("alias", "plain"),
        hard_link("passwd", "/etc/passwd"),
        hard_link("above", "../secret"),
        entry("null", EntryType::Char, "", b""),
        entry("disk", EntryType::Block, "", b""),
        entry("pipe", EntryType::Fifo, "", b""),
        file("twice", "first"),
        file("twice", "second"),
        file("dir/x", "x"),
        file("dir", "x"),
        file(".", "x"),
    ]);
    let mut stage = Stage::new(Scratch::Workspace);
    let report = fill(&mut stage, &bytes).unwrap();
    assert_eq!(
        shown(&stage),
        owned(&[
            ("alias", "x"),
            ("dir", "/"),
            ("dir/x", "x"),
            ("ok", "-> a/b"),
            ("plain", "x"),
            ("rooted", "inside"),
            ("twice", "second"),
        ])
    );
    let wanted = [
        ("../climbs", "leads upward by `..`"),
        ("a/../../climbs", "leads upward by `..`"),
        ("way", "is a link to an absolute path"),
        ("up", "is a link that leads outside"),
        ("ok/through", "has a link in its path"),
        (
            "plain/below",
            "has something other than a directory in its path",
        ),
        ("passwd", "is a hard link to no earlier file"),
        ("above", "is a hard link whose target leads upward by `..`"),
        ("null", "is a device node"),
        ("disk", "is a device node"),
        ("pipe", "is a named pipe"),
        ("dir", "would replace a directory that is not empty"),
        (".", "would replace the whole workspace"),
    ];
    assert_eq!(left_out(&report), wanted.map(|(a, b)| (a.to_owned(), b)));
    let modes: Vec<u32> = stage.entries.values().map(|entry| entry.mode).collect();
    assert!(modes.iter().all(|mode| mode & !0o777 == 0), "{modes:?}");
    assert_eq!(stage.entries["plain".as_bytes()].mtime, 1_000_000_000);
}

/// The entry that this refuses is one which leads a naive unpacker outside.
#[test]
fn a_naive_unpacker_is_led_outside() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir_all(base.path().join("in")).unwrap();
    fs::create_dir(base.path().join("out")).unwrap();
    let outside = base.path().join("out").to_str().unwrap().to_owned();
    let entries = [link("way", &outside), file("way/planted", "x")];
    for (header, content) in &entries {
        let path = base.path().join("in").join(header.path().unwrap());
        match header.link_name().unwrap() {
            Some(text) if header.entry_type().is_symlink() => symlink(text, path).unwrap(),
            _ => fs::write(path, content).unwrap(),
        }
    }
    assert!(base.path().join("out/planted").exists(), "the trick works");

    let mut stage = Stage::new(Scratch::Workspace);
    let report = fill(&mut stage, &archive(&entries)).unwrap();
    assert_eq!(left_out(&report)[0].1, "is a link to an absolute path");
    // Without the link, the name is an ordinary one.
    assert_eq!(shown(&stage), owned(&[("way", "/"), ("way/planted", "x")]));
}

#[test]
fn what_is_too_much_names_limit_and_way_out() {
    let complaint =
        |error: SetupError| format!("{error} | {}", error.hint.clone().unwrap_or_default());
    let refused = |entries: &[(Header, Vec<u8>)]| {
        let mut stage = Stage::new(Scratch::Workspace);
        let filled = fill(&mut stage, &archive(entries));
        let checked = filled.and_then(|_| stage.check(LIMIT, None));
        complaint(checked.unwrap_err())
    };
    let half = "x".repeat(600 << 10);
    assert_eq!(
        refused(&[file("a", &half), file("b", &half)]),
        "open the inputs: a.tar: the files put in take 1228800 bytes, but /workspace has room for 1M | \
         raise --workspace-size (`limits.workspace.size`), or put less in"
    );
    let again = refused(&[file("a", &half), file("a", &half)]);
    assert!(again.contains("1228800 bytes"), "{again}");
    let mut stage = Stage::new(Scratch::Workspace);
    fill(&mut stage, &archive(&[file("a", &half)])).unwrap();
    assert_eq!(stage.check(LIMIT, Some(Bytes::mib(1))), Ok(()));
    assert_eq!(
        complaint(stage.check(LIMIT, Some(Bytes(500 << 10))).unwrap_err()),
        "open the inputs: the files put in take 614400 bytes, but the cell has 500K | \
         raise --memory (`limits.memory`), which /workspace is part of"
    );
    let many: Vec<_> = (0..100).map(|n| file(&format!("{n}"), "")).collect();
    assert_eq!(
        refused(&many),
        "open the inputs: more files and directories are put in than the 100 that /workspace has room \
         for | raise `limits.workspace.inodes` in a spec file or profile, or put less in"
    );
    let deep: Vec<_> = (0..3)
        .map(|n| file(&format!("{n}/{}x", "d/".repeat(40)), ""))
        .collect();
    assert!(refused(&deep).contains("than the 100 that"));
    // A size that is not there.
    let mut header = file("huge", "").0;
    header.set_size(1 << 40);
    header.set_cksum();
    assert!(refused(&[(header, Vec::new())]).contains("1099511627776 bytes"));
}

#[test]
fn what_is_no_archive_is_said() {
    for (bytes, wanted) in [
        (&b""[..], "a.tar: the archive has no entries"),
        (&[0; 1024], "a.tar: the archive has no entries"),
        (&[b'x'; 2048], "a.tar: the archive cannot be read: "),
        (
            b"PK\x03\x04 and so on",
            "it is zip; tar archives may be plain, or in gzip or zstd",
        ),
        (
            &archive(&[file("a", &"x".repeat(5000))])[..2000],
            "it ends too early",
        ),
    ] {
        let error = fill(&mut Stage::new(Scratch::Workspace), bytes).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.hint.is_some());
    }
}

#[test]
fn a_directory_is_taken_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("sub/empty")).unwrap();
    fs::write(at("sub/tool"), vec![b'x'; 300_000]).unwrap();
    fs::set_permissions(at("sub/tool"), fs::Permissions::from_mode(0o4750)).unwrap();
    fs::hard_link(at("sub/tool"), at("sub/alias")).unwrap();
    fs::write(at("zeros"), vec![0; 200_000]).unwrap();
    symlink("sub/tool", at("link")).unwrap();
    symlink("/etc/passwd", at("passwd")).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let top = OwnedFd::from(fs::File::open(dir.path()).unwrap());
    let mut stage = Stage::new(Scratch::Workspace);
    let report = stage
        .fill(Origin::Directory(&top, dir.path()), LIMIT)
        .unwrap();
    let names: Vec<String> = shown(&stage).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        ["link", "sub", "sub/alias", "sub/empty", "sub/tool", "zeros"]
    );
    assert_eq!(stage.entries["sub/tool".as_bytes()].mode, 0o750);
    assert_eq!(shown(&stage)[5].1, "\0".repeat(200_000));
    let mut reasons = left_out(&report);
    reasons.sort();
    assert_eq!(
        reasons,
        [
            ("passwd".to_owned(), "is a link to an absolute path"),
            ("socket".to_owned(), "is a socket")
        ]
    );
}

#[test]
fn later_files_come_on_top() {
    let mut stage = Stage::new(Scratch::Workspace);
    fill(
        &mut stage,
        &archive(&[file("a", "1"), file("d/x", "1"), link("l", "d")]),
    )
    .unwrap();
    fill(&mut stage, &archive(&[file("a", "2"), file("d/y", "2")])).unwrap();
    assert_eq!(
        shown(&stage),
        owned(&[
            ("a", "2"),
            ("d", "/"),
            ("d/x", "1"),
            ("d/y", "2"),
            ("l", "-> d")
        ])
    );
    for (target, wanted) in [
        ("a", None),
        ("new/deep", None),
        ("l", None),
        ("d", Some("a directory of this name is put in")),
        (
            "d/x/y",
            Some("its path leads through a file or link that is put in"),
        ),
    ] {
        let came = stage.give_way(Path::new(target));
        assert_eq!(
            came.err().map(|error| error.message).as_deref(),
            wanted,
            "{target}"
        );
    }
    assert_eq!(
        shown(&stage),
        owned(&[("d", "/"), ("d/x", "1"), ("d/y", "2")])
    );
}
