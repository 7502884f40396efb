use std::fs;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;

mod formats;
mod layers;

/// An entry of an archive; the name is taken as it is, however it is meant.
#[derive(Clone, Debug)]
struct Made {
    kind: EntryType,
    name: Vec<u8>,
    mode: u32,
    content: Vec<u8>,
    target: Vec<u8>,
}

fn made(kind: EntryType, name: &str, mode: u32, content: &str, target: &str) -> Made {
    Made {
        kind,
        name: name.into(),
        mode,
        content: content.into(),
        target: target.into(),
    }
}

fn file(name: &str, content: &str) -> Made {
    made(EntryType::Regular, name, 0o644, content, "")
}

fn directory(name: &str) -> Made {
    made(EntryType::Directory, name, 0o755, "", "")
}

fn link(name: &str, target: &str) -> Made {
    made(EntryType::Symlink, name, 0o777, "", target)
}

fn hard(name: &str, target: &str) -> Made {
    made(EntryType::Link, name, 0o644, "", target)
}

fn header(of: &Made) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(of.kind);
    header.set_mode(of.mode);
    header.set_size(of.content.len() as u64);
    header.set_mtime(1_000_000_000);
    let old = header.as_old_mut();
    let most = |bytes: &[u8]| bytes.len().min(100);
    old.name[..most(&of.name)].copy_from_slice(&of.name[..most(&of.name)]);
    old.linkname[..most(&of.target)].copy_from_slice(&of.target[..most(&of.target)]);
    header.set_cksum();
    header
}

fn archive(entries: &[Made]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        builder
            .append(&header(entry), entry.content.as_slice())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

/// Leaves out what has no place.
const LENIENT: Options = Options {
    max_depth: 100,
    is_layer: false,
    skips_unplaced: true,
};

struct Place {
    base: tempfile::TempDir,
}

/// A directory to unpack into, with something outside of it that must stay.
fn place() -> Place {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("in")).unwrap();
    fs::create_dir(base.path().join("out")).unwrap();
    fs::write(base.path().join("out/kept"), "kept").unwrap();
    Place { base }
}

impl Place {
    fn at(&self, path: &str) -> PathBuf {
        self.base.path().join("in").join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|e| format!("{:?}", e.kind()))
    }

    fn unpack_within(&self, bytes: &[u8], options: Options, max_disk: u64) -> Result<Report> {
        let budget = Budget::new(Step::Store, max_disk);
        let to = Destination::open(&self.at(""), &budget).unwrap();
        unpack(bytes, &to, &options, &mut |_| Ok(()))
    }

    fn unpack_with(&self, bytes: &[u8], options: Options) -> Result<Report> {
        self.unpack_within(bytes, options, 16 << 30)
    }

    fn unpack(&self, entries: &[Made]) -> Report {
        self.unpack_with(&archive(entries), LENIENT).unwrap()
    }

    fn layer(&self, entries: &[Made]) -> Report {
        let options = Options {
            is_layer: true,
            ..LENIENT
        };
        self.unpack_with(&archive(entries), options).unwrap()
    }

    /// Whether nothing outside was touched.
    fn is_intact(&self) -> bool {
        let names = |path: &Path| {
            let entries = fs::read_dir(path).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let kept = self.base.path().join("out/kept");
        names(self.base.path()) == ["in", "out"]
            && names(&self.base.path().join("out")) == ["kept"]
            && fs::read_to_string(&kept).unwrap() == "kept"
            && fs::metadata(&kept).unwrap().nlink() == 1
    }

    /// What an unpacker does that trusts the archive.
    fn unpack_naively(&self, entries: &[Made]) {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        for entry in entries {
            let path = self
                .base
                .path()
                .join("in")
                .join(OsStr::from_bytes(&entry.name));
            let target = OsStr::from_bytes(&entry.target);
            let _ = match entry.kind {
                EntryType::Directory => fs::create_dir_all(path),
                EntryType::Symlink => symlink(target, path),
                EntryType::Link => fs::hard_link(self.at("").join(target), path),
                _ => fs::write(path, &entry.content),
            };
        }
    }
}

fn reasons(report: &Report) -> Vec<String> {
    let said = report.skipped.iter();
    said.map(|s| format!("{} {}", s.path, s.reason)).collect()
}

#[test]
fn an_ordinary_archive_is_unpacked_as_it_is() {
    let place = place();
    let report = place.unpack(&[
        directory("./"),
        directory("a/"),
        file("a/b", "text"),
        made(EntryType::Regular, "deep/down/x", 0o755, "", ""),
        link("l", "a/b"),
        link("absolute", "/etc/passwd"),
        hard("h", "a/b"),
    ]);
    assert_eq!(reasons(&report), [""; 0]);
    assert_eq!((report.entries, report.bytes), (7, 4));
    assert_eq!(place.text("l"), "text");
    assert_eq!(
        fs::read_link(place.at("absolute")).unwrap(),
        Path::new("/etc/passwd")
    );
    let meta = |path: &str| fs::metadata(place.at(path)).unwrap();
    assert_eq!(meta("h").ino(), meta("a/b").ino());
    assert_eq!(meta("a/b").mtime(), 1_000_000_000);
    assert_eq!(meta("deep/down/x").mode() & 0o7777, 0o755);
}

#[test]
fn nothing_gets_outside() {
    // Whether there is a place for all entries, inside.
    let cases: [(&str, Vec<Made>, bool); 7] = [
        ("upward", vec![file("../out/new", "x")], false),
        (
            "upward in the middle",
            vec![directory("a"), file("a/../../out/new", "x")],
            false,
        ),
        (
            "through a link",
            vec![link("a", "../out"), file("a/kept", "x")],
            true,
        ),
        (
            "through a chain of links",
            vec![link("b", "a"), link("a", "../out"), file("b/kept", "x")],
            true,
        ),
        (
            "onto a link",
            vec![link("a", "../out/kept"), file("a", "x")],
            true,
        ),
        ("by a hard link", vec![hard("a", "../out/kept")], false),
        (
            "by a hard link through a link",
            vec![link("a", "../out"), hard("b", "a/kept")],
            false,
        ),
    ];
    for (name, entries, is_placed) in cases {
        let naive = place();
        naive.unpack_naively(&entries);
        assert!(!naive.is_intact(), "{name}");
        let careful = place();
        let report = careful.unpack(&entries);
        assert!(careful.is_intact(), "{name}");
        let is_left_out = report.skipped_in_all > 0;
        assert_eq!(is_left_out, !is_placed, "{name}");
    }
    // An absolute link leads where it leads in a cell.
    let place = place();
    let outside = place.base.path().join("out");
    let report = place.unpack(&[
        link("a", outside.to_str().unwrap()),
        file("a/kept", "x"),
        file("/b", "x"),
    ]);
    assert_eq!(reasons(&report), [""; 0]);
    let inside = outside.strip_prefix("/").unwrap().join("kept");
    assert_eq!(place.text(inside.to_str().unwrap()), "x");
    assert_eq!(place.text("b"), "x");
    assert!(place.is_intact());
}

/// In a layer, a link replaces a directory, and its own target with that.
#[test]
fn a_link_that_takes_the_place_of_its_target_is_left_out() {
    let place = place();
    let options = Options {
        is_layer: true,
        ..LENIENT
    };
    let entries = [file("d/a", "x"), hard("d", "d/a"), file("e", "kept")];
    let report = place.unpack_with(&archive(&entries), options).unwrap();
    assert_eq!(report.skipped_in_all, 1);
    assert_eq!(place.text("e"), "kept");
    assert!(place.is_intact());
}

#[test]
fn what_has_no_place_in_a_tree_is_left_out_by_name() {
    let place = place();
    let kind = |kind, name| made(kind, name, 0o666, "", "");
    let report = place.unpack(&[
        kind(EntryType::Char, "char"),
        kind(EntryType::Block, "block"),
        kind(EntryType::Fifo, "fifo"),
        hard("none", "missing"),
        directory("d"),
        hard("dir", "d"),
        hard("self", "self"),
        link("loop", "loop"),
        file("loop/x", ""),
        link("up", "../.."),
        link("empty", ""),
        file("d/x", ""),
        file("d", "x"),
        file("d/x/y", ""),
        file("/", ""),
        file(&"n".repeat(100), ""),
    ]);
    let shown = reasons(&report);
    let wanted = [
        "char is a device node",
        "block is a device node",
        "fifo is a named pipe",
        "none is a hard link to no earlier file",
        "dir is a hard link to no earlier file",
        "self is a hard link to no earlier file",
        "loop/x has links in its path that lead in a circle",
        "empty is a link without a usable target",
        "d would replace a directory that is not empty",
        "d/x/y has something other than a directory in its path",
        "/ would replace the whole tree",
    ];
    assert_eq!(shown, wanted);
}

#[test]
fn bits_that_give_rights_away_are_cleared() {
    let place = place();
    let report = place.unpack(&[
        made(EntryType::Regular, "suid", 0o6755, "", ""),
        made(EntryType::Directory, "tmp", 0o1777, "", ""),
        made(EntryType::Directory, "shut", 0, "", ""),
        file("shut/x", "x"),
    ]);
    assert_eq!((report.stripped, report.skipped_in_all), (2, 0));
    for (path, wanted) in [("suid", 0o755), ("tmp", 0o755), ("shut", 0o700)] {
        let mode = fs::metadata(place.at(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, wanted, "{path}");
    }
}

#[test]
fn the_last_of_two_entries_counts_and_other_links_keep_the_first() {
    let place = place();
    let report = place.unpack(&[
        file("a", "first"),
        hard("b", "a"),
        file("a", "second"),
        link("c", "a"),
        file("c", "third"),
        directory("d"),
        file("d", "fourth"),
        file("e", ""),
        directory("e"),
        file("e/x", "fifth"),
    ]);
    assert_eq!(reasons(&report), [""; 0]);
    let texts = ["a", "b", "c", "d", "e/x"].map(|path| place.text(path));
    assert_eq!(texts, ["second", "first", "third", "fourth", "fifth"]);
}

#[test]
fn whiteouts_remove_what_lower_layers_have() {
    let place = place();
    place.layer(&[
        file("gone", ""),
        file("dir/a", "lower"),
        file("dir/b/c", "lower"),
        file("opaque/old", "lower"),
        file("opaque/both/old", "lower"),
        file("turned/x", ""),
    ]);
    let report = place.layer(&[
        file(".wh.gone", ""),
        file("dir/.wh.b", ""),
        // Before and behind what the layer itself has there.
        file("opaque/before", "upper"),
        file("opaque/both/before", "upper"),
        file("opaque/.wh..wh..opq", ""),
        file("opaque/both/.wh..wh..opq", ""),
        file("opaque/behind", "upper"),
        file("own", "upper"),
        file(".wh.own", ""),
        link("turned", "dir"),
        file(".wh.missing", ""),
        file("nowhere/.wh.x", ""),
    ]);
    assert_eq!(reasons(&report), [""; 0]);
    for (path, wanted) in [
        ("gone", "NotFound"),
        ("dir/a", "lower"),
        ("dir/b/c", "NotFound"),
        ("opaque/old", "NotFound"),
        ("opaque/both/old", "NotFound"),
        ("opaque/before", "upper"),
        ("opaque/both/before", "upper"),
        ("opaque/behind", "upper"),
        ("own", "upper"),
        ("turned/a", "lower"),
        ("nowhere", "NotFound"),
    ] {
        assert_eq!(place.text(path), wanted, "{path}");
    }
}

#[test]
fn whiteouts_remove_nothing_else() {
    let place = place();
    place.layer(&[file("a/x", "x"), link("l", "../out")]);
    fs::create_dir(place.at("m")).unwrap();
    symlink("../../out", place.at("m/out")).unwrap();
    let report = place.layer(&[
        file("a/.wh...", ""),
        file("a/.wh..", ""),
        file("a/.wh.", ""),
        file("m/out/.wh.kept", ""),
        file("m/out/.wh..wh..opq", ""),
        file("../out/.wh.kept", ""),
    ]);
    assert_eq!(report.skipped_in_all, 4, "{report:?}");
    assert_eq!(place.text("a/x"), "x");
    assert!(place.is_intact());
    // The link itself goes, not what it leads to.
    place.layer(&[file("m/.wh.out", "")]);
    assert!(fs::symlink_metadata(place.at("m/out")).is_err());
    assert!(place.is_intact());
    // Elsewhere these are names like any other.
    place.unpack(&[file(".wh.a", "x")]);
    assert_eq!(place.text(".wh.a"), "x");
}

#[test]
fn bombs_are_refused() {
    let bomb = |entries: &[Made]| {
        let place = place();
        let options = Options::default();
        let ended = place.unpack_within(&archive(entries), options, 1 << 20);
        ended.unwrap_err().message
    };
    let too_large = "more than 1048576 bytes of disk space";
    assert!(bomb(&[file("a", &"x".repeat(2 << 20))]).contains(too_large));
    // What takes room without content: inodes, blocks, and directories on the way.
    let many = |entry: &dyn Fn(usize) -> Made| (0..2100).map(entry).collect::<Vec<_>>();
    assert!(bomb(&many(&|n| file(&n.to_string(), ""))).contains("1048576 bytes"));
    assert!(bomb(&many(&|n| file(&n.to_string(), "x"))[..300]).contains(too_large));
    assert!(bomb(&many(&|n| directory(&n.to_string()))[..300]).contains(too_large));
    assert!(bomb(&many(&|n| link(&n.to_string(), "x"))[..300]).contains(too_large));
    assert!(
        bomb(&many(&|n| file(&format!("{n}/{}", "d/".repeat(20)), ""))[..20]).contains(too_large)
    );
    // Not even where it is left out.
    let mut device = file("a", &"x".repeat(2 << 20));
    device.kind = EntryType::XGlobalHeader;
    assert!(bomb(&[device]).contains("1048576 bytes"));
    // A name of more than the memory that names may have.
    let mut name = file("a", &"x".repeat(3 << 20));
    name.kind = EntryType::GNULongName;
    let error = place()
        .unpack_with(&archive(&[name, file("b", "")]), Options::default())
        .unwrap_err();
    assert!(error.message.contains("header of more than"), "{error}");
    // More than the deepest.
    let report = place().unpack(&[file(&"d/".repeat(49), "")]);
    assert_eq!(report.skipped_in_all, 0);
    let shallow = Options {
        max_depth: 3,
        ..LENIENT
    };
    let report = place()
        .unpack_with(&archive(&[file("1/2/3/4", ""), file("1/2/3", "")]), shallow)
        .unwrap();
    assert_eq!(reasons(&report), ["1/2/3/4 is in more than 3 directories"]);
}

#[test]
fn long_names_are_read_and_the_caller_can_end_it() {
    let place = place();
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let mut builder = Builder::new(Vec::new());
    let entry = file("x", "text");
    let mut header = header(&entry);
    builder
        .append_data(&mut header, &long, Cursor::new("text"))
        .unwrap();
    let bytes = builder.into_inner().unwrap();
    place.unpack_with(&bytes, Options::default()).unwrap();
    assert_eq!(place.text(&long), "text");

    let budget = Budget::new(Step::Store, 16 << 30);
    let to = Destination::open(&place.at(""), &budget).unwrap();
    let stop = || SetupError::new(Step::Store, "stopped");
    let mut tick = |report: &Report| match report.entries {
        2 => Err(stop()),
        _ => Ok(()),
    };
    let entries: Vec<Made> = (0..5).map(|n| file(&n.to_string(), "")).collect();
    let ended = unpack(
        archive(&entries).as_slice(),
        &to,
        &Options::default(),
        &mut tick,
    );
    assert_eq!(ended.unwrap_err(), stop());
    assert_eq!(
        (place.text("1"), place.text("2")),
        ("".into(), "NotFound".into())
    );
}

/// Entries with few names, so that they meet each other.
fn entry() -> impl Strategy<Value = Made> {
    let name = || {
        let part = prop_oneof![
            4 => Just("a"), 4 => Just("b"), 1 => Just(".."), 1 => Just(""), 1 => Just("out"),
            1 => Just("kept"), 1 => Just(".wh.a"), 1 => Just(".wh..wh..opq"), 1 => Just(".wh..."),
        ];
        proptest::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
    };
    let kind = prop_oneof![
        Just(EntryType::Regular),
        Just(EntryType::Directory),
        Just(EntryType::Symlink),
        Just(EntryType::Link),
        Just(EntryType::Char),
    ];
    (kind, name(), 0u32..0o10000, name()).prop_map(|(kind, name, mode, target)| {
        let content = match kind {
            EntryType::Regular => "content",
            _ => "",
        };
        made(kind, &name, mode, content, &target)
    })
}

proptest! {
    /// Whatever the entries, in both modes: nothing outside is touched, and all of it can
    /// be removed again.
    #[test]
    fn no_archive_gets_outside(
        entries in proptest::collection::vec(entry(), 1..12),
        is_layer in any::<bool>(),
    ) {
        let place = place();
        let options = Options { is_layer, ..LENIENT };
        let report = place.unpack_with(&archive(&entries), options);
        let report = report.map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(report.entries, entries.len() as u64);
        prop_assert!(place.is_intact());
        let base = fs::File::open(place.base.path()).unwrap();
        sys::tree::erase(&base, c"in").unwrap();
        fs::create_dir(place.at("")).unwrap();
        prop_assert!(place.is_intact());
    }

    /// No bytes are taken for more than an error.
    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..2000), gzip in any::<bool>()) {
        let place = place();
        let bytes = match gzip {
            true => [b"\x1f\x8b\x08\0".as_slice(), &bytes].concat(),
            false => bytes,
        };
        let _ = place.unpack_with(&bytes, Options::default());
        prop_assert!(place.is_intact());
    }
}
