//! Layers on top of each other: each case with the tree that other readers of images give.

use super::*;

/// The paths below a place's top, sorted: files with their text, links with their target.
fn tree(place: &Place) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![place.at("")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(place.at("")).unwrap().display();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() {
                found.push(format!("{name}/"));
                open.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.push(format!("{name} -> {}", target.display()));
            } else {
                found.push(format!("{name}={}", fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// A merged `/usr`.
fn merged() -> Vec<Made> {
    vec![
        directory("usr"),
        directory("usr/bin"),
        directory("usr/lib"),
        file("usr/bin/old", "lower"),
        file("usr/lib/x", "lower"),
        link("bin", "usr/bin"),
        link("lib", "/usr/lib"),
    ]
}

/// What is in the tree of a merged `/usr` before.
const MERGED: [&str; 7] = [
    "bin -> usr/bin",
    "lib -> /usr/lib",
    "usr/",
    "usr/bin/",
    "usr/bin/old=lower",
    "usr/lib/",
    "usr/lib/x=lower",
];

/// A name of the case, the layers, and the tree.
type Case = (&'static str, Vec<Vec<Made>>, Vec<&'static str>);

/// The tree of a merged `/usr` without `gone`, and with `new`.
fn changed(gone: &[&str], new: &[&'static str]) -> Vec<&'static str> {
    let kept = MERGED.into_iter().filter(|path| !gone.contains(path));
    let mut tree: Vec<_> = kept.chain(new.iter().copied()).collect();
    tree.sort_unstable();
    tree
}

fn through_links() -> Vec<Case> {
    let over = |name, upper, gone: &[&str], new: &[&'static str]| {
        (name, vec![merged(), upper], changed(gone, new))
    };
    vec![
        over(
            "a file through a link",
            vec![file("bin/foo", "upper")],
            &[],
            &["usr/bin/foo=upper"],
        ),
        over(
            "a file through an absolute link",
            vec![file("lib/deep/y", "upper")],
            &[],
            &["usr/lib/deep/", "usr/lib/deep/y=upper"],
        ),
        over(
            "a file through a link replaces one",
            vec![file("bin/old", "upper")],
            &["usr/bin/old=lower"],
            &["usr/bin/old=upper"],
        ),
        over(
            "a whiteout through a link",
            vec![file("lib/.wh.x", "")],
            &["usr/lib/x=lower"],
            &[],
        ),
        over(
            "a hard link through a link to a file through a link",
            vec![hard("bin/y", "lib/x")],
            &[],
            &["usr/bin/y=lower"],
        ),
        over(
            "a hard link by another path of the same name",
            vec![hard("lib/x", "usr/lib/x"), hard("usr/lib/x", "lib/x")],
            &[],
            &[],
        ),
        over(
            "a symbolic link and a directory through links",
            vec![link("bin/s", "old"), directory("lib/d")],
            &[],
            &["usr/bin/s -> old", "usr/lib/d/"],
        ),
        over(
            "an opaque directory through a link, around the layer's own files by both paths",
            vec![
                file("usr/lib/before", "upper"),
                file("lib/.wh..wh..opq", ""),
                file("lib/behind", "upper"),
            ],
            &["usr/lib/x=lower"],
            &["usr/lib/before=upper", "usr/lib/behind=upper"],
        ),
        over(
            "a whiteout through a link does not remove the layer's own file",
            vec![file("usr/lib/x", "upper"), file("lib/.wh.x", "")],
            &["usr/lib/x=lower"],
            &["usr/lib/x=upper"],
        ),
        over(
            "a whiteout removes a link, and not what it leads to",
            vec![file(".wh.bin", "")],
            &["bin -> usr/bin"],
            &[],
        ),
        over(
            "a directory in place of a link",
            vec![directory("bin"), file("bin/foo", "upper")],
            &["bin -> usr/bin"],
            &["bin/", "bin/foo=upper"],
        ),
        over(
            "a link removed and its directory made anew",
            vec![file(".wh.lib", ""), file("lib/y", "upper")],
            &["lib -> /usr/lib"],
            &["lib/", "lib/y=upper"],
        ),
    ]
}

fn around_links() -> Vec<Case> {
    vec![
        (
            "a link in place of a directory, and a file through it",
            vec![
                vec![file("a/x", "lower"), file("b/y", "lower")],
                vec![link("a", "b"), file("a/z", "upper")],
            ],
            vec!["a -> b", "b/", "b/y=lower", "b/z=upper"],
        ),
        (
            "a file in place of a directory with the layer's own files",
            vec![
                vec![file("a/x", "lower")],
                vec![file("a/y", "upper"), file("a", "upper")],
            ],
            vec!["a=upper"],
        ),
        (
            "links that lead above the root end at the root",
            vec![
                vec![
                    link("up", "../../.."),
                    directory("d"),
                    link("d/up", "../../../e"),
                ],
                vec![file("up/x", "upper"), file("d/up/y", "upper")],
            ],
            vec![
                "d/",
                "d/up -> ../../../e",
                "e/",
                "e/y=upper",
                "up -> ../../..",
                "x=upper",
            ],
        ),
        (
            "links whose targets are missing",
            vec![
                vec![
                    link("run", "/var/run"),
                    link("var", "data/var"),
                    link("l", "m"),
                ],
                vec![file("run/x", "upper"), file("l/y", "upper")],
            ],
            vec![
                "data/",
                "data/var/",
                "data/var/run/",
                "data/var/run/x=upper",
                "l -> m",
                "m/",
                "m/y=upper",
                "run -> /var/run",
                "var -> data/var",
            ],
        ),
        (
            "a hard link keeps what a later layer replaces",
            vec![
                vec![file("x", "lower"), hard("y", "x")],
                vec![file("x", "upper")],
                vec![hard("z", "x"), file(".wh.x", "")],
            ],
            vec!["y=lower", "z=upper"],
        ),
        (
            "a hard link to a lower file, of which the name is removed in the same layer",
            vec![
                vec![file("d/x", "lower")],
                vec![hard("d/y", "d/x"), file("d/.wh..wh..opq", "")],
            ],
            vec!["d/", "d/y=lower"],
        ),
        (
            "a hard link to a link",
            vec![vec![link("s", "x")], vec![hard("t", "s")]],
            vec!["s -> x", "t -> x"],
        ),
        (
            "whiteouts of what is not there",
            vec![
                vec![file("f", "lower")],
                vec![
                    file(".wh.none", ""),
                    file("none/.wh.x", ""),
                    file("none/.wh..wh..opq", ""),
                    file("f/.wh.x", ""),
                ],
            ],
            vec!["f=lower"],
        ),
        (
            "an opaque root",
            vec![
                vec![file("a/x", "lower"), link("l", "a")],
                vec![file("a/y", "upper"), file(".wh..wh..opq", "")],
            ],
            vec!["a/", "a/y=upper"],
        ),
    ]
}

#[test]
fn layers_give_the_tree_that_other_readers_give() {
    for (name, layers, wanted) in through_links().into_iter().chain(around_links()) {
        let place = place();
        for layer in layers {
            let options = Options {
                is_layer: true,
                ..Options::default()
            };
            let report = place.unpack_with(&archive(&layer), options);
            assert_eq!(report.unwrap().skipped, [], "{name}");
        }
        assert!(place.is_intact(), "{name}");
        assert_eq!(tree(&place), wanted, "{name}");
    }
}

#[test]
fn what_has_no_place_ends_the_call_by_its_name() {
    let place = place();
    for (entries, wanted) in [
        (
            vec![link("loop", "loop"), file("loop/x", "")],
            "loop/x: this entry has links",
        ),
        (
            vec![link("a", "b"), link("b", "a"), hard("c", "a/x")],
            "c: this entry is a hard link",
        ),
        (vec![file("../x", "")], "../x: this entry leads upward"),
        (
            vec![file("f", ""), file("f/x", "")],
            "f/x: this entry has something other than",
        ),
        (
            vec![link("l", "f"), file("l/x", "")],
            "l/x: this entry has something other than",
        ),
        (
            vec![hard("h", "missing")],
            "h: this entry is a hard link to no earlier file",
        ),
        (
            vec![file(".wh..", "")],
            ".wh..: this entry is a whiteout of nothing",
        ),
        (
            vec![made(EntryType::new(b'?'), "odd", 0, "", "")],
            "odd: this entry is of an unsupported",
        ),
    ] {
        let layer = Options {
            is_layer: true,
            ..Options::default()
        };
        let error = place.unpack_with(&archive(&entries), layer).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.hint.unwrap().contains("--skip-unplaced"), "{wanted}");
    }
    // A tree has none of these, so nothing is missing.
    let report = place
        .unpack_with(
            &archive(&[
                made(EntryType::Char, "null", 0o666, "", ""),
                made(EntryType::Fifo, "fifo", 0o666, "", ""),
            ]),
            Options::default(),
        )
        .unwrap();
    assert_eq!(
        reasons(&report),
        ["null is a device node", "fifo is a named pipe"]
    );
}
