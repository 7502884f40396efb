//! What comes of several layers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::super::language::choose;
use super::super::partial::{CodeFrom, PartialBind, PartialPlace, PlaceKind};
use super::super::profiles::{built_in, chain};
use super::super::quantity::Bound;
use super::super::read::{Format, parse};
use super::super::resolve::{Mode, Origin, resolve};
use super::super::{
    Bytes, CgroupChoice, Command, FileSource, Network, Partial, PortRule, RootfsRef, Stdin,
};
use super::{ask, resolved, shown};
use languages::TABLE;
use record::bytes::RawText;

fn toml(text: &str) -> Partial {
    parse::<Partial>(text, Format::Toml).unwrap()
}

#[test]
fn every_built_in_profile_makes_a_complete_request() {
    for profile in built_in() {
        let layers = chain(profile.name, Path::new("/"), &|_| unreachable!()).unwrap();
        for layer in &layers {
            assert_eq!(layer.faults(), [], "{}", layer.origin);
            assert!(layer.partial.description.is_some(), "{}", layer.origin);
        }
        let mut ask = ask(Mode::Exec);
        ask.cwd = Path::new("/");
        let mut layers = layers;
        layers.push(super::SpecLayer {
            origin: Origin::Flags,
            partial: toml("argv = [\"true\"]"),
        });
        resolve(layers, profile.name.to_owned(), &ask).unwrap();
    }
}

#[test]
fn strict_leaves_no_tcp_no_execution_and_no_fallbacks() {
    let mut layers = chain("strict", Path::new("/"), &|_| unreachable!()).unwrap();
    layers.push(super::SpecLayer {
        origin: Origin::Flags,
        partial: toml("argv = [\"true\"]"),
    });
    let spec = resolve(layers, "strict".to_owned(), &ask(Mode::Exec)).unwrap();
    assert!(spec.strict);
    assert_eq!(spec.network, Network::None);
    assert!(!spec.landlock.exec_writable);
    let nothing = PortRule::Ports {
        connect: vec![],
        bind: vec![],
    };
    assert_eq!(spec.landlock.tcp, nothing);
    assert_eq!(spec.seccomp, "strict");
}

#[test]
fn the_later_layer_wins_and_keyed_things_add_up() {
    let merged = toml(
        "cwd = \"/a\"
         hostname = \"one\"
         without = [\"proc\"]
         binds = [{ source = \"/1\", target = \"/x\" }, { source = \"/2\", target = \"/y\" }]
         files = [{ path = \"f\", text = \"1\" }, { path = \"g\", text = \"2\" }]
         env = { A = \"1\", B = \"2\" }
         limits = { memory = \"64M\", processes = 8, tmp = { size = \"1M\", inodes = 99 } }
         landlock.tcp.connect = [80]",
    )
    .merge(toml(
        "hostname = \"two\"
         without = [\"seccomp\"]
         binds = [{ source = \"/3\", target = \"/x\", writable = true }]
         files = [{ path = \"g\", text = \"3\" }]
         env = { B = \"3\", C = \"4\" }
         limits = { memory = \"none\", tmp = { size = \"2M\" } }
         landlock.tcp.bind = [81]",
    ));
    let wanted = toml(
        "cwd = \"/a\"
         hostname = \"two\"
         without = [\"proc\", \"seccomp\"]
         binds = [{ source = \"/2\", target = \"/y\" }, { source = \"/3\", target = \"/x\", writable = true }]
         files = [{ path = \"f\", text = \"1\" }, { path = \"g\", text = \"3\" }]
         env = { A = \"1\", B = \"3\", C = \"4\" }
         limits = { memory = \"none\", processes = 8, tmp = { size = \"2M\", inodes = 99 } }
         landlock.tcp = { connect = [80], bind = [81] }",
    );
    assert_eq!(format!("{merged:?}"), format!("{wanted:?}"));
}

#[test]
fn a_later_command_replaces_all_of_the_earlier_one() {
    let merged = toml("code = \"1\"\nargs = [\"a\"]\nlanguage = \"python\"")
        .merge(toml("code_file = \"b.py\""));
    assert_eq!((merged.code, merged.args), (None, None));
    assert_eq!(merged.code_file, Some("b.py".into()));
    assert_eq!(merged.language.as_deref(), Some("python"));
    let merged = toml("argv = [\"a\"]").merge(toml("cwd = \"/\""));
    assert!(merged.argv.is_some());
}

#[test]
fn a_request_is_resolved_field_by_field() {
    let partial = toml(
        "rootfs = \"./root\"
         cgroup = \"/sys/fs/cgroup/x\"
         out = \"results\"
         limits = { wall = 1.5, cpus = 2, memory = 8388608, processes = \"none\" }
         binds = [{ source = \"data\" }, { source = \"../v\", target = \"/v\", writable = true }]
         files = [
           { path = \"./a/b\", source = \"b\" },
           { path = \"c\", text = \"x\" },
           { path = \"d\", base64 = \"/w==\" },
         ]
         landlock = { tcp = { connect = [443] }, udp = { bind = [53] } }",
    );
    let spec = resolved(partial, Origin::Flags).unwrap();
    assert_eq!(spec.rootfs, RootfsRef::Dir("/home/u/./root".into()));
    assert_eq!(spec.cgroup, CgroupChoice::Path("/sys/fs/cgroup/x".into()));
    assert_eq!(spec.out, Some("/home/u/results".into()));
    assert_eq!(spec.limits.wall, Some(Duration::from_millis(1500)));
    assert_eq!(spec.limits.cpus, Some(2.0));
    assert_eq!(spec.limits.memory, Some(Bytes::mib(8)));
    assert_eq!(spec.limits.processes, None);
    let binds: Vec<(&Path, &Path, bool)> = spec
        .binds
        .iter()
        .map(|b| (b.source.as_path(), b.target.as_path(), b.writable))
        .collect();
    let data = Path::new("/home/u/data");
    let up = Path::new("/home/u/../v");
    assert_eq!(binds, [(data, data, false), (up, Path::new("/v"), true)]);
    let files: Vec<(&Path, String)> = spec
        .files
        .iter()
        .map(|file| (file.target.as_path(), format!("{:?}", file.source)))
        .collect();
    let host = FileSource::Host(PathBuf::from("/home/u/b"));
    let inline = |bytes: &[u8]| FileSource::Inline(bytes.to_vec().into());
    let wanted = [("a/b", host), ("c", inline(b"x")), ("d", inline(b"\xff"))];
    let wanted = wanted.map(|(path, source)| (Path::new(path), format!("{source:?}")));
    assert_eq!(files, wanted);
    assert_eq!(
        spec.landlock.tcp,
        PortRule::Ports {
            connect: vec![443],
            bind: vec![]
        }
    );
    assert_eq!(
        spec.landlock.udp,
        PortRule::Ports {
            connect: vec![],
            bind: vec![53]
        }
    );
}

#[test]
fn two_layers_cannot_put_two_things_at_one_path() {
    let mut layers = chain("default", Path::new("/"), &|_| unreachable!()).unwrap();
    let texts = [
        "places = [{ path = \"/x\", kind = \"tmpfs\" }]",
        "argv = [\"true\"]\nbinds = [{ source = \"/srv\", target = \"/x\" }]",
    ];
    for text in texts {
        layers.push(super::SpecLayer {
            origin: Origin::Flags,
            partial: toml(text),
        });
    }
    let error = resolve(layers, "default".to_owned(), &ask(Mode::Exec)).unwrap_err();
    assert_eq!(
        shown(&error),
        "read the request: places[0].path: is `/x`, where something else goes\n\
         hint: the profile, the spec file and the flags put two things there"
    );
}

#[test]
fn a_file_goes_where_its_path_says() {
    let partial = toml(
        "cwd = \"a/b\"
         env_clear = true
         env = { A = \"1\" }
         files = [{ path = \"/workspace/./a\", text = \"1\" }, { path = \"/etc/b\", text = \"2\" }]",
    );
    let spec = resolved(partial, Origin::Flags).unwrap();
    assert_eq!(spec.cwd, Path::new("/workspace/a/b"));
    assert_eq!(spec.files[0].target, Path::new("a"));
    assert_eq!(spec.read_only_files[0].path, Path::new("/etc/b"));
    assert_eq!(spec.env.keys().collect::<Vec<_>>(), ["A"]);
}

fn run_spec(partial: Partial) -> Result<(String, String, Stdin), String> {
    let mut layers = chain("default", Path::new("/"), &|_| unreachable!()).unwrap();
    layers.push(super::SpecLayer {
        origin: Origin::Flags,
        partial,
    });
    let spec = resolve(layers, "default".to_owned(), &ask(Mode::Run)).map_err(|e| shown(&e))?;
    match spec.command {
        Command::Run { language, name, .. } => Ok((language, name, spec.stdin)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn code_gets_a_name_and_standard_input_is_read_once() {
    let mut partial = toml("code = \"1\"\nlanguage = \"py\"");
    let named = |name: &str, stdin| Ok(("python".to_owned(), name.to_owned(), stdin));
    assert_eq!(run_spec(partial.clone()), named("main.py", Stdin::Inherit));
    partial.code_from = Some(CodeFrom::Stdin);
    assert_eq!(run_spec(partial.clone()), named("main.py", Stdin::Null));
    partial.code_from = Some(CodeFrom::File("/a/job.txt".into()));
    assert_eq!(run_spec(partial), named("job.txt", Stdin::Inherit));
}

#[test]
fn a_request_for_the_other_command_says_so() {
    let error = run_spec(toml("argv = [\"ls\"]")).unwrap_err();
    assert_eq!(
        error,
        "read the request: there is no code to run\n\
         hint: the request holds `argv`, which `cellblock exec` runs"
    );
    let mut layers = chain("default", Path::new("/"), &|_| unreachable!()).unwrap();
    layers.push(super::SpecLayer {
        origin: Origin::Flags,
        partial: toml("code = \"1\""),
    });
    let error = resolve(layers, "default".to_owned(), &ask(Mode::Exec)).unwrap_err();
    assert_eq!(
        shown(&error),
        "read the request: there is no program to run\n\
         hint: the request holds code, which `cellblock run` runs"
    );
}

#[test]
fn what_no_profile_sets_is_named() {
    let partial = toml("argv = [\"x\"]\nlandlock = { tcp = \"any\", udp = \"any\" }");
    let layers = vec![super::SpecLayer {
        origin: Origin::Flags,
        partial,
    }];
    let error = resolve(layers, "x".to_owned(), &ask(Mode::Exec)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "read the request: landlock.min_abi: no profile sets this field"
    );
}

#[test]
fn a_language_has_names_extensions_and_interpreters() {
    for (named, file, code, wanted) in [
        (Some("python"), Some("x.sh"), "", "python"),
        (Some("shell"), None, "", "bash"),
        (None, Some("a/b.py"), "#!/bin/sh", "python"),
        (None, Some("script"), "#!/bin/sh -e\n", "bash"),
        (None, None, "#!/usr/bin/env python3\n", "python"),
        (
            None,
            None,
            "#!/usr/bin/env -S A=b python3.11 -I\n",
            "python",
        ),
        (None, None, "#! /usr/local/bin/bash", "bash"),
        (None, None, "#!/usr/bin/env -Spython3 -I\n", "python"),
        (
            None,
            None,
            "#!/usr/bin/env -S -i /opt/bin/python3\n",
            "python",
        ),
        (Some("PyThon"), None, "", "python"),
        (None, Some("A.PY"), "", "python"),
        (None, None, "print(1)", "python"),
    ] {
        let what = Partial {
            code: Some(code.into()),
            code_from: file.map(|file| CodeFrom::File(file.into())),
            ..Partial::default()
        };
        let language = choose(named, &what).unwrap();
        assert_eq!(language.name, wanted, "{named:?} {file:?} {code:?}");
    }
    let known: Vec<&str> = TABLE.iter().map(|driver| driver.name).collect();
    let known = known.join(", ");
    for (named, file, code, wanted) in [
        (
            Some("pyton"),
            None,
            "",
            "unknown language `pyton`; did you mean `python`?\nhint: ",
        ),
        (
            None,
            Some("a.rs"),
            "",
            "no language here has files with `.rs`\nhint: name it with --lang; ",
        ),
        (
            None,
            Some("a"),
            "#!/usr/bin/perl\n",
            "no language here has the interpreter `perl`\nhint: name it with --lang; ",
        ),
        (
            None,
            None,
            "#!/usr/bin/env pyhton3\n",
            "no language here has the interpreter `pyhton3`; did you mean `python3`?\nhint: name it with --lang; ",
        ),
        (
            None,
            None,
            "#!\n",
            "neither a file name nor a `#!` line shows the language\nhint: name it with --lang; ",
        ),
        (
            None,
            None,
            "#!/usr/bin/env -S\n",
            "neither a file name nor a `#!` line shows the language\nhint: name it with --lang; ",
        ),
    ] {
        let what = Partial {
            code: Some(code.into()),
            code_from: file.map(|file: &str| CodeFrom::File(file.into())),
            ..Partial::default()
        };
        let error = choose(named, &what).unwrap_err();
        assert_eq!(
            shown(&error),
            format!("read the request: language: {wanted}languages here: {known}")
        );
    }
}

fn bind() -> impl Strategy<Value = PartialBind> {
    ("[a-c]", proptest::option::of("/[a-c]"), any::<bool>()).prop_map(
        |(source, target, writable)| PartialBind {
            source: source.into(),
            target: target.map(Into::into),
            writable,
            optional: false,
        },
    )
}

prop_compose! {
    fn partial()(
        cwd in proptest::option::of("/[a-z]{1,3}"),
        memory in proptest::option::of(proptest::option::of(any::<u64>())),
        cpus in proptest::option::of(proptest::option::of(any::<u16>())),
        size in proptest::option::of(any::<u64>()),
        env in proptest::collection::btree_map("[A-C]", "\\PC{0,3}", 0..3),
        env_clear in proptest::option::of(any::<bool>()),
        env_unset in proptest::collection::btree_set("[A-C]", 0..2),
        places in proptest::collection::btree_set("/[a-c]", 0..2),
        binds in proptest::collection::vec(bind(), 0..3),
        argv in proptest::option::of(proptest::collection::vec(any::<Vec<u8>>(), 1..3)),
    ) -> Partial {
        let mut partial = Partial {
            cwd: cwd.map(Into::into),
            binds,
            env_clear,
            env_unset,
            places: places.into_iter().map(|path| PartialPlace {
                path: path.into(),
                kind: PlaceKind::Tmpfs,
                size: size.map(Bytes),
                to: None,
            }).collect(),
            env: env.into_iter().map(|(name, value)| (name, value.into())).collect(),
            argv: argv.map(|argv| argv.into_iter().map(RawText::from).collect()),
            ..Partial::default()
        };
        partial.limits.memory = memory.map(|memory| Bound(memory.map(Bytes)));
        partial.limits.cpus = cpus.map(|cpus| Bound(cpus.map(|n| f64::from(n) / 4.0)));
        partial.limits.tmp.size = size.map(Bytes);
        partial
    }
}

proptest! {
    #[test]
    fn a_partial_survives_json_and_toml(partial in partial()) {
        let json = serde_json::to_string(&partial).unwrap();
        let back = parse::<Partial>(&json, Format::Json).unwrap();
        prop_assert_eq!(format!("{back:?}"), format!("{partial:?}"));
        let toml = toml::to_string(&partial).unwrap();
        let back = parse::<Partial>(&toml, Format::Toml).unwrap();
        prop_assert_eq!(format!("{back:?}"), format!("{partial:?}"));
    }

    #[test]
    fn an_empty_layer_changes_nothing(partial in partial()) {
        let below = Partial::default().merge(partial.clone());
        let above = partial.clone().merge(Partial::default());
        prop_assert_eq!(format!("{below:?}"), format!("{partial:?}"));
        prop_assert_eq!(format!("{above:?}"), format!("{partial:?}"));
    }

    #[test]
    fn it_does_not_matter_which_layers_are_merged_first(
        a in partial(), b in partial(), c in partial(),
    ) {
        let left = a.clone().merge(b.clone()).merge(c.clone());
        let right = a.merge(b.merge(c));
        prop_assert_eq!(format!("{left:?}"), format!("{right:?}"));
    }
}

#[test]
fn protected_paths_add_up_and_can_be_taken_away() {
    let layer = |protect: &[&str], unprotect: &[&str]| {
        let mut partial = Partial {
            protect: protect.iter().map(PathBuf::from).collect(),
            unprotect: unprotect.iter().map(PathBuf::from).collect(),
            ..Partial::default()
        };
        partial.root_at(Path::new("/elsewhere"));
        partial
    };
    let merged = layer(&["a", "b/", "/data/c"], &[]).merge(layer(&["d"], &["./b"]));
    let expected = ["a", "/data/c", "d"].map(PathBuf::from);
    assert_eq!(merged.protect, expected);
    let merged = layer(&["a", "b"], &[]).merge(layer(&[], &["/workspace/a"]));
    assert_eq!(merged.protect, ["b"].map(PathBuf::from));
}
