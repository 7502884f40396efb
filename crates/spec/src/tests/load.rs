//! Files: profiles and what they build on, spec files, code.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::load::{load, read_text};
use super::super::profiles::chain;
use super::super::resolve::{Ask, Mode};
use super::super::{Bytes, Command, Partial, Spec};
use super::{ask, shown};
use record::error::{Result, SetupError, Step};

/// The chain of a profile among these files, or the error.
fn chained(name: &str, files: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let files: BTreeMap<&Path, &str> = files
        .iter()
        .map(|(path, text)| (Path::new(*path), *text))
        .collect();
    let read = |path: &Path| match files.get(path) {
        Some(text) => Ok((*text).to_owned()),
        None => Err(SetupError::new(Step::Spec, "no such file").on(path.display())),
    };
    match chain(name, Path::new("/home/u"), &read) {
        Ok(layers) => Ok(layers
            .iter()
            .map(|layer| layer.origin.to_string())
            .collect()),
        Err(error) => Err(shown(&error)),
    }
}

#[test]
fn profiles_build_on_each_other() {
    let files = [
        ("/home/u/own.toml", "extends = \"base/b.toml\""),
        ("/home/u/base/b.toml", "extends = \"../c.toml\""),
        ("/home/u/base/../c.toml", "extends = \"strict\""),
        ("/home/u/alone.toml", "cwd = \"/\""),
    ];
    for (name, wanted) in [
        ("default", &["default"][..]),
        ("python", &["default", "python"]),
        ("alone.toml", &["default", "/home/u/alone.toml"]),
        ("/home/u/alone.toml", &["default", "/home/u/alone.toml"]),
        (
            "./own.toml",
            &[
                "default",
                "strict",
                "/home/u/base/../c.toml",
                "/home/u/base/b.toml",
                "/home/u/own.toml",
            ],
        ),
    ] {
        assert_eq!(chained(name, &files).unwrap(), wanted, "{name}");
    }
}

#[test]
fn profiles_that_cannot_be_used_say_why() {
    let files = [
        ("/home/u/a.toml", "extends = \"b.toml\""),
        ("/home/u/b.toml", "extends = \"./a.toml\""),
        ("/home/u/self.toml", "extends = \"x/../self.toml\""),
        ("/home/u/typo.toml", "extends = \"pyhton\""),
        ("/home/u/gone.toml", "extends = \"./none.toml\""),
        ("/home/u/job.toml", "argv = [\"ls\"]"),
        ("/home/u/bad.toml", "limits.memroy = 1"),
        ("/home/u/bad2.toml", "= 1"),
    ];
    for (name, wanted) in [
        (
            "pyhton",
            "there is no profile `pyhton`; did you mean `python`?\nhint: built in: default, strict, ",
        ),
        (
            "zzz",
            "there is no profile `zzz`\nhint: built in: default, strict, ",
        ),
        (
            "typo.toml",
            "/home/u/typo.toml:extends: there is no profile `pyhton`; did you mean `python`?\nhint: built in: default, strict, ",
        ),
        (
            "a.toml",
            "/home/u/a.toml:extends: extends itself\nhint: break this circle: /home/u/a.toml -> /home/u/b.toml -> /home/u/a.toml",
        ),
        ("gone.toml", "/home/u/none.toml: no such file"),
        (
            "job.toml",
            "/home/u/job.toml:argv: belongs in a spec file (--spec): a profile describes how to run, not what",
        ),
        (
            "bad.toml",
            "/home/u/bad.toml:limits.memroy: there is no such field; did you mean `memory`?\nhint: fields here: wall, grace, cpu_time, cpus, memory, processes, open_files, data, file_size, address_space, stack, output, results, net_sent, net_received, connections, connections_total, connection_rate, dns_queries, on_output, tmp, workspace, shm",
        ),
        (
            "bad2.toml",
            "/home/u/bad2.toml:line 1, column 1: not valid TOML: unquoted keys cannot be empty",
        ),
    ] {
        let error = chained(name, &files).unwrap_err();
        assert!(
            error.starts_with(&format!("read the request: {wanted}")),
            "{name}: {error}"
        );
    }
}

#[test]
fn a_circle_that_never_spells_itself_the_same_way_ends() {
    let read = |_: &Path| Ok("extends = \"x/../self.toml\"".to_owned());
    let error = chain("self.toml", Path::new("/"), &read).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("builds on more than 16 profiles"),
        "{error}"
    );
}

/// Loads in a directory with these files.
fn loaded(
    mode: Mode,
    files: &[(&str, &str)],
    spec: Option<&str>,
    flags: Partial,
) -> Result<Spec, String> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let ask = Ask {
        cwd: directory.path(),
        ..ask(mode)
    };
    let result = load(&ask, spec.map(Path::new), None, flags);
    let here = format!("{}/", directory.path().display());
    result.map_err(|error| shown(&error).replace(&here, ""))
}

#[test]
fn profile_spec_file_and_flags_stack_up() {
    let files = [
        (
            "own.toml",
            "extends = \"strict\"\nhostname = \"p\"\ncwd = \"/p\"",
        ),
        (
            "jobs/job.json",
            r#"{"policy": "../own.toml", "argv": ["ls"], "cwd": "/s", "limits": {"memory": "64M"}}"#,
        ),
    ];
    let mut flags = Partial::default();
    flags.limits.memory = Some("32M".parse().unwrap());
    let spec = loaded(Mode::Exec, &files, Some("jobs/job.json"), flags).unwrap();
    assert_eq!(spec.profile, "../own.toml");
    assert_eq!(spec.hostname, "p");
    assert_eq!(spec.cwd, Path::new("/s"));
    assert_eq!(spec.limits.memory, Some(Bytes::mib(32)));
    assert!(spec.strict);

    let flags = Partial {
        extends: Some("default".to_owned()),
        ..Partial::default()
    };
    let spec = loaded(Mode::Exec, &files, Some("jobs/job.json"), flags).unwrap();
    assert_eq!((spec.profile.as_str(), spec.strict), ("default", false));
}

#[test]
fn code_comes_from_its_file_and_chooses_the_profile() {
    let flags = Partial {
        code_file: Some("a.py".into()),
        ..Partial::default()
    };
    let spec = loaded(Mode::Run, &[("a.py", "print()")], None, flags.clone()).unwrap();
    assert_eq!(spec.profile, "python");
    let Command::Run {
        language,
        code,
        name,
        ..
    } = spec.command
    else {
        panic!()
    };
    assert_eq!((language.as_str(), name.as_str()), ("python", "a.py"));
    assert_eq!(code, "print()".into());

    let job = [("j.toml", "language = \"sh\"\ncode = \"ls\"")];
    let spec = loaded(Mode::Run, &job, Some("j.toml"), Partial::default()).unwrap();
    assert_eq!(spec.profile, "shell");

    let error = loaded(Mode::Run, &[], None, flags).unwrap_err();
    assert_eq!(
        error.lines().next().unwrap(),
        "read the request: open(\"a.py\"): ENOENT (no such file or directory)"
    );
}

#[test]
fn files_of_a_request_that_are_wrong_are_named() {
    for (files, spec, wanted) in [
        (
            &[("j.toml", "limits.memory = 1")][..],
            "j.toml",
            "j.toml:limits.memory: is 1, but wants 4M or more, or none",
        ),
        (
            &[("j.toml", "limits.memroy = 1")],
            "j.toml",
            "j.toml:limits.memroy: there is no such field; did you mean `memory`?",
        ),
        (
            &[("j.json", "{")],
            "j.json",
            "j.json:line 1, column 1: not valid JSON: EOF while parsing an object",
        ),
        (&[("j", "{ \"x\": 1 }")], "j", "j:x: there is no such field"),
        (
            &[("j.toml", "extends = \"zzz\"")],
            "j.toml",
            "j.toml:extends: there is no profile `zzz`",
        ),
        (
            &[
                ("j.toml", "extends = \"p.toml\""),
                ("p.toml", "cwd = \"../x\""),
            ],
            "j.toml",
            "p.toml:cwd: is `/workspace/../x`, but wants an absolute path without `..` or NUL",
        ),
        (
            &[],
            "j.toml",
            "open(\"j.toml\"): ENOENT (no such file or directory)",
        ),
        (
            &[("j.toml", "code = \"1\"\ncode_file = \"x.py\"")],
            "j.toml",
            "j.toml:code_file: is given next to `code`, but only one can run",
        ),
    ] {
        let flags = Partial {
            argv: None,
            ..Partial::default()
        };
        let error = loaded(Mode::Exec, files, Some(spec), flags).unwrap_err();
        assert_eq!(
            error.lines().next().unwrap(),
            format!("read the request: {wanted}")
        );
    }
    let flags = Partial {
        extends: Some("zzz".to_owned()),
        ..Partial::default()
    };
    let error = loaded(Mode::Exec, &[], None, flags).unwrap_err();
    assert!(
        error.starts_with("read the request: --policy: there is no profile `zzz`"),
        "{error}"
    );
}

#[test]
fn files_that_cannot_be_read_say_what_can() {
    let flags = |file: &str| Partial {
        code_file: Some(file.into()),
        ..Partial::default()
    };
    for (file, wanted) in [
        (
            "gone.py",
            "open(\"gone.py\"): ENOENT (no such file or directory)\nhint: name a file that exists on the host",
        ),
        (".", "read(\".\"): EISDIR (is a directory)"),
    ] {
        let error = loaded(Mode::Run, &[], None, flags(file)).unwrap_err();
        assert_eq!(error, format!("read the request: {wanted}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("j.toml");
    std::fs::write(&path, b"cwd = \"\xff\"").unwrap();
    let error = read_text(&path).unwrap_err();
    assert_eq!(error.message, "is not UTF-8 text at byte 7");
    assert_eq!(error.operand.unwrap(), path.display().to_string());
}
