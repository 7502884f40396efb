//! Imports: entries that are unpacked, and entries that are left out.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::calls::Place;
use super::image::{Files, Layer, architecture, diff_id, gzip, layout, sha256, zstd};
use super::schema::complaints;

fn reasons(document: &Value) -> Vec<String> {
    let left_out = document["left_out"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    left_out
        .iter()
        .map(|one| format!("{} {}", text(&one["path"]), text(&one["reason"])))
        .collect()
}

#[test]
fn an_image_with_every_trick_is_imported_without_them() {
    let place = Place::new();
    let outside = place.path("outside");
    let outside = outside.to_str().unwrap();
    let lower = Layer::new()
        .interpreters()
        .file("marker", "lower")
        .file("lower", "text")
        .file("opaque/lower", "")
        .directory("replaced")
        .file("gone/x", "")
        .setuid("usr/bin/su")
        .link("escape", outside)
        .link("loop", "loop")
        .link("etc/absolute", "/marker");
    let upper = Layer::new()
        .file("../outside/new", "x")
        .file("/absolute", "x")
        .file("escape/kept", "x")
        .file("loop/x", "x")
        .hard("stolen", "../outside/kept")
        .hard("through", "escape/kept")
        .hard("linked", "lower")
        .link("above", "../../outside")
        .device("dev/mem")
        .file("marker", "first")
        .file("marker", "second")
        .file("opaque/upper", "")
        .file("opaque/.wh..wh..opq", "")
        .file(".wh.gone", "")
        .file("usr/.wh...", "")
        .file("manifest.json", "{}");
    let layers = [gzip(&lower.bytes()), zstd(&upper.bytes())];
    layout(&layers).write(&place.path("image"));
    let image = place.path("image");
    place
        .import("some", &image)
        .assert_refused("../outside/new (layer sha256:");
    place.assert_empty();
    let words = ["import", "--json", "--skip-unplaced", "some"];
    let words = words.into_iter().chain([image.to_str().unwrap()]);
    let document = place.rootfs(&words.collect::<Vec<_>>()).json();
    place.assert_intact();
    assert_eq!(
        reasons(&document),
        [
            "../outside/new leads upward by `..`",
            "loop/x has links in its path that lead in a circle",
            "stolen is a hard link whose target leads upward by `..`",
            "dev/mem is a device node",
            "usr/.wh... is a whiteout of nothing",
        ]
    );
    assert_eq!(document["stripped"], 1);
    let manifest = &document["manifest"];
    assert_eq!(complaints(manifest), [""; 0]);
    // A program that states a version when it runs; `node` is not executable.
    let interpreters = manifest["interpreters"].as_object().unwrap();
    let languages: Vec<&String> = interpreters.keys().collect();
    assert_eq!(languages, ["bash", "python"]);
    assert_eq!(interpreters["python"]["version"], "3.99.1");
    assert_eq!(manifest["packages"][0]["source"], "import");

    let text = |path: &str| fs::read_to_string(place.tree("some", path)).unwrap();
    assert_eq!(
        (text("marker"), text("linked")),
        ("second".into(), "text".into())
    );
    assert_eq!(text("absolute"), "x");
    // Links lead where they lead in a cell.
    assert_eq!(text(&format!(".{outside}/kept")), "x");
    assert_eq!(text("through"), "x");
    for gone in ["gone", "opaque/lower", "stolen"] {
        assert!(
            fs::symlink_metadata(place.tree("some", gone)).is_err(),
            "{gone}"
        );
    }
    let mode = fs::metadata(place.tree("some", "usr/bin/su"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);

    let verified = place.rootfs(&["verify", "some"]);
    assert_eq!(verified.status, 0, "{}", verified.stdout);
    let above = fs::read_link(place.tree("some", "above")).unwrap();
    assert_eq!(above, Path::new("../../outside"));
    let script =
        "echo $(</etc/absolute); [ -e /manifest.json -o -e /manifest.listing ] || echo hidden";
    let ended = place.exec("some", script);
    assert_eq!(ended.stdout, "second\nhidden\n", "{}", ended.stderr);
}

/// Distributions have links in place of `/bin` and `/lib`, through which layers of others go.
#[test]
fn layers_go_through_the_links_of_a_merged_usr() {
    let place = Place::new();
    let lower = Layer::new()
        .link("sbin", "usr/sbin")
        .link("opt", "/usr/opt")
        .file("usr/sbin/x", "lower")
        .file("usr/opt/x", "lower");
    let upper = Layer::new()
        .file("sbin/new", "upper")
        .file("opt/.wh.x", "")
        .hard("opt/linked", "sbin/x");
    let layers = [Layer::new().interpreters(), lower, upper].map(Layer::bytes);
    layout(&layers).write(&place.path("image"));
    let document = place.import("some", &place.path("image")).json();
    assert_eq!(reasons(&document), [""; 0]);
    let script =
        "cd /usr; echo $(<sbin/new) $(<opt/linked) sbin/* opt/*; [ -L /sbin ] && echo link";
    let ended = place.exec("some", script);
    let wanted = "upper lower sbin/new sbin/x opt/linked\nlink\n";
    assert_eq!(ended.stdout, wanted, "{}", ended.stderr);
}

/// A small rootfs with a shell.
fn small() -> Vec<u8> {
    Layer::new().interpreters().file("marker", "here").bytes()
}

#[test]
fn every_kind_of_source_gives_the_same_tree() {
    let place = Place::new();
    let rootfs = small();
    let put = |name: &str, content: &[u8]| {
        fs::write(place.path(name), content).unwrap();
        place.path(name)
    };
    let image = layout(std::slice::from_ref(&rootfs));
    image.write(&place.path("layout"));
    layout(&[[gzip(&rootfs), vec![0; 9000]].concat()]).write(&place.path("padded"));
    // As docker saved images before version 25: a layer by a link, too.
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [
            format!("sha256:{}", sha256(&rootfs)), format!("sha256:{}", sha256(&rootfs)),
        ]},
    })
    .to_string();
    let id = sha256(config.as_bytes());
    let manifest = json!([{
        "Config": format!("{id}.json"), "RepoTags": ["some:latest"],
        "Layers": [format!("{}/layer.tar", "a".repeat(64)), format!("{}/layer.tar", "b".repeat(64))],
    }])
    .to_string();
    let docker = Layer::new()
        .file(&format!("{}/layer.tar", "a".repeat(64)), &rootfs)
        .link(
            &format!("{}/layer.tar", "b".repeat(64)),
            &format!("../{}/layer.tar", "a".repeat(64)),
        )
        .file(&format!("{id}.json"), &config)
        .file("manifest.json", &manifest)
        .bytes();
    fs::create_dir(place.path("folder")).unwrap();
    let unpacked = std::process::Command::new("tar")
        .args(["-x", "-C"])
        .arg(place.path("folder"))
        .arg("-f")
        .arg(put("rootfs.tar", &rootfs))
        .status()
        .unwrap();
    assert!(unpacked.success());
    let zipped = gzip(&image.archive());
    let sources = [
        place.path("layout"),
        place.path("padded"),
        put("image.tar", &image.archive()),
        put("image.tar.gz", &zipped),
        put("docker.tar", &docker),
        put("docker.tar.zst", &zstd(&docker)),
        put("plain.tar", &rootfs),
        put("plain.tar.gz", &gzip(&rootfs)),
        put("plain.tar.zst", &zstd(&rootfs)),
        put("padded.tar.gz", &[zipped.clone(), vec![0; 9000]].concat()),
        put(
            "pzstd.tar.zst",
            &[b"\x50\x2a\x4d\x18\x04\0\0\0size".to_vec(), zstd(&rootfs)].concat(),
        ),
        place.path("folder"),
    ];
    let mut digests = Vec::new();
    for source in &sources {
        let document = place.import("some", source).json();
        assert_eq!(reasons(&document), [""; 0], "{}", source.display());
        digests.push((source, document["manifest"]["digest"].clone()));
    }
    for (source, digest) in &digests {
        assert_eq!(*digest, digests[0].1, "{}", source.display());
    }
    // Only the last one: the trees that it replaced are deleted.
    assert_eq!(place.trees().len(), 1);
}

#[test]
fn what_is_wrong_with_an_image_is_said_and_nothing_stays() {
    let place = Place::new();
    let rootfs = small();
    let refused = |files: &Files, reason: &str| {
        let image = tempfile::tempdir().unwrap();
        files.write(image.path());
        place.import("some", image.path()).assert_refused(reason);
        place.assert_empty();
    };
    let good = layout(std::slice::from_ref(&rootfs));
    let largest = |files: &Files| {
        let blobs = files.0.iter().filter(|(name, _)| name.starts_with("blobs"));
        blobs
            .max_by_key(|(_, content)| content.len())
            .unwrap()
            .0
            .clone()
    };
    let layer = largest(&good);

    let mut flipped = good.clone();
    *flipped.0.get_mut(&layer).unwrap().last_mut().unwrap() ^= 1;
    refused(&flipped, "its digest is");
    let mut short = good.clone();
    short.0.get_mut(&layer).unwrap().pop();
    refused(&short, "bytes, but should have");
    let mut missing = good.clone();
    missing.0.remove(&layer);
    refused(&missing, "the image has no file `blobs/sha256/");
    let mut nonsense = good.clone();
    nonsense.0.insert("index.json".into(), b"{}".to_vec());
    refused(&nonsense, "missing field `manifests`");

    let mut foreign = Files::default();
    let image = foreign.image(std::slice::from_ref(&rootfs), "s390x");
    refused(&foreign.layout(&[image]), "the image is for linux/s390x");
    let mut tricky = Files::default();
    let mut image = tricky.image(std::slice::from_ref(&rootfs), architecture());
    image["digest"] = json!("sha256:../../../outside/kept");
    refused(&tricky.layout(&[image]), "is not a digest");
    let mut other = Files::default();
    let claimed = diff_id(&Layer::new().file("other", "").bytes());
    let zipped = [gzip(&rootfs)];
    let image = other.image_with(&zipped, architecture(), std::slice::from_ref(&claimed));
    let other = other.layout(&[image]);
    let should = claimed.trim_start_matches("sha256:");
    let found = sha256(&rootfs);
    refused(
        &other,
        &format!("its diff_id is {found}, but should be {should}"),
    );
    refused(&other, &format!("(layer sha256:{})", sha256(&zipped[0])));
    let mut few = Files::default();
    let image = few.image_with(&zipped, architecture(), &[]);
    refused(
        &few.layout(&[image]),
        "its manifest has 1 layers, and its configuration 0 `diff_ids`",
    );
    let empty = layout(&[Layer::new().bytes()]);
    refused(&empty, "this directory has nothing that a cell could use");
    place.assert_intact();
}

#[test]
fn a_bomb_is_refused_and_takes_no_room() {
    let place = Place::new();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_mode(0o644);
    header.set_size(1 << 40);
    header.set_cksum();
    std::io::Write::write_all(&mut encoder, header.as_bytes()).unwrap();
    let piece = vec![0; 1 << 20];
    for _ in 0..80 {
        std::io::Write::write_all(&mut encoder, &piece).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    layout(&[bomb]).write(&place.path("image"));
    let ended = place.import("some", &place.path("image"));
    ended.assert_refused("it takes more than 17179869184 bytes of disk space");
    let image = place.path("image");
    let words = [
        "import",
        "some",
        image.to_str().unwrap(),
        "--max-size",
        "2T",
    ];
    place.rootfs(&words).assert_refused("300 times its size");
    place.assert_empty();
}

#[test]
fn other_files_are_refused() {
    let place = Place::new();
    fs::write(place.path("xz"), b"\xfd7zXZ\0 and more").unwrap();
    fs::write(place.path("text"), "no archive").unwrap();
    fs::write(place.path("empty"), "").unwrap();
    fs::create_dir(place.path("bare")).unwrap();
    symlink("nowhere", place.path("dangling")).unwrap();
    for (name, reason) in [
        ("missing", "ENOENT"),
        ("dangling", "ENOENT"),
        ("xz", "it is xz"),
        ("text", "cannot be read"),
        ("empty", "neither files of a rootfs nor an image's index"),
        ("bare", "this directory has nothing that a cell could use"),
    ] {
        place
            .import("some", &place.path(name))
            .assert_refused(reason);
    }
    place
        .import("No", Path::new("/"))
        .assert_refused("the name of a rootfs has");
    place
        .import("host", Path::new("/"))
        .assert_refused("this name is reserved");
    place.assert_empty();
}
