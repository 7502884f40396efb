//! Sources with several images: which one is imported.

use std::fs;

use serde_json::{Value, json};

use super::calls::Place;
use super::image::{Files, Layer, architecture, gzip, sha256};

#[test]
fn the_image_for_this_machine_is_chosen() {
    let place = Place::new();
    let mut files = Files::default();
    let with = |files: &mut Files, text: &str, machine: &str| {
        let layer = Layer::new().interpreters().file("marker", text).bytes();
        let mut image = files.image(&[layer], machine);
        image["platform"] = json!({"os": "linux", "architecture": machine});
        image
    };
    let ours = with(&mut files, "ours", architecture());
    let other = with(&mut files, "other", "s390x");
    let mut note = ours.clone();
    note["platform"] = json!({"os": "unknown", "architecture": "unknown"});
    let index = files.index(&[note, other.clone(), ours.clone()]);
    files
        .clone()
        .layout(std::slice::from_ref(&index))
        .write(&place.path("image"));
    place.import("some", &place.path("image")).json();
    let marker = || fs::read_to_string(place.tree("some", "marker")).unwrap();
    assert_eq!(marker(), "ours");

    let foreign = files.index(&[other]);
    files
        .clone()
        .layout(&[foreign])
        .write(&place.path("foreign"));
    place
        .import("other", &place.path("foreign"))
        .assert_refused("the image is for linux/s390x");

    let named = |image: &Value, name: &str| {
        let mut image = image.clone();
        image["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        image
    };
    let second = with(&mut files, "second", architecture());
    let both = [named(&index, "one"), named(&second, "two")];
    files.layout(&both).write(&place.path("both"));
    let source = place.path("both");
    place
        .import("some", &source)
        .assert_refused("--ref: one, two");
    let choose = |name: &str| {
        let words = ["import", "some", source.to_str().unwrap(), "--ref", name];
        place.rootfs(&words)
    };
    assert_eq!(choose("two").status, 0);
    assert_eq!(marker(), "second");
    choose("three").assert_refused("it has no image `three`");
    assert_eq!(marker(), "second");
}

/// Docker 25 and later write a layout, in which OCI's name of an image is only its tag.
#[test]
fn an_image_of_docker_is_chosen_by_the_name_that_its_users_write() {
    let place = Place::new();
    let mut files = Files::default();
    let images = ["a:1", "a:2", "b:1"].map(|name| {
        let layer = Layer::new().interpreters().file("marker", name).bytes();
        let mut image = files.image(&[layer], architecture());
        image["annotations"] = json!({
            "io.containerd.image.name": format!("docker.io/library/{name}"),
            "org.opencontainers.image.ref.name": name.split(':').next_back(),
        });
        image
    });
    let files = files.layout(&images).with("manifest.json", "[]");
    let source = place.path("saved.tar");
    fs::write(&source, files.archive()).unwrap();
    let choose = |name: &str| {
        let words = ["import", "some", source.to_str().unwrap(), "--ref", name];
        place.rootfs(&words)
    };
    for (name, wanted) in [
        ("a:1", "a:1"),
        ("docker.io/library/a:2", "a:2"),
        ("library/b:1", "b:1"),
        ("me/b:1", ""),
        ("b:1", "b:1"),
        ("2", "a:2"),
    ] {
        let ended = choose(name);
        if wanted.is_empty() {
            ended.assert_refused(&format!("it has no image `{name}`"));
            continue;
        }
        assert_eq!(ended.status, 0, "{name}: {}", ended.stderr);
        let marker = fs::read_to_string(place.tree("some", "marker")).unwrap();
        assert_eq!(marker, wanted);
    }
    choose("1").assert_refused("it has several images");
    choose("a").assert_refused("docker.io/library/a:1, 1, docker.io/library/a:2");
}

#[test]
fn one_of_two_images_of_a_docker_archive_is_chosen() {
    let place = Place::new();
    let mut archive = Layer::new();
    let mut images = Vec::new();
    // Docker's names, and those of tools that do without it.
    for name in ["one", "two"] {
        let layer = Layer::new().interpreters().file("marker", name).bytes();
        let diff_id = sha256(&layer);
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff_id}")]},
        })
        .to_string();
        let id = sha256(config.as_bytes());
        let (id, file, layer) = match name {
            "one" => (format!("{id}.json"), format!("{diff_id}/layer.tar"), layer),
            _ => (
                format!("sha256:{id}"),
                format!("{diff_id}.tar.gz"),
                gzip(&layer),
            ),
        };
        archive = archive.file(&file, &layer).file(&id, &config);
        images.push(json!({
            "Config": id, "RepoTags": [format!("{name}:latest")], "Layers": [file],
        }));
    }
    let archive = archive
        .file("manifest.json", json!(images).to_string())
        .bytes();
    let source = place.path("both.tar");
    fs::write(&source, archive).unwrap();
    place
        .import("some", &source)
        .assert_refused("--ref: one:latest, two:latest");
    let choose = |name: &str| {
        let words = ["import", "some", source.to_str().unwrap(), "--ref", name];
        place.rootfs(&words)
    };
    assert_eq!(choose("docker.io/library/two").status, 0);
    assert_eq!(
        fs::read_to_string(place.tree("some", "marker")).unwrap(),
        "two"
    );
    choose("three:latest").assert_refused("it has: one:latest, two:latest");
}
