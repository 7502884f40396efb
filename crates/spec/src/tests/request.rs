//! Requests from somebody else: each field, and each refusal.

use std::path::Path;

use serde_json::{Value, json};

use super::super::load::load;
use super::super::quantity::AutoBound;
use super::super::resolve::{Ask, Mode};
use super::super::{Bytes, Command, FileSource, OnOutput, Partial, Spec, Stdin, Stdio};
use super::{ask, shown};
use record::error::Result;

/// The spec that this request gives on top of what the caller says.
fn requested(mode: Mode, caller: Partial, request: &str) -> Result<Spec, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("r.json"), request).unwrap();
    let ask = Ask {
        cwd: folder.path(),
        stdio: Stdio::Capture,
        ..ask(mode)
    };
    let spec = load(&ask, None, Some(Path::new("r.json")), caller);
    spec.map_err(|error| shown(&error).replace("read the request: ", ""))
}

#[test]
fn a_request_says_what_runs_and_with_what() {
    let request = json!({
        "language": "python", "code": "1", "name": "a.py", "args": ["x"], "stdin": "in",
        "env": {"A": "b"}, "files": [{"path": "d/e", "text": "f"}, {"path": "g", "base64": "aA=="}],
        "limits": {"wall": 1, "memory": "64M", "tmp": {"size": "1M"}, "on_output": "kill"},
    });
    let spec = requested(Mode::Run, Partial::default(), &request.to_string()).unwrap();
    assert_eq!(spec.profile, "python");
    let Command::Run {
        language,
        code,
        name,
        args,
    } = spec.command
    else {
        panic!()
    };
    assert_eq!((language.as_str(), name.as_str()), ("python", "a.py"));
    assert_eq!((code, args), ("1".into(), vec!["x".into()]));
    assert_eq!(spec.stdin, Stdin::Inline("in".into()));
    assert_eq!(spec.env["A"], "b".into());
    assert_eq!(
        spec.env["PATH"],
        "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into()
    );
    let contents = spec.files.iter().map(|file| match &file.source {
        FileSource::Inline(text) => text.clone(),
        FileSource::Host(path) => panic!("{}", path.display()),
    });
    assert_eq!(contents.collect::<Vec<_>>(), ["f".into(), "h".into()]);
    assert_eq!(spec.limits.memory, Some(Bytes::mib(64)));
    assert_eq!(spec.limits.tmp.size, Bytes::mib(1));
    assert_eq!(spec.limits.on_output, OnOutput::Kill);

    let spec = requested(Mode::Exec, Partial::default(), r#"{"argv": ["ls", "-l"]}"#).unwrap();
    assert!(matches!(spec.command, Command::Exec { argv, .. } if argv.len() == 2));
    assert_eq!(
        spec.stdin,
        Stdin::Inline("".into()),
        "the caller's is not its own"
    );
}

#[test]
fn the_ending_of_its_name_can_select_the_language() {
    let spec = requested(
        Mode::Run,
        Partial::default(),
        r#"{"code": "1", "name": "x.sh"}"#,
    );
    assert_eq!(spec.unwrap().profile, "shell");
}

#[test]
fn whatever_is_not_listed_is_refused() {
    for field in [
        "argv_file",
        "binds",
        "cgroup",
        "code_file",
        "cwd",
        "extends",
        "files_from",
        "hostname",
        "inline_files",
        "keep_tmp",
        "landlock",
        "out",
        "outer_uid",
        "policy",
        "rootfs",
        "seccomp",
        "store",
        "strict",
        "without",
        "workspace",
        "workspace_wait",
    ] {
        let error = requested(
            Mode::Run,
            Partial::default(),
            &json!({field: "x"}).to_string(),
        );
        let error = error.unwrap_err();
        assert!(
            error.starts_with(&format!("request:{field}: there is no such field")),
            "{error}"
        );
        let listed =
            "fields here: language, code, name, args, argv, stdin, env, files, limits, network";
        assert!(error.ends_with(listed), "{error}");
    }
    let file = json!({"code": "1", "files": [{"path": "x", "source": "/etc/shadow"}]});
    assert_eq!(
        requested(Mode::Run, Partial::default(), &file.to_string()).unwrap_err(),
        "request:files[0].source: there is no such field\nhint: fields here: path, text, base64, executable"
    );
}

#[test]
fn an_alias_is_the_same_language() {
    let request = r#"{"language": "python", "code": "1"}"#;
    let language = |name: &str| Partial {
        language: Some(name.to_owned()),
        ..Partial::default()
    };
    assert!(requested(Mode::Run, language("py"), request).is_ok());
    assert_eq!(
        requested(Mode::Run, language("sh"), request).unwrap_err(),
        "request:language: is \"python\", but the caller allows only \"sh\""
    );
}

#[test]
fn what_the_caller_says_stays() {
    let mut caller = Partial {
        language: Some("python".to_owned()),
        files: vec![serde_json::from_value(json!({"path": "own", "text": ""})).unwrap()],
        ..Partial::default()
    };
    caller.env.insert("TOKEN".to_owned(), "x".into());
    caller.limits.memory = Some("64M".parse().unwrap());
    caller.limits.on_output = Some(OnOutput::Kill);
    let cases: [(Value, &str); 13] = [
        (
            json!({"language": "sh"}),
            "language: is \"sh\", but the caller allows only \"python\"",
        ),
        (
            json!({"env": {"TOKEN": "y"}}),
            "env.TOKEN: is set by the caller, and a request cannot replace it",
        ),
        (
            json!({"env": {"PATH": "/tmp"}}),
            "env.PATH: is set by the caller, and a request cannot replace it",
        ),
        (
            json!({"files": [{"path": "./own", "text": "y"}]}),
            "files[0].path: is `own`, a file of the caller's, and a request cannot replace it",
        ),
        (
            json!({"limits": {"memory": "65M"}}),
            "limits.memory: is 65M, but the caller allows at most 64M",
        ),
        (
            json!({"limits": {"memory": "none"}}),
            "limits.memory: is none, but the caller allows at most 64M",
        ),
        // What is chosen is at least this, and no request may choose more.
        (
            json!({"limits": {"data": "65M"}}),
            "limits.data: is 65M, but the caller allows at most 64M",
        ),
        (
            json!({"limits": {"data": "none"}}),
            "limits.data: is none, but the caller allows at most 64M",
        ),
        (
            json!({"limits": {"open_files": 257}}),
            "limits.open_files: is 257, but the caller allows at most 256",
        ),
        (
            json!({"limits": {"wall": "1h"}}),
            "limits.wall: is 1h, but the caller allows at most 30s",
        ),
        // Without a grace of the caller's, a request cannot outlast the wall time.
        (
            json!({"limits": {"grace": "1s"}}),
            "limits.grace: is 1s, but the caller allows at most none",
        ),
        (
            json!({"limits": {"tmp": {"inodes": 9000}}}),
            "limits.tmp.inodes: is 9000, but the caller allows at most 8192",
        ),
        (
            json!({"limits": {"on_output": "truncate"}}),
            "limits.on_output: is \"truncate\", but the caller allows only \"kill\"",
        ),
    ];
    for (mut request, wanted) in cases {
        request["code"] = "1".into();
        let error = requested(Mode::Run, caller.clone(), &request.to_string()).unwrap_err();
        assert_eq!(error, format!("request:{wanted}"));
    }
    caller.limits.data = Some(AutoBound::Given(Some(Bytes::mib(100))));
    let chosen = json!({"code": "1", "limits": {"data": "auto"}});
    let error = requested(Mode::Run, caller.clone(), &chosen.to_string()).unwrap_err();
    let wanted = "request:limits.data: is auto, but the caller allows at most 100M";
    assert_eq!(error, wanted);
    caller.limits.data = Some(AutoBound::Auto);
    assert!(requested(Mode::Run, caller.clone(), &chosen.to_string()).is_ok());
    caller.limits.memory = Some("none".parse().unwrap());
    let unbounded = json!({"code": "1", "limits": {"memory": "none"}});
    assert!(requested(Mode::Run, caller.clone(), &unbounded.to_string()).is_ok());

    caller.code = Some("own".into());
    for field in ["code", "name", "args"] {
        let value = if field == "args" {
            json!(["x"])
        } else {
            json!("x")
        };
        let request = json!({field: value}).to_string();
        let error = requested(Mode::Run, caller.clone(), &request).unwrap_err();
        let wanted = format!("request:{field}: the caller says what runs, so a request cannot");
        assert_eq!(error, wanted);
    }
    let input_only = requested(Mode::Run, caller, r#"{"stdin": "x"}"#).unwrap();
    assert!(matches!(input_only.command, Command::Run { code, .. } if code == "own".into()));
}

#[test]
fn hostile_requests_are_refused() {
    let long = "x".repeat(17 << 20);
    let lists = |count: usize| format!("{{\"args\": [{}0]}}", "0,".repeat(count));
    let cases: [(String, &str); 15] = [
        (
            json!({"code": long}).to_string(),
            "r.json: is larger than 16M",
        ),
        (lists(300_000), "the document has more than 200000 values"),
        ("[".repeat(1000), "not valid JSON: recursion limit exceeded"),
        (
            json!({"stdin": "x".repeat((1 << 20) + 1)}).to_string(),
            "request:stdin: has 1048577 bytes, but wants at most 1M",
        ),
        (
            json!({"name": "../x"}).to_string(),
            "request:name: is \"../x\", but wants a file name of at most 255 bytes",
        ),
        (
            json!({"name": "a\u{1b}"}).to_string(),
            "wants a file name of at most 255 bytes",
        ),
        (
            json!({"code": "1", "files": [{"path": "/etc/x", "text": ""}]}).to_string(),
            "request:files[0].path: is `/etc/x`, but wants a path relative to /workspace",
        ),
        (
            json!({"code": "1", "places": [{"path": "/x", "kind": "tmpfs"}]}).to_string(),
            "request:places: there is no such field",
        ),
        (
            json!({"code": "1", "devices": [{"name": "fuse"}]}).to_string(),
            "request:devices: there is no such field",
        ),
        (
            json!({"code": "1", "env_clear": true}).to_string(),
            "request:env_clear: there is no such field",
        ),
        (
            json!({"code": "1", "files": [{"path": "../x", "text": ""}]}).to_string(),
            "request:files[0].path: is `../x`, but wants a path relative to /workspace",
        ),
        (
            json!({"code": "1", "env": {"A=B": "x"}}).to_string(),
            "request:env.\"A=B\": has a name that",
        ),
        (
            json!({"argv": ["x\0"]}).to_string(),
            "request:argv[0]: holds a NUL byte",
        ),
        (
            "{\"code\": \"1\", \"code\": \"2\"}".to_owned(),
            "\"code\" is given twice in one table",
        ),
        (
            "\u{1}".to_owned(),
            "request:line 1, column 1: not valid JSON",
        ),
    ];
    for (request, wanted) in cases {
        let error = requested(Mode::Run, Partial::default(), &request).unwrap_err();
        assert!(
            error.contains(wanted),
            "{wanted}: {}",
            error.chars().take(300).collect::<String>()
        );
    }
}
