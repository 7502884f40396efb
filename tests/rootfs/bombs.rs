//! Sources that would take the host's disk or memory, by every way in.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::calls::Place;
use super::image::{Files, Layer, architecture, diff_id, gzip, layout, sha256, zstd};
use crate::long::is_long;

const MIB: u64 = 1 << 20;

/// The value of `--max-size`.
const MAX_SIZE: u64 = 8 * MIB;

/// Memory that an importer may have: itself takes some 30 MiB of it.
const MAX_MEMORY: u64 = 96 * MIB;

/// Bytes that compress to a hundredth.
fn compressible(megabytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let mut bytes = Vec::new();
    for _ in 0..megabytes {
        let end = bytes.len() + (1 << 20);
        bytes.extend((0..10_000).map(|_| noise()));
        bytes.resize(end, 0);
    }
    bytes
}

/// Root file systems that take too much, and the reason to refuse each.
fn bombs() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let many = |count: usize, add: &dyn Fn(Layer, usize) -> Layer| {
        (0..count).fold(Layer::new(), add).bytes()
    };
    let name = "n".repeat(1_000_000);
    // In megabytes.
    let (large, names) = if is_long() { (40, 100) } else { (12, 12) };
    vec![
        (
            "a large file",
            Layer::new().file("large", compressible(large)).bytes(),
            "more than 8388608 bytes",
        ),
        (
            "small files, each of which takes a block",
            many(4000, &|layer, n| layer.file(&n.to_string(), "x")),
            "more than 8388608 bytes",
        ),
        (
            "directories on the way to few files",
            many(100, &|layer, n| {
                layer.file(&format!("{n}/{}x", "d/".repeat(40)), "")
            }),
            "more than 8388608 bytes",
        ),
        (
            "links with long targets",
            many(3000, &|layer, n| {
                layer.link(&n.to_string(), &"t".repeat(90))
            }),
            "more than 8388608 bytes",
        ),
        (
            "names of a megabyte",
            many(names, &|layer, n| layer.long(&format!("{name}{n}"))),
            "header of more than 262144",
        ),
    ]
}

/// A way in: its name, that of the file, and what puts a root file system there.
type Way = (&'static str, &'static str, fn(&Path, &[u8]));

const WAYS: [Way; 12] = [
    ("an OCI directory", "oci", |path, rootfs| {
        layout(&[gzip(rootfs)]).write(path);
    }),
    ("an OCI archive", "oci.tar", |path, rootfs| {
        put(path, &layout(&[gzip(rootfs)]).archive());
    }),
    ("an OCI archive in gzip", "oci.tar.gz", |path, rootfs| {
        put(path, &gzip(&layout(&[gzip(rootfs)]).archive()));
    }),
    // Docker 25 and later write both.
    ("an archive of docker 25", "new.tar.zst", |path, rootfs| {
        let both = layout(&[gzip(rootfs)]).with("manifest.json", "[]");
        put(path, &zstd(&both.archive()));
    }),
    ("an archive of docker", "old.tar", |path, rootfs| {
        put(path, &saved(rootfs));
    }),
    (
        "an archive of docker in gzip",
        "old.tar.gz",
        |path, rootfs| put(path, &gzip(&saved(rootfs))),
    ),
    ("tar", "rootfs.tar", |path, rootfs| put(path, rootfs)),
    ("tar in gzip", "rootfs.tar.gz", |path, rootfs| {
        put(path, &gzip(rootfs));
    }),
    ("tar in zstd", "rootfs.tar.zst", |path, rootfs| {
        put(path, &zstd(rootfs));
    }),
    ("standard input", INPUT, |path, rootfs| {
        put(path, &gzip(rootfs));
    }),
    ("an image on standard input", INPUT, |path, rootfs| {
        put(path, &saved(rootfs));
    }),
    (
        "what starts like an image",
        "like.tar.gz",
        |path, rootfs| {
            put(path, &gzip(&like_an_image(rootfs)));
        },
    ),
];

/// The file that is the standard input.
const INPUT: &str = "input";

fn put(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
}

/// As docker saved an image before version 25.
fn saved(layer: &[u8]) -> Vec<u8> {
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [diff_id(layer)]},
    })
    .to_string();
    let id = sha256(config.as_bytes());
    let file = format!("{}/layer.tar", "a".repeat(64));
    let manifest = json!([{"Config": format!("{id}.json"), "RepoTags": null, "Layers": [file]}]);
    Layer::new()
        .file(&file, layer)
        .file(&format!("{id}.json"), &config)
        .file("manifest.json", manifest.to_string())
        .bytes()
}

/// The same entries behind the first file of an image.
fn like_an_image(rootfs: &[u8]) -> Vec<u8> {
    let mut start = Layer::new()
        .file("oci-layout", "{}")
        .file("blobs/x", vec![b'x'; 300_000])
        .bytes();
    start.truncate(start.len() - 1024);
    [&start, rootfs].concat()
}

fn import(place: &Place, source: &Path, max_size: &str) -> Command {
    let is_input = source.ends_with(INPUT);
    let path = if is_input { Path::new("-") } else { source };
    let words = ["rootfs", "import", "some", "--max-size", max_size].map(AsRef::as_ref);
    let words: Vec<&std::ffi::OsStr> = words.into_iter().chain([path.as_os_str()]).collect();
    let mut command = place.command(&words);
    if is_input {
        command.stdin(Stdio::from(fs::File::open(source).unwrap()));
    }
    command
}

/// Every bomb, and every way in; all bombs by all ways with `CELLS_LONG=1`.
#[test]
fn no_way_in_takes_more_disk_or_memory_than_allowed() {
    for (number, (bomb, rootfs, reason)) in bombs().into_iter().enumerate() {
        let place = Place::new();
        let ways = WAYS.into_iter().enumerate();
        let chosen = ways.filter(|(way, _)| is_long() || way % 5 == number);
        for (_, (way, file, put)) in chosen {
            let source = place.path(file);
            put(&source, &rootfs);
            let mut command = import(&place, &source, "8M");
            let (ended, memory, disk) = place.watch(&mut command);
            println!(
                "{bomb}, {way}: {} KiB, {} KiB: {}",
                memory >> 10,
                disk >> 10,
                ended.stderr
            );
            // A copy of an archive that starts like an image may be refused for its size first.
            let reasons = [reason, "more than 8388608 bytes of disk"];
            assert!(
                reasons.iter().any(|reason| ended.stderr.contains(reason)),
                "{bomb}, {way}: {}",
                ended.stderr
            );
            assert_eq!(ended.status, 125, "{bomb}, {way}");
            assert!(memory < MAX_MEMORY, "{bomb}, {way}: {memory}");
            assert!(disk <= MAX_SIZE + MIB, "{bomb}, {way}: {disk}");
            place.assert_empty();
        }
    }
}

/// All paths together have 38 MB, and each is one that the kernel still opens. The archive has
/// short ones, by a link.
#[test]
fn long_paths_take_little_memory() {
    let place = Place::new();
    let deep = vec!["d".repeat(250); 15].join("/");
    let rootfs = Layer::new().interpreters();
    let rootfs = rootfs.long(&format!("{deep}/x")).long_link("l", &deep);
    let rootfs = (0..10_000).fold(rootfs, |layer, n| layer.file(&format!("l/{n}"), ""));
    let rootfs = rootfs.bytes();
    let source = place.path("oci");
    layout(&[gzip(&rootfs)]).write(&source);
    for (max_size, is_refused) in [("32M", true), ("1G", false)] {
        let mut command = import(&place, &source, max_size);
        let (ended, memory, _) = place.watch(&mut command);
        println!("{max_size}: {} KiB: {}", memory >> 10, ended.stderr);
        assert!(memory < MAX_MEMORY / 2, "{max_size}: {memory}");
        match is_refused {
            // The listing would take more.
            true => ended.assert_refused("more than 33554432 bytes of disk space"),
            false => assert_eq!(ended.status, 0, "{}", ended.stderr),
        }
    }
    let mut verify = place.command(&["rootfs", "verify", "some"]);
    let (ended, memory, _) = place.watch(&mut verify);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(memory < MAX_MEMORY / 2, "{memory}");
}

/// A short text can be parsed into much: an empty item of a list takes three bytes of text.
#[test]
fn documents_take_little_memory() {
    let place = Place::new();
    let list = |item: &str, count: usize| vec![item; count].join(",");
    let descriptor = r#"{"digest":"","size":0}"#;
    let annotations: String = (0..200_000).map(|n| format!(r#""{n}":"","#)).collect();
    let descriptors = list(descriptor, 170_000);
    let numbers = list("0", 1_900_000);
    let texts = list(r#""""#, 1_300_000);
    let index = |manifests: &str| {
        let text = format!(r#"{{"manifests":[{manifests}]}}"#);
        Files::default().layout(&[]).with("index.json", &text)
    };
    let docker = |text: &str| Files::default().with("manifest.json", text);
    let config = format!(r#"{{"x":[{numbers}],"rootfs":{{"diff_ids":[]}}}}"#);
    let digest = sha256(config.as_bytes());
    let mut large = format!(r#"{{"manifests":[{descriptors}]}}"#);
    large.extend(std::iter::repeat_n(' ', 4 << 20));
    for (name, files, reason) in [
        ("images", index(&descriptors), "more than 10000 items"),
        (
            "annotations",
            index(&format!(
                r#"{{"annotations":{{{annotations}"z":""}},{}"#,
                &descriptor[1..]
            )),
            "is not a digest",
        ),
        (
            "a large index",
            Files::default().layout(&[]).with("index.json", &large),
            "the maximum is 4194304",
        ),
        (
            "layers",
            docker(&format!(r#"[{{"Config":"x","Layers":[{texts}]}}]"#)),
            "more than 500 items",
        ),
        (
            "tags",
            docker(&format!(
                r#"[{{"Config":"x","Layers":[],"RepoTags":[{texts}]}}]"#
            )),
            "more than 10000 items",
        ),
        (
            "a configuration",
            docker(&format!(r#"[{{"Config":"{digest}.json","Layers":[]}}]"#))
                .with(&format!("{digest}.json"), &config),
            "the image is for /",
        ),
    ] {
        let source = place.path("documents.tar");
        fs::write(&source, files.archive()).unwrap();
        let (ended, memory, _) = place.watch(&mut import(&place, &source, "8M"));
        println!("{name}: {} KiB: {}", memory >> 10, ended.stderr);
        ended.assert_refused(reason);
        assert!(memory < MAX_MEMORY, "{name}: {memory}");
    }
}

#[test]
fn a_workspace_takes_no_more_than_it_has_room_for() {
    let place = Place::new();
    for (bomb, rootfs, _) in bombs() {
        for (way, content) in [
            ("tar", rootfs.clone()),
            ("gzip", gzip(&rootfs)),
            ("zstd", zstd(&rootfs)),
        ] {
            let source = place.path("files");
            fs::write(&source, content).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_cellblock"));
            command.args([
                "exec",
                "--rootfs",
                "host",
                "--workspace-size",
                "8M",
                "--files-from",
            ]);
            command.arg(&source).args(["--", "/bin/true"]);
            let (ended, memory, _) = place.watch(&mut command);
            println!("{bomb}, {way}: {} KiB: {}", memory >> 10, ended.stderr);
            assert!(memory < MAX_MEMORY, "{bomb}, {way}: {memory}");
            let is_small = bomb.starts_with("directories") || bomb.starts_with("links");
            assert_eq!(
                ended.status == 0,
                is_small,
                "{bomb}, {way}: {}",
                ended.stderr
            );
        }
    }
}
