//! The default rootfs of a language.

use std::process::Command;

use super::calls::{Ended, Place};
use super::image::Layer;

/// The rootfs of a run of bash that names none.
fn rootfs_of_a_run(place: &Place) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellblock"));
    command.arg("run").arg("--store").arg(place.store());
    command.args(["--json", "--lang", "bash", "-c", "echo ran"]);
    Ended::of(&command.output().unwrap())
}

#[test]
fn a_language_has_the_rootfs_that_was_chosen_once() {
    let place = Place::new();
    let archive = place.path("small.tar");
    std::fs::write(&archive, Layer::new().interpreters().bytes()).unwrap();
    place.import("mine", &archive).json();
    place.import("other", &archive).json();

    // An imported tree is no default of its own accord.
    let record = rootfs_of_a_run(&place).json();
    assert_eq!(record["isolation"]["rootfs"], "host");
    let shown = place.rootfs(&["default", "bash"]);
    assert_eq!(shown.stdout, "bash  host\n", "{}", shown.stderr);

    let chosen = place.rootfs(&["default", "sh", "mine"]);
    assert_eq!(chosen.stdout, "bash  mine  chosen\n", "{}", chosen.stderr);
    let record = rootfs_of_a_run(&place).json();
    assert_eq!(record["stdout"], "ran\n", "{record}");
    let label = record["isolation"]["rootfs"].as_str().unwrap();
    assert!(label.starts_with("mine@sha256:"), "{label}");
    let listed = place.rootfs(&["list"]).stdout;
    let rows: Vec<&str> = listed.lines().collect();
    assert!(rows[0].ends_with("default for bash"), "{listed}");
    assert!(!rows[1].contains("default"), "{listed}");
    let listed = place.rootfs(&["list", "--json"]).json();
    assert_eq!(listed[0]["default_for"], serde_json::json!(["bash"]));

    // What was chosen and is gone is an error, and not another rootfs.
    assert_eq!(place.rootfs(&["remove", "mine"]).status, 0);
    let record: serde_json::Value = serde_json::from_str(&rootfs_of_a_run(&place).stdout).unwrap();
    assert_eq!(record["outcome"], "setup");
    let error = record["setup_error"].to_string();
    assert!(error.contains("rootfs default shell auto"), "{error}");
    let withdrawn = place.rootfs(&["default", "shell", "auto"]);
    assert_eq!(withdrawn.stdout, "bash  host\n", "{}", withdrawn.stderr);
    assert_eq!(rootfs_of_a_run(&place).status, 0);
}

#[test]
fn a_rootfs_without_the_language_is_refused_as_its_default() {
    let place = Place::new();
    let archive = place.path("small.tar");
    std::fs::write(&archive, Layer::new().interpreters().bytes()).unwrap();
    place.import("mine", &archive).json();
    (place.rootfs(&["default", "java", "mine"])).assert_refused("this rootfs has no java");
    (place.rootfs(&["default", "java", "none"])).assert_refused("there is no such rootfs");
    (place.rootfs(&["default", "cobol"])).assert_refused("there is no such language");
}
